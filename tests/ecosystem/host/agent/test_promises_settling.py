"""What must hold, 4 to 6, when several work on one call: one makes it again, one end stands, one result is seen."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from tests.ecosystem.host.agent.places import (
    SIZE,
    TENANT,
    Hooks,
    Place,
    call,
    ends,
    kinds,
    of_type,
    reconcile,
    requests,
    soon,
)

from gert.agent import (
    GertError,
    PolicyViolationError,
    PreparedToolRequest,
    ReplayConsistencyError,
    RunBlocked,
    ToolExecutionContext,
    ToolExecutionFailedError,
    ToolExecutionResult,
    ToolPermanentError,
    ToolTransientError,
    ToolUnknownOutcomeError,
)


class Bank:
    """A side effect that may fail, take time, and be looked up."""

    def __init__(self, *fails: Exception) -> None:
        self.paid: list[str] = []
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self._fails = list(fails)

    def tool(self, kernel: Any, **settings: Any) -> None:
        """Register it."""

        async def pay(artana_context: ToolExecutionContext) -> str:
            if self._fails:
                raise self._fails.pop(0)
            self.paid.append(artana_context.idempotency_key)
            self.begun.set()
            await self.gate.wait()
            return "paid"

        kernel.tool(side_effect=True, **settings)(pay)


async def failing(kernel: Any, run_id: str = "r") -> None:
    """Start a run whose call fails."""
    await kernel.start_run(tenant=TENANT, run_id=run_id)
    with pytest.raises(ToolExecutionFailedError):
        await call(kernel, run_id, "pay", {}, "k")


class TestMadeAgain:
    """A call that is made again is on record before it is made."""

    def test_of_many_operators_one_makes_it_again(self, shared: Place) -> None:
        async def scenario() -> None:
            bank = Bank(ToolUnknownOutcomeError("?"))
            kernels = [shared.kernel() for _ in range(4)]
            for kernel in kernels:
                bank.tool(kernel)
            await failing(kernels[0])
            bank.gate.clear()
            tasks = [
                asyncio.create_task(reconcile(kernel, "r", "pay", {}, "k", rerun=True, by=f"op{n}"))
                for n, kernel in enumerate(kernels)
            ]
            await bank.begun.wait()
            await soon(lambda: sum(task.done() for task in tasks) == 3)
            bank.gate.set()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert sorted(map(type, found), key=repr) == sorted([str] + [ToolExecutionFailedError] * 3, key=repr)
            assert len(bank.paid) == 1
            for kernel in kernels:
                await kernel.close()

        asyncio.run(scenario())

    @pytest.mark.parametrize(
        "first", [ToolPermanentError("no"), ToolTransientError("later"), ToolUnknownOutcomeError("?")], ids=repr
    )
    def test_one_that_is_cancelled_is_in_doubt(self, place: Place, first: Exception) -> None:
        async def scenario() -> None:
            bank = Bank(first)
            async with place.kernel() as kernel:
                bank.tool(kernel)
                await failing(kernel)
                bank.gate.clear()
                again = asyncio.create_task(reconcile(kernel, "r", "pay", {}, "k", rerun=True))
                await bank.begun.wait()
                again.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await again
                with pytest.raises(ToolExecutionFailedError) as caught:
                    await call(kernel, "r", "pay", {}, "k")
                assert caught.value.in_doubt
                assert len(bank.paid) == 1
                bank.gate.set()
                assert await reconcile(kernel, "r", "pay", {}, "k", rerun=True) == '"paid"'
                assert len(set(bank.paid)) == 1, "always under the same key"

        asyncio.run(scenario())

    def test_one_whose_operator_was_killed_is_in_doubt(self, tmp_path: Any) -> None:
        script = """
import asyncio, os, sys
from gert.agent import *
async def main():
    kernel = ArtanaKernel(store=SQLiteStore(sys.argv[1]), model_port=MockModelPort())
    fails = [ToolTransientError("later")]
    @kernel.tool(side_effect=True)
    async def pay(artana_context: ToolExecutionContext) -> str:
        if fails:
            raise fails.pop()
        os._exit(9)
    tenant = TenantContext(tenant_id="acme", budget_usd_limit=1)
    await kernel.start_run(tenant=tenant, run_id="r")
    step = dict(run_id="r", tenant=tenant, tool_name="pay", arguments={}, step_key="k")
    try:
        await kernel.step_tool(**step)
    except ToolExecutionFailedError:
        await kernel.reconcile_tool(rerun=True, by="op", **step)
