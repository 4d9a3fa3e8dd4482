"""What must hold, 18: what callers are spared, and what they are given."""

import asyncio
import inspect
import time
from collections.abc import Mapping
from typing import Any

import pytest
from tests.ecosystem.host.agent.places import (
    TENANT,
    Answer,
    Charge,
    Model,
    Place,
    ask,
    call,
    ends,
    kinds,
    requests,
    stands,
)

import gert.agent as api
from gert.agent import (
    ArtanaKernel,
    BoundRun,
    CapabilityDeniedError,
    GertError,
    HarnessStagePayload,
    MockModelPort,
    ModelInput,
    RunError,
    TenantContext,
    ToolExecutionContext,
    ToolExecutionFailedError,
    ToolPermanentError,
    ToolTransientError,
)
from gert.errors import InputError, TraceError

EXPORTED = [getattr(api, name) for name in api.__all__]
ERRORS = [each for each in EXPORTED if inspect.isclass(each) and issubclass(each, BaseException)]


class TestPoint18Errors:
    """Every error derives from one base class."""

    @pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
    def test_it_is_one_of_ours_and_what_the_contract_calls_it(self, kind: type[BaseException]) -> None:
        assert issubclass(kind, GertError)
        if kind is CapabilityDeniedError:
            assert issubclass(kind, PermissionError)
        elif kind is not GertError:
            assert issubclass(kind, RuntimeError)

    def test_the_base_class_catches_what_a_kernel_raises(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                for step in (
                    lambda: ask(kernel, "x", "q"),
                    lambda: call(kernel, "x", "nobody", {}),
                    lambda: kernel.start_run(tenant=TENANT, run_id="no good"),
                ):
                    with pytest.raises(GertError):
                        await step()
                with pytest.raises(GertError):
                    kernel.canonicalize_tool_args(tool_name="nobody", arguments={})

        asyncio.run(scenario())


class TestPoint18Life:
    """`async with` works for kernel and stores."""

    def test_a_store_and_a_kernel_are_closed_when_they_are_left(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.store() as store:
                kernel = ArtanaKernel(store=store, model_port=Model())
                await kernel.start_run(tenant=TENANT, run_id="r")
            for use in (
                lambda: kernel.start_run(tenant=TENANT, run_id="s"),
                lambda: kernel.get_run_status(run_id="r"),
                store.list_run_ids,
            ):
                with pytest.raises(GertError):
                    await use()
            await store.close()
            await kernel.close()

        asyncio.run(scenario())

    def test_it_is_closed_also_after_an_error(self, durable: Place) -> None:
        async def scenario() -> None:
            kernel = durable.kernel()

            async def fail() -> None:
                async with kernel:
                    await kernel.start_run(tenant=TENANT, run_id="r")
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await fail()
            with pytest.raises(GertError):
                await kernel.get_run_status(run_id="r")

        asyncio.run(scenario())

    @pytest.mark.parametrize("kind", ["sqlite", "postgres"])
    def test_it_belongs_to_one_event_loop_and_says_so(
        self, request: pytest.FixtureRequest, tmp_path: Any, kind: str
    ) -> None:
        kernel = stands(request, kind, tmp_path).kernel()
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(kernel.start_run(tenant=TENANT, run_id="r"))
            with pytest.raises(TraceError, match="another event loop"):
                asyncio.run(kernel.get_run_status(run_id="r"))
            assert loop.run_until_complete(kernel.get_run_status(run_id="r")).status == "active"
            loop.run_until_complete(kernel.close())
        finally:
            loop.close()


class TestPoint18Handle:
    """A run-bound handle spares callers repeating `run_id` and `tenant`."""

    def test_all_of_a_run_by_its_handle(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:

                @kernel.tool(side_effect=True)
                async def charge(amount: int, artana_context: ToolExecutionContext) -> int:
                    return amount

                async with kernel.run(tenant=TENANT) as run:
                    assert isinstance(run, BoundRun)
                    assert (await run.model("mock", "q", Answer, step_key="k")).output.text == "q!"
                    messages = ModelInput.from_prompt("other")
                    assert (await run.model("mock", messages, Answer, step_key="m")).output.text == "other!"
                    assert (await run.tool("charge", Charge(amount=3), step_key="c")).result_json == "3"
                    assert await run.reconcile("charge", {"amount": 3}, step_key="c") == "3"
                    await run.checkpoint("here", {"a": 1})
                    await run.set_artifact("plan", [1])
                    assert await run.get_artifact("plan") == [1]
                    await run.pause("wait")
                    assert (await run.status()).status == "paused"
                    await run.resume()
                    await run.block("audit", "key", {"a": 1})
                    assert (await run.resume_point()).blocked_on == "unblock:key"
                    await run.unblock("key")
                    assert (await run.progress()).status == "running"
                async with kernel.run(tenant=TENANT, run_id=run.run_id) as again:
                    assert (await again.model("mock", "q", Answer, step_key="k")).replayed
                bound = kernel.bind(run_id=run.run_id, tenant=TENANT)
                assert (await bound.model("mock", "q", Answer, step_key="k")).replayed

        asyncio.run(scenario())

    def test_an_id_is_made_where_none_is_given_and_ids_sort_by_time(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                ids = [(await kernel.start_run(tenant=TENANT)).run_id for _ in range(5)]
                assert len(set(ids)) == 5
                assert (await kernel.load_run(run_id=ids[0])).tenant_id == "acme"
                with pytest.raises(RunError):
                    await kernel.start_run(tenant=TENANT, run_id=ids[0])

        asyncio.run(scenario())


class TestPoint18Streaming:
    """Models stream tokens."""

    def test_pieces_are_told_while_they_come_and_a_replay_tells_nothing(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel(MockModelPort(output={"text": "one two three"})) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                pieces: list[str] = []

                async def later(piece: str) -> None:
                    pieces.append(piece)

                live = await ask(kernel, "r", "q", "k", on_token=later)
                assert "".join(pieces) == live.output.model_dump_json()
                assert len(pieces) > 1
                pieces.clear()
                again = await ask(kernel, "r", "q", "k", on_token=pieces.append)
                assert (again.replayed, pieces) == (True, [])
                assert (await ask(kernel, "r", "q2", "k2", on_token=pieces.append)).output == live.output
                assert pieces

        asyncio.run(scenario())

    def test_who_listens_and_fails_ends_the_step_which_can_be_taken_again(self, place: Place) -> None:
        def fail(_: str) -> None:
            raise BrokenPipeError("closed")

        async def scenario() -> None:
            async with place.kernel(MockModelPort(output={"text": "one two"})) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(BrokenPipeError):
                    await ask(kernel, "r", "q", "k", on_token=fail)
                assert (await ask(kernel, "r", "q", "k")).output.text == "one two"
                assert (await kinds(kernel, "r")).count("model_failed") == 1

        asyncio.run(scenario())


class TestPoint18Tools:
    """Tools may time out and retry by declared policy; dict arguments and JSON results are accepted."""

    @pytest.mark.parametrize(
        ("side_effect", "outcome", "attempts"),
        [
            pytest.param(False, "transient_error", 3, id="without effects it is tried again"),
            pytest.param(True, "unknown_outcome", 1, id="with effects it is in doubt"),
        ],
    )
    def test_a_tool_that_takes_too_long(self, place: Place, side_effect: bool, outcome: str, attempts: int) -> None:
        async def scenario() -> None:
            calls = 0

            async def slow(artana_context: ToolExecutionContext) -> None:
                nonlocal calls
                calls += 1
                await asyncio.sleep(60)

            async with place.kernel() as kernel:
                kernel.tool(side_effect=side_effect, timeout_seconds=0.01, max_attempts=3)(slow)
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(ToolExecutionFailedError) as caught:
                    await call(kernel, "r", "slow", {}, "k")
                assert caught.value.outcome == outcome
                assert calls == attempts
                assert [end.outcome for end in ends(await kernel.get_events(run_id="r"))] == [outcome]

        asyncio.run(scenario())

    def test_a_tool_that_did_nothing_yet_is_tried_again_under_one_key(self, place: Place) -> None:
        async def scenario() -> None:
            keys: list[str] = []

            async def flaky(n: int, artana_context: ToolExecutionContext) -> int:
                keys.append(artana_context.idempotency_key)
                if len(keys) < 3:
                    raise ToolTransientError("busy")
                return n

            async with place.kernel() as kernel:
                kernel.tool(side_effect=True, max_attempts=3, backoff_seconds=0.001)(flaky)
                await kernel.start_run(tenant=TENANT, run_id="r")
                assert (await call(kernel, "r", "flaky", {"n": 4}, "k")).result_json == "4"
                assert len(keys) == 3
                assert len(set(keys)) == 1
                assert len(requests(await kernel.get_events(run_id="r"))) == 1

        asyncio.run(scenario())

    @pytest.mark.parametrize("problem", [ToolPermanentError("no"), ValueError("bug")])
    def test_what_will_not_help_is_not_tried_again(self, place: Place, problem: Exception) -> None:
        async def scenario() -> None:
            calls = 0

            async def broken() -> int:
                nonlocal calls
                calls += 1
                raise problem

            async with place.kernel() as kernel:
                kernel.tool(max_attempts=3)(broken)
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(ToolExecutionFailedError):
                    await call(kernel, "r", "broken", {}, "k")
                assert calls == 1

        asyncio.run(scenario())

    @pytest.mark.parametrize(
        "arguments", [Charge(amount=7), {"amount": 7}, '{ "amount": 7 }'], ids=["a model", "a dict", "JSON"]
    )
    def test_arguments_are_the_same_however_they_are_given(self, place: Place, arguments: Any) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:

                @kernel.tool()
                async def charge(amount: int, note: str = "none") -> dict[str, Any]:
                    return {"amount": amount, "note": note}

                await kernel.start_run(tenant=TENANT, run_id="r")
                found = await call(kernel, "r", "charge", arguments, "k")
                assert found.result_json == '{"amount":7,"note":"none"}'
                assert (await call(kernel, "r", "charge", {"amount": 7, "note": "none"}, "k")).replayed
                text, digest = kernel.canonicalize_tool_args(tool_name="charge", arguments=arguments)
                assert text == '{"amount":7,"note":"none"}'
                assert len(digest) == 64

        asyncio.run(scenario())

    @pytest.mark.parametrize(
        ("result", "expected"),
        [
            (None, "null"),
            (3, "3"),
            ([1, {"b": 1, "a": 2}], '[1,{"b":1,"a":2}]'),
            (Charge(amount=1), '{"amount":1}'),
            ({"x": Charge(amount=1)}, '{"x":{"amount":1}}'),
            (True, "true"),
        ],
    )
    def test_results_are_json_and_the_same_in_a_replay(self, place: Place, result: Any, expected: str) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:

                @kernel.tool()
                def give() -> Any:
                    return result

                await kernel.start_run(tenant=TENANT, run_id="r")
                for replayed in (False, True):
                    found = await call(kernel, "r", "give", {}, "k")
                    assert (found.result_json, found.replayed) == (expected, replayed)

        asyncio.run(scenario())

    def test_a_plain_function_does_not_stop_the_others(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:

                @kernel.tool()
                def slow() -> int:
                    time.sleep(0.1)
                    return 1

                await kernel.start_run(tenant=TENANT, run_id="r")
                step = asyncio.create_task(call(kernel, "r", "slow", {}, "k"))
                ticks = 0
                while not step.done():
                    await asyncio.sleep(0.001)
                    ticks += 1
                assert (await step).result_json == "1"
                assert ticks > 1

        asyncio.run(scenario())


class TestCapabilities:
    """What a tenant may use is described, with reasons."""

    def test_tools_are_listed_and_kept_back_with_reasons(self, place: Place) -> None:
        able = TenantContext(tenant_id="able", capabilities=frozenset({"money"}), budget_usd_limit=1)

        async def scenario() -> None:
            async with place.kernel() as kernel:

                @kernel.tool(requires_capability="money", risk_level="high", sandbox_profile="none", side_effect=True)
                async def pay(artana_context: ToolExecutionContext) -> int:
                    return 1

                @kernel.tool()
                async def look() -> int:
                    return 1

                assert [tool.name for tool in kernel.list_registered_tools()] == ["look", "pay"]
                assert [tool.name for tool in kernel.list_tools_for_tenant(tenant=TENANT)] == ["look"]
                assert [tool.name for tool in kernel.list_tools_for_tenant(tenant=able)] == ["look", "pay"]
                assert kernel.list_tools(tenant_capabilities=frozenset(), visible_tool_names={"pay"}) == ()
                assert kernel.tool_capability_map() == {"look": None, "pay": "money"}
                fingerprint = kernel.tool_fingerprint(tool_name="pay")
                assert (fingerprint.tool_version, fingerprint.schema_version) == ("1.0.0", "1")
                assert (fingerprint.risk_level, fingerprint.sandbox_profile) == ("high", "none")
                described = await kernel.describe_capabilities(tenant=TENANT, visible_tool_names={"pay"})
                assert described["allowed_tools"] == []
                assert described["filtered_tools"] == ["look", "pay"]
                assert [_reason(each) for each in described["tools"]] == [  # type: ignore[attr-defined]
                    ("look", "not_visible"),
                    ("pay", "missing_capability:money"),
                ]
                explained = await kernel.explain_tool_allowlist(tenant=able)
                assert explained["final_allowed_tools"] == ["look", "pay"]
                assert await kernel.store.list_run_ids() == []  # type: ignore[attr-defined]

        asyncio.run(scenario())

    @pytest.mark.parametrize("event", ["run_started", "tool_requested", "run_summary"])
    def test_only_events_of_a_harness_are_appended_as_such(self, place: Place, event: str) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(InputError):
                    await kernel.append_harness_event(
                        run_id="r",
                        tenant=TENANT,
                        event_type=api.EventType(event),
                        payload=HarnessStagePayload(stage="x"),
                    )
                assert await kinds(kernel, "r") == ["run_started"]

        asyncio.run(scenario())


def _reason(each: Mapping[str, Any]) -> tuple[str, str]:
    return each["tool_name"], each["reason"]
