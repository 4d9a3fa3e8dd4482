"""A harness that works on one task after the other, one in each wake."""

import inspect
from abc import abstractmethod
from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from gert.errors import HarnessStateError, InputError, TaskProgressValidationError
from gert.kernel.agent.api.kernel import AgentKernel
from gert.kernel.agent.harness.base import BaseHarness
from gert.kernel.agent.harness.scope import current_scope, working_in
from gert.kernel.agent.harness.types import HarnessContext, SanityCheckHook, TaskProgressSnapshot, TaskState, TaskUnit
from gert.kernel.agent.types.api import ReplayPolicy, TenantContext
from gert.kernel.agent.types.payload_models import EventType, HarnessStagePayload
from gert.kernel.foundation.arguments import checks_arguments
from gert.kernel.ledger.agent_fold import TASK_PROGRESS

ORDER: Sequence[TaskState] = ("pending", "in_progress", "done")


@checks_arguments
class IncrementalTaskHarness(BaseHarness[tuple[TaskUnit, ...]]):
    """Defines its tasks once, and works on the next one in each wake: call `run` until all are done.

    A task that was interrupted is worked on again from its beginning; its recorded steps are replayed.
    """

    verifies: bool = False
    """Whether a task needs a verification to be done."""

    def __init__(
        self,
        kernel: AgentKernel,
        tenant: TenantContext | None = None,
        *,
        default_model: str = "gpt-4o-mini",
        draft_model: str = "gpt-5.3-codex-spark",
        verify_model: str = "gpt-5.3-codex",
        replay_policy: ReplayPolicy = "allow_prompt_drift",
        sanity_check_hook: SanityCheckHook | None = None,
    ) -> None:
        super().__init__(
            kernel,
            tenant,
            default_model=default_model,
            draft_model=draft_model,
            verify_model=verify_model,
            replay_policy=replay_policy,
        )
        self._sanity_check = sanity_check_hook

    @abstractmethod
    async def define_tasks(self) -> list[TaskUnit]:
        """Return the tasks of a new run, in order."""

    @abstractmethod
    async def work_on(self, task: TaskUnit) -> None:
        """Work on a task until it is done."""

    async def on_initialize(self, *, context: HarnessContext) -> None:
        """Record the tasks of a new run."""
        if await self.get_task_progress(run_id=context.run_id) is None:
            await self.set_task_progress(
                run_id=context.run_id,
                tenant=context.tenant,
                units=await self.define_tasks(),
                step_key="task_progress_defined",
            )

    async def on_wake(self, *, context: HarnessContext, reorientation: Mapping[str, object]) -> None:
        """Check that there are tasks, and that the world is as the next one expects it."""
        if await self.get_task_progress(run_id=context.run_id) is None:
            raise HarnessStateError(f"run `{context.run_id}` has no tasks", hint="it was started by another harness")
        if self._sanity_check is not None:
            found = self._sanity_check(context)
            if (await found if inspect.isawaitable(found) else found) is False:
                raise HarnessStateError(f"the sanity check of run `{context.run_id}` failed")

    async def on_sleep(self, *, context: HarnessContext, execution_error: Exception | None) -> None:
        """Clean up after the work."""

    async def step(self, *, context: HarnessContext) -> tuple[TaskUnit, ...]:
        """Work on the next task, and return all tasks."""
        task = next_task(await self._units(context.run_id))
        if task is not None:
            await self._work(context, task)
        return await self._units(context.run_id)

    async def get_task_progress(self, *, run_id: str | None = None) -> tuple[TaskUnit, ...] | None:
        """Return the tasks of a run; None if it has none on record."""
        found = await self.read_summary(TASK_PROGRESS, run_id=run_id)
        if found is None:
            return None
        try:
            return tuple(TaskProgressSnapshot.model_validate(found).units)
        except ValidationError as error:
            raise TaskProgressValidationError(
                f"the tasks of run `{self._run_of(run_id)}` cannot be read: {error.error_count()} problems"
            ) from error

    async def set_task_progress(
        self,
        *,
        run_id: str | None = None,
        tenant: TenantContext | None = None,
        units: Sequence[TaskUnit],
        step_key: str | None = None,
        verified_done_unit_ids: frozenset[str] = frozenset(),
    ) -> int:
        """Record the state of all tasks; TaskProgressValidationError if they may not change in this way.

        verified_done_unit_ids: tasks that were verified, where a task needs that to be done
        """
        before = await self.get_task_progress(run_id=run_id)
        check_change(before, units, verified_done_unit_ids, verifies=self.verifies)
        return await self.write_summary(
            TASK_PROGRESS, TaskProgressSnapshot(units=list(units)), step_key=step_key, run_id=run_id, tenant=tenant
        )

    async def transition_task_unit(
        self,
        *,
        run_id: str | None = None,
        tenant: TenantContext | None = None,
        unit_id: str,
        new_state: TaskState,
        step_key: str | None = None,
        verification_passed: bool = False,
    ) -> int:
        """Change the state of one task."""
        units = await self._units(self._run_of(run_id))
        if unit_id not in {unit.id for unit in units}:
            raise InputError(f"there is no task `{unit_id}`", hint=f"tasks: {', '.join(unit.id for unit in units)}")
        changed = [unit.model_copy(update={"state": new_state}) if unit.id == unit_id else unit for unit in units]
        return await self.set_task_progress(
            run_id=run_id,
            tenant=tenant,
            units=changed,
            step_key=step_key if step_key is not None else f"task_progress_{unit_id}_{new_state}",
            verified_done_unit_ids=frozenset({unit_id}) if verification_passed else frozenset(),
        )

    async def _work(self, context: HarnessContext, task: TaskUnit) -> None:
        scope = current_scope()
        if scope is None:
            raise HarnessStateError("tasks are worked on inside `run`")
        if task.state == "pending":
            await self.transition_task_unit(unit_id=task.id, new_state="in_progress")
            await self._say(context, EventType.HARNESS_STAGE, HarnessStagePayload(stage=task.id))
        facts: dict[str, object] = {"stage": task.id, "description": task.description}
        await self._trace("stage", context.run_id, context.tenant, "round", facts, f"round_{task.id}")
        with working_in(scope.of_task(task.id)):
            await self.work_on(task.model_copy(update={"state": "in_progress"}))
        await self._finish(task)

    async def _finish(self, task: TaskUnit) -> None:
        """Mark a task as done after its work."""
        await self.transition_task_unit(unit_id=task.id, new_state="done")

    async def _units(self, run_id: str) -> tuple[TaskUnit, ...]:
        return await self.get_task_progress(run_id=run_id) or ()


