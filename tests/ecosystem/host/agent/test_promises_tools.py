"""What must hold, 4 and 5: tools are called with what fits, what they did is on record, and no effect happens twice."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from pydantic import BaseModel
from tests.ecosystem.host.agent.places import SIZE, TENANT, Charge, Hooks, Place, call, ends, kinds, reconcile, requests

from gert.agent import (
    AgentError,
    CapabilityDeniedError,
    GertError,
    LocalToolRegistry,
    PolicyViolationError,
    PreparedToolRequest,
    ReplayConsistencyError,
    RunBlocked,
    TenantContext,
    ToolExecutionContext,
    ToolExecutionFailedError,
    ToolExecutionResult,
    ToolPermanentError,
    ToolTransientError,
    ToolUnknownOutcomeError,
)
from gert.errors import InputError


class Till:
    """Side effects, and how each call of the tool ends."""

    def __init__(self, *ends: BaseException | str | None) -> None:
        self.made: list[str] = []
        self._ends = list(ends)

    def tool(self, kernel: Any, **settings: Any) -> None:
        """Register the tool."""

        async def charge(amount: int, artana_context: ToolExecutionContext) -> dict[str, int]:
            self.made.append(artana_context.idempotency_key)
            end = self._ends.pop(0) if self._ends else None
            if isinstance(end, BaseException):
                raise end
            return {"charged": amount}

        kernel.tool(side_effect=True, **settings)(charge)


def in_doubt(error: ToolExecutionFailedError) -> bool:
    return error.in_doubt and error.outcome == "unknown_outcome"


class TestPoint4Arguments:
    """Arguments are validated before `tool_requested`."""

    @pytest.mark.parametrize(
        "arguments",
        [
            pytest.param({}, id="one is missing"),
            pytest.param({"amount": "7"}, id="text for a number"),
            pytest.param({"amount": 7, "more": 1}, id="an undeclared argument"),
            pytest.param({"amount": None}, id="null"),
            pytest.param({"amount": 1.5}, id="a fraction"),
            pytest.param('{"amount": 7', id="JSON that breaks off"),
            pytest.param("[7]", id="no object"),
            pytest.param('{"amount": 7, "amount": 8}', id="a name twice"),
            pytest.param(7, id="no object at all"),
            pytest.param(None, id="nothing"),
        ],
    )
    def test_what_does_not_fit_is_refused_and_leaves_no_trace(self, place: Place, arguments: Any) -> None:
        async def scenario() -> None:
            till = Till()
            async with place.kernel() as kernel:
                till.tool(kernel)
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(GertError):
                    await call(kernel, "r", "charge", arguments, "k")
                assert await kinds(kernel, "r") == ["run_started"]
                assert till.made == []
                assert (await call(kernel, "r", "charge", {"amount": 7}, "k")).result_json == '{"charged":7}'

        asyncio.run(scenario())

    def test_an_unregistered_tool_is_refused_and_a_similar_one_is_named(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                Till().tool(kernel)
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(ToolExecutionFailedError, match="no tool `chrage`") as caught:
                    await call(kernel, "r", "chrage", {"amount": 7})
                assert caught.value.hint == "did you mean `charge`?"
                assert await kinds(kernel, "r") == ["run_started"]

        asyncio.run(scenario())

    @pytest.mark.parametrize("made", ['{"amount": "x"}', "{}", "not JSON"], ids=["wrong type", "missing", "no JSON"])
    def test_what_policy_makes_of_arguments_must_fit_as_well(self, place: Place, made: str) -> None:
        async def scenario() -> None:
            till = Till()
            async with place.kernel(middleware=[Hooks(prepare_tool_request=lambda _: made)]) as kernel:
                till.tool(kernel)
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(GertError):
                    await call(kernel, "r", "charge", {"amount": 7}, "k")
                assert await kinds(kernel, "r") == ["run_started"]
                assert till.made == []

        asyncio.run(scenario())

    def test_a_tenant_without_the_capability_leaves_no_trace(self, place: Place) -> None:
        async def scenario() -> None:
            till = Till()
            able = TenantContext(tenant_id="acme", capabilities=frozenset({"money"}), budget_usd_limit=1)
            async with place.kernel() as kernel:
                till.tool(kernel, requires_capability="money")
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(CapabilityDeniedError, match="may not use `charge`"):
                    await call(kernel, "r", "charge", {"amount": 7}, "k")
                assert await kinds(kernel, "r") == ["run_started"]
                assert (await call(kernel, "r", "charge", {"amount": 7}, "k", tenant=able)).replayed is False

        asyncio.run(scenario())

    def test_a_tool_with_side_effects_must_take_its_context(self) -> None:
        registry = LocalToolRegistry()

        async def charge(amount: int) -> int:
            return amount

        with pytest.raises(InputError, match="artana_context"):
            registry.register(charge, side_effect=True)
        assert registry.to_all_tool_definitions() == []


class TestPoint4Record:
    """What a tool really did is recorded before any result hook may fail."""

    @pytest.mark.parametrize("problem", [ValueError("no"), PolicyViolationError(code="x", message="no", tool_name="c")])
    def test_a_hook_that_fails_finds_the_effect_on_record(self, place: Place, problem: Exception) -> None:
        async def scenario() -> None:
            till = Till()
            failing = [True]

            def refuse(result: str) -> str:
                if failing[0]:
                    raise problem
                return result

            async with place.kernel(middleware=[Hooks(prepare_tool_result=refuse)]) as kernel:
                till.tool(kernel)
                await kernel.start_run(tenant=TENANT, run_id="r")
                for _ in range(2):
                    # Not handed over once, not handed over by asking again.
                    with pytest.raises(type(problem), match="no"):
                        await call(kernel, "r", "charge", {"amount": 7}, "k")
                ended = ends(await kernel.get_events(run_id="r"))
                assert {(end.outcome, end.result_json) for end in ended} == {("success", '{"charged":7}')}
                failing[0] = False
                assert (await call(kernel, "r", "charge", {"amount": 7}, "k")).result_json == '{"charged":7}'
                before = await kinds(kernel, "r")
                assert (await call(kernel, "r", "charge", {"amount": 7}, "k")).replayed
                assert await kinds(kernel, "r") == before
                assert len(till.made) == 1

        asyncio.run(scenario())

    def test_what_a_hook_makes_of_a_result_is_what_a_replay_gives(self, place: Place) -> None:
        async def scenario() -> None:
            hooks = Hooks(prepare_tool_result=lambda result: result.replace("7", "8"))
            async with place.kernel(middleware=[hooks]) as kernel:
                Till().tool(kernel)
                await kernel.start_run(tenant=TENANT, run_id="r")
                live = await call(kernel, "r", "charge", {"amount": 7}, "k")
                again = await call(kernel, "r", "charge", {"amount": 7}, "k")
                assert live.result_json == again.result_json == '{"charged":8}'
                assert live.seq == again.seq
                assert hooks.called["prepare_tool_result"] == 1
                results = [end.result_json for end in ends(await kernel.get_events(run_id="r"))]
                assert results == ['{"charged":7}', '{"charged":8}']

        asyncio.run(scenario())

    @pytest.mark.parametrize(
        ("raised", "outcome", "calls_after_retry"),
        [
            pytest.param(ToolTransientError("busy"), "transient_error", 2, id="known not to have happened: made again"),
            pytest.param(ToolPermanentError("no"), "permanent_error", 1, id="will never happen: stays so"),
            pytest.param(ToolUnknownOutcomeError("?"), "unknown_outcome", 1, id="in doubt: left to reconciling"),
            pytest.param(ValueError("bug"), "unknown_outcome", 1, id="unforeseen: in doubt"),
            pytest.param(TimeoutError(), "unknown_outcome", 1, id="a timeout: in doubt"),
        ],
    )
    def test_how_a_call_ended_decides_what_a_retry_does(
        self, place: Place, raised: Exception, outcome: str, calls_after_retry: int
    ) -> None:
        async def scenario() -> None:
            till = Till(raised)
            async with place.kernel() as kernel:
                till.tool(kernel)
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(ToolExecutionFailedError) as first:
                    await call(kernel, "r", "charge", {"amount": 7}, "k")
                assert first.value.outcome == outcome
                if calls_after_retry == 2:
                    assert (await call(kernel, "r", "charge", {"amount": 7}, "k")).result_json == '{"charged":7}'
                else:
                    with pytest.raises(ToolExecutionFailedError) as second:
                        await call(kernel, "r", "charge", {"amount": 7}, "k")
                    assert second.value.outcome == outcome
                assert len(till.made) == calls_after_retry
                assert len(set(till.made)) == calls_after_retry

        asyncio.run(scenario())

    def test_another_call_under_the_same_key_is_refused(self, place: Place) -> None:
        async def scenario() -> None:
            till = Till()
            async with place.kernel() as kernel:
                till.tool(kernel)

                @kernel.tool()
                async def look(amount: int) -> int:
                    return amount

                await kernel.start_run(tenant=TENANT, run_id="r")
                await call(kernel, "r", "charge", {"amount": 7}, "k")
                with pytest.raises(ReplayConsistencyError, match="different arguments") as caught:
                    await call(kernel, "r", "charge", {"amount": 8}, "k")
                assert caught.value.drift_fields == ("arguments_json",)
                with pytest.raises(ReplayConsistencyError, match="another tool, `charge`") as caught:
                    await call(kernel, "r", "look", {"amount": 7}, "k")
                assert caught.value.drift_fields == ("tool_name",)
                assert len(till.made) == 1

        asyncio.run(scenario())


class Port(LocalToolRegistry):
    """A tool port that gives whatever it was told to."""

    def __init__(self, found: Any) -> None:
        super().__init__()
        self.found = found
        self.calls = 0

    async def call(self, tool_name: str, arguments_json: str, *, context: ToolExecutionContext) -> Any:
        """Give it."""
        self.calls += 1
        return self.found


class TestPoint4Ports:
    """What a port gives is recorded so that it can be read again."""

    @pytest.mark.parametrize(
        "found",
        [
            pytest.param(None, id="nothing"),
            pytest.param(ToolExecutionResult("fine", "1"), id="an unknown word for an outcome"),  # type: ignore[arg-type]
            pytest.param(ToolExecutionResult("success", None), id="no result"),  # type: ignore[arg-type]
            pytest.param(ToolExecutionResult("success", "\ud800"), id="half a character"),
            pytest.param(ToolExecutionResult("success", "1", effect_id=7), id="an id that is a number"),  # type: ignore[arg-type]
            pytest.param(ToolExecutionResult("permanent_error", "1", error_message=7), id="a message that is one"),  # type: ignore[arg-type]
        ],
    )
    def test_a_result_that_cannot_be_read_back_is_in_doubt_and_not_a_broken_record(
        self, place: Place, found: Any
    ) -> None:
        async def scenario() -> None:
            port = Port(found)
            async with place.kernel(tool_port=port) as kernel:
                Till().tool(kernel)
                await kernel.start_run(tenant=TENANT, run_id="r")
                for _ in range(2):
                    with pytest.raises(ToolExecutionFailedError) as caught:
                        await call(kernel, "r", "charge", {"amount": 7}, "k")
                    assert in_doubt(caught.value)
                assert port.calls == 1
                assert [end.outcome for end in ends(await kernel.get_events(run_id="r"))] == ["unknown_outcome"]

        asyncio.run(scenario())

    @pytest.mark.parametrize(
        "made",
        [
            PreparedToolRequest('{"amount":7}', amount_usd=float("nan")),
            PreparedToolRequest('{"amount":7}', semantic_idempotency_key=7),  # type: ignore[arg-type]
            PreparedToolRequest('{"amount":7}', intent_id="\ud800"),
        ],
        ids=["an amount that is no number", "a key that is one", "half a character"],
    )
    def test_policy_data_that_cannot_be_read_back_is_refused(self, place: Place, made: PreparedToolRequest) -> None:
        async def scenario() -> None:
            till = Till()
            async with place.kernel(middleware=[Hooks(prepare_tool_request=lambda _: made)]) as kernel:
                till.tool(kernel)
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(GertError):
                    await call(kernel, "r", "charge", {"amount": 7}, "k")
                assert await kinds(kernel, "r") == ["run_started"]
                assert till.made == []

        asyncio.run(scenario())


class TestPoint4Reconcile:
    """Nothing that ran is ever run again by `reconcile_tool` unless the caller asks."""

    def test_a_call_in_doubt_stays_in_doubt_if_the_tool_does_not_know(self, place: Place) -> None:
        async def scenario() -> None:
            till = Till(ToolUnknownOutcomeError("?"))
            async with place.kernel() as kernel:
                till.tool(kernel)
                await kernel.start_run(tenant=TENANT, run_id="r")
                for take in (call, reconcile, reconcile, call):
                    with pytest.raises(ToolExecutionFailedError) as caught:
                        await take(kernel, "r", "charge", {"amount": 7}, "k")
                    assert in_doubt(caught.value)
                assert len(till.made) == 1
                assert (await kinds(kernel, "r")).count("tool_completed") == 1

        asyncio.run(scenario())

    @pytest.mark.parametrize("result", [{"charged": 7}, Charge(amount=7), "text", None, [1, 2]])
    def test_a_person_reports_that_it_happened(self, place: Place, result: Any) -> None:
        async def scenario() -> None:
            till = Till(ToolUnknownOutcomeError("?"))
            async with place.kernel() as kernel:
                till.tool(kernel)
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(ToolExecutionFailedError):
                    await call(kernel, "r", "charge", {"amount": 7}, "k")
                settled = await reconcile(
                    kernel,
                    "r",
                    "charge",
                    {"amount": 7},
                    "k",
                    outcome="success",
                    result=result,
                    by="ann",
                    reason="it is on the bill",
                )
                assert (await call(kernel, "r", "charge", {"amount": 7}, "k")).result_json == settled
                assert await reconcile(kernel, "r", "charge", {"amount": 7}, "k") == settled
                end = ends(await kernel.get_events(run_id="r"))[-1]
                assert (end.outcome, end.reconciled_by, end.reason) == ("success", "ann", "it is on the bill")
                assert len(till.made) == 1

        asyncio.run(scenario())

    def test_a_person_reports_that_it_did_not_happen_and_the_step_is_retried(self, place: Place) -> None:
        async def scenario() -> None:
            till = Till(ToolUnknownOutcomeError("?"))
            async with place.kernel() as kernel:
                till.tool(kernel)
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(ToolExecutionFailedError):
                    await call(kernel, "r", "charge", {"amount": 7}, "k")
                with pytest.raises(ToolExecutionFailedError, match="failed temporarily"):
                    await reconcile(kernel, "r", "charge", {"amount": 7}, "k", outcome="transient_error", by="ann")
                assert (await call(kernel, "r", "charge", {"amount": 7}, "k")).result_json == '{"charged":7}'
                assert len(till.made) == 2
                assert len(set(till.made)) == 2

        asyncio.run(scenario())

    @pytest.mark.parametrize(
        ("found", "after"),
        [
            pytest.param(ToolExecutionResult("success", '{"charged":7}'), '{"charged":7}', id="it happened"),
            pytest.param(ToolExecutionResult("permanent_error", "null"), None, id="it did not, and will not"),
            pytest.param(ToolExecutionResult("unknown_outcome", "null"), None, id="an unknown outcome"),
            pytest.param(None, None, id="the tool cannot tell"),
            pytest.param(ValueError("down"), None, id="looking fails"),
        ],
    )
    def test_the_tool_is_asked_whether_it_happened(
        self, place: Place, found: ToolExecutionResult | Exception | None, after: str | None
    ) -> None:
        async def scenario() -> None:
            looked: list[str] = []

            async def look(context: ToolExecutionContext, arguments: dict[str, Any]) -> ToolExecutionResult | None:
                looked.append(context.idempotency_key)
                assert arguments == {"amount": 7}
                if isinstance(found, Exception):
                    raise found
                return found

            till = Till(ToolUnknownOutcomeError("?"))
            async with place.kernel() as kernel:
                till.tool(kernel, reconcile=look)
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(ToolExecutionFailedError):
                    await call(kernel, "r", "charge", {"amount": 7}, "k")
                if after is None:
                    with pytest.raises(ToolExecutionFailedError):
                        await reconcile(kernel, "r", "charge", {"amount": 7}, "k")
                    with pytest.raises(ToolExecutionFailedError):
                        await call(kernel, "r", "charge", {"amount": 7}, "k")
                else:
                    assert await reconcile(kernel, "r", "charge", {"amount": 7}, "k") == after
                    assert (await call(kernel, "r", "charge", {"amount": 7}, "k")).result_json == after
                assert looked == till.made
                assert len(till.made) == 1

        asyncio.run(scenario())

    def test_a_call_is_made_again_for_who_asks_under_the_same_key(self, place: Place) -> None:
        async def scenario() -> None:
            till = Till(ToolUnknownOutcomeError("?"), ToolUnknownOutcomeError("still"))
            async with place.kernel() as kernel:
                till.tool(kernel)
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(ToolExecutionFailedError):
                    await call(kernel, "r", "charge", {"amount": 7}, "k")
                with pytest.raises(ToolExecutionFailedError) as caught:
                    await reconcile(kernel, "r", "charge", {"amount": 7}, "k", rerun=True)
                assert in_doubt(caught.value)
                assert await reconcile(kernel, "r", "charge", {"amount": 7}, "k", rerun=True) == '{"charged":7}'
                assert await reconcile(kernel, "r", "charge", {"amount": 7}, "k", rerun=True) == '{"charged":7}'
                assert len(till.made) == 3
                assert len(set(till.made)) == 1
                events = await kernel.get_events(run_id="r")
                assert [one.idempotency_key for one in requests(events)] == till.made[:1]
                assert (await call(kernel, "r", "charge", {"amount": 7}, "k")).replayed

        asyncio.run(scenario())

    def test_what_must_not_be_called_is_not_called_again_either(self, place: Place) -> None:
        async def scenario() -> None:
            till = Till(ToolUnknownOutcomeError("?"))
            able = TenantContext(tenant_id="acme", capabilities=frozenset({"money"}), budget_usd_limit=1)
            async with place.kernel() as kernel:
                till.tool(kernel, requires_capability="money")
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(ToolExecutionFailedError):
                    await call(kernel, "r", "charge", {"amount": 7}, "k", tenant=able)
                with pytest.raises(CapabilityDeniedError):
                    await reconcile(kernel, "r", "charge", {"amount": 7}, "k", rerun=True)
                await kernel.block_run(run_id="r", tenant=TENANT, reason="audit", unblock_key="a")
                with pytest.raises(RunBlocked):
                    await kernel.reconcile_tool(
                        run_id="r",
                        tenant=able,
                        tool_name="charge",
                        arguments={"amount": 7},
                        step_key="k",
                        rerun=True,
                    )
                assert len(till.made) == 1

        asyncio.run(scenario())

    @pytest.mark.parametrize(
        ("arguments", "key", "settings", "match"),
        [
            pytest.param({"amount": 8}, "other", {}, "has no such call", id="no call under this key"),
            pytest.param({"amount": 8}, "k", {}, "different arguments", id="another call under this key"),
            pytest.param({"amount": 7}, None, {}, "has no such call", id="without the key it was made under"),
            pytest.param(
                {"amount": 7}, "k", {"outcome": "success", "rerun": True}, "either `outcome`", id="said and made"
            ),
        ],
    )
    def test_what_cannot_be_settled(
        self, place: Place, arguments: Any, key: str | None, settings: dict[str, Any], match: str
    ) -> None:
        async def scenario() -> None:
            till = Till(ToolUnknownOutcomeError("?"))
            async with place.kernel() as kernel:
                till.tool(kernel)
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(ToolExecutionFailedError):
                    await call(kernel, "r", "charge", {"amount": 7}, "k")
                before = await kernel.get_events(run_id="r")
                with pytest.raises(GertError, match=match):
                    await reconcile(kernel, "r", "charge", arguments, key, **settings)
                assert await kernel.get_events(run_id="r") == before
                assert len(till.made) == 1

        asyncio.run(scenario())

    def test_a_call_that_is_under_way_is_not_settled(self, place: Place) -> None:
        async def scenario() -> None:
            gate, begun = asyncio.Event(), asyncio.Event()
            async with place.kernel() as kernel:

                @kernel.tool(side_effect=True)
                async def slow(artana_context: ToolExecutionContext) -> str:
                    begun.set()
                    await gate.wait()
                    return "done"

                await kernel.start_run(tenant=TENANT, run_id="r")
                step = asyncio.create_task(call(kernel, "r", "slow", {}, "k"))
                await begun.wait()
                for settings in ({"rerun": True}, {"outcome": "permanent_error"}, {}):
                    with pytest.raises(ToolExecutionFailedError, match="in progress"):
                        await reconcile(kernel, "r", "slow", {}, "k", **settings)
                gate.set()
                assert (await step).result_json == '"done"'

        asyncio.run(scenario())

    def test_what_another_process_settled_is_known_here(self, shared: Place) -> None:
        async def scenario() -> None:
            till = Till(ToolUnknownOutcomeError("?"), ToolTransientError("busy"))
            async with shared.kernel() as here, shared.kernel() as there:
                till.tool(here)
                till.tool(there)
                await here.start_run(tenant=TENANT, run_id="r")
                for key in ("doubt", "busy"):
                    with pytest.raises(ToolExecutionFailedError):
                        await call(here, "r", "charge", {"amount": 7}, key)
                    await reconcile(there, "r", "charge", {"amount": 7}, key, outcome="success", result="paid")
                    assert (await call(here, "r", "charge", {"amount": 7}, key)).result_json == '"paid"'
                assert len(till.made) == 2

        asyncio.run(scenario())


def semantic(key: str = "order-1") -> Hooks:
    """Policy by which calls that mean the same have the same key."""
    return Hooks(prepare_tool_request=lambda text: PreparedToolRequest(text, semantic_idempotency_key=key))


class TestPoint5:
    """Semantic keys are reserved at request time."""

    def test_of_racing_runs_one_executes(self, place: Place) -> None:
        async def scenario() -> None:
            till = Till()
            kernels = [place.kernel(middleware=[semantic()]) for _ in range(1 if place.kind == "memory" else 2)]
            if place.kind == "jsonl":
                await kernels.pop().close()
            for kernel in kernels:
                till.tool(kernel)
            runs = [f"r{n}" for n in range(10 * SIZE)]
            for n, run_id in enumerate(runs):
                await kernels[n % len(kernels)].start_run(tenant=TENANT, run_id=run_id)

            async def pay(n: int) -> str:
                try:
                    await call(kernels[n % len(kernels)], runs[n], "charge", {"amount": 7}, "k")
                except PolicyViolationError as error:
                    return error.code
                return "paid"

            outcomes = Counter(await asyncio.gather(*(pay(n) for n in range(len(runs)))))
            assert outcomes["paid"] == 1
            assert set(outcomes) <= {"paid", "semantic_duplicate", "semantic_requires_reconciliation"}
            assert len(till.made) == 1
            asked = [len(requests(await kernels[0].get_events(run_id=run_id))) for run_id in runs]
            assert sum(asked) == 1
            for n in range(len(runs)):
                assert await pay(n) == ("paid" if asked[n] else "semantic_duplicate")
            for kernel in kernels:
                await kernel.close()

        asyncio.run(scenario())

    def test_another_tenant_or_tool_or_key_is_another_call(self, place: Place) -> None:
        async def scenario() -> None:
            till = Till()
            other = TenantContext(tenant_id="other", budget_usd_limit=1)
            keys = iter(["a", "a", "a", "b"])
            hooks = Hooks(
                prepare_tool_request=lambda text: PreparedToolRequest(text, semantic_idempotency_key=next(keys))
            )
            async with place.kernel(middleware=[hooks]) as kernel:
                till.tool(kernel)

                @kernel.tool(side_effect=True)
                async def refund(amount: int, artana_context: ToolExecutionContext) -> int:
                    return amount

                await kernel.start_run(tenant=TENANT, run_id="r")
                await kernel.start_run(tenant=other, run_id="o")
                await call(kernel, "r", "charge", {"amount": 7}, "k1")
                await call(kernel, "r", "refund", {"amount": 7}, "k2")
                await call(kernel, "o", "charge", {"amount": 7}, "k1", tenant=other)
                await call(kernel, "r", "charge", {"amount": 7}, "k3")
                assert len(till.made) == 3

        asyncio.run(scenario())

    @pytest.mark.parametrize(
        ("raised", "blocks"),
        [
            pytest.param(ToolTransientError("busy"), None, id="a failure releases"),
            pytest.param(ToolPermanentError("no"), None, id="a failure for good releases"),
            pytest.param(ToolUnknownOutcomeError("?"), "semantic_requires_reconciliation", id="doubt blocks"),
            pytest.param(None, "semantic_duplicate", id="success blocks for good"),
        ],
    )
    def test_how_a_call_ended_decides_whether_another_may_be_made(
        self, place: Place, raised: Exception | None, blocks: str | None
    ) -> None:
        async def scenario() -> None:
            till = Till(raised)
            async with place.kernel(middleware=[semantic()]) as kernel:
                till.tool(kernel)
                for run_id in ("one", "two"):
                    await kernel.start_run(tenant=TENANT, run_id=run_id)
                try:
                    await call(kernel, "one", "charge", {"amount": 7}, "k")
                except ToolExecutionFailedError:
                    assert raised is not None
                if blocks is None:
                    assert (await call(kernel, "two", "charge", {"amount": 7}, "k")).result_json == '{"charged":7}'
                    assert len(till.made) == 2
                else:
                    with pytest.raises(PolicyViolationError) as caught:
                        await call(kernel, "two", "charge", {"amount": 7}, "k")
                    assert caught.value.code == blocks
                    assert "event 2 of run `one`" in str(caught.value)
                    assert await kinds(kernel, "two") == ["run_started"]

        asyncio.run(scenario())

    @pytest.mark.parametrize("outcome", ["success", "transient_error"])
    def test_a_dangling_request_of_a_dead_worker_blocks_until_it_is_reconciled(
        self, shared: Place, outcome: str
    ) -> None:
        async def scenario() -> None:
            till = Till()
            never = asyncio.Event()
            dead = shared.kernel(middleware=[semantic()])

            async def charge(amount: int, artana_context: ToolExecutionContext) -> dict[str, int]:
                never.set()
                await asyncio.Event().wait()
                return {}

            dead.tool(side_effect=True)(charge)
            await dead.start_run(tenant=TENANT, run_id="one")
            step = asyncio.create_task(call(dead, "one", "charge", {"amount": 7}, "k"))
            await never.wait()
            async with shared.kernel(middleware=[semantic()]) as alive:
                till.tool(alive)
                await alive.start_run(tenant=TENANT, run_id="two")
                refusals = (
                    ("two", PolicyViolationError, "may have"),
                    ("one", ToolExecutionFailedError, "unknown outcome"),
                )
                for run_id, kind, why in refusals:
                    with pytest.raises(kind, match=why):
                        await call(alive, run_id, "charge", {"amount": 7}, "k")
                said = await alive.store.get_latest_tool_semantic_outcome(  # type: ignore[attr-defined]
                    tenant_id="acme", tool_name="charge", semantic_idempotency_key="order-1"
                )
                assert (said.run_id, said.outcome, said.request_id) == ("one", "unknown_outcome", "one#2")
                if outcome == "success":
                    await reconcile(alive, "one", "charge", {"amount": 7}, "k", outcome="success", result={"ok": 1})
                    with pytest.raises(PolicyViolationError) as caught:
                        await call(alive, "two", "charge", {"amount": 7}, "k")
                    assert caught.value.code == "semantic_duplicate"
                    assert till.made == []
                else:
                    with pytest.raises(AgentError):
                        await reconcile(alive, "one", "charge", {"amount": 7}, "k", outcome="transient_error")
                    assert (await call(alive, "two", "charge", {"amount": 7}, "k")).result_json == '{"charged":7}'
                    assert len(till.made) == 1
            step.cancel()
            await asyncio.gather(step, return_exceptions=True)
            await dead.close()

        asyncio.run(scenario())

    def test_a_call_that_gave_its_key_back_is_not_made_again_beside_another(self, place: Place) -> None:
        async def scenario() -> None:
            till = Till(ToolPermanentError("no"))
            async with place.kernel(middleware=[semantic()]) as kernel:
                till.tool(kernel)
                for run_id in ("one", "two"):
                    await kernel.start_run(tenant=TENANT, run_id=run_id)
                with pytest.raises(ToolExecutionFailedError):
                    await call(kernel, "one", "charge", {"amount": 7}, "k")
                await call(kernel, "two", "charge", {"amount": 7}, "k")
                with pytest.raises(PolicyViolationError) as caught:
                    await reconcile(kernel, "one", "charge", {"amount": 7}, "k", rerun=True)
                assert caught.value.code == "semantic_duplicate"
                assert len(till.made) == 2

        asyncio.run(scenario())

    def test_what_policy_found_out_is_on_record(self, place: Place) -> None:
        class Order(BaseModel):
            amount: int

        async def scenario() -> None:
            first = Hooks(
                prepare_tool_request=lambda text: PreparedToolRequest(text, "order-1", intent_id="plan", amount_usd=1.5)
            )
            second = Hooks(prepare_tool_request=lambda text: PreparedToolRequest(text, amount_usd=2.5))
            third = Hooks(prepare_tool_request=lambda text: text)
            async with place.kernel(middleware=[first, second, third]) as kernel:
                Till().tool(kernel)
                await kernel.start_run(tenant=TENANT, run_id="r")
                await call(kernel, "r", "charge", Order(amount=7), "k")
                [asked] = requests(await kernel.get_events(run_id="r"))
                assert asked.semantic_idempotency_key == "order-1"
                assert (asked.intent_id, asked.amount_usd) == ("plan", 2.5)
                assert (asked.tool_version, asked.schema_version, asked.arguments_json) == (
                    "1.0.0",
                    "1",
                    '{"amount":7}',
                )
                store: Any = kernel.store
                assert await store.get_tool_request_count_for_run(run_id="r", tool_name="charge") == 1

        asyncio.run(scenario())
