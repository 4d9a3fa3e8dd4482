"""Harnesses: they wake, work and sleep; tasks are done one by one, and only if their tests pass; children; resuming."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel
from tests.ecosystem.host.agent.places import kinds, of_type
from tests.ecosystem.host.agent.test_agents import summaries

from gert.agent import (
    ArtanaKernel,
    BaseHarness,
    ChatMessage,
    DraftReviewVerifySupervisor,
    HarnessContext,
    HarnessStateError,
    IncrementalTaskHarness,
    InMemoryStore,
    ModelTransientError,
    RunBlocked,
    SupervisorHarness,
    TaskProgressValidationError,
    TaskUnit,
    TestDrivenHarness,
    ToolExecutionContext,
    ToolUnknownOutcomeError,
)
from gert.testing import ScriptedModel, a_tenant, calls, fails, memory_kernel, says

TENANT = a_tenant()


class Text(BaseModel):
    text: str


class Nothing(BaseModel):
    """A tool's arguments without any."""


class Asks(BaseHarness[str]):
    """Asks a model twice and keeps the second answer."""

    async def step(self, *, context: HarnessContext) -> str:
        first = await self.run_model(prompt="one?", output_schema=Text)
        second = await self.run_draft_model(messages=[ChatMessage(role="user", content="two?")], output_schema=Text)
        await self.set_artifact(key="second", value=second.output.text, step_key="keep")
        return f"{first.output.text} {second.output.text}"


def test_a_harness_wakes_works_and_sleeps() -> None:
    async def main() -> None:
        model = ScriptedModel([says({"text": "a"}), says({"text": "b"}, cost_usd=0.5)])
        kernel = memory_kernel(model)
        assert await Asks(kernel, TENANT).run("r") == "a b"
        assert [request.model for request in model.requests] == ["gpt-4o-mini", "gpt-5.3-codex-spark"]
        said = await kinds(kernel, "r")
        assert [kind for kind in said if kind != "run_summary"] == [
            *("run_started", "harness_initialized", "harness_wake"),
            *("model_requested", "model_completed") * 2,
            "harness_sleep",
        ]
        assert (await kernel.get_run_status(run_id="r")).status == "completed"
        [woken] = await summaries(kernel, "r", "wake_reorientation")
        assert (woken["run_created"], woken["last_sleep"]) == (True, None)
        assert await summaries(kernel, "r", "harness_sleep") == [{"model_cost_total": 0.5, "status": "completed"}]
        assert await kernel.get_artifact(run_id="r", key="second") == "b"
        # Woken again, it replays: no model is asked, and only waking and sleeping are new.
        assert await Asks(kernel).run("r", tenant=TENANT) == "a b"
        assert model.calls == 2
        later = (await kinds(kernel, "r"))[len(said) :]
        assert [kind for kind in later if kind != "run_summary"] == ["harness_wake", "harness_sleep"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("level", "traced"),
    [
        pytest.param("minimal", set(), id="minimal: no traces"),
        pytest.param("stage", {"trace::state_transition", "trace::cost_snapshot"}, id="stage: stages and cost"),
        pytest.param(
            "verbose",
            {"trace::state_transition", "trace::cost_snapshot", "trace::cost"},
            id="verbose: also each model step",
        ),
    ],
)
def test_how_much_is_traced_is_chosen(level: Any, traced: set[str]) -> None:
    async def main() -> None:
        kernel = memory_kernel([says({"text": "a"}), says({"text": "b"})])
        await Asks(kernel, TENANT).run("r", trace_level=level)
        found = {getattr(event.payload, "summary_type", "") for event in await of_type(kernel, "r", "run_summary")}
        assert {kind for kind in found if kind.startswith("trace::")} == traced

    asyncio.run(main())


def test_a_failure_is_recorded_and_the_next_wake_continues() -> None:
    async def main() -> None:
        slept: list[Exception | None] = []

        class Careful(Asks):
            async def on_sleep(self, *, context: HarnessContext, execution_error: Exception | None) -> None:
                slept.append(execution_error)

        model = ScriptedModel([says({"text": "a"}), fails(ModelTransientError("busy")), says({"text": "b"})])
        kernel = memory_kernel(model)
        harness = Careful(kernel, TENANT)
        with pytest.raises(ModelTransientError):
            await harness.run("r")
        status = await kernel.get_run_status(run_id="r")
        assert (status.status, status.failure_reason) == ("failed", "ModelTransientError: busy")
        assert await harness.run("r") == "a b"
        assert (await kernel.get_run_status(run_id="r")).status == "completed"
        assert [type(each).__name__ for each in slept] == ["ModelTransientError", "NoneType"]
        assert model.calls == 3

    asyncio.run(main())


