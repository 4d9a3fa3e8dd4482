"""The events, the result and the errors of a model step."""

from typing import Generic

import msgspec
from pydantic import ValidationError

from gert.errors import GertError, ModelPermanentError, ModelTimeoutError, ReplayConsistencyError
from gert.kernel.agent.middleware.base import ModelInvocation
from gert.kernel.agent.ports.model import ModelCallOptions, ModelResult, ModelUsage, OnToken, OutputT, ToolCall
from gert.kernel.agent.steps.error_text import error_text
from gert.kernel.agent.steps.outputs import checked_output_json, output_of_json
from gert.kernel.agent.steps.question import Question, changed_tools, plain_items
from gert.kernel.agent.steps.tool_visibility import ToolVisibility
from gert.kernel.agent.types.api import (
    ContextVersion,
    ModelInput,
    ReplayPolicy,
    StepModelResult,
    TenantContext,
    ToolDrift,
)
from gert.kernel.events.agent import ModelCompleted, ModelFailed, ModelRequested, RunSummary
from gert.kernel.events.agent.parts import ContextVersionOf, ModelFailure, ToolCallOf
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.canonical_v1 import canonicalize_json_object
from gert.kernel.ledger.build_batch import check_writable
from gert.kernel.ledger.record import Call
from gert.kernel.ledger.spending import UNREADABLE_USAGE

CAPABILITY_DECISION = "capability_decision"
LONGEST_MESSAGE = 2000
_SORTED = msgspec.json.Encoder(order="sorted")


class ModelStep(msgspec.Struct, Generic[OutputT], frozen=True):
    """One model step as the caller requested it.

    forked_from: the run that was forked to run this step
    """

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
    forked_from: str | None = None


class PreparedStep(msgspec.Struct, frozen=True):
    """A step after middleware, ready to be compared with the record."""

    invocation: ModelInvocation
    visibility: tuple[ToolVisibility, ...]
    question: Question
    hash: str

    @property
    def tools_hash(self) -> str:
        """Return the hash of the offered tools."""
        return self.question.tools_hash


def requested(step: ModelStep[OutputT], prepared: PreparedStep, reserved_usd: float = 0.0) -> ModelRequested:
    """Build the request event."""
    question = prepared.question
    return ModelRequested(
        model=question.model,
        prompt=question.prompt,
        messages=question.messages,
        api_mode=prepared.invocation.model_options.api_mode,
        reasoning_effort=question.reasoning_effort,
        verbosity=question.verbosity,
        previous_response_id=question.previous_response_id,
        responses_input_items=question.responses_input_items,
        allowed_tools=[tool.name for tool in question.tools],
        allowed_tool_signatures=list(question.tools),
        allowed_tools_hash=prepared.tools_hash,
        step_key=step.step_key,
        context_version=_version(step.context_version or ContextVersion(), question),
        input_hash=prepared.hash,
        reserved_usd=reserved_usd,
    )


def _version(given: ContextVersion, question: Question) -> ContextVersionOf:
    """Complete the caller's context version with the hash of the system prompt."""
    hashed = given.system_prompt_hash
    if hashed is None:
        prompts = [message.content for message in question.messages if message.role == "system"]
        hashed = sha256_hex("\n".join(prompts).encode()) if prompts else None
    return ContextVersionOf(hashed, given.context_builder_version, given.compaction_version)


