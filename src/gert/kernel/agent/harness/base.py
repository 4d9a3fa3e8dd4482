"""The base of harnesses: a run is woken, worked on and put to sleep, any number of times."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Generic, TypeVar

from gert.errors import ApprovalRequiredError, HarnessStateError, LeaseLost, RunBlocked, RunExists, RunNotFound
from gert.kernel.agent.api.kernel import AgentKernel
from gert.kernel.agent.api.notes import as_json
from gert.kernel.agent.harness.scope import SCOPE, Scope, working_in
from gert.kernel.agent.harness.steps import HarnessSteps
from gert.kernel.agent.harness.types import HarnessContext, TraceLevel
from gert.kernel.agent.steps.error_text import error_text
from gert.kernel.agent.types.api import ReplayPolicy, TenantContext
from gert.kernel.agent.types.payload_models import (
    EventPayload,
    EventType,
    HarnessFailedPayload,
    HarnessInitializedPayload,
    HarnessSleepPayload,
    HarnessWakePayload,
)
from gert.kernel.events.envelope import decode
from gert.kernel.foundation.arguments import checks_arguments

HarnessResultT = TypeVar("HarnessResultT")

WAKE = "wake_reorientation"
SLEEP = "harness_sleep"
LONGEST_MESSAGE = 2000
PAGE = 200

WAITS = (RunBlocked, LeaseLost, ApprovalRequiredError)
"""Errors that mean that a run waits, or is driven by another worker; its harness has not failed."""


@checks_arguments
class BaseHarness(HarnessSteps, ABC, Generic[HarnessResultT]):
    """Drives a run: `run` wakes it, calls `step`, and puts it to sleep.

    A process that is killed leaves the run awake; the next `run` wakes it again, and `step` begins anew: its recorded
    model and tool steps are replayed. `step` must therefore take the same steps in the same order each time.
    """

    def __init__(
        self,
        kernel: AgentKernel,
        tenant: TenantContext | None = None,
        *,
        default_model: str = "gpt-4o-mini",
        draft_model: str = "gpt-5.3-codex-spark",
        verify_model: str = "gpt-5.3-codex",
        replay_policy: ReplayPolicy = "allow_prompt_drift",
        trace_level: TraceLevel = "stage",
    ) -> None:
        super().__init__(
            kernel,
            tenant,
            default_model=default_model,
            draft_model=draft_model,
            verify_model=verify_model,
            replay_policy=replay_policy,
            trace_level=trace_level,
        )

    @abstractmethod
    async def step(self, *, context: HarnessContext) -> HarnessResultT:
        """Do the work of one wake and return its result."""

    async def on_initialize(self, *, context: HarnessContext) -> None:
        """Prepare a run before it is first woken; called again if the process stopped meanwhile."""

    async def on_wake(self, *, context: HarnessContext, reorientation: Mapping[str, object]) -> None:
        """Look at where the run is before it is worked on."""

    async def on_sleep(self, *, context: HarnessContext, execution_error: Exception | None) -> None:
        """Clean up after the work, which failed if there is an error."""

    async def validate_clean_state(self, *, run_id: str) -> None:
        """Refuse to end a wake while a tool call of the run has an unknown outcome: HarnessStateError."""
        unknown: list[str] = []
        read = 0
        while calls := await self._kernel.ledger.all_calls(run_id, read, PAGE):
            read = calls[-1].seq
            in_doubt = (call for call in calls if call.kind == "tool" and call.outcome in ("open", "unknown_outcome"))
            unknown += (f"`{call.name}` (event {call.seq})" for call in in_doubt)
        if unknown:
            raise HarnessStateError(
                f"run `{run_id}` has tool calls of unknown outcome: {', '.join(unknown)}",
                hint="check their targets, then call `reconcile_tool`",
            )

    async def run(
        self,
        run_id: str,
        *,
        tenant: TenantContext | None = None,
        model: str | None = None,
        trace_level: TraceLevel | None = None,
    ) -> HarnessResultT:
        """Wake a run, work on it, and put it to sleep; a run that does not exist is started."""
        owner = self._tenant_of(tenant)
        created = await self._ensure_started(run_id, owner)
        context = HarnessContext(run_id, owner, model if model is not None else self._default_model, created)
        scope = Scope(context, trace_level or self._trace_level, SCOPE)
        async with self._kernel.run(tenant=owner, run_id=run_id):
            with working_in(scope):
                return await self._wake_and_work(context)

    async def _wake_and_work(self, context: HarnessContext) -> HarnessResultT:
        try:
            await self._wake(context)
            result = await self.step(context=context)
            await self.validate_clean_state(run_id=context.run_id)
        except WAITS as error:
            await self.on_sleep(context=context, execution_error=error)
            raise
        except Exception as error:
            await self._fail(context, error)
            raise
        await self._sleep(context)
        return result

    async def _ensure_started(self, run_id: str, tenant: TenantContext) -> bool:
        """Start a run if it does not exist, and return whether it was started here."""
        try:
            await self._kernel.load_run(run_id=run_id, tenant=tenant)
        except RunNotFound:
            pass
        else:
            return False
        try:
            await self._kernel.start_run(tenant=tenant, run_id=run_id)
        except RunExists:
            return False
        return True

    # --- wake and sleep

    async def _wake(self, context: HarnessContext) -> None:
        first = await self._kernel.get_latest_run_summary(run_id=context.run_id, summary_type=WAKE) is None
        if first:
            if not await self._is_initialized(context.run_id):
                initialized = HarnessInitializedPayload(harness_name=type(self).__name__, model=context.model)
                await self._say(context, EventType.HARNESS_INITIALIZED, initialized)
            await self.on_initialize(context=context)
        reorientation = await self._reorientation(context)
        reason = "created" if context.run_created else "resumed"
        await self._say(
            context, EventType.HARNESS_WAKE, HarnessWakePayload(run_created=context.run_created, reason=reason)
        )
        await self._kernel.append_run_summary(
            run_id=context.run_id, tenant=context.tenant, summary_type=WAKE, summary_json=as_json(reorientation)
        )
        await self._transition(context, str(reorientation["status"]), "awake")
        await self.on_wake(context=context, reorientation=reorientation)

    async def _is_initialized(self, run_id: str) -> bool:
        """Whether a process that stopped before the first wake recorded that the run was initialized."""
        read = 0
        while lines := await self._kernel.ledger.lines(run_id, read, PAGE):
            if any(b"harness_initialized" in line and decode(line).type == "harness_initialized" for line in lines):
                return True
            read += len(lines)
        return False

    async def _reorientation(self, context: HarnessContext) -> dict[str, object]:
        """Return where a run is: its state, its tasks, its artifacts and how it last went to sleep."""
        explained = await self._kernel.explain_run(context.run_id)
        names = ("status", "blocked_on", "last_event_seq", "last_step_key", "current_stage", "percent", "open_calls")
        return {
            **{name: explained[name] for name in names},
            "run_created": context.run_created,
            "task_progress": await self.summary_payload(run_id=context.run_id, summary_type="task_progress"),
            "artifacts": sorted(await self._kernel.list_artifacts(run_id=context.run_id)),
            "last_sleep": await self.summary_payload(run_id=context.run_id, summary_type=SLEEP),
        }

    async def _sleep(self, context: HarnessContext) -> None:
        """Put a run to sleep after its work was done; an error of `on_sleep` is recorded and raised."""
        try:
            await self.on_sleep(context=context, execution_error=None)
        except Exception as error:
            await self._fall_asleep(
                context, HarnessSleepPayload(status="failed", sleep_error_type=type(error).__name__)
            )
            raise
        await self._fall_asleep(context, HarnessSleepPayload(status="completed"))

    async def _fail(self, context: HarnessContext, error: Exception) -> None:
        """Put a run to sleep after its work failed; the error of the work is the one that is raised."""
        slept: str | None = None
        try:
            await self.on_sleep(context=context, execution_error=error)
        except Exception as another:
            slept = type(another).__name__
            error.add_note(f"`on_sleep` failed, too: {another}")
        kind, message = type(error).__name__, error_text(error, LONGEST_MESSAGE)
        try:
            explained = await self._kernel.explain_run(context.run_id)
            last = explained["last_step_key"]
            failed = HarnessFailedPayload(
                error_type=kind, message=message, last_step_key=None if last is None else str(last)
            )
            await self._say(context, EventType.HARNESS_FAILED, failed)
            sleep = HarnessSleepPayload(status="failed", execution_error_type=kind, sleep_error_type=slept)
            await self._fall_asleep(context, sleep)
        except Exception as unwritten:
            error.add_note(f"the failure of the harness could not be recorded: {unwritten}")

    async def _fall_asleep(self, context: HarnessContext, slept: HarnessSleepPayload) -> None:
        explained = await self._kernel.explain_run(context.run_id)
        cost: dict[str, object] = {"model_cost_total": explained["model_cost_total"]}
        await self._trace("stage", context.run_id, context.tenant, "cost_snapshot", cost, SLEEP)
        await self._transition(context, "awake", slept.status)
        facts = {**slept.model_dump(exclude={"kind"}, exclude_none=True), **cost}
        await self._kernel.append_run_summary(
            run_id=context.run_id, tenant=context.tenant, summary_type=SLEEP, summary_json=as_json(facts)
        )
        await self._say(context, EventType.HARNESS_SLEEP, slept)

    async def _transition(self, context: HarnessContext, before: str, after: str) -> None:
        facts: dict[str, object] = {"from": before, "to": after}
        await self._trace("stage", context.run_id, context.tenant, "state_transition", facts, after)

    async def _say(self, context: HarnessContext, kind: EventType, payload: EventPayload) -> None:
        await self._kernel.append_harness_event(
            run_id=context.run_id, tenant=context.tenant, event_type=kind, payload=payload
        )
