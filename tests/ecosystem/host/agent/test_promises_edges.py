"""What breaks promises only at the edges: tools of other ports, arguments that change, doubts that come in twos."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel
from tests.ecosystem.host.agent.places import TENANT, Place, call, ends, of_type, reconcile, soon

from gert.agent import (
    ArtanaKernel,
    KernelEvent,
    ReplayConsistencyError,
    RunError,
    RunStartedPayload,
    TenantContext,
    ToolDefinition,
    ToolExecutionContext,
    ToolExecutionFailedError,
    ToolExecutionResult,
    ToolPermanentError,
    ToolTransientError,
    ToolUnknownOutcomeError,
    WorkflowContext,
    json_step_serde,
)
from gert.ecosystem.host.agent import event_listener
from gert.testing import memory_kernel

EVIL = TenantContext(tenant_id="evil", budget_usd_limit=1)


class TestTenants:
    @pytest.mark.parametrize("what", ["get_artifact", "status", "progress", "resume_point"])
    def test_a_handle_reads_no_run_of_another_tenant(self, what: str) -> None:
        async def steal() -> object:
            kernel = memory_kernel()
            await kernel.start_run(tenant=TENANT, run_id="r")
            await kernel.set_artifact(run_id="r", tenant=TENANT, key="plan", value="secret plan")
            run = kernel.bind(run_id="r", tenant=EVIL)
            return await (run.get_artifact("plan") if what == "get_artifact" else getattr(run, what)())

        with pytest.raises(RunError, match="another tenant"):
            asyncio.run(steal())

    def test_a_handle_reads_its_own_run(self) -> None:
        async def read() -> Any:
            kernel = memory_kernel()
            async with kernel.run(tenant=TENANT, run_id="r") as run:
                await run.set_artifact("plan", 1)
                return await run.get_artifact("plan"), (await run.status()).status, (await run.progress()).percent

        assert asyncio.run(read()) == (1, "active", 0)


class OtherPort:
    """A tool port of somebody else: one list it hands out and changes, and results of any size."""

    def __init__(self, result: ToolExecutionResult | BaseException | None = None) -> None:
        self.calls = 0
        self.known = [ToolDefinition("one", "", "{}", schema_hash="1")]
        self._result = result if result is not None else ToolExecutionResult("success", "1")

    def register(self, function: Any, *settings: Any, **more: Any) -> None:
        """Take a tool."""
        self.known.append(ToolDefinition(function.__name__, "", "{}", schema_hash="2"))

    async def call(self, tool_name: str, arguments_json: str, *, context: ToolExecutionContext) -> ToolExecutionResult:
        """Call it."""
        self.calls += 1
        if isinstance(self._result, BaseException):
            raise self._result
        return self._result

    def list_for_capabilities(self, capabilities: frozenset[str]) -> list[Any]:
        """Nothing is known of them."""
        return []

    def to_tool_definitions(self, capabilities: frozenset[str]) -> list[ToolDefinition]:
        """All of them."""
        return self.known

    def to_all_tool_definitions(self) -> list[ToolDefinition]:
        """All of them."""
        return self.known

    def capability_map(self) -> dict[str, str | None]:
        """None needs anything."""
        return {tool.name: None for tool in self.known}


class Wordless(Exception):
    """An error that cannot be put into words."""

    def __str__(self) -> str:
        raise ValueError("no words")


class Stopped(BaseException):
    """What is no error, and no cancellation either."""


class TestOtherPorts:
    def test_tools_that_are_added_to_a_list_are_seen(self) -> None:
        port = OtherPort()
        kernel = memory_kernel(tool_port=port)
        assert [tool.name for tool in kernel.list_registered_tools()] == ["one"]
        kernel.tool()(call)
        assert [tool.name for tool in kernel.list_registered_tools()] == ["call", "one"]

    @pytest.mark.parametrize(
        ("result", "word"),
        [
            pytest.param(ToolExecutionResult("success", '"' + "x" * 17_000_000 + '"'), "too large", id="too large"),
            pytest.param(Wordless(), "Wordless", id="an error without words"),
        ],
    )
    def test_what_cannot_be_recorded_is_an_end_all_the_same(self, result: Any, word: str) -> None:
        async def make() -> Any:
            kernel = memory_kernel(tool_port=OtherPort(result))
            await kernel.start_run(tenant=TENANT, run_id="r")
            with pytest.raises(ToolExecutionFailedError) as failed:
                await call(kernel, "r", "one", {}, "k")
            return failed.value.outcome, ends(await kernel.get_events(run_id="r"))

        outcome, (ended,) = asyncio.run(make())
        assert outcome == ended.outcome == "unknown_outcome"
        assert word in (ended.error_message or "")

    def test_what_ended_a_call_is_not_called_a_cancellation(self) -> None:
        async def make() -> Any:
            kernel = memory_kernel(tool_port=OtherPort(Stopped("enough")))
            await kernel.start_run(tenant=TENANT, run_id="r")
            with pytest.raises(Stopped):
                await call(kernel, "r", "one", {}, "k")
            return ends(await kernel.get_events(run_id="r"))

        (ended,) = asyncio.run(make())
        assert ended.outcome == "unknown_outcome"
        assert ended.error_message == "Stopped: enough"


def test_a_tool_a_model_made_up_is_not_named_at_length() -> None:
    async def make() -> Any:
        kernel = memory_kernel()
        await kernel.start_run(tenant=TENANT, run_id="r")
        await call(kernel, "r", "x" * 1_000_000, {}, "k")

    with pytest.raises(ToolExecutionFailedError, match="there is no tool") as failed:
        asyncio.run(make())
    assert len(str(failed.value)) < 1000


class Numbers(BaseModel):
    numbers: list[int]


class TestArgumentsThatChange:
    @pytest.mark.parametrize("as_model", [False, True], ids=["a mapping", "a model"])
    def test_a_call_is_made_with_what_was_given(self, durable: Place, as_model: bool) -> None:
        given: Any = Numbers(numbers=[1]) if as_model else {"numbers": [1]}

        def adding() -> ArtanaKernel:
            kernel = durable.kernel()

            @kernel.tool()
            def total(numbers: list[int]) -> int:
                return sum(numbers)

            return kernel

        async def make() -> Any:
            async with adding() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
            async with adding() as kernel:
                # It knows nothing of the run yet, and has to look.
                making = asyncio.create_task(call(kernel, "r", "total", given, "k"))
                await asyncio.sleep(0)
                (given.numbers if as_model else given["numbers"]).append(41)
                first = await making
                again = await call(kernel, "r", "total", {"numbers": [1]}, "k")
                return first.result_json, again.result_json, again.replayed

        assert asyncio.run(make()) == ("1", "1", True)


class TestDoubtsInTwos:
    def test_each_of_two_calls_in_doubt_can_be_settled(self, place: Place) -> None:
        """Equal calls at the same time are one, and so is their doubt; made again, it may be in doubt again."""

        async def settle() -> Any:
            async with place.kernel() as kernel:
                made = 0

                @kernel.tool(side_effect=True)
                async def pay(amount: int, artana_context: ToolExecutionContext) -> int:
                    nonlocal made
                    made += 1
                    await asyncio.sleep(0)
                    if made <= 2:
                        raise ToolUnknownOutcomeError("the line went dead")
                    return amount

                await kernel.start_run(tenant=TENANT, run_id="r")
                both = [call(kernel, "r", "pay", {"amount": 5}) for _ in range(2)]
                failed = await asyncio.gather(*both, return_exceptions=True)
                assert [type(each) for each in failed] == [ToolExecutionFailedError] * 2
                assert made == 1
                for _ in range(2):
                    with pytest.raises(ToolExecutionFailedError):
                        await call(kernel, "r", "pay", {"amount": 5})
                    with pytest.raises(ToolExecutionFailedError, match="failed temporarily"):
                        await reconcile(kernel, "r", "pay", {"amount": 5}, outcome="transient_error", by="ops")
                settled = {end.request_seq for end in ends(await kernel.get_events(run_id="r")) if end.reconciled_by}
                again = await call(kernel, "r", "pay", {"amount": 5})
                return len(settled), again.result_json, made

        assert asyncio.run(settle()) == (2, "5", 3)


class TestMadeAgain:
    @pytest.mark.parametrize(
        "second",
        [
            pytest.param(ToolTransientError("connection refused"), id="it cannot be reached"),
            pytest.param(ToolPermanentError("no such card"), id="it refuses"),
            pytest.param(RuntimeError("?"), id="it breaks"),
        ],
    )
    def test_a_call_that_fails_when_it_is_made_again_may_have_happened_before(
        self, place: Place, second: Exception
    ) -> None:
        """That it did not happen the second time says nothing about the first; only a person can."""
        keys: list[str] = []

        async def scenario() -> None:
            async with place.kernel() as kernel:

                @kernel.tool(side_effect=True)
                async def pay(amount: int, artana_context: ToolExecutionContext) -> str:
                    keys.append(artana_context.idempotency_key)
                    if len(keys) < 3:
                        raise ToolUnknownOutcomeError("the line went dead") if len(keys) == 1 else second
                    return "paid"

                await kernel.start_run(tenant=TENANT, run_id="r")
                for again in (call, reconcile, call, reconcile):
                    more = {"rerun": True} if again is reconcile and len(keys) == 1 else {}
                    with pytest.raises(ToolExecutionFailedError) as failed:
                        await again(kernel, "r", "pay", {"amount": 5}, "k", **more)
                    assert failed.value.outcome == "unknown_outcome"
                assert len(keys) == 2, "nobody asked for a third"
                assert await reconcile(kernel, "r", "pay", {"amount": 5}, "k", rerun=True) == '"paid"'

        asyncio.run(scenario())
        assert len(set(keys)) == 1

    def test_a_call_that_is_known_not_to_have_happened_leaves_no_doubt(self, place: Place) -> None:
        async def scenario() -> Any:
            made = 0
            async with place.kernel() as kernel:

                @kernel.tool(side_effect=True)
                async def pay(amount: int, artana_context: ToolExecutionContext) -> str:
                    nonlocal made
                    made += 1
                    if made < 3:
                        raise ToolTransientError("connection refused")
                    return "paid"

                await kernel.start_run(tenant=TENANT, run_id="r")
                for again in (call, reconcile):
                    more = {"rerun": True} if again is reconcile else {}
                    with pytest.raises(ToolExecutionFailedError) as failed:
                        await again(kernel, "r", "pay", {"amount": 5}, "k", **more)
                    assert failed.value.outcome == "transient_error"
                return (await call(kernel, "r", "pay", {"amount": 5}, "k")).result_json, made

        assert asyncio.run(scenario()) == ('"paid"', 3)


class TestToolsThatChange:
    def test_a_tool_that_has_effects_by_now_is_in_doubt_when_it_is_cancelled(self, durable: Place) -> None:
        """It had none when it was called first; made again, it may have had one."""
        paid: list[int] = []

        async def before() -> None:
            async with durable.kernel() as kernel:

                @kernel.tool()
                async def pay(amount: int, artana_context: ToolExecutionContext) -> int:
                    raise ToolUnknownOutcomeError("the line went dead")

                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(ToolExecutionFailedError):
                    await call(kernel, "r", "pay", {"amount": 5}, "k")

        async def after() -> None:
            async with durable.kernel() as kernel:

                @kernel.tool(side_effect=True)
                async def pay(amount: int, artana_context: ToolExecutionContext) -> int:
                    paid.append(amount)
                    await asyncio.Event().wait()
                    return amount

                again = asyncio.create_task(reconcile(kernel, "r", "pay", {"amount": 5}, "k", rerun=True))
                await soon(lambda: bool(paid))
                again.cancel()
                await asyncio.wait({again})
                with pytest.raises(ToolExecutionFailedError) as failed:
                    await asyncio.wait_for(call(kernel, "r", "pay", {"amount": 5}, "k"), 5)
                assert failed.value.outcome == "unknown_outcome"

        asyncio.run(before())
        asyncio.run(after())
        assert paid == [5]


class TestWorkflows:
    def test_a_block_is_not_the_pause_of_a_workflow(self, place: Place) -> None:
        async def work(ctx: WorkflowContext) -> str:
            await ctx.pause("may I?", step_key="approve")
            return "done"

        async def go_on() -> Any:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="w")
                await kernel.block_run(run_id="w", tenant=TENANT, reason="stop", unblock_key="x", step_key="approve")
                await kernel.unblock_run(run_id="w", tenant=TENANT, unblock_key="x")
                paused = await kernel.run_workflow(run_id="w", tenant=TENANT, workflow=work)
                assert paused.pause_ticket is not None
                assert paused.pause_ticket.reason == "may I?"
                await kernel.resume(run_id="w", tenant=TENANT)
                return await kernel.run_workflow(run_id="w", tenant=TENANT, workflow=work)

        assert asyncio.run(go_on()).output == "done"

    @pytest.mark.parametrize(
        ("error", "message"),
        [
            pytest.param(Wordless(), "", id="an error without words"),
            pytest.param(None, "too large", id="a result that is too large"),
        ],
    )
    def test_a_step_that_cannot_be_recorded_has_failed(self, error: Exception | None, message: str) -> None:
        async def act() -> str:
            if error is not None:
                raise error
            return "x" * 17_000_000

        async def work(ctx: WorkflowContext) -> str:
            return str(await ctx.step(name="read", action=act, serde=json_step_serde()))

        async def run() -> Any:
            kernel = memory_kernel()
            with pytest.raises(Exception) as failed:
                await kernel.run_workflow(run_id="w", tenant=TENANT, workflow=work)
            if error is not None:
                assert failed.value is error
            return await of_type(kernel, "w", "workflow_step_failed")

        (failed,) = asyncio.run(run())
        assert failed.payload.reason == "failed"
        assert message in failed.payload.message

    def test_a_context_is_made_as_documented(self) -> None:
        taken: list[str] = []

        async def act() -> str:
            taken.append("once")
            return "found"

        async def use(kernel: ArtanaKernel) -> tuple[str, str]:
            context = WorkflowContext(
                run_id="w",
                tenant=TENANT,
                store=kernel.store,
                pause_api=kernel,
                events=await kernel.get_events(run_id="w"),
            )
            found = str(await context.step(name="read", action=act, serde=json_step_serde()))
            ticket = await context.pause("may I?", step_key="approve")
            return found, ticket.reason

        async def run() -> Any:
            kernel = memory_kernel()
            await kernel.start_run(tenant=TENANT, run_id="w")
            with pytest.raises(BaseException, match="may I"):
                await use(kernel)
            assert (await kernel.get_run_status(run_id="w")).status == "paused"
            await kernel.resume(run_id="w", tenant=TENANT)
            return await use(kernel)

        assert asyncio.run(run()) == ("found", "may I?")
        assert taken == ["once"]


class TestReading:
    def test_another_source_under_the_same_key_is_another_question(self, place: Place) -> None:
        async def read() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")

                async def look() -> str:
                    return "what I remember"

                run = kernel.bind(run_id="r", tenant=TENANT)
                assert await run.read("memory", "before", look) == "what I remember"
                assert await run.read("memory", "before", look) == "what I remember"
                await run.read("notes.md", "before", look)

        with pytest.raises(ReplayConsistencyError, match="memory"):
            asyncio.run(read())


class TestLeasesOfAStore:
    def test_releasing_the_lease_of_another_worker_changes_nothing(self, place: Place) -> None:
        async def release() -> Any:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                store: Any = kernel.store
                assert await store.acquire_run_lease(run_id="r", worker_id="a", ttl_seconds=60)
                assert not await store.release_run_lease(run_id="r", worker_id="b")
                await kernel.checkpoint(run_id="r", tenant=TENANT, name="x", payload=1)
                assert await store.release_run_lease(run_id="r", worker_id="a")
                return await kernel.checkpoint(run_id="r", tenant=TENANT, name="y", payload=1)

        assert asyncio.run(release()) == 3


class TestListening:
    def test_events_that_wait_for_a_listener_are_bounded_in_size(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(event_listener, "MAX_BYTES", 20_000)
        told: list[int] = []

        async def run() -> None:
            go_on = asyncio.Event()

            async def slow(event: KernelEvent) -> None:
                await go_on.wait()
                told.append(event.seq)

            kernel = memory_kernel(on_event=slow)
            await kernel.start_run(tenant=TENANT, run_id="r")
            for _ in range(10):
                await kernel.checkpoint(run_id="r", tenant=TENANT, name="x", payload="y" * 5000)
            go_on.set()
            await kernel.close()

        asyncio.run(run())
        assert told[0] == 1
        assert told[1:] == list(range(12 - len(told[1:]), 12)), "the newest are told"
        assert 2 <= len(told[1:]) <= 4


def test_an_event_that_is_made_by_hand_needs_no_time() -> None:
    made = KernelEvent(
        event_id="r#1",
        run_id="r",
        tenant_id="acme",
        seq=1,
        event_type="run_started",  # type: ignore[arg-type]
        event_hash="0" * 64,
        payload=RunStartedPayload(),
    )
    assert made.timestamp.tzinfo is not None
