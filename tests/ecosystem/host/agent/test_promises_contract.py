"""Sentences of the contract at their edges: pins and forks, decisions about tools, clocks, keys, notes, odd results."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict
from tests.ecosystem.host.agent.places import TENANT, Clock, Hooks, Model, Place, ask, call, ends, kinds, of_type

from gert.agent import (
    ArtanaKernel,
    GertError,
    ModelInvocation,
    ModelTransientError,
    RunBlocked,
    RunError,
    ToolExecutionContext,
    ToolExecutionFailedError,
    WorkflowContext,
    canonical_json_dumps,
    json_step_serde,
)
from gert.errors import InputError
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.ledger.record import Batch, Event, Head


async def early() -> int:
    """A tool a run began with."""
    return 1


async def late() -> int:
    """A tool a later deployment brought."""
    return 2


async def offered(kernel: ArtanaKernel, run_id: str) -> list[list[str]]:
    """What models of a run were offered."""
    asked = await of_type(kernel, run_id, "model_requested")
    return [event.payload.allowed_tools for event in asked]  # type: ignore[union-attr]


class TestForks:
    """Where a question has changed, and the run is to fork."""

    @pytest.mark.parametrize("pinned", ["as it began", "as it was asked"])
    def test_a_pinned_run_is_pinned_in_its_forks(self, place: Place, pinned: str) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                if pinned == "as it began":
                    kernel.tool()(early)
                await kernel.start_run(tenant=TENANT, run_id="r")
                if pinned == "as it was asked":
                    kernel.tool()(early)
                await ask(kernel, "r", "a", "k", tool_drift="pin")
                kernel.tool()(late)
                how: dict[str, Any] = {"tool_drift": "pin", "replay_policy": "fork_on_drift"}
                fork = await ask(kernel, "r", "b", "k", **how)
                assert await offered(kernel, fork.run_id) == [["early"]]
                further = await ask(kernel, fork.run_id, "c", "k", **how)
                assert further.forked_from_run_id == fork.run_id
                assert further.run_id.startswith(f"{fork.run_id}::fork::")
                assert await offered(kernel, further.run_id) == [["early"]]
                assert (await ask(kernel, "r", "b", "k", **how)).replayed
                assert (await ask(kernel, fork.run_id, "c", "k", **how)).replayed

        asyncio.run(scenario())

    def test_a_run_that_is_not_pinned_forks_with_the_tools_there_are(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                kernel.tool()(early)
                await ask(kernel, "r", "a", "k")
                fork = await ask(kernel, "r", "b", "k", replay_policy="fork_on_drift")
                assert await offered(kernel, fork.run_id) == [["early"]]

        asyncio.run(scenario())

    def test_a_fork_whose_id_is_too_long_is_refused_and_not_recorded(self, place: Place) -> None:
        name = "r" * 500

        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id=name)
                await ask(kernel, name, "a", "k")
                with pytest.raises(RunError, match="too long"):
                    await ask(kernel, name, "b", "k", replay_policy="fork_on_drift")
                assert "replayed_with_drift" not in await kinds(kernel, name)
                assert (await ask(kernel, name, "a", "k")).replayed

        asyncio.run(scenario())


class TestPins:
    """Who pins a run that nobody began is told so."""

    def test_a_run_that_was_not_started_cannot_be_pinned(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                with pytest.raises(RunError, match="there is no run `r`"):
                    await ask(kernel, "r", "a", "k", tool_drift="pin")

        asyncio.run(scenario())


class TestDecisions:
    """`capability_decision` explains why each tool was allowed or filtered."""

    @pytest.mark.parametrize(
        ("change", "reasons"),
        [
            pytest.param(
                lambda tools: tools,
                {"early": "no_capability_needed", "late": "no_capability_needed"},
                id="nothing is changed",
            ),
            pytest.param(
                lambda tools: tools[:1],
                {"early": "no_capability_needed", "late": "filtered_by_middleware"},
                id="one is taken away",
            ),
            pytest.param(
                lambda tools: (),
                {"early": "filtered_by_middleware", "late": "filtered_by_middleware"},
                id="all are taken away",
            ),
        ],
    )
    def test_it_says_what_middleware_did(self, place: Place, change: Any, reasons: dict[str, str]) -> None:
        class Changes(Hooks):
            async def prepare_model(self, invocation: ModelInvocation) -> ModelInvocation:
                return invocation.with_updates(allowed_tools=change(invocation.allowed_tools))

        async def scenario() -> None:
            async with place.kernel(middleware=[Changes()]) as kernel:
                for tool in (early, late):
                    kernel.tool()(tool)
                await kernel.start_run(tenant=TENANT, run_id="r")
                await ask(kernel, "r", "a", "k")
                [names] = await offered(kernel, "r")
                [event] = await of_type(kernel, "r", "run_summary")
                said = json.loads(event.payload.summary_json)["tools"]  # type: ignore[union-attr]
                assert {each["tool_name"]: each["reason"] for each in said} == reasons
                assert [each["tool_name"] for each in said if each["decision"] == "allowed"] == names
                explained = await kernel.explain_tool_allowlist(tenant=TENANT)
                assert explained["tools"] == said
                assert explained["allowed_tools"] == explained["final_allowed_tools"] == names

        asyncio.run(scenario())


class TestAClockThatIsSetBack:
    """Nothing takes less than no time, and a record stays whole."""

    def test_no_end_is_foreseen_before_now(self, place: Place) -> None:
        clock = Clock()

        async def scenario() -> None:
            async with place.kernel(store={"clock": clock}) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                units = [{"id": "a", "state": "done"}, {"id": "b", "state": "pending"}]
                for seconds, foreseen in ((-3600, None), (3700, 100)):
                    clock.go(seconds)
                    await kernel.append_run_summary(
                        run_id="r",
                        tenant=TENANT,
                        summary_type="task_progress",
                        summary_json=canonical_json_dumps({"units": units}),
                    )
                    progress = await kernel.get_run_progress(run_id="r")
                    assert (progress.percent, progress.eta_seconds) == (50, foreseen)
                assert await kernel.store.verify_run_chain("r")

        asyncio.run(scenario())

    def test_a_model_was_not_waited_for_less_than_no_time(self, place: Place) -> None:
        clock = Clock()

        async def fails(_: Any) -> str:
            clock.go(-3600)
            raise ModelTransientError("busy")

        async def scenario() -> None:
            async with place.kernel(Model(fails), store={"clock": clock}) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(ModelTransientError):
                    await ask(kernel, "r", "a", "k")
                [event] = await of_type(kernel, "r", "model_failed")
                assert event.payload.elapsed_seconds == 0  # type: ignore[union-attr]
                assert (await ask(kernel, "r", "a", "k")).output.text == "a!"
                assert await kernel.store.verify_run_chain("r")

        asyncio.run(scenario())


class Anything(BaseModel):
    """A model that takes what JSON does not."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    value: Any = None
    number: float = 0.0