def test_a_paused_run_has_not_failed() -> None:
    async def main() -> None:
        kernel = memory_kernel([says({"text": "a"}), says({"text": "b"})])
        await kernel.start_run(tenant=TENANT, run_id="r")
        await kernel.pause(run_id="r", tenant=TENANT, reason="ask Ann")
        with pytest.raises(RunBlocked):
            await Asks(kernel, TENANT).run("r")
        assert "harness_failed" not in await kinds(kernel, "r")
        await kernel.resume(run_id="r", tenant=TENANT)
        assert await Asks(kernel, TENANT).run("r") == "a b"

    asyncio.run(main())


def test_a_wake_does_not_end_well_while_an_outcome_is_unknown() -> None:
    async def main() -> None:
        class Swallows(BaseHarness[None]):
            async def step(self, *, context: HarnessContext) -> None:
                with pytest.raises(Exception, match="unknown"):
                    await self.run_tool(tool_name="charge", arguments=Nothing())

        kernel = memory_kernel()

        @kernel.tool(side_effect=True)
        async def charge(artana_context: ToolExecutionContext) -> str:
            raise ToolUnknownOutcomeError("connection lost")

        with pytest.raises(HarnessStateError, match="unknown outcome: `charge`"):
            await Swallows(kernel, TENANT).run("r")
        assert (await kernel.get_run_status(run_id="r")).status == "failed"

    asyncio.run(main())


def test_equal_questions_of_one_wake_are_asked_twice_and_changed_ones_never_get_old_answers() -> None:
    async def main() -> None:
        class Samples(BaseHarness[list[str]]):
            question = "name a number"

            async def step(self, *, context: HarnessContext) -> list[str]:
                asked = [await self.run_model(prompt=self.question, output_schema=Text) for _ in range(2)]
                return [each.output.text for each in asked]

        model = ScriptedModel([says({"text": text}) for text in "1234"])
        kernel = memory_kernel(model)
        harness = Samples(kernel, TENANT)
        assert await harness.run("r") == ["1", "2"]
        assert await harness.run("r") == ["1", "2"]
        harness.question = "name a letter"
        assert await harness.run("r") == ["3", "4"]

    asyncio.run(main())


class Three(IncrementalTaskHarness):
    """Three tasks, each with a tool call."""

    worked: list[str]

    async def define_tasks(self) -> list[TaskUnit]:
        return [TaskUnit(id=name, description=f"do {name}") for name in ("a", "b", "c")]

    async def work_on(self, task: TaskUnit) -> None:
        assert task.state == "in_progress"
        await self.run_tool(tool_name="work", arguments=Nothing())


def tasks_kernel(store: InMemoryStore | None = None) -> tuple[ArtanaKernel, list[str]]:
    done: list[str] = []
    kernel = memory_kernel()

    @kernel.tool(side_effect=True)
    async def work(artana_context: ToolExecutionContext) -> str:
        done.append(artana_context.idempotency_key)
        return "worked"

    return kernel, done


def test_one_task_is_worked_on_in_each_wake() -> None:
    async def main() -> None:
        kernel, done = tasks_kernel()
        seen: list[Mapping[str, object]] = []

        class Watching(Three):
            async def on_wake(self, *, context: HarnessContext, reorientation: Mapping[str, object]) -> None:
                await super().on_wake(context=context, reorientation=reorientation)
                seen.append(reorientation)

        harness = Watching(kernel, TENANT)
        percents = []
        for _ in range(4):
            units = await harness.run("r")
            progress = await kernel.get_run_progress(run_id="r")
            percents.append((progress.percent, progress.status, [unit.state for unit in units].count("done")))
        assert percents == [(33, "running", 1), (66, "running", 2), (100, "completed", 3), (100, "completed", 3)]
        assert len(set(done)) == len(done) == 3
        assert [each["percent"] for each in seen] == [0, 33, 66, 100]
        stages = [event.payload.stage for event in await of_type(kernel, "r", "harness_stage")]  # type: ignore[union-attr]
        assert stages == ["a", "b", "c"]
        assert len(await summaries(kernel, "r", "trace::round")) == 3

    asyncio.run(main())