asyncio.run(main())
"""
        path = str(tmp_path / "runs.db")
        assert subprocess.run([sys.executable, "-c", script, path], check=False, timeout=60).returncode == 9

        async def scenario() -> None:
            bank = Bank()
            async with Place("sqlite", path).kernel() as kernel:
                bank.tool(kernel)
                with pytest.raises(ToolExecutionFailedError) as caught:
                    await call(kernel, "r", "pay", {}, "k")
                assert caught.value.in_doubt
                with pytest.raises(ToolExecutionFailedError, match="being rerun by `op`"):
                    await reconcile(kernel, "r", "pay", {}, "k", rerun=True)
                assert bank.paid == []
                assert await reconcile(kernel, "r", "pay", {}, "k", outcome="success", result="seen") == '"seen"'

        asyncio.run(scenario())

    def test_one_that_gave_its_semantic_key_back_takes_it_again_first(self, place: Place) -> None:
        async def scenario() -> None:
            bank = Bank(ToolTransientError("later"))
            alike = Hooks(prepare_tool_request=lambda text: PreparedToolRequest(text, "invoice-7"))
            async with place.kernel(middleware=[alike]) as kernel:
                bank.tool(kernel)
                await failing(kernel)
                await kernel.start_run(tenant=TENANT, run_id="other")
                bank.gate.clear()
                again = asyncio.create_task(reconcile(kernel, "r", "pay", {}, "k", rerun=True))
                await bank.begun.wait()
                with pytest.raises(PolicyViolationError) as caught:
                    await call(kernel, "other", "pay", {}, "k")
                assert caught.value.code == "semantic_requires_reconciliation"
                bank.gate.set()
                assert await again == '"paid"'
                assert len(bank.paid) == 1

        asyncio.run(scenario())

    def test_a_run_that_is_blocked_makes_nothing_again_and_is_irrelevant(self, place: Place) -> None:
        async def scenario() -> None:
            bank = Bank(ToolUnknownOutcomeError("?"))
            async with place.kernel() as kernel:
                bank.tool(kernel)
                await failing(kernel)
                await kernel.block_run(run_id="r", tenant=TENANT, reason="audit", unblock_key="a")
                before = await kinds(kernel, "r")
                with pytest.raises(RunBlocked):
                    await reconcile(kernel, "r", "pay", {}, "k", rerun=True)
                assert await kinds(kernel, "r") == before
                assert bank.paid == []

        asyncio.run(scenario())


class TestOneEndStands:
    """An end is written only if the call still stands as it was looked up, and a success stands for ever."""

    def test_a_slow_reconciler_overwrites_nothing(self, shared: Place) -> None:
        async def scenario() -> None:
            bank, gate, looking = Bank(ToolUnknownOutcomeError("?")), asyncio.Event(), asyncio.Event()

            async def look(context: ToolExecutionContext, arguments: dict[str, Any]) -> ToolExecutionResult:
                looking.set()
                await gate.wait()
                return ToolExecutionResult("transient_error", "null", error_message="not found")

            async with shared.kernel() as one, shared.kernel() as two:
                for kernel in (one, two):
                    bank.tool(kernel, reconcile=look)
                await failing(one)
                slow = asyncio.create_task(reconcile(one, "r", "pay", {}, "k", by="robot"))
                await looking.wait()
                assert await reconcile(two, "r", "pay", {}, "k", outcome="success", result="ok", by="ann") == '"ok"'
                gate.set()
                assert await slow == '"ok"'
                assert (await call(one, "r", "pay", {}, "k")).result_json == '"ok"'
                assert bank.paid == []
                assert [end.outcome for end in ends(await one.get_events(run_id="r"))] == ["unknown_outcome", "success"]

        asyncio.run(scenario())

    def test_a_result_after_the_call_was_reconciled_is_kept_beside_it(self, shared: Place) -> None:
        async def scenario() -> None:
            bank = Bank()
            bank.gate.clear()
            async with shared.kernel() as one, shared.kernel() as two:
                bank.tool(one)
                bank.tool(two)
                await one.start_run(tenant=TENANT, run_id="r")
                step = asyncio.create_task(call(one, "r", "pay", {}, "k"))
                await bank.begun.wait()
                assert await reconcile(two, "r", "pay", {}, "k", outcome="success", result="said", by="ann") == '"said"'
                bank.gate.set()
                assert (await step).result_json == '"said"'
                for kernel in (one, two):
                    assert (await call(kernel, "r", "pay", {}, "k")).result_json == '"said"'
                late = [event.payload for event in await of_type(one, "r", "run_summary")]
                assert [each.summary_type for each in late] == ["late_tool_result"]  # type: ignore[union-attr]
                assert "paid" in late[0].summary_json  # type: ignore[union-attr]

        asyncio.run(scenario())

    def test_what_is_settled_is_the_call_that_was_asked_for(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:

                @kernel.tool()
                async def echo(n: int) -> int:
                    return n

                await kernel.start_run(tenant=TENANT, run_id="r")
                await call(kernel, "r", "echo", {"n": 1}, "k")
                for settings in ({}, {"rerun": True}, {"outcome": "success"}):
                    with pytest.raises(ReplayConsistencyError, match="different arguments"):
                        await reconcile(kernel, "r", "echo", {"n": 2}, "k", **settings)
                assert await reconcile(kernel, "r", "echo", {"n": 1}, "k") == "1"

        asyncio.run(scenario())

    def test_a_step_that_is_cancelled_before_the_tool_was_called_leaves_no_doubt(self, place: Place) -> None:
        async def scenario() -> None:
            bank = Bank()
            async with place.kernel() as kernel:
                bank.tool(kernel)
                await kernel.start_run(tenant=TENANT, run_id="r")
                ledger: Any = kernel.ledger
                append = ledger.append

                async def cancelled(*given: Any, **more: Any) -> Any:
                    ledger.append = append
                    await append(*given, **more)
                    raise asyncio.CancelledError

                ledger.append = cancelled
                with pytest.raises(asyncio.CancelledError):
                    await call(kernel, "r", "pay", {}, "k")
                assert bank.paid == []
                [end] = ends(await kernel.get_events(run_id="r"))
                assert (end.outcome, "before the tool was called" in (end.error_message or "")) == (
                    "transient_error",
                    True,
                )
                assert (await call(kernel, "r", "pay", {}, "k")).result_json == '"paid"'

        asyncio.run(scenario())


class TestResultsAreSeenThroughHooks:
    """Nobody sees a result the hooks have not let pass."""

    def test_a_twin_waits_for_the_hooks(self, place: Place) -> None:
        async def scenario() -> None:
            hooks, seeing, gate = Hooks(), asyncio.Event(), asyncio.Event()

            async def show(*, result_json: str, **call: Any) -> str:
                hooks.called["shown"] += 1
                seeing.set()
                await gate.wait()
                return '"hidden"'

            hooks.prepare_tool_result = show  # type: ignore[method-assign]
            bank = Bank()
            async with place.kernel(middleware=[hooks]) as kernel:
                bank.tool(kernel)
                await kernel.start_run(tenant=TENANT, run_id="r")
                one = asyncio.create_task(call(kernel, "r", "pay", {}, "k"))
                await seeing.wait()
                two = asyncio.create_task(call(kernel, "r", "pay", {}, "k"))
                for _ in range(20):
                    await asyncio.sleep(0)
                assert not two.done()
                gate.set()
                assert [(await one).result_json, (await two).result_json] == ['"hidden"'] * 2
                assert hooks.called["shown"] == len(bank.paid) == 1

        asyncio.run(scenario())

    def test_an_unfinished_call_is_finished_by_the_next_caller(self, shared: Place) -> None:
        async def scenario() -> None:
            bank, seeing = Bank(), asyncio.Event()
            stuck, hides = Hooks(), Hooks(prepare_tool_result=lambda _: '"hidden"')

            async def never(**call: Any) -> str:
                seeing.set()
                await asyncio.Event().wait()
                return ""

            stuck.prepare_tool_result = never  # type: ignore[method-assign]
            async with shared.kernel(middleware=[stuck]) as dead, shared.kernel(middleware=[hides]) as alive:
                bank.tool(dead)
                bank.tool(alive)
                await dead.start_run(tenant=TENANT, run_id="r")
                step = asyncio.create_task(call(dead, "r", "pay", {}, "k"))
                await seeing.wait()
                while not ends(await alive.get_events(run_id="r")):
                    await asyncio.sleep(0.001)
                assert (await call(alive, "r", "pay", {}, "k")).result_json == '"hidden"'
                assert (await call(alive, "r", "pay", {}, "k")).replayed
                step.cancel()
                await asyncio.gather(step, return_exceptions=True)
                found = ends(await alive.get_events(run_id="r"))
                assert [end.result_json for end in found] == ['"paid"', '"hidden"']
                assert len(bank.paid) == 1

        asyncio.run(scenario())


class TestWhatWasGiven:
    """Arguments are compared as they were given: a tool may gain a parameter with a default, or be gone."""

    @pytest.mark.parametrize("key", ["k", None], ids=["with a step key", "without"])
    def test_a_step_is_replayed_whatever_became_of_its_tool(self, durable: Place, key: str | None) -> None:
        async def scenario() -> None:
            async with durable.kernel() as kernel:

                async def then(n: int, old: int = 1) -> str:
                    return "seen"

                kernel.tool(name="look")(then)
                await kernel.start_run(tenant=TENANT, run_id="r")
                await call(kernel, "r", "look", {"n": 1}, key)
            async with durable.kernel() as kernel:

                async def now(n: int, new: int = 0) -> str:
                    raise AssertionError

                kernel.tool(name="look")(now)
                assert (await call(kernel, "r", "look", {"n": 1}, key)).replayed
            async with durable.kernel() as kernel:
                assert (await call(kernel, "r", "look", {"n": 1}, key)).replayed
                with pytest.raises(GertError, match="no tool"):
                    await call(kernel, "r", "look", {"n": 1}, "new")
                assert len(requests(await kernel.get_events(run_id="r"))) == 1

        asyncio.run(scenario())

    @pytest.mark.parametrize(
        ("then", "now"), [({"n": 1}, {"n": 1, "m": 0}), ({"n": 1, "m": 0}, {"n": 1}), ({"n": 1}, '{"m": 0, "n": 1}')]
    )
    def test_a_default_that_is_given_is_no_other_argument(self, place: Place, then: Any, now: Any) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:

                @kernel.tool()
                async def look(n: int, m: int = 0) -> int:
                    return n

                await kernel.start_run(tenant=TENANT, run_id="r")
                await call(kernel, "r", "look", then, "k")
                assert (await call(kernel, "r", "look", now, "k")).replayed
                with pytest.raises(ReplayConsistencyError):
                    await call(kernel, "r", "look", {"n": 1, "m": 1}, "k")

        asyncio.run(scenario())


class TestOneAnswer:
    """What is given live is what every replay gives."""

    def test_a_tool_that_two_processes_called_has_one_result(self, shared: Place) -> None:
        async def scenario() -> None:
            gate, begun = asyncio.Event(), asyncio.Event()
            async with shared.kernel() as slow, shared.kernel() as fast:

                async def slowly() -> str:
                    begun.set()
                    await gate.wait()
                    return "slow"

                async def quickly() -> str:
                    return "fast"

                slow.tool(name="look")(slowly)
                fast.tool(name="look")(quickly)
                await slow.start_run(tenant=TENANT, run_id="r")
                step = asyncio.create_task(call(slow, "r", "look", {}, "k"))
                await begun.wait()
                live = (await call(fast, "r", "look", {}, "k")).result_json
                gate.set()
                given = [
                    (await step).result_json,
                    *[(await call(k, "r", "look", {}, "k")).result_json for k in (slow, fast)],
                ]
                assert given == [live] * 3 == ['"fast"'] * 3

        asyncio.run(scenario())

    def test_a_step_without_a_key_that_another_process_took_is_not_taken_again(self, shared: Place) -> None:
        async def scenario() -> None:
            bank = Bank()
            async with shared.kernel() as one, shared.kernel() as two:
                bank.tool(one)
                bank.tool(two)
                await one.start_run(tenant=TENANT, run_id="r")
                await call(one, "r", "pay", {}, "other key")
                assert not (await call(two, "r", "pay", {})).replayed
                assert (await call(one, "r", "pay", {})).replayed
                assert len(bank.paid) == 2

        asyncio.run(scenario())

    def test_twins_without_a_key_are_one_call_and_one_result(self, place: Place) -> None:
        async def scenario() -> None:
            bank, many = Bank(), 8 * SIZE
            bank.gate.clear()
            async with place.kernel() as kernel:
                bank.tool(kernel)
                await kernel.start_run(tenant=TENANT, run_id="r")
                tasks = [asyncio.create_task(call(kernel, "r", "pay", {})) for _ in range(many)]
                await soon(lambda: len(bank.paid) == 1)
                bank.gate.set()
                live = await asyncio.gather(*tasks)
                again = await call(kernel, "r", "pay", {})
                assert len(bank.paid) == len(requests(await kernel.get_events(run_id="r"))) == 1
                assert {(each.seq, each.result_json) for each in live} == {(again.seq, again.result_json)}

        asyncio.run(scenario())

    def test_a_tool_that_takes_its_own_step_is_told_so(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:

                @kernel.tool()
                async def look() -> str:
                    return str((await call(kernel, "r", "look", {}, "k")).result_json)

                await kernel.start_run(tenant=TENANT, run_id="r")
                async with asyncio.timeout(20):
                    with pytest.raises(ToolExecutionFailedError, match="waits for itself"):
                        await call(kernel, "r", "look", {}, "k")

        asyncio.run(scenario())
