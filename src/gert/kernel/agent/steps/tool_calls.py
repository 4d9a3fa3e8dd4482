"""One call of a tool: prepared, made, its end put on record, and its result handed over."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from gert.errors import CapabilityDeniedError
from gert.kernel.agent.middleware.base import KernelMiddleware, PreparedToolRequest
from gert.kernel.agent.middleware.pass_through import PassingMiddleware
from gert.kernel.agent.ports.loop import Loop, Started
from gert.kernel.agent.ports.tool import ToolExecutionContext, ToolExecutionOutcome, ToolExecutionResult
from gert.kernel.agent.replay.decisions import first_answer
from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.agent.replay.step_lookup import StepLookup, Stood
from gert.kernel.agent.steps.error_text import named, words_of
from gert.kernel.agent.steps.tool_events import LONGEST_MESSAGE, completed, failure, outcome_of, still_in_doubt
from gert.kernel.agent.steps.tools import Arguments, Tools
from gert.kernel.agent.types.api import StepToolResult, TenantContext
from gert.kernel.events.agent import RunSummary, ToolCompleted, ToolRequested
from gert.kernel.foundation.canonical_v1 import require_json
from gert.kernel.ledger.compose import Entry, check_writable
from gert.kernel.ledger.projection import event_id
from gert.kernel.ledger.record import Call, last_seq_of

LATE_RESULT = "late_tool_result"


@dataclass(frozen=True)
class ToolStep:
    """One tool step as it was asked for."""

    run_id: str
    tenant: TenantContext
    tool_name: str
    arguments: Arguments
    step_key: str | None = None
    parent_step_key: str | None = None


@dataclass(frozen=True)
class Announced:
    """A call that is on record and about to be made.

    last_seq: the last event under its key
    stood: how the call itself stood
    doubted: it is made again, and may have happened before
    """

    seq: int
    request: ToolRequested
    last_seq: int
    stood: Stood = ("open", None)
    by: str | None = None
    reason: str | None = None
    doubted: bool = False


class ToolCalls:
    """Makes calls, and puts on record how they ended."""

    def __init__(self, log: RunLog, tools: Tools, middleware: Sequence[KernelMiddleware], loop: Loop) -> None:
        self._log = log
        self._tools = tools
        self._loop = loop
        self._middleware = tuple(middleware)
        self._hooks = tuple(each for each in middleware if _shows(each))

    def permit(self, step: ToolStep) -> None:
        """Refuse a tenant who may not use the tool."""
        needed = self._tools.capabilities().get(step.tool_name)
        if needed is not None and needed not in step.tenant.capabilities:
            raise CapabilityDeniedError(
                f"tenant `{step.tenant.tenant_id}` may not use `{step.tool_name}`", hint=f"it needs `{needed}`"
            )

    async def prepare(self, step: ToolStep) -> PreparedToolRequest:
        """What policy makes of a call that is permitted."""
        self._tools.definition(step.tool_name)
        arguments_json = self._tools.canonical(step.tool_name, step.arguments)
        self.permit(step)
        prepared = PreparedToolRequest(arguments_json)
        for middleware in self._middleware:
            given = await middleware.prepare_tool_request(
                run_id=step.run_id,
                tenant=step.tenant,
                tool_name=step.tool_name,
                arguments_json=prepared.arguments_json,
            )
            prepared = prepared.merge(PreparedToolRequest(given) if isinstance(given, str) else given)
        if prepared.arguments_json == arguments_json:
            return prepared
        # What policy makes of arguments must fit the tool as well.
        return prepared.with_arguments_json(self._tools.canonical(step.tool_name, prepared.arguments_json))

    async def make(self, step: ToolStep, lookup: StepLookup, call: Announced) -> StepToolResult:
        """Make a call; what the tool really did is on record before anybody looks at it."""
        with self._log.in_flight.take(step.run_id, _handing(call.seq)):
            try:
                found = await self._called(step, call)
            except GeneratorExit:
                raise  # whoever is closed waits for nothing
            except BaseException as error:
                changes = call.doubted or self.changes(call.request)
                outcome: ToolExecutionOutcome = "unknown_outcome" if changes else "transient_error"
                stopped = ToolExecutionResult(outcome, "null", error_message=_stopped(error))
                said = completed(call.seq, step.tool_name, stopped, by=call.by, reason=call.reason)
                try:
                    await self._end(step, lookup, call, said)
                except Exception as unwritten:
                    # The error is the news, even if nothing about it can be recorded.
                    error.add_note(f"the end of the call could not be recorded: {unwritten}")
                raise
            known = still_in_doubt(found) if call.doubted and found.outcome != "success" else found
            said = completed(call.seq, step.tool_name, known, by=call.by, reason=call.reason)
            return await self.ended(step, lookup, call, said)

    async def ended(self, step: ToolStep, lookup: StepLookup, call: Announced, said: ToolCompleted) -> StepToolResult:
        """Record an end, and give what the record says from then on: here and in every replay.

        Hooks that have an answer at once are recorded together with the end, and not at all where they change nothing.
        Before any other hook goes on, what the tool did is on record, and its result withheld.
        """
        shown = None
        if self._hooks and said.outcome == "success":
            shown = await self._loop.begin(self._shown(step, said))
        if shown is None or not shown.done():
            said = await self._ended_in_two(step, lookup, call, said, shown)
        else:
            said = await self._ended_at_once(step, lookup, call, said, shown)
        if lookup.moved:
            return await self.standing(step, lookup, call.seq)
        if said.outcome != "success":
            raise failure(said)
        return StepToolResult(step.run_id, call.seq, step.tool_name, said.result_json, replayed=False)

    async def _ended_at_once(
        self, step: ToolStep, lookup: StepLookup, call: Announced, said: ToolCompleted, shown: Started[ToolCompleted]
    ) -> ToolCompleted:
        """Record an end with what the hooks made of it."""
        try:
            given = await shown
        except BaseException:
            await self._end(step, lookup, call, self.withheld(said))
            raise
        if given.result_json == said.result_json:
            await self._end(step, lookup, call, said)
            return said
        await self._end(step, lookup, call, self.withheld(said), given)
        return given

    async def _ended_in_two(
        self,
        step: ToolStep,
        lookup: StepLookup,
        call: Announced,
        said: ToolCompleted,
        shown: Started[ToolCompleted] | None,
    ) -> ToolCompleted:
        """Record an end, and then what the hooks make of it, where there are any."""
        if shown is None:
            await self._end(step, lookup, call, said)
            return said
        said = self.withheld(said)
        try:
            last_seq = await self._end(step, lookup, call, said)
        except BaseException:
            shown.cancel()
            raise
        given = await shown
        if last_seq is None:
            return said
        stood: Stood = ("success", last_seq)
        again = await lookup.end((Entry(given, step.parent_step_key),), call.seq, last_seq, stood, wins=False)
        return given if again is not None else said

    def withheld(self, said: ToolCompleted) -> ToolCompleted:
        """An end as it is recorded first: no result is handed over before the hooks have seen it."""
        return msgspec.structs.replace(said, withheld=True) if self._hooks and said.outcome == "success" else said

    async def standing(self, step: ToolStep, lookup: StepLookup, seq: int) -> StepToolResult:
        """What the record says of a step, after others may have had a say; the failure of `seq` where that is all."""
        while True:
            calls = await lookup.look_anew()
            answer = first_answer(calls)
            if answer is None:
                ours = next(call for call in calls if call.seq == seq)
                raise failure(await self._log.said(step.run_id, ours.done_seq, ToolCompleted))
            found = await self.given(step, lookup, answer)
            if found is not None:
                return found

    async def given(self, step: ToolStep, lookup: StepLookup, call: Call) -> StepToolResult | None:
        """The result of a call that succeeded; None where it must be looked at again.

        A result no hook has let pass yet is shown to them now: whoever should have done so died, or was refused.
        """
        said = await self._log.said(step.run_id, call.done_seq, ToolCompleted)
        if not said.withheld:
            return StepToolResult(step.run_id, call.seq, step.tool_name, said.result_json, replayed=True)
        if self._log.in_flight.has(step.run_id, _handing(call.seq)):
            await lookup.wait(_handing(call.seq))
            return None
        with self._log.in_flight.take(step.run_id, _handing(call.seq)):
            calls = await lookup.look_anew()
            if call not in calls:
                return None
            shown = await self._shown(step, said)
            entries = (Entry(shown, step.parent_step_key),)
            stood: Stood = (call.outcome, call.done_seq)
            if await lookup.end(entries, call.seq, last_seq_of(calls), stood, wins=False) is None:
                return None
            return StepToolResult(step.run_id, call.seq, step.tool_name, shown.result_json, replayed=False)

    def changes(self, request: ToolRequested) -> bool:
        """Whether a call changes something: as the tool was when it was announced, or is by now."""
        return request.side_effect or self._tools.side_effect(request.tool_name)

    def context(self, step: ToolStep, request: ToolRequested, seq: int) -> ToolExecutionContext:
        """What a call is told about itself."""
        return ToolExecutionContext(
            run_id=step.run_id,
            tenant_id=step.tenant.tenant_id,
            idempotency_key=request.idempotency_key,
            request_event_id=event_id(step.run_id, seq),
            tool_version=request.tool_version,
            schema_version=request.schema_version,
            tenant_capabilities=step.tenant.capabilities,
            tenant_budget_usd_limit=step.tenant.budget_usd_limit,
        )

    async def _called(self, step: ToolStep, call: Announced) -> ToolExecutionResult:
        """Call the tool; whatever it raises says how it ended, and so does a result nobody can write down."""
        request = call.request
        try:
            context = self.context(step, request, call.seq)
            found = await self._tools.call(step.tool_name, request.arguments_json, context)
            require_json(found.result_json)
            check_writable(completed(0, step.tool_name, found))
            return found
        except Exception as error:
            outcome = outcome_of(error, side_effect=self.changes(request))
            why = words_of(error, LONGEST_MESSAGE) or type(error).__name__
            return ToolExecutionResult(outcome, "null", error_message=why)

    async def _end(
        self, step: ToolStep, lookup: StepLookup, call: Announced, said: ToolCompleted, *more: ToolCompleted
    ) -> int | None:
        """Record an end and give its number; None where another process recorded one, and this is kept beside it."""
        entries = [Entry(each, step.parent_step_key) for each in (said, *more)]
        wins = said.outcome == "success"
        written = await lookup.end(entries, call.seq, call.last_seq, call.stood, wins=wins)
        if written is not None:
            return written.last
        late = msgspec.json.encode(said).decode()
        note = RunSummary(summary_type=LATE_RESULT, summary_json=late, step_key=step.step_key)
        await self._log.note(step.run_id, step.tenant.tenant_id, (Entry(note, step.parent_step_key),))
        return None

    async def _shown(self, step: ToolStep, said: ToolCompleted) -> ToolCompleted:
        result_json = said.result_json
        for middleware in self._hooks:
            result_json = await middleware.prepare_tool_result(
                run_id=step.run_id, tenant=step.tenant, tool_name=step.tool_name, result_json=result_json
            )
        why = said.reason or "the hooks gave the result"
        shown = msgspec.structs.replace(said, result_json=require_json(result_json), reason=why, withheld=False)
        check_writable(shown)
        return shown


def _stopped(error: BaseException) -> str:
    """What ended a call that neither returned nor failed."""
    # The kernel knows no event loop, and this by name.
    is_cancelled = type(error).__name__ == "CancelledError"
    return "the call was cancelled" if is_cancelled else named(error, LONGEST_MESSAGE)


def _handing(seq: int) -> str:
    """What is waited for while hooks look at a result."""
    return f"result#{seq}"


def _shows(middleware: KernelMiddleware) -> bool:
    """Whether a middleware has anything to say about results."""
    return getattr(type(middleware), "prepare_tool_result", None) is not PassingMiddleware.prepare_tool_result