def test_a_task_that_failed_stays_in_progress_and_its_recorded_steps_are_not_repeated() -> None:
    async def main() -> None:
        kernel, done = tasks_kernel()

        class Fragile(Three):
            broken = True

            async def work_on(self, task: TaskUnit) -> None:
                await super().work_on(task)
                if self.broken:
                    raise OSError("disk full")

        harness = Fragile(kernel, TENANT)
        with pytest.raises(OSError, match="disk full"):
            await harness.run("r")
        assert [unit.state for unit in await harness.get_task_progress(run_id="r") or ()] == [
            *("in_progress", "pending", "pending")
        ]
        harness.broken = False
        assert [unit.state for unit in await harness.run("r")] == ["done", "pending", "pending"]
        assert len(done) == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        pytest.param(False, "sanity check", id="false"),
        pytest.param(RuntimeError("dirty tree"), "dirty tree", id="an exception"),
    ],
)
def test_a_failed_sanity_check_stops_the_work(answer: Any, match: str) -> None:
    async def main() -> None:
        kernel, done = tasks_kernel()

        async def check(context: HarnessContext) -> bool:
            if isinstance(answer, Exception):
                raise answer
            return bool(answer)

        with pytest.raises(RuntimeError, match=match):
            await Three(kernel, TENANT, sanity_check_hook=check).run("r")
        assert done == []

    asyncio.run(main())


def unit(name: str, state: Any = "pending", description: str = "") -> TaskUnit:
    return TaskUnit(id=name, description=description, state=state)


@pytest.mark.parametrize(
    ("units", "why"),
    [
        pytest.param([unit("a", "in_progress"), unit("b")], None, id="forward is allowed"),
        pytest.param([unit("a", "done"), unit("b"), unit("c")], None, id="new tasks may follow"),
        pytest.param([unit("b")], "removed or moved", id="a task is not removed"),
        pytest.param([unit("b"), unit("a")], "removed or moved", id="tasks are not moved"),
        pytest.param([unit("a"), unit("a")], "different ids", id="ids are unique"),
        pytest.param([unit("a"), unit("b"), unit(" ")], "different ids", id="ids are not empty"),
        pytest.param([unit("a", description="less"), unit("b")], "description", id="descriptions stay"),
        pytest.param([unit("a", "in_progress"), unit("b", "in_progress")], "only one", id="one is in progress"),
    ],
)
def test_how_tasks_may_change(units: list[TaskUnit], why: str | None) -> None:
    async def main() -> None:
        kernel, _ = tasks_kernel()
        await kernel.start_run(tenant=TENANT, run_id="r")
        harness = Three(kernel, TENANT)
        await harness.set_task_progress(run_id="r", units=[unit("a"), unit("b")])
        if why is None:
            await harness.set_task_progress(run_id="r", units=units)
            assert await harness.get_task_progress(run_id="r") == tuple(units)
            return
        with pytest.raises(TaskProgressValidationError, match=why):
            await harness.set_task_progress(run_id="r", units=units)
        assert await harness.get_task_progress(run_id="r") == (unit("a"), unit("b"))

    asyncio.run(main())


def test_a_task_never_goes_back() -> None:
    async def main() -> None:
        kernel, _ = tasks_kernel()
        await kernel.start_run(tenant=TENANT, run_id="r")
        harness = Three(kernel, TENANT)
        await harness.set_task_progress(run_id="r", units=[unit("a", "done")])
        with pytest.raises(TaskProgressValidationError, match="from done to pending"):
            await harness.transition_task_unit(run_id="r", unit_id="a", new_state="pending")
        with pytest.raises(ValueError, match="there is no task `z`"):
            await harness.transition_task_unit(run_id="r", unit_id="z", new_state="done")

    asyncio.run(main())


