"""OpenAI's chat completions: requests and answers."""

from typing import Any

from gert.ecosystem.models.answers import (
    Answer,
    call_item,
    canonical_arguments,
    message_item,
    objects,
    required_name,
    text_of,
)
from gert.ecosystem.models.conversation import (
    StructuredOutput,
    call_id_of,
    messages_of,
    parameters_of,
    schema_instruction,
)
from gert.ecosystem.models.errors import malformed, of_event
from gert.ecosystem.models.prices import Tokens, tokens_of
from gert.ecosystem.models.schemas import OutputFormat, output_format
from gert.kernel.agent.ports.model import ModelRequest, OutputT, ToolCall
from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.foundation.redaction import Redactor

PATH = "/chat/completions"
# OpenAI's reasons and those of compatible servers, in lower case.
_STOPPED = {
    "length": "length", "model_length": "length", "max_tokens": "length",
    "content_filter": "content_filter", "safety": "content_filter",
}  # fmt: skip
_BROKEN_OFF = frozenset({"error", "abort", "insufficient_system_resource"})


def body_of(request: ModelRequest[OutputT], structured: StructuredOutput = "schema") -> dict[str, Any]:
    """Build the body of a request."""
    asked = output_format(request.output_schema)
    messages = [_message(message) for message in messages_of(request)]
    if structured != "schema":
        messages.insert(0, {"role": "system", "content": schema_instruction(asked.schema)})
    body: dict[str, Any] = {"model": request.model, "messages": messages}
    if structured != "text":
        body["response_format"] = _response_format(asked, structured)
    if request.allowed_tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": parameters_of(tool)},
            }
            for tool in request.allowed_tools
        ]
    options = request.model_options
    if options.reasoning_effort is not None:
        body["reasoning_effort"] = options.reasoning_effort
    if options.verbosity is not None:
        body["verbosity"] = options.verbosity
    return body


def _response_format(asked: OutputFormat, structured: StructuredOutput) -> dict[str, Any]:
    if structured == "json":
        return {"type": "json_object"}
    schema = {"name": asked.name, "schema": asked.schema, "strict": asked.strict}
    return {"type": "json_schema", "json_schema": schema}


def _message(message: ChatMessage) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": call_id_of(message), "content": message.content}
    body: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.name is not None:
        body["name"] = message.name
    if message.role == "assistant" and message.tool_calls:
        body["content"] = message.content or None
        body["tool_calls"] = [call.model_dump() for call in message.tool_calls]
    return body


def answer_of(body: dict[str, Any], redactor: Redactor) -> Answer:
    """Read an answer from its first choice."""
    choice = next(iter(objects(body.get("choices"))), {})
    finish = text_of(choice.get("finish_reason")).lower()
    failed = body if body.get("error") else choice
    if failed.get("error") or finish in _BROKEN_OFF:
        raise of_event(failed, redactor)  # gateways send this with a status of success
    message = choice.get("message")
    if not isinstance(message, dict):
        raise malformed("the model's server answered without a message")
    text, refusal = content_of(message.get("content")), text_of(message.get("refusal"))
    # The older form has one call, without an id.
    asked = objects(message.get("tool_calls")) or [
        {"function": each} for each in objects([message.get("function_call")])
    ]
    calls = tuple(_call(call) for call in asked)
    items = (*([message_item(text)] if text else []), *map(call_item, calls))
    return Answer(
        text=text,
        tool_calls=calls,
        tokens=tokens_in(body.get("usage")),
        items=items,
        response_id=text_of(body.get("id")) or None,
        model=text_of(body.get("model")) or None,
        stopped="refusal" if refusal else _STOPPED.get(finish),
        refusal=refusal,
    )


def tokens_in(usage: object) -> Tokens | None:
    """Return the tokens of a usage; None if it lacks one of the two counts."""
    return tokens_of(usage, "prompt_tokens", "completion_tokens")


def content_of(content: object) -> str:
    """Return a message's text; some servers send it in parts."""
    if isinstance(content, list):
        return "".join(text_of(part.get("text")) for part in objects(content))
    return text_of(content)


def _call(call: dict[str, Any]) -> ToolCall:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    name = required_name(function.get("name"))
    return ToolCall(name, canonical_arguments(function.get("arguments", "")), text_of(call.get("id")) or None)
