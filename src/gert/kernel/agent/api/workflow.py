"""Workflows: a function whose steps are taken once, whatever becomes of the process that runs it."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol

from pydantic import BaseModel

from gert.errors import ReplayConsistencyError, RunBlocked
from gert.kernel.agent.api.workflow_position import Keys, Place, Places, own_branches, recorded_order
from gert.kernel.agent.ports.store import EventStore, ledger_of
from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.agent.replay.step_lookup import StepLookup
from gert.kernel.agent.steps.error_text import words_of
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
from gert.kernel.ledger.compose import Entry, check_writable
from gert.kernel.ledger.projection import event_id
from gert.kernel.ledger.record import Call, Written, last_seq_of

LONGEST_MESSAGE = 500


class WorkflowPaused(BaseException):
    """Unwinds a workflow that waits for somebody; no `except Exception` on the way may stop it."""

    def __init__(self, ticket: PauseTicket) -> None:
        super().__init__(ticket.reason)
        self.ticket = ticket


class PauseAPI(Protocol):
    """Whoever pauses runs: a kernel."""

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
        ...


@checks_arguments
class WorkflowContext:
    """What a workflow is handed: its steps and its pauses, counted as it takes them."""

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
        """events: what the caller knows of the run; what counts is what the store has when a step is taken
        log: that of the kernel, so that a step which is in flight there is waited for
        """
        self.run_id = run_id
        self.tenant = tenant
        self._log = log if log is not None else RunLog(ledger_of(store))
        self._pause_api = pause_api
        self._places = Places()
        self._recorded: Sequence[Place] | None = None
        self._pause_keys = Keys()
        self._pauses = 0

    async def step(
        self,
        *,
        name: str,
        action: Callable[[], Awaitable[StepT]],
        serde: StepSerde[StepT],
        step_key: str | None = None,
    ) -> StepT:
        """Take a step, or give what it came to when it was taken.

        A step is found again by its key, or by its name without one, as the n-th of that: in which order steps begin
        does not matter to those that are taken at the same time. For them to be told apart, a name that is used in
        several branches needs a key in each; InputError where it has none.

        A workflow that takes its steps one after the other must take them in the same order each time, and may take
        more at the end: ReplayConsistencyError where the record has another step at this place. Once steps were taken
        at the same time, or went on after one that failed, only a key that has changed its name is.

        An action whose end is not on record is taken again: what must not happen twice belongs in a tool step. The
        same step in another execution of the workflow, in this process, is waited for.
        """
        with self._places.taking(name, step_key) as place:
            return await self._step(place, action, serde)

    async def pause(self, reason: str, *, context: BaseModel | None = None, step_key: str | None = None) -> PauseTicket:
        """Wait here until the run is resumed: the workflow ends, and passes this place when it is run again.

        Each pause waits for itself, also one that has the key of another before it. `resume` ends all that were
        reached by then; where two people must agree at the same time, block the run with a key for each.
        """
        key = self._pause_keys.next(step_key if step_key is not None else f"workflow_pause_{self._pauses}")
        self._pauses += step_key is None
        pause = await self._paused_before(key)
        if pause is None:
            raise WorkflowPaused(
                await self._pause_api.pause(
                    run_id=self.run_id, tenant=self.tenant, reason=reason, context=context, step_key=key
                )
            )
        if step_key is None and pause.name != reason:
            # What somebody has agreed to is not what they would agree to now.
            raise ReplayConsistencyError(
                f"pause {self._pauses - 1} of the workflow was `{pause.name}`, and is `{reason}` now",
                drift_fields=("reason",),
                hint="give pauses a `step_key` where their number or their words may change",
            )
        ticket = PauseTicket(self.run_id, event_id(self.run_id, pause.seq), pause.seq, pause.name)
        if pause.outcome != "success":
            raise WorkflowPaused(ticket)
        return ticket

    async def human_input(self, ticket: PauseTicket) -> str | None:
        """What whoever ended a pause had to say, as JSON."""
        event = await self._log.event(self.run_id, ticket.seq)
        key = str(event.data.get("step_key", ""))
        calls = await self._log.calls(self.run_id, self.tenant.tenant_id, "pause", key, "", fresh=True)
        ended = next((call.done_seq for call in calls if call.seq == ticket.seq), None)
        if ended is None:
            return None
        return (await self._log.said(self.run_id, ended, ResumeRequested)).human_input_json

    async def open_pause(self) -> PauseTicket | None:
        """The newest pause of a workflow the run waits at; None where it waits for something else."""
        snapshot = (await self._log.head(self.run_id)).agent
        if snapshot is None or not snapshot.pauses or any(pause.blocked for pause in snapshot.pauses):
            return None
        pause = snapshot.pauses[-1]
        said = await self._log.said(self.run_id, pause.seq, PauseRequested)
        # A workflow's pauses have keys; others were made by somebody who wants the run to stand still.
        if said.step_key is None:
            return None
        return PauseTicket(self.run_id, event_id(self.run_id, pause.seq), pause.seq, pause.reason)

    async def _paused_before(self, key: str) -> Call | None:
        """The newest pause under a key; blocks are none, and end in another way."""
        for call in await self._log.calls(self.run_id, self.tenant.tenant_id, "pause", key, "", fresh=True):
            if not (await self._log.said(self.run_id, call.seq, PauseRequested)).blocked:
                return call
        return None

    async def _step(self, place: Place, action: Callable[[], Awaitable[StepT]], serde: StepSerde[StepT]) -> StepT:
        lookup = StepLookup(self._log, self.run_id, self.tenant.tenant_id, "workflow", place.key, "")
        while True:
            calls, under_way = await lookup.look()
            if calls and calls[0].name != place.name:
                raise _other_step(place, calls[0].name)
            if (done := first_success(calls)) is not None:
                return await self._replayed(place, done, serde)
            if any(call.seq in under_way for call in calls):
                await lookup.wait()
            else:
                if not calls:
                    await self._check_order(place)
                with self._log.in_flight.take(self.run_id, lookup.key):
                    seq = await self._asked(place, lookup, calls)
                    taken = None if seq is None else await self._taken(place, seq, action, serde)
                if taken is not None and await self._stands(place, taken[0]):
                    return taken[1]
                lookup.overtaken()

    async def _asked(self, place: Place, lookup: StepLookup, calls: Sequence[Call]) -> int | None:
        """Say that the step is about to be taken; None where somebody else has said so meanwhile."""
        entries = [
            Entry(_failed(place, call.seq, "abandoned", "", "whoever took the step is gone"))
            for call in calls
            if call.outcome == "open"
        ]
        request = WorkflowStepRequested(step_index=place.index, step_name=place.name, step_key=place.key)
        entries.append(Entry(request))
        expect = lookup.expect(last_seq_of(calls))
        asked = await self._log.write(self.run_id, self.tenant.tenant_id, entries, expect=expect, step=True)
        return asked.last if isinstance(asked, Written) else None

    async def _taken(
        self, place: Place, seq: int, action: Callable[[], Awaitable[StepT]], serde: StepSerde[StepT]
    ) -> tuple[int, StepT]:
        """Take the step: the number of the event that says so, and the result as the record has it."""
        try:
            result_json = serde.dump(await action())
            said = WorkflowStepCompleted(
                request_seq=seq, step_index=place.index, step_name=place.name, result_json=result_json
            )
            # What could not be read again is not written: nobody would get past it.
            check_writable(said)
            result = serde.load(result_json)
        except GeneratorExit:
            raise  # whoever is closed waits for nothing
        except BaseException as error:
            await self._note_failure(place, seq, error)
            raise
        written = await self._log.note(self.run_id, self.tenant.tenant_id, (Entry(said),))
        return written.last, result

    async def _note_failure(self, place: Place, seq: int, error: BaseException) -> None:
        reason: WorkflowStepFailure = "failed" if isinstance(error, Exception) else "cancelled"
        message = words_of(error, LONGEST_MESSAGE)
        failed = _failed(place, seq, reason, type(error).__name__, message)
        try:
            await self._log.note(self.run_id, self.tenant.tenant_id, (Entry(failed),))
        except Exception as unwritten:
            # What went wrong with the step is the news; that it could not be written is said beside it.
            error.add_note(f"the failure could not be recorded: {unwritten}")

    async def _stands(self, place: Place, seq: int) -> bool:
        """Whether the event of this number is what a replay finds; another process may have been faster."""
        calls = await self._log.calls(self.run_id, self.tenant.tenant_id, "workflow", place.key, "")
        first = first_success(calls)
        return first is not None and first.done_seq == seq

    async def _replayed(self, place: Place, done: Call, serde: StepSerde[StepT]) -> StepT:
        said = await self._log.said(self.run_id, done.done_seq, WorkflowStepCompleted)
        if said.step_index != place.index:
            await self._check_order(place)
        return serde.load(said.result_json)

    async def _check_order(self, place: Place) -> None:
        """Refuse a step where the record has another, if steps were taken one after the other, then and now."""
        if self._recorded is None and self._places.orderly:
            self._recorded = await recorded_order(self._log.ledger, self.run_id)
        # Others may have begun meanwhile, and are on record before this one.
        if self._recorded is None or not self._places.orderly or place.index >= len(self._recorded):
            return
        then = self._recorded[place.index]
        if then.key != place.key:
            raise _other_step(place, then.name)


def first_success(calls: Sequence[Call]) -> Call | None:
    """The request whose answer stands: that which was answered first, and so for whoever looked at any time."""
    done = [call for call in calls if call.outcome == "success" and call.done_seq is not None]
    return min(done, key=lambda call: call.done_seq or 0, default=None)


def _failed(place: Place, seq: int, reason: WorkflowStepFailure, error_type: str, message: str) -> WorkflowStepFailed:
    return WorkflowStepFailed(
        request_seq=seq,
        step_index=place.index,
        step_name=place.name,
        reason=reason,
        error_type=error_type,
        message=message,
    )


def _other_step(place: Place, name: str) -> ReplayConsistencyError:
    return ReplayConsistencyError(
        f"step {place.index} of the workflow was `{name}`, and is `{place.name}` now",
        drift_fields=("step_name",),
        hint="a workflow takes the same steps in the same order each time",
    )


async def run_workflow(
    context: WorkflowContext, workflow: Callable[[WorkflowContext], Awaitable[WorkflowOutputT]]
) -> WorkflowRunResult[WorkflowOutputT]:
    """Run a workflow to its end or to its next pause."""
    try:
        with own_branches():
            output = await workflow(context)
    except (WorkflowPaused, RunBlocked, BaseExceptionGroup) as error:
        # Raised in a group of tasks, it may be one of several, which may have failed in other ways too.
        if (ticket := await _waits_for(context, error)) is None:
            raise
        return WorkflowRunResult(context.run_id, "paused", None, ticket)
    return WorkflowRunResult(context.run_id, "complete", output, None)


async def _waits_for(context: WorkflowContext, error: BaseException) -> PauseTicket | None:
    """The pause that ended a workflow, if nothing else did; None where it failed, or the run is blocked."""
    ends = list(_leaves(error))
    if not all(isinstance(each, WorkflowPaused | RunBlocked) for each in ends):
        return None
    reached = next((each.ticket for each in ends if isinstance(each, WorkflowPaused)), None)
    # A step is refused beside a pause, or before it is reached again: the run waits for somebody as it did before.
    return reached if reached is not None else await context.open_pause()


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """What a group of errors consists of, the first one first."""
    left = [error]
    while left:
        found = left.pop()
        if isinstance(found, BaseExceptionGroup):
            left.extend(reversed(found.exceptions))
        else:
            yield found