Note = Callable[[ArtanaKernel, BaseModel], Awaitable[object]]


class TestNotes:
    """What is noted is JSON, and everything else is refused by an error of ours."""

    @pytest.mark.parametrize(
        "unheard",
        [
            pytest.param(Anything(value=object()), id="an object"),
            pytest.param(Anything(value=b"\xff"), id="bytes that are no text"),
            pytest.param(Anything(value="\ud800"), id="half a character"),
            pytest.param(Anything(number=float("nan")), id="no number"),
        ],
    )
    @pytest.mark.parametrize(
        "note",
        [
            pytest.param(lambda k, it: k.pause(run_id="r", tenant=TENANT, reason="x", context=it), id="a pause"),
            pytest.param(lambda k, it: k.resume(run_id="r", tenant=TENANT, human_input=it), id="resuming"),
            pytest.param(
                lambda k, it: k.checkpoint(run_id="r", tenant=TENANT, name="c", payload=it), id="a checkpoint"
            ),
            pytest.param(lambda k, it: k.set_artifact(run_id="r", tenant=TENANT, key="a", value=it), id="an artifact"),
        ],
    )
    def test_a_model_json_cannot_hold_is_refused(self, tmp_path: Any, note: Note, unheard: BaseModel) -> None:
        place = Place("sqlite", str(tmp_path / "runs.db"))

        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await kernel.pause(run_id="r", tenant=TENANT, reason="so that it can be resumed")
                before = await kinds(kernel, "r")
                with pytest.raises(GertError):
                    await note(kernel, unheard)
                assert await kinds(kernel, "r") == before

        asyncio.run(scenario())

    @pytest.mark.parametrize(
        "key",
        [
            pytest.param("k\0", id="a NUL character"),
            pytest.param("\ud800", id="half a character"),
            pytest.param("k" * 1901, id="a very long key"),
            pytest.param("é" * 951, id="a very long key in bytes"),
        ],
    )
    def test_a_run_is_not_blocked_by_a_key_that_cannot_unblock_it(self, place: Place, key: str) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(InputError, match="unblock key"):
                    await kernel.block_run(run_id="r", tenant=TENANT, reason="x", unblock_key=key)
                assert (await kernel.get_run_status(run_id="r")).status == "active"

        asyncio.run(scenario())

    @pytest.mark.parametrize("key", ["k" * 1900, "é" * 950, "a::b", "", "run_unblocked::k", "\n"])
    def test_every_other_key_unblocks_what_it_blocked(self, place: Place, key: str) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await kernel.block_run(run_id="r", tenant=TENANT, reason="x", unblock_key=key)
                assert (await kernel.get_run_status(run_id="r")).status == "paused"
                await kernel.unblock_run(run_id="r", tenant=TENANT, unblock_key=key)
                assert (await kernel.get_run_status(run_id="r")).status == "active"

        asyncio.run(scenario())

    def test_an_unknown_status_is_refused(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                with pytest.raises(InputError, match="status"):
                    await kernel.list_active_runs(tenant_id="acme", status="activ")  # type: ignore[arg-type]

        asyncio.run(scenario())


class TestWorkThatIsNotAwaited:
    """A tool that returns what it should have waited for has not done its work."""

    @pytest.mark.parametrize("as_task", [False, True], ids=["a coroutine", "a task"])
    @pytest.mark.parametrize(
        ("side_effect", "outcome"), [(True, "unknown_outcome"), (False, "permanent_error")], ids=["effects", "none"]
    )
    def test_it_is_not_said_to_have_happened(
        self, place: Place, side_effect: bool, outcome: str, as_task: bool
    ) -> None:
        done: list[int] = []
        begun: list[Any] = []

        async def work() -> int:
            done.append(1)
            return 1

        async def pay(artana_context: ToolExecutionContext) -> Any:
            begun.append(asyncio.ensure_future(work()) if as_task else work())
            return begun[-1]

        async def scenario() -> None:
            async with place.kernel() as kernel:
                kernel.tool(side_effect=side_effect)(pay)
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(ToolExecutionFailedError, match="which is not a result") as refused:
                    await call(kernel, "r", "pay", {}, "k")
                assert refused.value.outcome == outcome
                [end] = ends(await kernel.get_events(run_id="r"))
                assert end.outcome == outcome
            if as_task:
                await begun[0]
            else:
                begun[0].close()
                assert done == []

        asyncio.run(scenario())


class TestLaterVersions:
    """Readers pass over events they do not know."""

    def test_an_event_of_a_type_only_a_later_version_knows_is_passed_over(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await ask(kernel, "r", "a", "k")
                [first] = await kernel.ledger.lines("r", 0, 1)

                def write(head: Head, moment: str) -> Batch:
                    said = json.loads(first) | {
                        "seq": head.count + 1,
                        "type": "thought_aloud",
                        "timestamp": moment,
                        "prev_hash": head.hash,
                        "data": {"text": "hm"},
                    }
                    line = json.dumps(said, separators=(",", ":")).encode()
                    assert head.agent is not None
                    after = replace(
                        head,
                        count=head.count + 1,
                        hash=sha256_hex(line),
                        snapshot=replace(head.agent, last_type="thought_aloud"),
                        updated_at=moment,
                    )
                    return Batch(after, [Event(head.count + 1, "thought_aloud", moment, None, line)])

                await kernel.ledger.append("r", write)
                await ask(kernel, "r", "b", "l")
                known = [1, 2, 3, 4, 6, 7, 8]
                assert [event.seq for event in await kernel.get_events(run_id="r")] == known
                assert [event.seq async for event in kernel.stream_events(run_id="r")] == known
                store: Any = kernel.store
                assert [event.seq for event in await store.get_events_for_run("r")] == known
                assert [event.seq async for event in store.stream_events("r", since_seq=4)] == known[4:]
                assert await store.verify_run_chain("r")
                assert (await kernel.get_run_status(run_id="r")).last_event_seq == 8

        asyncio.run(scenario())


class TestWorkflowsThatWait:
    """A workflow that is run again before anybody has resumed it is paused as it was."""

    @staticmethod
    async def inside(context: WorkflowContext) -> Any:
        async def ask_first() -> int:
            await context.pause("sure?", step_key="sure")
            return 1

        return await context.step(name="outer", action=ask_first, serde=json_step_serde())

    @staticmethod
    async def beside(context: WorkflowContext) -> Any:
        async def work() -> int:
            return 1

        async with asyncio.TaskGroup() as group:
            group.create_task(context.pause("sure?", step_key="sure"))
            done = group.create_task(context.step(name="work", action=work, serde=json_step_serde()))
        return done.result()

    @pytest.mark.parametrize("work", ["inside", "beside"])
    def test_it_is_paused_until_it_is_resumed(self, place: Place, work: str) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                workflow = getattr(self, work)
                tickets = set()
                for _ in range(3):
                    found = await kernel.run_workflow(run_id="r", tenant=TENANT, workflow=workflow)
                    assert found.status == "paused"
                    tickets.add(found.pause_ticket)
                assert len(tickets) == 1
                await kernel.resume(run_id="r", tenant=TENANT)
                found = await kernel.run_workflow(run_id="r", tenant=TENANT, workflow=workflow)
                assert (found.status, found.output) == ("complete", 1)

        asyncio.run(scenario())

    @pytest.mark.parametrize("how", ["blocked", "paused by a person", "blocked and paused"])
    def test_a_run_that_is_to_stand_still_refuses_its_steps(self, place: Place, how: str) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                if how == "blocked and paused":
                    await kernel.run_workflow(run_id="r", tenant=TENANT, workflow=self.inside)
                else:
                    await kernel.start_run(tenant=TENANT, run_id="r")
                if how == "paused by a person":
                    await kernel.pause(run_id="r", tenant=TENANT, reason="stop")
                else:
                    await kernel.block_run(run_id="r", tenant=TENANT, reason="stop", unblock_key="k")
                with pytest.raises(RunBlocked, match="stop"):
                    await kernel.run_workflow(run_id="r", tenant=TENANT, workflow=self.inside)

        asyncio.run(scenario())

    def test_a_failure_beside_a_pause_is_a_failure(self, place: Place) -> None:
        async def work(context: WorkflowContext) -> None:
            async def fails() -> None:
                raise ValueError("no")

            await asyncio.sleep(0)
            async with asyncio.TaskGroup() as group:
                group.create_task(fails())
                group.create_task(context.pause("sure?", step_key="sure"))

        async def scenario() -> None:
            async with place.kernel() as kernel:
                with pytest.raises(BaseExceptionGroup) as failed:
                    await kernel.run_workflow(run_id="r", tenant=TENANT, workflow=work)
                assert failed.value.subgroup(ValueError) is not None

        asyncio.run(scenario())