def next_task(units: Sequence[TaskUnit]) -> TaskUnit | None:
    """Return the task to work on: the one in progress, else the first pending one."""
    for state in ("in_progress", "pending"):
        for unit in units:
            if unit.state == state:
                return unit
    return None


def check_change(
    before: Sequence[TaskUnit] | None, after: Sequence[TaskUnit], verified: frozenset[str], *, verifies: bool
) -> None:
    """Refuse tasks that may not change in this way: TaskProgressValidationError.

    1. Ids are unique and not empty.
    2. Tasks that are on record stay, with their descriptions and in their order; new ones may follow.
    3. A task moves from pending to in progress to done, and never back.
    4. At most one task is in progress.
    5. A task is done only if it was verified, where that is needed.
    """
    ids = [unit.id for unit in after]
    if len(set(ids)) < len(ids) or not all(each.strip() for each in ids):
        raise TaskProgressValidationError("expected tasks with different ids that are not empty")
    known = {unit.id: unit for unit in before or ()}
    if ids[: len(known)] != list(known):
        raise TaskProgressValidationError(
            "tasks on record may not be removed or moved", hint=f"on record: {', '.join(known)}"
        )
    for unit in after:
        _check_unit(known.get(unit.id), unit)
        done_now = unit.state == "done" and (unit.id not in known or known[unit.id].state != "done")
        if verifies and done_now and unit.id not in verified:
            raise TaskProgressValidationError(
                f"task `{unit.id}` is not verified", hint="call `verify_and_commit` with a command that tests it"
            )
    busy = [unit.id for unit in after if unit.state == "in_progress"]
    if len(busy) > 1:
        raise TaskProgressValidationError(f"only one task may be in progress, found {', '.join(busy)}")


def _check_unit(before: TaskUnit | None, after: TaskUnit) -> None:
    if before is None:
        return
    if before.description != after.description:
        raise TaskProgressValidationError(f"the description of task `{after.id}` may not change")
    if ORDER.index(after.state) < ORDER.index(before.state):
        raise TaskProgressValidationError(f"task `{after.id}` may not go from {before.state} to {after.state}")