class Tested(TestDrivenHarness):
    """A task that is done when its tests pass; it tries twice in a wake."""

    claims = False

    async def define_tasks(self) -> list[TaskUnit]:
        return [TaskUnit(id="parser", description="write a parser")]

    async def work_on(self, task: TaskUnit) -> None:
        if self.claims:
            await self.transition_task_unit(unit_id=task.id, new_state="done")
        for _ in range(2):
            if await self.verify_and_commit(task_id=task.id, test_command="pytest -q"):
                return


def kernel_with_tests(model: ScriptedModel, *results: Any) -> ArtanaKernel:
    kernel, left = memory_kernel(model), list(results)

    @kernel.tool(side_effect=True)
    async def execute_test(command: str, artana_context: ToolExecutionContext) -> Any:
        return left.pop(0)

    return kernel


@pytest.mark.parametrize(
    ("result", "verdict", "state"),
    [
        pytest.param({"exit_code": 0}, True, "done", id="tests passed and the model agrees"),
        pytest.param({"exit_code": 1}, True, "in_progress", id="a model cannot pass tests that failed"),
        pytest.param({"passed": False, "exit_code": 0}, True, "in_progress", id="a flag is not outvoted"),
        pytest.param({"exit_code": 0, "output": "0 tests ran"}, False, "in_progress", id="the model finds no tests"),
        pytest.param("12 passed", True, "done", id="text is for the model to judge"),
        pytest.param(False, True, "in_progress", id="a bare false"),
    ],
)
def test_a_task_is_done_only_if_its_tests_pass(result: Any, verdict: bool, state: str) -> None:
    async def main() -> None:
        model = ScriptedModel([says({"passed": verdict, "reasoning": "seen"})] * 2)
        units = await Tested(kernel_with_tests(model, result, result), TENANT).run("r")
        assert [each.state for each in units] == [state]
        assert {request.model for request in model.requests} == {"gpt-5.3-codex"}
        assert all(not request.allowed_tools for request in model.requests)

    asyncio.run(main())


def test_tests_run_again_after_they_failed_and_a_task_cannot_be_claimed_done() -> None:
    async def main() -> None:
        model = ScriptedModel([says({"passed": passed, "reasoning": ""}) for passed in (False, True)])
        kernel = kernel_with_tests(model, {"exit_code": 1}, {"exit_code": 0})
        harness = Tested(kernel, TENANT)
        harness.claims = True
        with pytest.raises(TaskProgressValidationError, match="is not verified"):
            await harness.run("r")
        harness.claims = False
        assert [each.state for each in await harness.run("r")] == ["done"]
        assert len(await of_type(kernel, "r", "tool_requested")) == 2

    asyncio.run(main())


class Says(BaseHarness[object]):
    """Returns what a model says about the artifacts it was given."""

    async def step(self, *, context: HarnessContext) -> object:
        given = {key: await self.get_artifact(key=key) for key in ("draft", "review")}
        answer = await self.run_model(prompt=json.dumps(given), output_schema=Text)
        return answer.output.text


@pytest.mark.parametrize(
    ("passes", "verified", "approved"),
    [
        pytest.param(None, "yes", False, id="a text approves nothing"),
        pytest.param(lambda result: result == "yes", "yes", True, id="a rule of the caller approves"),
        pytest.param(lambda result: result == "yes", "no", False, id="or does not"),
    ],
)
def test_a_draft_is_reviewed_and_verified_each_in_a_run_of_its_own(passes: Any, verified: str, approved: bool) -> None:
    async def main() -> None:
        model = ScriptedModel([says({"text": "draft"}), says({"text": "review"}), says({"text": verified})])
        kernel = memory_kernel(model)
        one, two, three = (Says(kernel) for _ in range(3))
        supervisor = DraftReviewVerifySupervisor(
            kernel=kernel, tenant=TENANT, drafter=one, reviewer=two, verifier=three, verify_passes=passes
        )
        found = await supervisor.run("r")
        assert (found.draft, found.review, found.verify, found.approved) == ("draft", "review", verified, approved)
        assert model.requests[2].prompt == '{"draft": "draft", "review": "review"}'
        assert await kernel.list_artifacts(run_id="r") == {"draft": "draft", "review": "review", "verify": verified}
        assert (await kernel.get_run_status(run_id="r::child::verify")).status == "completed"
        assert await supervisor.run("r") == found
        assert model.calls == 3

    asyncio.run(main())