def completed(
    output_schema: type[OutputT], prepared: PreparedStep, seq: int, result: ModelResult[OutputT]
) -> ModelCompleted:
    """Build the event of an answer; ModelPermanentError if it cannot be recorded and read back."""
    try:
        completed = ModelCompleted(
            request_seq=seq,
            model=prepared.question.model,
            output_json=checked_output_json(output_schema, result.output, asked_for_tools=bool(result.tool_calls)),
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
        if min(completed.prompt_tokens, completed.completion_tokens, completed.cost_usd) < 0:
            raise ValueError("its usage is negative")  # which would refund the tenant
    except (AttributeError, TypeError, ValueError, GertError) as error:
        why = error_text(error, LONGEST_MESSAGE)
        raise ModelPermanentError(
            f"the model port's answer cannot be recorded: {why}", category="invalid_output"
        ) from error
    return completed


def _canonical(arguments_json: str) -> str:
    """Return a model's arguments sorted and compact; unchanged if they are not a JSON object."""
    try:
        return canonicalize_json_object(arguments_json)
    except GertError:
        return arguments_json


def capability_decision(step: ModelStep[OutputT], prepared: PreparedStep) -> RunSummary:
    """Build the event that says which tools the step offered, and why."""
    why = _SORTED.encode(
        {
            "model": prepared.question.model,
            "step_key": step.step_key,
            "allowed_tools_hash": prepared.tools_hash,
            "tools": [each.as_data() for each in prepared.visibility],
        }
    ).decode()
    return RunSummary(summary_type=CAPABILITY_DECISION, summary_json=why, step_key=step.step_key)


def failed(model: str, seq: int, error: BaseException, elapsed: float, usage: ModelUsage | None) -> ModelFailed:
    """Build the event of a failed model call, with its cost.

    usage: the usage of an answer that arrived; otherwise the error may carry it. One that is no amount says nothing of
        the cost: what was reserved stays counted
    """
    given = usage if usage is not None else getattr(error, "usage", None)
    paid = _paid(given)
    category = str(getattr(error, "category", "") or "") if paid or given is None else UNREADABLE_USAGE
    paid = paid or ModelUsage(0, 0, 0.0)
    return ModelFailed(
        request_seq=seq,
        model=model,
        reason=_reason(error),
        category=category,
        error_type=type(error).__name__,
        message=error_text(error, LONGEST_MESSAGE),
        status=getattr(error, "status", None),
        elapsed_seconds=elapsed,
        prompt_tokens=paid.prompt_tokens,
        completion_tokens=paid.completion_tokens,
        cost_usd=paid.cost_usd,
    )


def _paid(usage: object) -> ModelUsage | None:
    """Return a usage that can be recorded; a port may report anything."""
    if not isinstance(usage, ModelUsage):
        return None
    whole = all(type(count) is int and 0 <= count < 2**63 for count in (usage.prompt_tokens, usage.completion_tokens))
    cost: object = usage.cost_usd
    return usage if whole and isinstance(cost, int | float) and 0 <= cost < float("inf") else None


def abandoned(call: Call) -> ModelFailed:
    """Build the end of a request whose caller is gone."""
    return ModelFailed(
        request_seq=call.seq,
        model=call.name,
        reason="abandoned",
        message="the caller stopped before the model answered",
    )


def _reason(error: BaseException) -> ModelFailure:
    if not isinstance(error, Exception):
        return "cancelled"
    return "timeout" if isinstance(error, ModelTimeoutError | TimeoutError) else "failed"


def result(
    step: ModelStep[OutputT], completed: ModelCompleted, seq: int, *, replayed: bool
) -> StepModelResult[OutputT]:
    """Build the result from the recorded answer, so that live and replayed results are equal."""
    try:
        output = output_of_json(step.output_schema, completed.output_json, asked_for_tools=bool(completed.tool_calls))
    except ValidationError as error:
        raise ReplayConsistencyError(
            f"the recorded answer of {_label(step)} is not a `{step.output_schema.__name__}`",
            hint=f"{error.error_count()} of its fields do not match the schema",
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


def _label(step: ModelStep[OutputT]) -> str:
    return f"step `{step.step_key}`" if step.step_key is not None else "this step"


def tools_changed(step: ModelStep[OutputT], then: Question, now: Question) -> ReplayConsistencyError:
    """The step was recorded with different tools."""
    changes = changed_tools(then.tools, now.tools)
    names = {tool.name for tool in then.tools} ^ {tool.name for tool in now.tools}
    same = {tool.name: tool for tool in now.tools}
    names |= {tool.name for tool in then.tools if tool.name in same and same[tool.name] != tool}
    return ReplayConsistencyError(
        f"{_label(step)} was recorded with different tools: {', '.join(changes)}",
        drift_fields=("allowed_tool_signatures",),
        tools=tuple(sorted(names)),
        hint='pass tool_drift="pin" to keep the run on the tools it started with',
    )


def question_changed(step: ModelStep[OutputT], fields: tuple[str, ...]) -> ReplayConsistencyError:
    """The step was recorded with a different request."""
    return ReplayConsistencyError(
        f"{_label(step)} was recorded with a different {', '.join(f'`{field}`' for field in fields)}",
        drift_fields=fields,
        hint='use another step key, or replay_policy="allow_prompt_drift" or "fork_on_drift"',
    )
