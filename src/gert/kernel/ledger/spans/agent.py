"""The spans of an agent run: the run, its model and tool calls, the steps of workflows, and approvals."""

import re
from typing import Any, Final

import msgspec

from gert.kernel.events import agent as says
from gert.kernel.events.agent.parts import Message
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import Payload
from gert.kernel.ledger.spans.open_spans import OpenSpans, approval_event
from gert.kernel.ledger.spans.span import parent_of, span_id_of

RUN: Final = "run"
_TURN: Final = re.compile(r"(?:^|_)turn_(\d{1,9})(?:_|$)")
_LONGEST_MESSAGE: Final = 2000
_MOST_MESSAGES: Final = 6
_PROVIDERS: Final = (
    ("gpt", "openai"), ("o1", "openai"), ("o3", "openai"), ("o4", "openai"), ("chatgpt", "openai"),
    ("claude", "anthropic"), ("gemini", "gcp.gemini"), ("mistral", "mistral_ai"), ("command", "cohere"),
    ("grok", "x_ai"), ("deepseek", "deepseek"),
)  # fmt: skip
_PREFIXES: Final = {
    "azure": "azure.ai.openai", "bedrock": "aws.bedrock", "vertex_ai": "gcp.vertex_ai", "gemini": "gcp.gemini",
    "mistral": "mistral_ai", "xai": "x_ai", "watsonx": "ibm.watsonx.ai",
}  # fmt: skip


def fold_agent(spans: OpenSpans, event: Envelope, said: Payload) -> None:
    """Fold one event of an agent run."""
    if isinstance(said, says.RunStarted | says.RunReopened):
        _begin(spans, event, said)
        return
    if approval_event(spans, event, said, RUN):
        return
    match said:
        case says.RunEnded():
            spans.say(spans.get(RUN), gert__run__status=said.status)
            error = None if said.status == "completed" else said.error_type or said.status
            spans.end(RUN, event, error=error, message=said.message)
        case says.ModelRequested():
            _model_requested(spans, event, said)
        case says.ModelCompleted():
            _model_completed(spans, event, said)
        case says.ModelFailed():
            span = spans.get(said.request_seq)
            spans.say(span, http__response__status_code=said.status, **_usage(said))
            spans.end(said.request_seq, event, error=said.category or said.reason, message=said.message)
        case says.ToolRequested():
            _tool_requested(spans, event, said)
        case says.ToolCompleted():
            _tool_completed(spans, event, said)
        case says.WorkflowStepRequested():
            spans.begin(
                event.seq, f"step {said.step_name}", event, parent=RUN, gert__step__id=said.step_name,
                step_key=said.step_key, gert__step__key=said.step_key, gert__step__type="workflow",
            )  # fmt: skip
        case says.WorkflowStepCompleted():
            spans.say(spans.get(said.request_seq), gert__step__status="success")
            spans.end(said.request_seq, event)
        case says.WorkflowStepFailed():
            spans.say(spans.get(said.request_seq), gert__step__status=said.reason)
            spans.end(said.request_seq, event, error=said.error_type or said.reason, message=said.message)
        case says.RunSummary(summary_type="policy_decision"):
            _decision(spans, event, said)
        case _:
            _marks(spans, event, said)


def provider_of(model: str) -> str:
    """Return the name that the conventions have for the vendor of a model; `unknown` where the name does not say."""
    prefix, separator, name = model.lower().partition("/")
    if separator:
        return _PREFIXES.get(prefix, prefix) or "unknown"
    return next((vendor for start, vendor in _PROVIDERS if (name or prefix).startswith(start)), "unknown")


def _begin(spans: OpenSpans, event: Envelope, said: says.RunStarted | says.RunReopened) -> None:
    outer = parent_of(event.run_id)
    forked_from = said.forked_from if isinstance(said, says.RunStarted) else None
    caller = said.parent_run_id if isinstance(said, says.RunStarted) else None
    links = spans.join(caller, said.root_run_id) if isinstance(said, says.RunStarted) else []
    links += [spans.link_to(forked_from, "forked_from")] if forked_from else []
    if isinstance(said, says.RunReopened):
        links.append(spans.link_to(event.run_id, "reopened"))
    spans.begin(
        RUN,
        "invoke_agent",
        event,
        parent_id=span_id_of(outer, 1) if outer is not None else spans.caller,
        links=links,
        gen_ai__operation__name="invoke_agent",
        gen_ai__conversation__id=event.run_id,
        gert__run__id=event.run_id,
        gert__run__kind="agent",
        gert__run__parent_id=outer or caller,
        gert__tenant=event.tenant,
    )


def _around(spans: OpenSpans, event: Envelope) -> Any:
    """Return the key of the open step that an event names as its parent, or of the run."""
    return spans.keys.get(event.path or "", RUN)


def _step(step_key: str | None) -> dict[str, Any]:
    turn = _TURN.search(step_key) if step_key else None
    return {"gert__step__key": step_key, "gert__turn": int(turn[1]) if turn else None}


def _model_requested(spans: OpenSpans, event: Envelope, said: says.ModelRequested) -> None:
    span = spans.begin(
        event.seq,
        f"chat {said.model}",
        event,
        parent=_around(spans, event),
        kind="client",
        step_key=said.step_key,
        gen_ai__operation__name="chat",
        gen_ai__provider__name=provider_of(said.model),
        gen_ai__request__model=said.model,
        gen_ai__conversation__id=event.run_id,
        gert__tools__offered=len(said.allowed_tools) or None,
        **_step(said.step_key),
    )
    spans.capture(span, gen_ai__input__messages=[_message(each) for each in said.messages[-_MOST_MESSAGES:]])


