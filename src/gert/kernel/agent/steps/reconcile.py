"""Reconcile tool calls of unknown outcome."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gert.kernel.agent.ports.tool import ToolExecutionResult
from gert.kernel.agent.replay.decisions import first_answer
from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.agent.replay.step_lookup import CallState, StepLookup
from gert.kernel.agent.steps.tool_calls import RequestedCall, ToolCalls, ToolStep
from gert.kernel.agent.steps.tool_events import (
    RERUN_STARTED,
    call_changed,
    call_in_progress,
    call_not_found,
    completed,
    duplicate_call,
    outcome_unknown,
    rerun_in_progress,
    rerun_started,
)
from gert.kernel.agent.steps.tools import Tools
from gert.kernel.events.agent import ToolCompleted, ToolRequested
from gert.kernel.events.agent.parts import ToolOutcome
from gert.kernel.events.envelope import parse_timestamp
from gert.kernel.ledger.build_batch import Entry
from gert.kernel.ledger.record import Call, last_seq_of

RERUN_SECONDS = 60.0
"""How long a rerun by another process is assumed to be alive."""


@dataclass(frozen=True)
class Reconciliation:
    """How to reconcile a call.

    outcome: the outcome that the caller found out
    rerun: repeat the call under the same idempotency key
    """

    outcome: ToolOutcome | None = None
    result_json: str = ""
    rerun: bool = False
    by: str | None = None
    reason: str | None = None


class Reconciler:
    """Reconciles calls; where another process was faster, its recorded result is returned."""

    def __init__(self, log: RunLog, tools: Tools, calls: ToolCalls) -> None:
        self._log = log
        self._tools = tools
        self._calls = calls

    async def reconcile(
        self,
        step: ToolStep,
        lookup: StepLookup,
        calls: Sequence[Call],
        hashes: Collection[str],
        asked: Reconciliation,
    ) -> str:
        """Reconcile a call of unknown outcome and return its result.

        1. Another call under the step key is refused.
        2. The recorded result of a call that succeeded is returned.
        3. An outcome that the caller passes is recorded with the caller's name.
        4. With `rerun`, the call is repeated under the same idempotency key.
        5. Otherwise the tool's reconciler decides whether the call happened.
        """
        if not calls:
            raise call_not_found(step.run_id, step.tool_name)
        for call in calls:
            if call.input_hash not in hashes:
                raise call_changed(step.step_key, step.tool_name, call)
        if first_answer(calls) is not None:
            return (await self._calls.recorded_result(step, lookup, calls[0].seq)).result_json
        if self._log.in_flight.has(step.run_id, lookup.key):
            raise call_in_progress(step.tool_name)
        with self._log.in_flight.enter(step.run_id, lookup.key):
            # Each of several equal calls may be of unknown outcome.
            call = next((each for each in calls if each.outcome in ("open", "unknown_outcome")), calls[0])
            request = await self._log.payload(step.run_id, call.seq, ToolRequested)
            found = RequestedCall(call.seq, request, last_seq_of(calls), (call.outcome, call.done_seq))
            if asked.rerun:
                return await self._rerun(step, lookup, call, found, asked)
            end = await self._outcome(step, call, request, asked)
            await self._record(step, lookup, found, end)
            # Another process may have reconciled it meanwhile: the recorded result counts.
            return await self._result(step, lookup, call)

    async def _outcome(
        self, step: ToolStep, call: Call, request: ToolRequested, asked: Reconciliation
    ) -> ToolCompleted:
        """Return the outcome that the caller passed or the tool found out."""
        if asked.outcome is not None:
            given = ToolExecutionResult(asked.outcome, asked.result_json or "null")
            return completed(call.seq, step.tool_name, given, by=asked.by, reason=asked.reason)
        self._tools.definition(step.tool_name)
        context = self._calls.context(step, request, call.seq)
        looked = await self._tools.reconcile(step.tool_name, request.arguments_json, context)
        if looked is None:
            raise outcome_unknown(call)
        reason = asked.reason or "reconciled by the tool"
        return completed(call.seq, step.tool_name, looked, by=asked.by, reason=reason)

    async def _record(self, step: ToolStep, lookup: StepLookup, call: RequestedCall, end: ToolCompleted) -> None:
        entries = (Entry(self._calls.withhold(end), step.parent_step_key),)
        await lookup.end(entries, call.seq, call.last_seq, call.state, wins=False)

    async def _rerun(
        self, step: ToolStep, lookup: StepLookup, call: Call, found: RequestedCall, asked: Reconciliation
    ) -> str:
        """Repeat a call; of several processes that try, one does.

        The rerun is recorded before the tool is called; if gert stops meanwhile, the outcome stays unknown.
        """
        self._tools.definition(step.tool_name)
        self._calls.permit(step)
        await self._refuse_if_rerunning(step, call)
        await self._refuse_duplicate(step, call)
        entries = (Entry(rerun_started(call, asked.by), step.parent_step_key),)
        written = await lookup.end(entries, call.seq, found.last_seq, found.state, wins=False, step=True)
        if written is None:
            return await self._result(step, lookup, call)
        state: CallState = ("unknown_outcome", written.last)
        try:
            # The rerun holds the semantic key again, unless another call took it meanwhile.
            await self._refuse_duplicate(step, call)
        except BaseException as error:
            await self._cancel_rerun(step, lookup, call, state, error)
            raise
        again = RequestedCall(
            call.seq,
            found.request,
            written.last,
            state,
            by=asked.by,
            reason=asked.reason or "rerun",
            in_doubt=call.outcome == "unknown_outcome"
            or (call.outcome == "open" and self._calls.has_side_effect(found.request)),
        )
        return (await self._calls.call(step, lookup, again)).result_json

    async def _cancel_rerun(
        self, step: ToolStep, lookup: StepLookup, call: Call, state: CallState, error: BaseException
    ) -> None:
        """Record the previous end again, since the rerun did not start."""
        try:
            before = await self._log.payload(step.run_id, call.done_seq, ToolCompleted)
            entries = (Entry(before, step.parent_step_key),)
            await lookup.end(entries, call.seq, state[1] or 0, state, wins=False)
        except Exception as unwritten:
            error.add_note(f"the cancelled rerun could not be recorded: {unwritten}")

    async def _refuse_if_rerunning(self, step: ToolStep, call: Call) -> None:
        if call.outcome != "unknown_outcome":
            return
        event = await self._log.event(step.run_id, call.done_seq)
        end = event.payload
        if not isinstance(end, ToolCompleted) or end.reason != RERUN_STARTED:
            return
        age = (self._log.ledger.now() - parse_timestamp(event.timestamp)).total_seconds()
        if age < RERUN_SECONDS:
            raise rerun_in_progress(call, end)

    async def _refuse_duplicate(self, step: ToolStep, call: Call) -> None:
        if call.semantic_key is None or call.held:
            return
        for other in await self._log.ledger.holders(call.tenant, call.name, call.semantic_key):
            if other.held and (other.run_id, other.seq) != (call.run_id, call.seq):
                raise duplicate_call(step.tool_name, other)

    async def _result(self, step: ToolStep, lookup: StepLookup, call: Call) -> str:
        """Return the recorded result of a call."""
        return (await self._calls.recorded_result(step, lookup, call.seq)).result_json