def test_a_supervisor_passes_its_tenant_to_its_children_and_an_agent_works_in_a_harness() -> None:
    async def main() -> None:
        class Delegates(BaseHarness[object]):
            async def step(self, *, context: HarnessContext) -> object:
                found = [
                    await self.run_autonomous_agent(prompt=prompt, output_schema=Text) for prompt in ("one", "two")
                ]
                return [each.text for each in found]

        class Boss(SupervisorHarness[object]):
            async def step(self, *, context: HarnessContext) -> object:
                return await self.run_child(Delegates(self.kernel), run_id="child")

        model = ScriptedModel([calls("query_event_history", {}), says({"text": "1"}), says({"text": "2"})])
        kernel = memory_kernel(model)
        assert await Boss(kernel, TENANT).run("boss") == ["1", "2"]
        asked = [event.payload.step_key for event in await of_type(kernel, "child", "model_requested")]  # type: ignore[union-attr]
        assert asked == ["turn_1_model", "turn_2_model", "harness_agent_2_turn_1_model"]
        assert "run_ended" not in await kinds(kernel, "child"), "the harness ends its run, not the agent in it"
        assert await Boss(kernel, TENANT).run("boss") == ["1", "2"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("given", "match"),
    [
        pytest.param({"prompt": "a", "messages": []}, "expected one of", id="a prompt and messages"),
        pytest.param({}, "expected one of", id="neither"),
        pytest.param({"prompt": "a", "step_key": " "}, "step key", id="an empty step key"),
    ],
)
def test_what_a_harness_refuses(given: dict[str, Any], match: str) -> None:
    async def main() -> None:
        kernel = memory_kernel()
        await kernel.start_run(tenant=TENANT, run_id="r")
        with pytest.raises((ValueError, HarnessStateError), match=match):
            await Asks(kernel, TENANT).run_model(output_schema=Text, run_id="r", **given)

    asyncio.run(main())


def test_outside_of_a_run_a_harness_needs_a_run_and_a_tenant() -> None:
    async def main() -> None:
        harness = Asks(memory_kernel())
        with pytest.raises(HarnessStateError, match="no run is worked on"):
            await harness.get_artifact(key="x")
        with pytest.raises(HarnessStateError, match="no tenant"):
            await harness.run("r")

    asyncio.run(main())


def test_drift_and_bad_arguments_are_traced() -> None:
    async def main() -> None:
        class Drifts(BaseHarness[str]):
            question = "one?"

            async def step(self, *, context: HarnessContext) -> str:
                asked = await self.run_model(prompt=self.question, output_schema=Text, step_key="ask")
                with pytest.raises(ValueError, match="text"):
                    await self.run_tool(tool_name="look", arguments=Nothing())
                return asked.output.text

        kernel = memory_kernel([says({"text": "a"})])

        @kernel.tool()
        async def look(text: str) -> str:
            return text

        harness = Drifts(kernel, TENANT, trace_level="verbose")
        await harness.run("r")
        harness.question = "two?"
        assert await harness.run("r") == "a"
        [drift] = await summaries(kernel, "r", "trace::drift")
        assert (drift["step_key"], drift["fields"]) == ("ask", ["prompt", "messages"])
        [refused] = await summaries(kernel, "r", "trace::tool_validation")
        assert refused["tool_name"] == "look"

    asyncio.run(main())


def test_an_error_while_falling_asleep_is_recorded_and_raised() -> None:
    async def main() -> None:
        class Restless(Asks):
            async def on_sleep(self, *, context: HarnessContext, execution_error: Exception | None) -> None:
                raise OSError("no bed")

        kernel = memory_kernel([says({"text": "a"}), says({"text": "b"})])
        with pytest.raises(OSError, match="no bed"):
            await Restless(kernel, TENANT).run("r")
        [slept] = await of_type(kernel, "r", "harness_sleep")
        assert (slept.payload.status, slept.payload.sleep_error_type) == ("failed", "OSError")  # type: ignore[union-attr]
        assert (await kernel.get_run_status(run_id="r")).status == "failed"
        assert await Asks(kernel, TENANT).run("r") == "a b"

    asyncio.run(main())