def _model_completed(spans: OpenSpans, event: Envelope, said: says.ModelCompleted) -> None:
    span = spans.get(said.request_seq)
    reason = "tool_calls" if said.tool_calls else "stop"
    spans.say(
        span,
        gen_ai__response__model=said.model,
        gen_ai__response__id=said.response_id,
        gen_ai__response__finish_reasons=(reason,),
        **_usage(said),
    )
    longest = _LONGEST_MESSAGE
    parts: list[dict[str, Any]] = [
        {
            "type": "tool_call",
            "id": each.tool_call_id,
            "name": each.tool_name,
            "arguments": each.arguments_json[:longest],
        }
        for each in said.tool_calls[:_MOST_MESSAGES]
    ]
    parts.append({"type": "text", "content": said.output_json[:longest]})
    spans.capture(span, gen_ai__output__messages=[{"role": "assistant", "parts": parts, "finish_reason": reason}])
    spans.end(said.request_seq, event)


def _usage(said: says.ModelCompleted | says.ModelFailed) -> dict[str, Any]:
    return {
        "gen_ai__usage__input_tokens": said.prompt_tokens or None,
        "gen_ai__usage__output_tokens": said.completion_tokens or None,
        "gert__cost_usd": said.cost_usd or None,
    }


def _message(said: Message) -> dict[str, Any]:
    return {"role": said.role, "parts": [{"type": "text", "content": said.content[:_LONGEST_MESSAGE]}]}


def _tool_requested(spans: OpenSpans, event: Envelope, said: says.ToolRequested) -> None:
    span = spans.begin(
        event.seq,
        f"execute_tool {said.tool_name}",
        event,
        parent=_around(spans, event),
        step_key=said.step_key,
        gen_ai__operation__name="execute_tool",
        gen_ai__tool__name=said.tool_name,
        gen_ai__tool__type="function",
        gert__tool__version=said.tool_version,
        gert__tool__side_effect=said.side_effect,
        gert__tool__amount_usd=said.amount_usd,
        **_step(said.step_key),
    )
    spans.capture(span, gen_ai__tool__call__arguments=said.arguments_json)


def _tool_completed(spans: OpenSpans, event: Envelope, said: says.ToolCompleted) -> None:
    span = spans.get(said.request_seq)
    if span is None:
        # The call ended before, and its span is gone: an operator has reconciled it, or a hook changed its result.
        spans.mark(RUN, "tool.reconciled", event, gen_ai__tool__name=said.tool_name, gert__tool__outcome=said.outcome)
        return
    if said.withheld:
        return
    spans.say(span, gert__tool__outcome=said.outcome, gert__tool__effect_id=said.effect_id)
    spans.capture(span, gen_ai__tool__call__result=said.result_json)
    error = None if said.outcome == "success" else said.outcome
    spans.end(said.request_seq, event, error=error, message=said.error_message)


def _decision(spans: OpenSpans, event: Envelope, said: says.RunSummary) -> None:
    """Mark a decision of policy; a call that is denied never begins, and is a span that ends at once.

    A denial without a code is a call that waits for an approval, which has a span of its own.
    """
    facts = _facts(said.summary_json)
    tool, outcome = str(facts.get("tool_name", "")), str(facts.get("outcome", ""))
    rule = str(facts.get("rule_id", ""))
    spans.mark(
        RUN, "policy.decision", event, gen_ai__tool__name=tool, gert__decision=outcome, gert__rule=rule,
        gert__step__key=said.step_key,
    )  # fmt: skip
    code = facts.get("code")
    if outcome != "deny" or not code:
        return
    spans.begin(
        ("denied", event.seq),
        f"execute_tool {tool}",
        event,
        parent=_around(spans, event),
        gen_ai__operation__name="execute_tool",
        gen_ai__tool__name=tool,
        gert__decision=outcome,
        gert__rule=rule,
        **_step(said.step_key),
    )
    spans.end(("denied", event.seq), event, error=str(code), message=str(facts.get("reason", "")))


def _marks(spans: OpenSpans, event: Envelope, said: Payload) -> None:
    match said:
        case says.ReplayedWithDrift():
            spans.mark(
                RUN, "drift", event, gen_ai__request__model=said.model, gert__fields=said.drift_fields,
                gert__step__key=said.step_key, gert__run__fork_id=said.fork_run_id,
            )  # fmt: skip
        case says.PauseRequested():
            spans.mark(RUN, "blocked" if said.blocked else "paused", event, gert__step__key=said.step_key)
        case says.ResumeRequested():
            spans.mark(RUN, "resumed", event)
        case says.ContextRead():
            spans.mark(RUN, "context.read", event, gert__source=said.source)
        case says.HarnessInitialized():
            span = spans.get(RUN)
            if span is not None and said.harness_name:
                span.name = f"invoke_agent {said.harness_name}"[:256]
                spans.say(span, gen_ai__agent__name=said.harness_name)
        case says.HarnessWake():
            spans.mark(RUN, "harness.wake", event)
        case says.HarnessSleep():
            spans.mark(RUN, "harness.sleep", event, gert__run__status=said.status)
        case says.HarnessStage():
            spans.mark(RUN, "harness.stage", event, gert__stage=said.stage)
        case says.HarnessFailed():
            spans.mark(RUN, "harness.failed", event, error__type=said.error_type)
        case _:
            pass


def _facts(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
