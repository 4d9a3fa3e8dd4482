"""Points 9 to 12 and 14 of "what must hold", on every ledger that processes share; 13 is in `test_promises_agents`."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.ecosystem.host.agent.places import TENANT, Answer, Model, Place, ask, call, in_loop, kinds
from tests.ecosystem.host.agent.policies import Mailer
from tests.ecosystem.host.agent.test_agent_approvals import ANN_PUBLIC, CRITIC, answer, asked, critic, gate, people
from tests.ecosystem.host.agent.test_budgets import CALL, Priced, kernel_of

from gert.agent import (
    ArtanaKernel,
    BudgetExceededError,
    LeaseLost,
    PIIScrubberMiddleware,
    PolicyViolationError,
    RunBlocked,
    TenantContext,
)


@in_loop
async def test_point_9_status_progress_and_explanation_come_from_one_fold(shared: Place) -> None:
    async with shared.kernel() as kernel:
        await kernel.start_run(tenant=TENANT, run_id="r")
        units = [{"id": "a", "state": "done"}, {"id": "b", "state": "in_progress"}, {"id": "c", "state": "pending"}]
        await kernel.append_run_summary(
            run_id="r", tenant=TENANT, summary_type="task_progress", summary_json=json.dumps({"units": units})
        )
        async with kernel.run(tenant=TENANT, run_id="r"):
            pass  # the block is left with one of three tasks done
        status = await kernel.get_run_status(run_id="r")
        progress = await kernel.get_run_progress(run_id="r")
        explained = await kernel.explain_run("r")
        assert (status.status, progress.status, progress.percent) == ("active", "running", 33)
        assert (explained["status"], explained["percent"]) == (status.status, progress.percent)
        assert progress.current_stage == explained["current_stage"] == "b"


@in_loop
async def test_point_9_blocks_stack_clear_and_are_enforced(shared: Place) -> None:
    async with shared.kernel() as kernel:
        await kernel.start_run(tenant=TENANT, run_id="r")
        for key in ("one", "two"):
            await kernel.block_run(run_id="r", tenant=TENANT, reason=key, unblock_key=key)
        for left in ("unblock:two", "unblock:one"):
            assert (await kernel.get_run_status(run_id="r")).blocked_on == left
            with pytest.raises(RunBlocked):
                await ask(kernel, "r", "q", "s")
            await kernel.unblock_run(run_id="r", tenant=TENANT, unblock_key=left.removeprefix("unblock:"))
        await ask(kernel, "r", "q", "s")


@in_loop
async def test_point_9_a_worker_that_lost_its_lease_cannot_append(shared: Place) -> None:
    moment = [datetime(2030, 1, 1, tzinfo=UTC)]
    shared.clock = lambda: moment[0]
    async with shared.kernel() as first, shared.kernel() as second:
        await first.start_run(tenant=TENANT, run_id="r")
        assert await first.acquire_run_lease(run_id="r", worker_id="one", ttl_seconds=10)
        with pytest.raises(LeaseLost):
            await ask(second, "r", "q", "s")
        moment[0] += timedelta(seconds=11)
        assert await second.acquire_run_lease(run_id="r", worker_id="two", ttl_seconds=10)
        before = await kinds(second, "r")
        for refused in (ask(first, "r", "q", "s"), first.checkpoint(run_id="r", tenant=TENANT, name="c", payload=1)):
            with pytest.raises(LeaseLost):
                await refused
        assert await kinds(second, "r") == before


@in_loop
async def test_point_10_a_model_sees_placeholders_and_a_tool_its_real_arguments(shared: Place) -> None:
    model, called = Model(), []
    async with shared.kernel(model, middleware=[PIIScrubberMiddleware()]) as kernel:

        @kernel.tool()
        async def mail(to: str) -> str:
            """Send mail."""
            called.append(to)
            return to

        await kernel.start_run(tenant=TENANT, run_id="r")
        await ask(kernel, "r", "write to kim@example.com", "s")
        await call(kernel, "r", "mail", {"to": "kim@example.com"}, "m")
        assert (model.asked, called) == (["write to [EMAIL_1]"], ["kim@example.com"])


@in_loop
async def test_point_11_approvals_say_who_may_be_rejected_are_used_once_and_are_listed(shared: Place) -> None:
    async with Mailer(shared, approvals=people(ANN_PUBLIC), **gate()) as mailer:
        await mailer.begin()
        key = (await asked(mailer)).approval_key
        listed = await mailer.kernel.list_pending_approvals(tenant=TENANT, run_id="r")
        assert [(each.approval_key, each.tool_name) for each in listed] == [(key, "send")]
        await answer(mailer, "ann", signed=True)
        await mailer.send()
        recorded = await mailer.kernel.get_latest_run_summary(run_id="r", summary_type=f"policy::approval::{key}")
        assert recorded is not None
        assert json.loads(recorded.summary_json)["by"] == "ann"
        await asked(mailer, "again")  # the approval is used up
        await mailer.kernel.approve_tool_call(
            run_id="r", tenant=TENANT, approval_key=key, mode="human", reason="no", by="bob", approved=False
        )
        with pytest.raises(PolicyViolationError, match="`bob` rejected it"):
            await mailer.send("again")
        assert len(mailer.sent) == 1


@in_loop
async def test_point_11_an_expired_answer_of_a_critic_is_asked_again(shared: Place) -> None:
    moment = [datetime(2030, 1, 1, tzinfo=UTC)]
    shared.clock = lambda: moment[0]
    model = critic(True, True)
    async with Mailer(shared, model, **CRITIC) as mailer:
        await mailer.begin()
        for step, asked_so_far in (("one", 1), ("two", 1), ("three", 2)):
            await mailer.send(step)
            assert len(model.asked) == asked_so_far
            moment[0] += timedelta(seconds=40)


@in_loop
async def test_point_12_a_tree_of_runs_shares_a_budget_and_a_paid_answer_is_kept(shared: Place) -> None:
    who = TenantContext(tenant_id="acme", budget_usd_limit=3 * CALL)
    async with kernel_of(shared, Priced(cost=10 * CALL)) as kernel:
        for run_id in ("r", "r::sub_agent::k"):
            await kernel.start_run(tenant=who, run_id=run_id)
        found = await ask(kernel, "r::sub_agent::k", "q", "s", tenant=who, model="m")
        assert found.usage.cost_usd == 10 * CALL
        for run_id in ("r", "r::sub_agent::k"):
            with pytest.raises(BudgetExceededError):
                await ask(kernel, run_id, "q2", "s2", tenant=who, model="m")
        assert (await ask(kernel, "r::sub_agent::k", "q", "s", tenant=who, model="m")).replayed


@in_loop
async def test_point_14_what_was_read_is_part_of_the_ledger(shared: Place) -> None:
    memory = ["first"]

    async def look() -> str:
        return memory[-1]

    async def remember(kernel: ArtanaKernel) -> Any:
        text = await kernel.read_context(run_id="r", tenant=TENANT, source="memory", step_key="read", look=look)
        return await ask(kernel, "r", f"you know: {text}", "s")

    async with shared.kernel() as kernel:
        await kernel.start_run(tenant=TENANT, run_id="r")
        live = await remember(kernel)
    memory.append("second")  # the run wrote to its own memory
    async with shared.kernel() as heir:
        again = await remember(heir)
        assert again.replayed
        assert (live.output, again.output) == (Answer(text="you know: first!"),) * 2
    await asyncio.sleep(0)
