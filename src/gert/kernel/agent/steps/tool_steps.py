"""Tool steps: recorded before the tool is called, and never repeated while the outcome is unknown."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from gert.errors import GertError
from gert.kernel.agent.middleware.base import KernelMiddleware, PreparedToolRequest
from gert.kernel.agent.middleware.conditions import Refusal
from gert.kernel.agent.ports.loop import Loop
from gert.kernel.agent.replay.decisions import Compare, Fail, InDoubt, Replay, Request, Resume, Wait, decide_tool
from gert.kernel.agent.replay.run_log import InPlace, RunLog
from gert.kernel.agent.replay.step_lookup import StepLookup
from gert.kernel.agent.steps.reconcile import Reconciler, Reconciliation
from gert.kernel.agent.steps.tool_calls import RequestedCall, ToolCalls, ToolStep
from gert.kernel.agent.steps.tool_events import (
    abandoned,
    call_changed,
    duplicate_call,
    failure,
    limit_exceeded,
    not_called,
    outcome_unknown,
)
from gert.kernel.agent.steps.tools import Tools
from gert.kernel.agent.types.api import StepToolResult
from gert.kernel.events.agent import ToolCompleted, ToolRequested
from gert.kernel.ledger.build_batch import Entry
from gert.kernel.ledger.projection import idempotency_key, tool_hash
from gert.kernel.ledger.record import Batch, Call, Exceeded, Head, Held, Overtaken, Written, last_seq_of

__all__ = ["Reconciliation", "ToolStep", "ToolSteps"]


class ToolSteps:
    """Runs tool steps."""

    def __init__(self, log: RunLog, tools: Tools, middleware: Sequence[KernelMiddleware], loop: Loop) -> None:
        self._log = log
        self._tools = tools
        self._calls = ToolCalls(log, tools, middleware, loop)
        self._reconciler = Reconciler(log, tools, self._calls)

    async def run(self, step: ToolStep) -> StepToolResult:
        """Replay a step, or call the tool."""
        step = self._copied(step)
        lookup = await self._lookup(step)
        prepared: PreparedToolRequest | None = None
        while True:
            calls, in_flight = await lookup.find()
            hashes = await self._equal_hashes(step, lookup.input_hash, calls)
            changes = await self._has_side_effect(step, calls)
            resumable = self._tools.has(step.tool_name) and self._tools.resumable(step.tool_name)
            match decide_tool(calls, hashes, in_flight, side_effect=changes, resumable=resumable):
                case Replay(call):
                    found = await self._calls.result_of(step, lookup, call)
                    if found is not None:
                        return found
                case Compare(call):
                    raise call_changed(step.step_key, step.tool_name, call)
                case Wait():
                    await lookup.wait()
                case Fail() | InDoubt() if lookup.count is None:
                    # Another process may have reconciled it since.
                    await lookup.refresh()
                case Fail(call):
                    raise failure(await self._log.payload(step.run_id, call.done_seq, ToolCompleted))
                case InDoubt(call):
                    raise outcome_unknown(call)
                case Resume(call):
                    with self._log.in_flight.enter(step.run_id, lookup.key):
                        return await self._resume(step, lookup, call, last_seq_of(calls))
                case Request() as decided:
                    with self._log.in_flight.enter(step.run_id, lookup.key):
                        if prepared is None:
                            prepared = await self._prepare(step)
                        result = await self._call(step, lookup, prepared, decided)
                    if result is not None:
                        return result
                    lookup.retry()

    async def reconcile(self, step: ToolStep, reconciliation: Reconciliation) -> str:
        """Reconcile a call of unknown outcome and return its result."""
        step = self._copied(step)
        lookup = await self._lookup(step)
        calls = await lookup.find_in_ledger()
        hashes = await self._equal_hashes(step, lookup.input_hash, calls)
        return await self._reconciler.reconcile(step, lookup, calls, hashes, reconciliation)

    def _copied(self, step: ToolStep) -> ToolStep:
        """Copy the arguments, so that lookup, record and call use the same values."""
        return replace(step, arguments=self._tools.kept(step.tool_name, step.arguments))

    async def _lookup(self, step: ToolStep) -> StepLookup:
        """Return the lookup of the step: under its step key, or under the hash of its arguments."""
        input_hash = tool_hash(step.tool_name, self._tools.given(step.tool_name, step.arguments))
        if step.step_key is None:
            filled = self._hash_with_defaults(step)
            if filled is not None and filled != input_hash and not await self._recorded(step, input_hash):
                # As earlier versions recorded it: with the tool's defaults filled in.
                input_hash = filled if await self._recorded(step, filled) else input_hash
        return StepLookup(self._log, step.run_id, step.tenant.tenant_id, "tool", step.step_key, input_hash)

    async def _recorded(self, step: ToolStep, input_hash: str) -> list[Call]:
        return await self._log.calls(step.run_id, step.tenant.tenant_id, "tool", None, input_hash)

    def _hash_with_defaults(self, step: ToolStep) -> str | None:
        """Hash the arguments with the tool's defaults; None if it is not registered or they do not fit."""
        try:
            return tool_hash(step.tool_name, self._tools.canonical(step.tool_name, step.arguments))
        except GertError:
            return None

    async def _equal_hashes(self, step: ToolStep, input_hash: str, calls: Sequence[Call]) -> Collection[str]:
        """Return the hashes of equal calls: arguments are equal with or without defaults filled in."""
        hashes = {input_hash}
        for call in calls:
            if call.input_hash in hashes or call.name != step.tool_name:
                continue
            filled = self._hash_with_defaults(step)
            if filled is None:
                continue
            request = await self._log.payload(step.run_id, call.seq, ToolRequested)
            if filled in (call.input_hash, tool_hash(call.name, request.arguments_json)):
                hashes.add(call.input_hash)
        return hashes

    async def _has_side_effect(self, step: ToolStep, calls: Sequence[Call]) -> bool:
        """Whether the tool has side effects, now or when it was called."""
        if self._tools.has(step.tool_name) and self._tools.side_effect(step.tool_name):
            return True
        unfinished = [call for call in calls if call.outcome == "open"]
        return bool(unfinished) and (await self._log.payload(step.run_id, unfinished[0].seq, ToolRequested)).side_effect

    async def _call(
        self, step: ToolStep, lookup: StepLookup, prepared: PreparedToolRequest, decided: Request
    ) -> StepToolResult | None:
        """Record the request and call the tool; None if another task or process recorded the request first."""
        side_effect = self._tools.side_effect(step.tool_name)
        conditions = prepared.conditions
        before = [Entry(abandoned(call), step.parent_step_key) for call in decided.abandoned]
        before += conditions.entries
        refused: Refusal | None = None

        def entries(head: Head) -> Sequence[Entry]:
            nonlocal refused
            refused = conditions.refusal(head)
            if refused is not None:
                return InPlace(refused.entries)
            # The idempotency key contains the number of the request, which is known only inside the append.
            seq = head.count + len(before) + 1
            request = self._request(step, prepared, lookup.input_hash, seq, side_effect)
            return (*before, Entry(request, step.parent_step_key))

        tried: list[Batch] = []
        try:
            written = await self._log.write(
                step.run_id,
                step.tenant.tenant_id,
                entries,
                expect=lookup.expect(decided.last),
                step=True,
                tried=tried,
                limits=conditions.limits,
            )
        except GeneratorExit:
            raise  # a coroutine that is closed must not await
        except BaseException as error:
            if refused is None and (tried or not isinstance(error, Exception)):
                await self._record_not_called(step, lookup, tried, error)
            raise
        if isinstance(written, Overtaken):
            return None
        if not isinstance(written, Written):
            raise await self._log.record_refusal(step.run_id, step.tenant.tenant_id, _refusal(step, prepared, written))
        if refused is not None:
            raise refused.error
        seq = written.last
        request = self._request(step, prepared, lookup.input_hash, seq, side_effect)
        return await self._calls.call(step, lookup, RequestedCall(seq, request, seq))

    async def _resume(self, step: ToolStep, lookup: StepLookup, call: Call, last_seq: int) -> StepToolResult:
        """Call a resumable tool again under the recorded request."""
        self._calls.permit(step)
        await self._log.check_step(step.run_id)
        request = await self._log.payload(step.run_id, call.seq, ToolRequested)
        return await self._calls.call(step, lookup, RequestedCall(call.seq, request, last_seq))

    def _request(
        self, step: ToolStep, prepared: PreparedToolRequest, input_hash: str, seq: int, side_effect: bool
    ) -> ToolRequested:
        tool = self._tools.definition(step.tool_name)
        return ToolRequested(
            tool_name=step.tool_name,
            arguments_json=prepared.arguments_json,
            idempotency_key=idempotency_key(step.run_id, step.tool_name, seq),
            tool_version=tool.tool_version,
            schema_version=tool.schema_version,
            step_key=step.step_key,
            semantic_idempotency_key=prepared.semantic_idempotency_key,
            intent_id=prepared.intent_id,
            amount_usd=prepared.amount_usd,
            side_effect=side_effect,
            input_hash=input_hash,
            approval_key=prepared.approval_key,
        )

    async def _prepare(self, step: ToolStep) -> PreparedToolRequest:
        """Check the call, then the state of the run, then let middleware take part."""
        arguments_json = self._calls.check(step)
        if not self._calls.has_middleware:
            return PreparedToolRequest(arguments_json)
        await self._log.check_step(step.run_id)
        return await self._calls.prepare(step, arguments_json)

    async def _record_not_called(
        self, step: ToolStep, lookup: StepLookup, tried: list[Batch], error: BaseException
    ) -> None:
        """Record that a requested tool was not called, so that its outcome is known."""
        try:
            # An append that has begun may be committed only now.
            await self._log.wait_for_appends(step.run_id)
            if not tried:
                return
            row = tried[-1].events[-1]
            if (await self._log.ledger.lines_at(step.run_id, (row.seq,))).get(row.seq) != row.line:
                return
            calls = await lookup.find_in_ledger()
            entries = (Entry(not_called(row.seq, step.tool_name), step.parent_step_key),)
            await lookup.end(entries, row.seq, last_seq_of(calls), ("open", None), wins=False)
        except Exception as unwritten:
            error.add_note(f"that the tool was not called could not be recorded: {unwritten}")


def _refusal(step: ToolStep, prepared: PreparedToolRequest, found: Held | Exceeded) -> Refusal:
    """What a refusal of the ledger means; middleware may record it."""
    error = (
        duplicate_call(step.tool_name, found.call) if isinstance(found, Held) else limit_exceeded(step.tool_name, found)
    )
    return prepared.conditions.refusal_of(found) or Refusal(error)
