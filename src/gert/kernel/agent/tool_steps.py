"""Tool steps: announced before they happen, recorded as they ended, and never made twice by guessing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from gert.errors import (
    CapabilityDeniedError,
    PolicyViolationError,
    ReplayConsistencyError,
    ToolExecutionFailedError,
    ToolPermanentError,
    ToolTransientError,
    ToolUnknownOutcomeError,
)
from gert.kernel.agent.book import Book
from gert.kernel.agent.compose import Entry, check_writable, event_id, idempotency_key, key_of, tool_hash
from gert.kernel.agent.ledger import Call, Expect, Head, Held, Overtaken
from gert.kernel.agent.looking import Looking
from gert.kernel.agent.middleware import KernelMiddleware, PreparedToolRequest
from gert.kernel.agent.ports.tool import ToolExecutionContext, ToolExecutionOutcome, ToolExecutionResult
from gert.kernel.agent.replay import Ask, Compare, Fail, InDoubt, Replay, Wait, decide_tool
from gert.kernel.agent.shapes import StepToolResult, TenantContext
from gert.kernel.agent.tools import Arguments, Tools
from gert.kernel.events.agent import ToolCompleted, ToolRequested
from gert.kernel.events.agent.parts import ToolOutcome
from gert.kernel.foundation.text import one_line

LONGEST_MESSAGE = 2000
RECONCILE = "settle it with `reconcile_tool`"


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
class Settling:
    """How a call in doubt is to be settled.

    outcome: what somebody says came of it
    rerun: make the call again, under the same idempotency key
    """

    outcome: ToolOutcome | None = None
    result_json: str = ""
    rerun: bool = False
    by: str | None = None
    reason: str | None = None


class ToolSteps:
    """Takes tool steps."""

    def __init__(self, book: Book, tools: Tools, middleware: Sequence[KernelMiddleware]) -> None:
        self._book = book
        self._tools = tools
        self._middleware = tuple(middleware)

    async def take(self, step: ToolStep) -> StepToolResult:
        """Replay a step, or call the tool."""
        self._tools.definition(step.tool_name)
        arguments_json = self._tools.canonical(step.tool_name, step.arguments)
        hashed = tool_hash(step.tool_name, arguments_json)
        looking = Looking(self._book, step.run_id, step.tenant.tenant_id, "tool", step.step_key, hashed)
        while True:
            calls, in_flight = await looking.look()
            changes = await self._changes(step, calls)
            match decide_tool(calls, hashed, in_flight, keyed=step.step_key is not None, side_effect=changes):
                case Replay(call):
                    return await self._replayed(step, call)
                case Compare(call):
                    raise _another_call(step, call)
                case Wait():
                    await looking.wait()
                case Fail() | InDoubt() | Ask(again=True) if looking.count is None:
                    # Somebody may have settled it since.
                    await looking.turn()
                case Fail(call):
                    raise _failure(step, await self._ended(step, call))
                case InDoubt(call):
                    raise _doubt(step, call)
                case Ask() as decided:
                    with self._book.asking(step.run_id, looking.key):
                        count = looking.count if decided.again else None
                        result = await self._made(step, arguments_json, hashed, decided, count)
                    if result is not None:
                        return result
                    looking.count = None

    async def settle(self, step: ToolStep, settling: Settling) -> str:
        """Settle a call that may have happened, and give its result.

        1. A call that succeeded has its result.
        2. What somebody says came of it is recorded with their name.
        3. Whoever asks for it has it made again, under the same idempotency key.
        4. Otherwise the tool is asked whether it happened, where it can tell.
        """
        self._tools.definition(step.tool_name)
        hashed = tool_hash(step.tool_name, self._tools.canonical(step.tool_name, step.arguments))
        looking = Looking(self._book, step.run_id, step.tenant.tenant_id, "tool", step.step_key, hashed)
        await looking.turn()
        calls, _ = await looking.look()
        if not calls:
            raise ToolExecutionFailedError(
                f"run `{step.run_id}` has no such call of `{step.tool_name}`",
                hint="give the arguments and step key of it",
            )
        call = calls[0]
        if call.outcome == "success":
            return (await self._replayed(step, call)).result_json
        if call.input_hash != hashed:
            raise _another_call(step, call)
        if self._book.is_asking(step.run_id, looking.key):
            raise ToolExecutionFailedError(f"the call of `{step.tool_name}` is under way", outcome="unknown_outcome")
        with self._book.asking(step.run_id, looking.key):
            request = await self._book.said(step.run_id, call.seq, ToolRequested)
            ended = await self._settled(step, call, request, settling)
            await self._record(step, ended)
            return (await self._handed_over(step, ended, call.seq)).result_json

    async def _settled(self, step: ToolStep, call: Call, request: ToolRequested, settling: Settling) -> ToolCompleted:
        if settling.outcome is not None:
            said = ToolExecutionResult(settling.outcome, settling.result_json or "null")
            return _completed(call.seq, step, said, by=settling.by, reason=settling.reason)
        context = self._context(step, request, call.seq)
        if settling.rerun:
            await self._check_rerun(step, call)
            found = await self._called(step, request.arguments_json, context, side_effect=request.side_effect)
            return _completed(call.seq, step, found, by=settling.by, reason=settling.reason or "made again")
        looked = await self._tools.reconcile(step.tool_name, request.arguments_json, context)
        if looked is None:
            raise _doubt(step, call)
        return _completed(call.seq, step, looked, by=settling.by, reason=settling.reason or "the tool was asked")

    async def _check_rerun(self, step: ToolStep, call: Call) -> None:
        """A call is made again where it might be made: nothing keeps the run, the tenant or the tool from it."""
        self._permit(step)
        await self._book.check_step(step.run_id)
        if call.semantic_key is not None and not call.held:
            # It gave its semantic key back when it failed, and another call may have it now.
            other = await self._book.ledger.holder(call.tenant, call.name, call.semantic_key)
            if other is not None and other.held:
                raise _held(step, other)

    async def _changes(self, step: ToolStep, calls: Sequence[Call]) -> bool:
        """Whether the tool changes something, now or when it was called."""
        if self._tools.side_effect(step.tool_name):
            return True
        unfinished = [call for call in calls if call.outcome == "open"]
        return bool(unfinished) and (await self._book.said(step.run_id, unfinished[0].seq, ToolRequested)).side_effect

    async def _replayed(self, step: ToolStep, call: Call) -> StepToolResult:
        ended = await self._ended(step, call)
        if ended.withheld:
            return await self._handed_over(step, ended, call.seq)
        return StepToolResult(step.run_id, call.seq, step.tool_name, ended.result_json, replayed=True)

    async def _ended(self, step: ToolStep, call: Call) -> ToolCompleted:
        return await self._book.said(step.run_id, call.done_seq, ToolCompleted)

    async def _made(
        self, step: ToolStep, arguments_json: str, hashed: str, decided: Ask, count: int | None
    ) -> StepToolResult | None:
        """Call the tool; None where somebody else has made the same request meanwhile."""
        self._permit(step)
        prepared = await self._prepared(step, arguments_json)
        side_effect = self._tools.side_effect(step.tool_name)
        ends = [Entry(_abandoned(call), step.parent_step_key) for call in decided.abandoned]
        request = self._request(step, prepared, hashed, side_effect=side_effect)

        def entries(head: Head) -> Sequence[Entry]:
            # The key is made from the number of the request itself, and so inside the append.
            return (*ends, Entry(request(head.count + len(ends) + 1), step.parent_step_key))

        expect = None if step.step_key is None else Expect(key_of("tool", step.step_key, hashed), decided.last)
        written = await self._book.ask(step.run_id, step.tenant.tenant_id, entries, expect=expect, count=count)
        if isinstance(written, Overtaken):
            return None
        if isinstance(written, Held):
            raise _held(step, written.call)
        seq = written.last
        context = self._context(step, request(seq), seq)
        found = await self._called_and_recorded(step, prepared.arguments_json, context, seq, side_effect=side_effect)
        return await self._handed_over(step, found, seq)

    def _permit(self, step: ToolStep) -> None:
        needed = self._tools.capabilities().get(step.tool_name)
        if needed is not None and needed not in step.tenant.capabilities:
            raise CapabilityDeniedError(
                f"tenant `{step.tenant.tenant_id}` may not use `{step.tool_name}`", hint=f"it needs `{needed}`"
            )

    async def _prepared(self, step: ToolStep, arguments_json: str) -> PreparedToolRequest:
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

    def _request(
        self, step: ToolStep, prepared: PreparedToolRequest, hashed: str, *, side_effect: bool
    ) -> Callable[[int], ToolRequested]:
        tool = self._tools.definition(step.tool_name)

        def request(seq: int) -> ToolRequested:
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
                input_hash=hashed,
            )

        return request

    def _context(self, step: ToolStep, request: ToolRequested, seq: int) -> ToolExecutionContext:
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

    async def _called_and_recorded(
        self, step: ToolStep, arguments_json: str, context: ToolExecutionContext, seq: int, *, side_effect: bool
    ) -> ToolCompleted:
        """What the tool really did is on record before anybody looks at it."""
        try:
            found = await self._called(step, arguments_json, context, side_effect=side_effect)
        except BaseException as error:
            outcome: ToolExecutionOutcome = "unknown_outcome" if side_effect else "transient_error"
            cancelled = ToolExecutionResult(outcome, "null", error_message="the call was cancelled")
            await self._noting(error, step, _completed(seq, step, cancelled))
            raise
        completed = _completed(seq, step, found)
        await self._record(step, completed)
        return completed

    async def _called(
        self, step: ToolStep, arguments_json: str, context: ToolExecutionContext, *, side_effect: bool
    ) -> ToolExecutionResult:
        """Call the tool; whatever it raises says how it ended, and so does a result nobody can write down."""
        try:
            found = await self._tools.call(step.tool_name, arguments_json, context)
            check_writable(_completed(0, step, found))
            return found
        except Exception as error:
            return ToolExecutionResult(
                _outcome(error, side_effect=side_effect), "null", error_message=one_line(str(error), LONGEST_MESSAGE)
            )

    async def _record(self, step: ToolStep, completed: ToolCompleted) -> int:
        entry = Entry(completed, step.parent_step_key)
        return (await self._book.note(step.run_id, step.tenant.tenant_id, (entry,))).last

    async def _handed_over(self, step: ToolStep, found: ToolCompleted, seq: int) -> StepToolResult:
        """What the caller sees of a result; a replay sees the same."""
        if found.outcome != "success":
            raise _failure(step, found)
        try:
            result_json = await self._shown(step, found.result_json)
        except BaseException as error:
            if not found.withheld:
                await self._noting(error, step, msgspec.structs.replace(found, withheld=True))
            raise
        if found.withheld or result_json != found.result_json:
            why = found.reason or "a hook gave the result"
            shown = msgspec.structs.replace(found, result_json=result_json, reason=why, withheld=False)
            await self._record(step, shown)
        return StepToolResult(step.run_id, seq, step.tool_name, result_json, replayed=False)

    async def _shown(self, step: ToolStep, result_json: str) -> str:
        for middleware in self._middleware:
            result_json = await middleware.prepare_tool_result(
                run_id=step.run_id, tenant=step.tenant, tool_name=step.tool_name, result_json=result_json
            )
        return result_json

    async def _noting(self, error: BaseException, step: ToolStep, completed: ToolCompleted) -> None:
        """Record something on the way out of an error, which is the news even if it cannot be recorded."""
        try:
            await self._record(step, completed)
        except Exception as unwritten:
            error.add_note(f"the end of the call could not be recorded: {unwritten}")


def _completed(
    seq: int, step: ToolStep, found: ToolExecutionResult, *, by: str | None = None, reason: str | None = None
) -> ToolCompleted:
    return ToolCompleted(
        request_seq=seq,
        tool_name=step.tool_name,
        result_json=found.result_json,
        outcome=found.outcome,
        received_idempotency_key=found.received_idempotency_key,
        effect_id=found.effect_id,
        request_id=found.request_id,
        error_message=None if found.error_message is None else one_line(found.error_message, LONGEST_MESSAGE),
        reconciled_by=by,
        reason=reason,
    )


def _abandoned(call: Call) -> ToolCompleted:
    return ToolCompleted(
        request_seq=call.seq,
        tool_name=call.name,
        result_json="null",
        outcome="transient_error",
        error_message="whoever called did not wait for the end; the tool changes nothing",
    )


def _outcome(error: Exception, *, side_effect: bool) -> ToolExecutionOutcome:
    if isinstance(error, ToolTransientError):
        return "transient_error"
    if isinstance(error, ToolPermanentError):
        return "permanent_error"
    if isinstance(error, ToolUnknownOutcomeError) or side_effect:
        return "unknown_outcome"
    return "transient_error" if isinstance(error, TimeoutError) else "permanent_error"


def _failure(step: ToolStep, ended: ToolCompleted) -> ToolExecutionFailedError:
    why = f": {ended.error_message}" if ended.error_message else ""
    how = {
        "transient_error": "failed for now",
        "permanent_error": "failed",
        "unknown_outcome": "ended, and nobody knows whether it happened",
    }[ended.outcome]
    hint = RECONCILE if ended.outcome == "unknown_outcome" else None
    return ToolExecutionFailedError(f"`{step.tool_name}` {how}{why}", outcome=ended.outcome, hint=hint)


def _doubt(step: ToolStep, call: Call) -> ToolExecutionFailedError:
    return ToolExecutionFailedError(
        f"the call of `{step.tool_name}` in event {call.seq} of run `{step.run_id}` may have happened",
        outcome="unknown_outcome",
        hint=f"{RECONCILE}: say its outcome, or pass rerun=True",
    )


def _another_call(step: ToolStep, call: Call) -> ReplayConsistencyError:
    same_tool = call.name == step.tool_name
    other = "other arguments" if same_tool else f"another tool, `{call.name}`"
    return ReplayConsistencyError(
        f"step `{step.step_key}` was recorded with {other}",
        drift_fields=("arguments_json",) if same_tool else ("tool_name",),
        hint="use another step key",
    )


def _held(step: ToolStep, call: Call) -> PolicyViolationError:
    done = call.outcome == "success"
    where = f"event {call.seq} of run `{call.run_id}`"
    return PolicyViolationError(
        code="semantic_duplicate" if done else "semantic_requires_reconciliation",
        message=f"`{step.tool_name}` was called for the same already, in {where}"
        if done
        else f"`{step.tool_name}` may have been called for the same, in {where}, which must be reconciled first",
        tool_name=step.tool_name,
    )
