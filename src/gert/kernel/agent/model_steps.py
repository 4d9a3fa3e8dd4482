"""Model steps: asked once, answered from the record ever after."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic

import msgspec
from pydantic import ValidationError

from gert.errors import GertError, ModelPermanentError, ModelTimeoutError, ReplayConsistencyError, UsageError
from gert.kernel.agent.book import Book
from gert.kernel.agent.compose import Entry, check_writable, event_id, key_of
from gert.kernel.agent.ledger import Call, Expect, Held, Overtaken, Written
from gert.kernel.agent.looking import Looking
from gert.kernel.agent.messages import ChatMessage
from gert.kernel.agent.middleware import KernelMiddleware, ModelInvocation
from gert.kernel.agent.offering import Offered, allowed, offer
from gert.kernel.agent.outputs import output_json_of, output_of_json
from gert.kernel.agent.ports.model import (
    ModelCallOptions,
    ModelPort,
    ModelRequest,
    ModelResult,
    ModelUsage,
    OnToken,
    OutputT,
    StreamingModelPort,
    ToolCall,
)
from gert.kernel.agent.question import Question, changed_tools, drift, plain_items, question_of, recorded_question
from gert.kernel.agent.replay import Ask, Compare, Replay, Wait, decide_model
from gert.kernel.agent.shapes import ContextVersion, ModelInput, ReplayPolicy, StepModelResult, TenantContext, ToolDrift
from gert.kernel.agent.tools import Tools
from gert.kernel.events.agent import (
    ModelCompleted,
    ModelFailed,
    ModelRequested,
    ReplayedWithDrift,
    RunStarted,
    RunSummary,
)
from gert.kernel.events.agent.parts import ContextVersionOf, ModelFailure, ToolCallOf, ToolSignature
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.canonical_v1 import canonicalize_json_object
from gert.kernel.foundation.text import one_line

CAPABILITY_DECISION = "capability_decision"
LONGEST_MESSAGE = 2000
_SORTED = msgspec.json.Encoder(order="sorted")


@dataclass(frozen=True)
class ModelStep(Generic[OutputT]):
    """One model step as it was asked for."""

    run_id: str
    tenant: TenantContext
    model: str
    input: ModelInput
    output_schema: type[OutputT]
    step_key: str | None = None
    visible_tool_names: frozenset[str] | None = None
    options: ModelCallOptions | None = None
    replay_policy: ReplayPolicy = "strict"
    tool_drift: ToolDrift = "refuse"
    context_version: ContextVersion | None = None
    parent_step_key: str | None = None
    on_token: OnToken | None = None


@dataclass(frozen=True)
class _Asking:
    """A step with what middleware made of it, ready to be compared."""

    invocation: ModelInvocation
    offered: tuple[Offered, ...]
    question: Question
    hash: str


class ModelSteps:
    """Takes model steps."""

    def __init__(self, book: Book, model_port: ModelPort, tools: Tools, middleware: Sequence[KernelMiddleware]) -> None:
        self._book = book
        self._models = model_port
        self._tools = tools
        self._middleware = tuple(middleware)

    async def take(self, step: ModelStep[OutputT]) -> StepModelResult[OutputT]:
        """Replay a step, or ask the model."""
        pinned = await self._pinned(step) if step.tool_drift == "pin" else None
        asking = await self._prepared(step, pinned)
        looking = Looking(self._book, step.run_id, step.tenant.tenant_id, "model", step.step_key, asking.hash)
        while True:
            calls, in_flight = await looking.look()
            match decide_model(calls, asking.hash, in_flight, keyed=step.step_key is not None):
                case Replay(call):
                    return await self._replayed(step, call)
                case Compare(call):
                    return await self._compared(step, asking, call)
                case Wait():
                    await looking.wait()
                case Ask(again=True) if looking.count is None:
                    await looking.turn()
                case Ask() as decided:
                    with self._book.asking(step.run_id, looking.key):
                        result = await self._asked(step, asking, decided, looking.count if decided.again else None)
                    if result is not None:
                        return result
                    looking.count = None

    async def _prepared(self, step: ModelStep[OutputT], pinned: frozenset[ToolSignature] | None) -> _Asking:
        capabilities = self._tools.capabilities()
        offered = offer(
            self._tools.definitions(),
            capabilities,
            step.tenant.capabilities,
            step.visible_tool_names,
            pinned,
        )
        invocation = ModelInvocation(
            step.run_id,
            step.tenant,
            step.model,
            step.input.prompt or "",
            _messages(step.input),
            step.options or ModelCallOptions(),
            allowed(offered),
            capabilities,
        )
        for middleware in self._middleware:
            invocation = await middleware.prepare_model(invocation)
        question = question_of(
            invocation.model,
            invocation.prompt,
            invocation.messages,
            invocation.model_options,
            invocation.allowed_tools,
            step.step_key,
        )
        return _Asking(invocation, offered, question, question.hash)

    async def _pinned(self, step: ModelStep[OutputT]) -> frozenset[ToolSignature]:
        started = await self._book.said(step.run_id, 1, RunStarted)
        return frozenset(started.tool_signatures)

    async def _asked(
        self, step: ModelStep[OutputT], asking: _Asking, decided: Ask, count: int | None
    ) -> StepModelResult[OutputT] | None:
        """Ask the model; None where somebody else has asked the same meanwhile."""
        for middleware in self._middleware:
            await middleware.before_model(run_id=step.run_id, tenant=step.tenant)
        entries = [Entry(_abandoned(call), step.parent_step_key) for call in decided.abandoned]
        entries.append(Entry(_request(step, asking), step.parent_step_key))
        # Without a step key nothing says that two equal questions are one.
        expect = None if step.step_key is None else Expect(key_of("model", step.step_key, asking.hash), decided.last)
        written = await self._book.ask(step.run_id, step.tenant.tenant_id, entries, expect=expect, count=count)
        if isinstance(written, Overtaken | Held):
            return None
        completed, usage = await self._called(step, asking, written.last)
        done = await self._recorded(step, asking, completed)
        for middleware in self._middleware:
            await middleware.after_model(run_id=step.run_id, tenant=step.tenant, usage=usage)
        return _result(step, completed, done.first, replayed=False)

    async def _called(self, step: ModelStep[OutputT], asking: _Asking, seq: int) -> tuple[ModelCompleted, ModelUsage]:
        invocation = asking.invocation
        request = ModelRequest(
            step.run_id,
            invocation.model,
            invocation.prompt,
            invocation.messages,
            step.output_schema,
            invocation.allowed_tools,
            invocation.model_options,
        )
        began = self._book.ledger.now()
        try:
            result = await self._complete(request, step.on_token)
            return _completed(asking, seq, result), result.usage
        except BaseException as error:
            elapsed = (self._book.ledger.now() - began).total_seconds()
            await self._note_failure(step, seq, error, elapsed)
            raise

    async def _complete(self, request: ModelRequest[OutputT], on_token: OnToken | None) -> ModelResult[OutputT]:
        if on_token is None:
            return await self._models.complete(request)
        if not isinstance(self._models, StreamingModelPort):
            raise UsageError("the model port does not stream tokens", hint="leave `on_token` out")
        return await self._models.complete_streaming(request, on_token)

    async def _note_failure(self, step: ModelStep[OutputT], seq: int, error: BaseException, elapsed: float) -> None:
        failed = ModelFailed(
            request_seq=seq,
            model=step.model,
            reason=_reason(error),
            category=str(getattr(error, "category", "") or ""),
            error_type=type(error).__name__,
            message=one_line(str(error), LONGEST_MESSAGE),
            status=getattr(error, "status", None),
            elapsed_seconds=elapsed,
        )
        try:
            await self._book.note(step.run_id, step.tenant.tenant_id, (Entry(failed, step.parent_step_key),))
        except Exception as unwritten:
            # What went wrong with the model is the news; that it could not be written is said beside it.
            error.add_note(f"the failure could not be recorded: {unwritten}")

    async def _recorded(self, step: ModelStep[OutputT], asking: _Asking, completed: ModelCompleted) -> Written:
        why = _SORTED.encode(
            {
                "model": asking.question.model,
                "step_key": step.step_key,
                "allowed_tools_hash": asking.question.tools_hash,
                "tools": [each.as_data() for each in asking.offered],
            }
        ).decode()
        decision = RunSummary(summary_type=CAPABILITY_DECISION, summary_json=why, step_key=step.step_key)
        entries = (Entry(completed, step.parent_step_key), Entry(decision, step.parent_step_key))
        return await self._book.note(step.run_id, step.tenant.tenant_id, entries)

    async def _replayed(self, step: ModelStep[OutputT], call: Call) -> StepModelResult[OutputT]:
        completed = await self._book.said(step.run_id, call.done_seq, ModelCompleted)
        return _result(step, completed, call.done_seq or 0, replayed=True)

    async def _compared(self, step: ModelStep[OutputT], asking: _Asking, call: Call) -> StepModelResult[OutputT]:
        """An answer is on record for this key, to a question that was not quite this one."""
        then = recorded_question(await self._book.said(step.run_id, call.seq, ModelRequested))
        now = asking.question
        if then.tools != now.tools:
            if step.tool_drift == "pin" and set(then.tools) <= set(self._tools.signatures()):
                return await self._with_tools_of(step, then, call)
            raise _other_tools(step, then, now)
        fields = drift(then, now)
        if step.replay_policy == "strict" or "model" in fields:
            raise _other_question(step, fields)
        if step.replay_policy == "fork_on_drift":
            return await self._forked(step, asking, call, fields)
        await self._note_drift(step, asking, call, fields, None)
        result = await self._replayed(step, call)
        return replace(result, replayed_with_drift=True, drift_fields=fields)

    async def _with_tools_of(self, step: ModelStep[OutputT], then: Question, call: Call) -> StepModelResult[OutputT]:
        """The same step, offered the tools it was offered then."""
        asking = await self._prepared(step, frozenset(then.tools))
        if asking.hash == call.input_hash:
            return await self._replayed(step, call)
        if asking.question.tools != then.tools:
            raise _other_tools(step, then, asking.question)
        return await self._compared(step, asking, call)

    async def _forked(
        self, step: ModelStep[OutputT], asking: _Asking, call: Call, fields: tuple[str, ...]
    ) -> StepModelResult[OutputT]:
        fork = f"{step.run_id}::fork::{sha256_hex(f'{step.step_key}:{asking.hash}'.encode())[:16]}"
        if await self._book.ledger.head(fork) is None:
            await self._note_drift(step, asking, call, fields, fork)
            started = RunStarted(tool_signatures=self._tools.signatures(), forked_from=step.run_id)
            await self._book.begin(fork, step.tenant.tenant_id, Entry(started))
        result = await self.take(replace(step, run_id=fork, replay_policy="strict"))
        return replace(result, forked_from_run_id=step.run_id, drift_fields=fields)

    async def _note_drift(
        self, step: ModelStep[OutputT], asking: _Asking, call: Call, fields: tuple[str, ...], fork: str | None
    ) -> None:
        """Say once that an answer was taken for another question, or that this was asked elsewhere."""
        if call.drift == asking.hash:
            return
        said = ReplayedWithDrift(
            model=step.model,
            source_model_requested_event_id=event_id(step.run_id, call.seq),
            replay_policy="allow_prompt_drift" if fork is None else "fork_on_drift",
            drift_fields=list(fields),
            source_model_completed_seq=call.done_seq,
            step_key=step.step_key,
            fork_run_id=fork,
            input_hash=asking.hash,
        )
        entries = (Entry(said, step.parent_step_key),)
        looking = Looking(self._book, step.run_id, step.tenant.tenant_id, "model", step.step_key, asking.hash)
        while True:
            count = await looking.turn()
            calls, _ = await looking.look()
            if any(each.seq == call.seq and each.drift == asking.hash for each in calls):
                return
            if await self._book.note_at(step.run_id, step.tenant.tenant_id, entries, count):
                return


def _messages(asked: ModelInput) -> tuple[ChatMessage, ...]:
    if asked.messages:
        return asked.messages
    return (ChatMessage(role="user", content=asked.prompt or ""),)


def _request(step: ModelStep[OutputT], asking: _Asking) -> ModelRequested:
    question, version = asking.question, step.context_version
    return ModelRequested(
        model=question.model,
        prompt=question.prompt,
        messages=question.messages,
        api_mode=asking.invocation.model_options.api_mode,
        reasoning_effort=question.reasoning_effort,
        verbosity=question.verbosity,
        previous_response_id=question.previous_response_id,
        responses_input_items=question.responses_input_items,
        allowed_tools=[tool.name for tool in question.tools],
        allowed_tool_signatures=list(question.tools),
        allowed_tools_hash=question.tools_hash,
        step_key=step.step_key,
        context_version=None
        if version is None
        else ContextVersionOf(version.system_prompt_hash, version.context_builder_version, version.compaction_version),
        input_hash=asking.hash,
    )


def _completed(asking: _Asking, seq: int, result: ModelResult[OutputT]) -> ModelCompleted:
    """What is recorded of an answer; ModelPermanentError where it cannot be, or could not be read again."""
    try:
        completed = ModelCompleted(
            request_seq=seq,
            model=asking.question.model,
            output_json=output_json_of(result.output),
            prompt_tokens=result.usage.prompt_tokens,
            completion_tokens=result.usage.completion_tokens,
            cost_usd=result.usage.cost_usd,
            tool_calls=[
                ToolCallOf(call.tool_name, _canonical(call.arguments_json), call.tool_call_id)
                for call in result.tool_calls
            ],
            api_mode_used=result.api_mode_used,
            response_id=result.response_id,
            responses_output_items=plain_items(result.response_output_items) if result.response_output_items else [],
        )
        check_writable(completed)
    except (AttributeError, TypeError, ValueError, GertError) as error:
        why = one_line(str(error), LONGEST_MESSAGE)
        raise ModelPermanentError(
            f"the model port's answer cannot be recorded: {why}", category="invalid_output"
        ) from error
    return completed


def _canonical(arguments_json: str) -> str:
    """The arguments a model wrote, sorted and compact; where they are no JSON object, exactly what it wrote."""
    try:
        return canonicalize_json_object(arguments_json)
    except GertError:
        return arguments_json


def _abandoned(call: Call) -> ModelFailed:
    return ModelFailed(
        request_seq=call.seq, model=call.name, reason="abandoned", message="whoever asked did not wait for the answer"
    )


def _reason(error: BaseException) -> ModelFailure:
    if not isinstance(error, Exception):
        return "cancelled"
    return "timeout" if isinstance(error, ModelTimeoutError | TimeoutError) else "failed"


def _result(
    step: ModelStep[OutputT], completed: ModelCompleted, seq: int, *, replayed: bool
) -> StepModelResult[OutputT]:
    """The result as the record has it, also right after it was recorded: live and replayed are equal."""
    try:
        output = output_of_json(step.output_schema, completed.output_json, asked_for_tools=bool(completed.tool_calls))
    except ValidationError as error:
        raise ReplayConsistencyError(
            f"the recorded answer of {_named(step)} is not a `{step.output_schema.__name__}`",
            hint=f"{error.error_count()} of its fields do not fit",
        ) from error
    return StepModelResult(
        run_id=step.run_id,
        seq=seq,
        output=output,
        usage=ModelUsage(completed.prompt_tokens, completed.completion_tokens, completed.cost_usd),
        tool_calls=tuple(ToolCall(*msgspec.structs.astuple(call)) for call in completed.tool_calls),
        replayed=replayed,
        api_mode_used=completed.api_mode_used,
        response_id=completed.response_id,
        response_output_items=tuple(completed.responses_output_items),
    )


def _named(step: ModelStep[OutputT]) -> str:
    return f"step `{step.step_key}`" if step.step_key is not None else "this step"


def _other_tools(step: ModelStep[OutputT], then: Question, now: Question) -> ReplayConsistencyError:
    changes = changed_tools(then.tools, now.tools)
    names = {tool.name for tool in then.tools} ^ {tool.name for tool in now.tools}
    same = {tool.name: tool for tool in now.tools}
    names |= {tool.name for tool in then.tools if tool.name in same and same[tool.name] != tool}
    return ReplayConsistencyError(
        f"{_named(step)} was recorded with other tools: {', '.join(changes)}",
        drift_fields=("allowed_tool_signatures",),
        tools=tuple(sorted(names)),
        hint='pass tool_drift="pin" to keep the run on the tools it began with',
    )


def _other_question(step: ModelStep[OutputT], fields: tuple[str, ...]) -> ReplayConsistencyError:
    return ReplayConsistencyError(
        f"{_named(step)} was recorded with another {', '.join(f'`{field}`' for field in fields)}",
        drift_fields=fields,
        hint='use another step key, or replay_policy="allow_prompt_drift" or "fork_on_drift"',
    )
