"""One tool call: prepare it, execute it, record its end and return its result."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gert.errors import CapabilityDeniedError, ToolSuspended
from gert.kernel.agent.middleware.base import KernelMiddleware, PassThroughMiddleware, PreparedToolRequest
from gert.kernel.agent.ports.loop import Loop, Started
from gert.kernel.agent.ports.tool import ToolExecutionContext, ToolExecutionOutcome, ToolExecutionResult
from gert.kernel.agent.replay.decisions import first_answer
from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.agent.replay.step_lookup import CallState, StepLookup
from gert.kernel.agent.steps.error_text import error_summary, error_text
from gert.kernel.agent.steps.tool_events import LONGEST_MESSAGE, completed, failure, outcome_of, still_unknown
from gert.kernel.agent.steps.tools import Arguments, Tools
from gert.kernel.agent.types.api import StepToolResult, TenantContext
from gert.kernel.events.agent import RunSummary, ToolCompleted, ToolRequested
from gert.kernel.foundation.canonical_v1 import require_json
from gert.kernel.ledger.build_batch import Entry, check_writable
from gert.kernel.ledger.projection import event_id
from gert.kernel.ledger.record import Call, last_seq_of

LATE_RESULT = "late_tool_result"


@dataclass(frozen=True)
class ToolStep:
    """One tool step as the caller requested it."""

    run_id: str
    tenant: TenantContext
    tool_name: str
    arguments: Arguments
    step_key: str | None = None
    parent_step_key: str | None = None


@dataclass(frozen=True)
class RequestedCall:
    """A call whose request is recorded and that is about to be executed.

    last_seq: the last event under its key
    state: its recorded state
    in_doubt: it is a rerun, and the first attempt may have happened
    """

    seq: int
    request: ToolRequested
    last_seq: int
    state: CallState = ("open", None)
    by: str | None = None
    reason: str | None = None
    in_doubt: bool = False


class ToolCalls:
    """Executes calls and records how they ended."""

    def __init__(self, log: RunLog, tools: Tools, middleware: Sequence[KernelMiddleware], loop: Loop) -> None:
        self._log = log
        self._tools = tools
        self._loop = loop
        self._request_hooks = tuple((each, _takes_step_key(each)) for each in middleware if _prepares_requests(each))
        self._hooks = tuple(each for each in middleware if _changes_results(each))

    def permit(self, step: ToolStep) -> None:
        """Refuse a tenant that lacks the capability for the tool."""
        needed = self._tools.capabilities().get(step.tool_name)
        if needed is not None and needed not in step.tenant.capabilities:
            raise CapabilityDeniedError(
                f"tenant `{step.tenant.tenant_id}` may not use `{step.tool_name}`", hint=f"it needs `{needed}`"
            )

    @property
    def has_middleware(self) -> bool:
        """Whether any middleware takes part in requests."""
        return bool(self._request_hooks)

    def check(self, step: ToolStep) -> str:
        """Check the arguments and the tenant; return the arguments as canonical JSON."""
        self._tools.definition(step.tool_name)
        arguments_json = self._tools.canonical(step.tool_name, step.arguments)
        self.permit(step)
        return arguments_json

    async def prepare(self, step: ToolStep, arguments_json: str) -> PreparedToolRequest:
        """Run the request hooks; arguments that one of them changes must fit the tool before the next one sees them."""
        prepared = PreparedToolRequest(arguments_json)
        for middleware, takes_key in self._request_hooks:
            more: dict[str, Any] = {"step_key": step.step_key} if takes_key else {}
            given = await middleware.prepare_tool_request(
                run_id=step.run_id,
                tenant=step.tenant,
                tool_name=step.tool_name,
                arguments_json=prepared.arguments_json,
                **more,
            )
            made = PreparedToolRequest(given) if isinstance(given, str) else given
            if made.arguments_json != prepared.arguments_json:
                made = made.with_arguments_json(self._tools.canonical(step.tool_name, made.arguments_json))
            prepared = prepared.merge(made)
        return prepared

    async def call(self, step: ToolStep, lookup: StepLookup, call: RequestedCall) -> StepToolResult:
        """Execute a call and record its end before any result hook can change the result."""
        with self._log.in_flight.enter(step.run_id, _result_key(call.seq)):
            try:
                found = await self._execute(step, call)
            except GeneratorExit:
                raise  # a coroutine that is closed must not await
            except BaseException as error:
                if self._tools.resumable(step.tool_name):
                    # Its end is not recorded: the same step continues the call.
                    if isinstance(error, ToolSuspended):
                        raise error.reason from None
                    raise
                changes = call.in_doubt or self.has_side_effect(call.request)
                outcome: ToolExecutionOutcome = "unknown_outcome" if changes else "transient_error"
                stopped = ToolExecutionResult(outcome, "null", error_message=_stop_reason(error))
                end = completed(call.seq, step.tool_name, stopped, by=call.by, reason=call.reason)
                try:
                    await self._record_end(step, lookup, call, end)
                except Exception as unwritten:
                    # The caller needs the tool's error; that it was not recorded is added as a note.
                    error.add_note(f"the end of the call could not be recorded: {unwritten}")
                raise
            known = still_unknown(found) if call.in_doubt and found.outcome != "success" else found
            end = completed(call.seq, step.tool_name, known, by=call.by, reason=call.reason)
            return await self.complete(step, lookup, call, end)

    async def complete(
        self, step: ToolStep, lookup: StepLookup, call: RequestedCall, end: ToolCompleted
    ) -> StepToolResult:
        """Record the end of a call and return the recorded result, as every replay does.

        Result hooks that finish without waiting are recorded together with the end, or not at all if they change
        nothing. Where a hook waits, the end is recorded first, with the result withheld.
        """
        shown = None
        if self._hooks and end.outcome == "success":
            shown = await self._loop.begin(self._after_hooks(step, end))
        if shown is None or not shown.done():
            end = await self._complete_withheld(step, lookup, call, end, shown)
        else:
            end = await self._complete_at_once(step, lookup, call, end, shown)
        if lookup.changed:
            return await self.recorded_result(step, lookup, call.seq)
        if end.outcome != "success":
            raise failure(end)
        return StepToolResult(step.run_id, call.seq, step.tool_name, end.result_json, replayed=False)

    async def _complete_at_once(
        self,
        step: ToolStep,
        lookup: StepLookup,
        call: RequestedCall,
        end: ToolCompleted,
        shown: Started[ToolCompleted],
    ) -> ToolCompleted:
        """Record an end together with the result of the hooks."""
        try:
            given = await shown
        except BaseException:
            await self._record_end(step, lookup, call, self.withhold(end))
            raise
        if given.result_json == end.result_json:
            await self._record_end(step, lookup, call, end)
            return end
        await self._record_end(step, lookup, call, self.withhold(end), given)
        return given

    async def _complete_withheld(
        self,
        step: ToolStep,
        lookup: StepLookup,
        call: RequestedCall,
        end: ToolCompleted,
        shown: Started[ToolCompleted] | None,
    ) -> ToolCompleted:
        """Record an end with its result withheld, then the result of the hooks."""
        if shown is None:
            await self._record_end(step, lookup, call, end)
            return end
        end = self.withhold(end)
        try:
            last_seq = await self._record_end(step, lookup, call, end)
        except BaseException:
            shown.cancel()
            raise
        given = await shown
        if last_seq is None:
            return end
        state: CallState = ("success", last_seq)
        again = await lookup.end((Entry(given, step.parent_step_key),), call.seq, last_seq, state, wins=False)
        return given if again is not None else end

    def withhold(self, end: ToolCompleted) -> ToolCompleted:
        """Mark a result as withheld until the result hooks have run."""
        return msgspec.structs.replace(end, withheld=True) if self._hooks and end.outcome == "success" else end

    async def recorded_result(self, step: ToolStep, lookup: StepLookup, seq: int) -> StepToolResult:
        """Return the recorded result of a step, or raise the failure of the call `seq` if no call succeeded."""
        while True:
            calls = await lookup.find_in_ledger()
            answer = first_answer(calls)
            if answer is None:
                ours = next(call for call in calls if call.seq == seq)
                raise failure(await self._log.payload(step.run_id, ours.done_seq, ToolCompleted))
            found = await self.result_of(step, lookup, answer)
            if found is not None:
                return found

    async def result_of(self, step: ToolStep, lookup: StepLookup, call: Call) -> StepToolResult | None:
        """Return the result of a call that succeeded; None if the record changed meanwhile.

        Result hooks run now if the process that called the tool stopped before they did, or if they refused it.
        """
        end = await self._log.payload(step.run_id, call.done_seq, ToolCompleted)
        if not end.withheld:
            return StepToolResult(step.run_id, call.seq, step.tool_name, end.result_json, replayed=True)
        if self._log.in_flight.has(step.run_id, _result_key(call.seq)):
            await lookup.wait(_result_key(call.seq))
            return None
        with self._log.in_flight.enter(step.run_id, _result_key(call.seq)):
            calls = await lookup.find_in_ledger()
            if call not in calls:
                return None
            shown = await self._after_hooks(step, end)
            entries = (Entry(shown, step.parent_step_key),)
            state: CallState = (call.outcome, call.done_seq)
            if await lookup.end(entries, call.seq, last_seq_of(calls), state, wins=False) is None:
                return None
            return StepToolResult(step.run_id, call.seq, step.tool_name, shown.result_json, replayed=False)

    def has_side_effect(self, request: ToolRequested) -> bool:
        """Whether a call has side effects, as the tool was declared when it was requested or is now."""
        return request.side_effect or self._tools.side_effect(request.tool_name)

    def context(self, step: ToolStep, request: ToolRequested, seq: int) -> ToolExecutionContext:
        """Build the context that the tool receives."""
        return ToolExecutionContext(
            run_id=step.run_id,
            tenant_id=step.tenant.tenant_id,
            idempotency_key=request.idempotency_key,
            request_event_id=event_id(step.run_id, seq),
            tool_version=request.tool_version,
            schema_version=request.schema_version,
            tenant_capabilities=step.tenant.capabilities,
            tenant_budget_usd_limit=step.tenant.budget_usd_limit,
            step_key=step.step_key,
        )

    async def _execute(self, step: ToolStep, call: RequestedCall) -> ToolExecutionResult:
        """Call the tool; an exception, or a result that cannot be recorded, becomes an outcome."""
        request = call.request
        try:
            context = self.context(step, request, call.seq)
            found = await self._tools.call(step.tool_name, request.arguments_json, context)
            require_json(found.result_json)
            check_writable(completed(0, step.tool_name, found))
            return found
        except ToolSuspended as error:
            if self._tools.resumable(step.tool_name):
                raise
            return ToolExecutionResult("unknown_outcome", "null", error_message=error.message)
        except Exception as error:
            outcome = outcome_of(error, side_effect=self.has_side_effect(request))
            why = error_text(error, LONGEST_MESSAGE) or type(error).__name__
            return ToolExecutionResult(outcome, "null", error_message=why)

    async def _record_end(
        self, step: ToolStep, lookup: StepLookup, call: RequestedCall, end: ToolCompleted, *more: ToolCompleted
    ) -> int | None:
        """Record an end and return its number; None if another process recorded one: then this is kept as a summary."""
        entries = [Entry(each, step.parent_step_key) for each in (end, *more)]
        wins = end.outcome == "success"
        written = await lookup.end(entries, call.seq, call.last_seq, call.state, wins=wins)
        if written is not None:
            return written.last
        late = msgspec.json.encode(end).decode()
        note = RunSummary(summary_type=LATE_RESULT, summary_json=late, step_key=step.step_key)
        await self._log.append(step.run_id, step.tenant.tenant_id, (Entry(note, step.parent_step_key),))
        return None

    async def _after_hooks(self, step: ToolStep, end: ToolCompleted) -> ToolCompleted:
        result_json = end.result_json
        for middleware in self._hooks:
            result_json = await middleware.prepare_tool_result(
                run_id=step.run_id, tenant=step.tenant, tool_name=step.tool_name, result_json=result_json
            )
        why = end.reason or "changed by result hooks"
        shown = msgspec.structs.replace(end, result_json=require_json(result_json), reason=why, withheld=False)
        check_writable(shown)
        return shown


def _stop_reason(error: BaseException) -> str:
    """Describe the exception that stopped a call."""
    # The kernel does not import an event loop, so it knows the exception by name.
    is_cancelled = type(error).__name__ == "CancelledError"
    return "the call was cancelled" if is_cancelled else error_summary(error, LONGEST_MESSAGE)


def _result_key(seq: int) -> str:
    """Return the in-flight key of the result hooks of a call."""
    return f"result#{seq}"


def _prepares_requests(middleware: KernelMiddleware) -> bool:
    """Whether a middleware implements the request hook."""
    return getattr(type(middleware), "prepare_tool_request", None) is not PassThroughMiddleware.prepare_tool_request


def _takes_step_key(middleware: KernelMiddleware) -> bool:
    """Whether a request hook takes the key of its step, beside what is documented."""
    taken = inspect.signature(middleware.prepare_tool_request).parameters
    return "step_key" in taken or any(each.kind is each.VAR_KEYWORD for each in taken.values())


def _changes_results(middleware: KernelMiddleware) -> bool:
    """Whether a middleware implements the result hook."""
    return getattr(type(middleware), "prepare_tool_result", None) is not PassThroughMiddleware.prepare_tool_result
