"""Workflows: a function whose steps are taken once, whatever becomes of the process that runs it."""

from collections.abc import Awaitable, Callable

from pydantic import BaseModel

from gert.errors import ReplayConsistencyError
from gert.kernel.agent.book import Book
from gert.kernel.agent.compose import Entry, event_id, key_of
from gert.kernel.agent.ledger import Expect, Written
from gert.kernel.agent.lifecycle import Lifecycle
from gert.kernel.agent.shapes import PauseTicket, StepSerde, StepT, TenantContext, WorkflowOutputT, WorkflowRunResult
from gert.kernel.events.agent import ResumeRequested, WorkflowStepCompleted, WorkflowStepRequested


class WorkflowPaused(BaseException):
    """Unwinds a workflow that waits for somebody; no `except Exception` on the way may stop it."""

    def __init__(self, ticket: PauseTicket) -> None:
        super().__init__(ticket.reason)
        self.ticket = ticket


class WorkflowContext:
    """What a workflow is handed: its steps and its pauses, counted as it takes them."""

    def __init__(self, *, run_id: str, tenant: TenantContext, book: Book, lifecycle: Lifecycle) -> None:
        self.run_id = run_id
        self.tenant = tenant
        self._book = book
        self._lifecycle = lifecycle
        self._steps = 0
        self._pauses = 0

    async def step(self, *, name: str, action: Callable[[], Awaitable[StepT]], serde: StepSerde[StepT]) -> StepT:
        """Take a step, or give what it came to when it was taken.

        An action whose end is not on record is taken again: what must not happen twice belongs in a tool step.
        """
        index = self._steps
        self._steps += 1
        while True:
            calls = await self._book.calls(self.run_id, self.tenant.tenant_id, "workflow", str(index), "")
            if calls and calls[0].name != name:
                raise ReplayConsistencyError(
                    f"step {index} of the workflow was `{calls[0].name}`, and is `{name}` now",
                    drift_fields=("step_name",),
                    hint="a workflow takes the same steps in the same order each time",
                )
            done = next((call for call in calls if call.outcome == "success"), None)
            if done is not None:
                said = await self._book.said(self.run_id, done.done_seq, WorkflowStepCompleted)
                return serde.load(said.result_json)
            request = Entry(WorkflowStepRequested(step_index=index, step_name=name))
            expect = Expect(key_of("workflow", str(index), ""), calls[0].seq if calls else 0)
            asked = await self._book.ask(self.run_id, self.tenant.tenant_id, (request,), expect=expect)
            if isinstance(asked, Written):
                return await self._taken(index, name, action, serde, asked.last)

    async def pause(self, reason: str, *, context: BaseModel | None = None, step_key: str | None = None) -> PauseTicket:
        """Wait here until the run is resumed: the workflow ends, and passes this place when it is run again."""
        key = step_key if step_key is not None else f"workflow_pause_{self._pauses}"
        self._pauses += 1
        calls = await self._book.calls(self.run_id, self.tenant.tenant_id, "pause", key, "", fresh=True)
        if not calls:
            raise WorkflowPaused(await self._lifecycle.pause(self.run_id, self.tenant, reason, context, key, None))
        pause = calls[0]
        ticket = PauseTicket(self.run_id, event_id(self.run_id, pause.seq), pause.seq, pause.name)
        if pause.outcome != "success":
            raise WorkflowPaused(ticket)
        return ticket

    async def human_input(self, ticket: PauseTicket) -> str | None:
        """What whoever ended a pause had to say, as JSON."""
        event = await self._book.event(self.run_id, ticket.seq)
        key = str(event.data.get("step_key", ""))
        calls = await self._book.calls(self.run_id, self.tenant.tenant_id, "pause", key, "", fresh=True)
        ended = next((call.done_seq for call in calls if call.seq == ticket.seq), None)
        if ended is None:
            return None
        return (await self._book.said(self.run_id, ended, ResumeRequested)).human_input_json

    async def _taken(
        self, index: int, name: str, action: Callable[[], Awaitable[StepT]], serde: StepSerde[StepT], seq: int
    ) -> StepT:
        result_json = serde.dump(await action())
        said = WorkflowStepCompleted(request_seq=seq, step_index=index, step_name=name, result_json=result_json)
        await self._book.note(self.run_id, self.tenant.tenant_id, (Entry(said),))
        # As the record has it: taken now or replayed later, the same comes back.
        return serde.load(result_json)


async def run_workflow(
    context: WorkflowContext, workflow: Callable[[WorkflowContext], Awaitable[WorkflowOutputT]]
) -> WorkflowRunResult[WorkflowOutputT]:
    """Run a workflow to its end or to its next pause."""
    try:
        output = await workflow(context)
    except WorkflowPaused as paused:
        return WorkflowRunResult(context.run_id, "paused", None, paused.ticket)
    except BaseExceptionGroup as group:
        # Raised in a group of tasks, which may have failed in other ways too.
        if (found := _only_paused(group)) is None:
            raise
        return WorkflowRunResult(context.run_id, "paused", None, found.ticket)
    return WorkflowRunResult(context.run_id, "complete", output, None)


def _only_paused(group: BaseExceptionGroup[BaseException]) -> WorkflowPaused | None:
    """The first pause of a group of nothing else."""
    found: BaseException = group
    if group.split(WorkflowPaused)[1] is not None:
        return None
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found if isinstance(found, WorkflowPaused) else None
