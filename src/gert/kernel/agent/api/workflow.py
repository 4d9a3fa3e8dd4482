"""Workflows: a function whose steps complete once, even if the process that runs it stops."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol

from pydantic import BaseModel

from gert.errors import ReplayConsistencyError, RunBlocked
from gert.kernel.agent.api.workflow_position import (
    NumberedKeys,
    StepPosition,
    StepPositions,
    recorded_order,
    separate_branches,
)
from gert.kernel.agent.ports.store import EventStore, ledger_of
from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.agent.replay.step_lookup import StepLookup
from gert.kernel.agent.steps.error_text import error_text
from gert.kernel.agent.types.api import PauseTicket, StepSerde, StepT, TenantContext, WorkflowOutputT, WorkflowRunResult
from gert.kernel.agent.types.payloads import KernelEvent
from gert.kernel.events.agent import (
    PauseRequested,
    ResumeRequested,
    WorkflowStepCompleted,
    WorkflowStepFailed,
    WorkflowStepRequested,
)
from gert.kernel.events.agent.parts import WorkflowStepFailure
from gert.kernel.foundation.arguments import checks_arguments
from gert.kernel.ledger.build_batch import Entry, check_writable
from gert.kernel.ledger.projection import event_id
from gert.kernel.ledger.record import Call, Written, last_seq_of

LONGEST_MESSAGE = 500


class WorkflowPaused(BaseException):
    """Unwinds a workflow that reached a pause; `except Exception` does not catch it."""

    def __init__(self, ticket: PauseTicket) -> None:
        super().__init__(ticket.reason)
        self.ticket = ticket


class PauseAPI(Protocol):
    """The part of a kernel that pauses runs."""

    async def pause(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        reason: str,
        context: BaseModel | None = None,
        step_key: str | None = None,
        parent_step_key: str | None = None,
    ) -> PauseTicket:
        """Pause a run."""


@checks_arguments
class WorkflowContext:
    """Runs the steps and pauses of a workflow."""

    def __init__(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        store: EventStore,
        pause_api: PauseAPI,
        events: Sequence[KernelEvent],
        log: RunLog | None = None,
    ) -> None:
        """events: events that the caller has read; steps read the store instead
        log: the kernel's, so that a step in flight there is waited for
        """
        self.run_id = run_id
        self.tenant = tenant
        self._log = log if log is not None else RunLog(ledger_of(store))
        self._pause_api = pause_api
        self._positions = StepPositions()
        self._recorded: Sequence[StepPosition] | None = None
        self._pause_keys = NumberedKeys()
        self._pauses = 0

    async def step(
        self,
        *,
        name: str,
        action: Callable[[], Awaitable[StepT]],
        serde: StepSerde[StepT],
        step_key: str | None = None,
    ) -> StepT:
        """Run a step, or replay its recorded result.

        A step is found again as the n-th of its key, or of its name without one, so concurrent steps may begin in any
        order. A name that is used in several branches needs a key in each; InputError if it has none.

        A workflow whose steps run one after the other must run them in the same order each time, and may add steps at
        the end: ReplayConsistencyError if another step is recorded at this position. Once steps were concurrent, or
        followed one that failed, only a key whose step has another name is refused.

        An action whose end is not recorded runs again: put what must not happen twice into a tool step. The same step
        in another execution of the workflow in this process is waited for.
        """
        with self._positions.begin(name, step_key) as position:
            return await self._step(position, action, serde)

    async def pause(self, reason: str, *, context: BaseModel | None = None, step_key: str | None = None) -> PauseTicket:
        """Pause here until the run is resumed: the workflow stops, and passes this pause when it runs again.

        Each pause waits on its own, even if it has the key of an earlier one. `resume` ends every pause reached so
        far; if two people must approve independently, block the run with one key for each.
        """
        key = self._pause_keys.next(step_key if step_key is not None else f"workflow_pause_{self._pauses}")
        self._pauses += step_key is None
        pause = await self._recorded_pause(key)
        if pause is None:
            raise WorkflowPaused(
                await self._pause_api.pause(
                    run_id=self.run_id, tenant=self.tenant, reason=reason, context=context, step_key=key
                )
            )
        if step_key is None and pause.name != reason:
            # The recorded approval was for another reason.
            raise ReplayConsistencyError(
                f"pause {self._pauses - 1} of the workflow was `{pause.name}`, and is `{reason}` now",
                drift_fields=("reason",),
                hint="give pauses a `step_key` if their number or their reasons may change",
            )
        ticket = PauseTicket(self.run_id, event_id(self.run_id, pause.seq), pause.seq, pause.name)
        if pause.outcome != "success":
            raise WorkflowPaused(ticket)
        return ticket

    async def human_input(self, ticket: PauseTicket) -> str | None:
        """Return the human input that ended a pause, as JSON."""
        event = await self._log.event(self.run_id, ticket.seq)
        key = str(event.data.get("step_key", ""))
        calls = await self._log.calls(self.run_id, self.tenant.tenant_id, "pause", key, "", fresh=True)
        ended = next((call.done_seq for call in calls if call.seq == ticket.seq), None)
        if ended is None:
            return None
        return (await self._log.payload(self.run_id, ended, ResumeRequested)).human_input_json

    async def open_pause(self) -> PauseTicket | None:
        """Return the newest pause of a workflow that the run waits at; None if it waits for something else."""
        snapshot = (await self._log.head(self.run_id)).agent
        if snapshot is None or not snapshot.pauses or any(pause.blocked for pause in snapshot.pauses):
            return None
        pause = snapshot.pauses[-1]
        payload = await self._log.payload(self.run_id, pause.seq, PauseRequested)
        # Pauses of a workflow have keys; one without a key was requested from outside.
        if payload.step_key is None:
            return None
        return PauseTicket(self.run_id, event_id(self.run_id, pause.seq), pause.seq, pause.reason)

    async def _recorded_pause(self, key: str) -> Call | None:
        """Return the newest pause under a key, leaving out blocks."""
        for call in await self._log.calls(self.run_id, self.tenant.tenant_id, "pause", key, "", fresh=True):
            if not (await self._log.payload(self.run_id, call.seq, PauseRequested)).blocked:
                return call
        return None

    async def _step(
        self, position: StepPosition, action: Callable[[], Awaitable[StepT]], serde: StepSerde[StepT]
    ) -> StepT:
        lookup = StepLookup(self._log, self.run_id, self.tenant.tenant_id, "workflow", position.key, "")
        while True:
            calls, under_way = await lookup.find()
            if calls and calls[0].name != position.name:
                raise _other_step(position, calls[0].name)
            if (done := first_success(calls)) is not None:
                return await self._replay(position, done, serde)
            if any(call.seq in under_way for call in calls):
                await lookup.wait()
            else:
                if not calls:
                    await self._check_order(position)
                with self._log.in_flight.enter(self.run_id, lookup.key):
                    seq = await self._request(position, lookup, calls)
                    taken = None if seq is None else await self._execute(position, seq, action, serde)
                if taken is not None and await self._is_recorded_first(position, taken[0]):
                    return taken[1]
                lookup.retry()

    async def _request(self, position: StepPosition, lookup: StepLookup, calls: Sequence[Call]) -> int | None:
        """Record that the step starts; None if another task or process recorded it first."""
        entries = [
            Entry(_failed(position, call.seq, "abandoned", "", "the process that ran the step stopped"))
            for call in calls
            if call.outcome == "open"
        ]
        request = WorkflowStepRequested(step_index=position.index, step_name=position.name, step_key=position.key)
        entries.append(Entry(request))
        expect = lookup.expect(last_seq_of(calls))
        asked = await self._log.write(self.run_id, self.tenant.tenant_id, entries, expect=expect, step=True)
        return asked.last if isinstance(asked, Written) else None

    async def _execute(
        self, position: StepPosition, seq: int, action: Callable[[], Awaitable[StepT]], serde: StepSerde[StepT]
    ) -> tuple[int, StepT]:
        """Run the action and record its result; return the number of the event, and the result as recorded."""
        try:
            result_json = serde.dump(await action())
            payload = WorkflowStepCompleted(
                request_seq=seq, step_index=position.index, step_name=position.name, result_json=result_json
            )
            # A result that cannot be read back is not recorded: no replay could pass it.
            check_writable(payload)
            result = serde.load(result_json)
        except GeneratorExit:
            raise  # a coroutine that is closed must not await
        except BaseException as error:
            await self._record_failure(position, seq, error)
            raise
        written = await self._log.append(self.run_id, self.tenant.tenant_id, (Entry(payload),))
        return written.last, result

    async def _record_failure(self, position: StepPosition, seq: int, error: BaseException) -> None:
        reason: WorkflowStepFailure = "failed" if isinstance(error, Exception) else "cancelled"
        message = error_text(error, LONGEST_MESSAGE)
        failed = _failed(position, seq, reason, type(error).__name__, message)
        try:
            await self._log.append(self.run_id, self.tenant.tenant_id, (Entry(failed),))
        except Exception as unwritten:
            # The caller needs the step's error; that it was not recorded is added as a note.
            error.add_note(f"the failure could not be recorded: {unwritten}")

    async def _is_recorded_first(self, position: StepPosition, seq: int) -> bool:
        """Whether a replay finds this event; another process may have recorded a result first."""
        calls = await self._log.calls(self.run_id, self.tenant.tenant_id, "workflow", position.key, "")
        first = first_success(calls)
        return first is not None and first.done_seq == seq

    async def _replay(self, position: StepPosition, done: Call, serde: StepSerde[StepT]) -> StepT:
        payload = await self._log.payload(self.run_id, done.done_seq, WorkflowStepCompleted)
        if payload.step_index != position.index:
            await self._check_order(position)
        return serde.load(payload.result_json)

    async def _check_order(self, position: StepPosition) -> None:
        """Refuse a step if another is recorded at its position and steps were sequential, then and now."""
        if self._recorded is None and self._positions.sequential:
            self._recorded = await recorded_order(self._log.ledger, self.run_id)
        # Other steps may have begun meanwhile and are recorded before this one.
        if self._recorded is None or not self._positions.sequential or position.index >= len(self._recorded):
            return
        then = self._recorded[position.index]
        if then.key != position.key:
            raise _other_step(position, then.name)


def first_success(calls: Sequence[Call]) -> Call | None:
    """Return the request that was answered first, which every replay returns."""
    done = [call for call in calls if call.outcome == "success" and call.done_seq is not None]
    return min(done, key=lambda call: call.done_seq or 0, default=None)


def _failed(
    position: StepPosition, seq: int, reason: WorkflowStepFailure, error_type: str, message: str
) -> WorkflowStepFailed:
    return WorkflowStepFailed(
        request_seq=seq,
        step_index=position.index,
        step_name=position.name,
        reason=reason,
        error_type=error_type,
        message=message,
    )


def _other_step(position: StepPosition, name: str) -> ReplayConsistencyError:
    return ReplayConsistencyError(
        f"step {position.index} of the workflow was `{name}`, and is `{position.name}` now",
        drift_fields=("step_name",),
        hint="a workflow must run the same steps in the same order each time",
    )


async def run_workflow(
    context: WorkflowContext, workflow: Callable[[WorkflowContext], Awaitable[WorkflowOutputT]]
) -> WorkflowRunResult[WorkflowOutputT]:
    """Run a workflow to its end or to its next pause."""
    try:
        with separate_branches():
            output = await workflow(context)
    except (WorkflowPaused, RunBlocked, BaseExceptionGroup) as error:
        # In a task group it may be one of several errors, and others may be failures.
        if (ticket := await _pause_behind(context, error)) is None:
            raise
        return WorkflowRunResult(context.run_id, "paused", None, ticket)
    return WorkflowRunResult(context.run_id, "complete", output, None)


async def _pause_behind(context: WorkflowContext, error: BaseException) -> PauseTicket | None:
    """Return the pause that stopped a workflow; None if it failed, or if the run is blocked."""
    ends = list(_leaves(error))
    if not all(isinstance(each, WorkflowPaused | RunBlocked) for each in ends):
        return None
    reached = next((each.ticket for each in ends if isinstance(each, WorkflowPaused)), None)
    # A step beside a pause, or before it is reached again, is refused: the run still waits at that pause.
    return reached if reached is not None else await context.open_pause()


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of a group, first to last."""
    left = [error]
    while left:
        found = left.pop()
        if isinstance(found, BaseExceptionGroup):
            left.extend(reversed(found.exceptions))
        else:
            yield found
