"""Convert a vendor's answer to a result of the model port."""

import json
from typing import Any, Final, NoReturn

import msgspec
from pydantic import ValidationError

from gert.ecosystem.models.errors import excerpt, malformed
from gert.ecosystem.models.prices import Pricing, Tokens
from gert.ecosystem.models.schemas import VALUE, output_format
from gert.ecosystem.models.sse import Event
from gert.errors import CanonicalError, ModelPermanentError
from gert.kernel.agent.ports.model import ModelAPIModeUsed, ModelRequest, ModelResult, OutputT, ToolCall
from gert.kernel.agent.steps.outputs import blank_output
from gert.kernel.foundation.canonical_v1 import canonicalize_json_object
from gert.kernel.foundation.lenient_json import json_or
from gert.kernel.foundation.redaction import Redactor

_MAX_PROBLEMS: Final = 3
_MAX_LISTED: Final = 1000


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of a model, before its text is read as an output.

    stopped: why it ended early: `length`, `refusal`, `content_filter`, `paused`; None if it is complete
    refusal: the text of a refusal
    cost: in US dollars, if the answer reports it
    """

    text: str
    tool_calls: tuple[ToolCall, ...]
    tokens: Tokens | None
    items: tuple[dict[str, Any], ...]
    response_id: str | None
    model: str | None = None
    stopped: str | None = None
    refusal: str = ""
    cost: float | None = None


def masked(answer: Answer, redactor: Redactor) -> Answer:
    """Mask secrets that a server repeats anywhere in an answer, since all of it is recorded."""
    if not redactor:
        return answer
    fields = {name: getattr(answer, name) for name in ("text", "items", "response_id", "model", "refusal")}
    calls = tuple(
        ToolCall(*(redactor.value(part).value for part in (call.tool_name, call.arguments_json, call.tool_call_id)))
        for call in answer.tool_calls
    )
    return msgspec.structs.replace(answer, tool_calls=calls, **redactor.value(fields).value)


def result_of(
    request: ModelRequest[OutputT], answer: Answer, mode: ModelAPIModeUsed, pricing: Pricing, redactor: Redactor
) -> ModelResult[OutputT]:
    """Read an answer as the requested output; raises if it is neither that nor tool calls.

    The error carries the usage of the answer, which is paid for in any case.
    """
    try:
        if answer.stopped is not None:
            _refuse(answer, redactor)
        output, raw = _output(request, answer, redactor)
        usage = pricing.usage(request.model, answer.model, answer.tokens, answer.cost)
    except ModelPermanentError as error:
        error.usage = pricing.known_usage(request.model, answer.model, answer.tokens, answer.cost)
        raise
    return ModelResult(output, usage, answer.tool_calls, raw, mode, answer.response_id, answer.items)


def _refuse(answer: Answer, redactor: Redactor) -> NoReturn:
    if answer.stopped == "length":
        raise ModelPermanentError(
            "the model's answer was cut off at its length limit", category="length", hint="raise `max_output_tokens`"
        )
    if answer.stopped == "paused":
        raise ModelPermanentError("the model paused before its answer was complete", category="incomplete")
    words = f": {excerpt(answer.refusal, redactor)}" if answer.refusal else ""
    if answer.stopped == "content_filter":
        raise ModelPermanentError(f"a content filter blocked the model's answer{words}", category="refusal")
    raise ModelPermanentError(f"the model refused to answer{words}", category="refusal")


def _output(request: ModelRequest[OutputT], answer: Answer, redactor: Redactor) -> tuple[OutputT, str]:
    text = _without_fence(answer.text)
    problem = "it is empty"
    if text:
        try:
            return _validated(request.output_schema, text), text
        except ValidationError as error:
            problem = _problems(error, redactor)
        except (ValueError, RecursionError):
            problem = "it is not JSON"
    if answer.tool_calls:
        # Text beside tool calls is commentary, and kept with the items.
        return blank_output(request.output_schema), ""
    text_shown = f"; found `{excerpt(text, redactor)}`" if text else ""
    raise ModelPermanentError(
        f"the model's answer is not a `{request.output_schema.__name__}`: {problem}{text_shown}",
        category="invalid_output",
    )


def _validated(output_schema: type[OutputT], text: str) -> OutputT:
    if not output_format(output_schema).wrapped:
        return output_schema.model_validate_json(text)
    value = json.loads(text)
    inner = value[VALUE] if isinstance(value, dict) and value.keys() == {VALUE} else value
    return output_schema.model_validate_json(json.dumps(inner))


def _problems(error: ValidationError, redactor: Redactor) -> str:
    """Describe what does not fit, without the values, which may be secret."""
    if error.error_count() > _MAX_LISTED:
        return f"{error.error_count()} problems"  # a list of them would be longer than the answer
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    listed = [f"`{'.'.join(map(str, each['loc']))}` {each['msg']}".removeprefix("`` ") for each in problems]
    more = f" and {len(listed) - _MAX_PROBLEMS} more" if len(listed) > _MAX_PROBLEMS else ""
    return excerpt(f"{'; '.join(listed[:_MAX_PROBLEMS])}{more}", redactor, 300)


def _without_fence(text: str) -> str:
    """Return the text inside a Markdown fence, which models often put around JSON."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text[text.index("\n") + 1 : -3].strip()
    return text


def canonical_arguments(arguments: object) -> str:
    """Return a tool call's arguments as a sorted, compact JSON object.

    Text that is not a JSON object stays unchanged: the validation of the arguments reports it to the model.
    """
    text = arguments if isinstance(arguments, str) else "" if arguments is None else json_text(arguments)
    if not text.strip():
        return "{}"  # some models call a tool without parameters this way
    try:
        return canonicalize_json_object(text)
    except CanonicalError:
        return text


def json_text(value: object) -> str:
    """Return a value as JSON text, where a server sent it as an object."""
    try:
        return json.dumps(value)
    except RecursionError:
        raise malformed("the model's server answered with a tool call that is nested too deep") from None


def message_item(text: str) -> dict[str, Any]:
    """Return a text as an output item."""
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def call_item(call: ToolCall) -> dict[str, Any]:
    """Return a tool call as an output item."""
    return {
        "type": "function_call",
        "call_id": call.tool_call_id,
        "name": call.tool_name,
        "arguments": call.arguments_json,
    }


def objects(value: object) -> list[dict[str, Any]]:
    """Return the objects of a list; other values are unknown and skipped."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text_of(value: object) -> str:
    """Return a value that is text, or an empty text."""
    return value if isinstance(value, str) else ""


def required_name(value: object) -> str:
    """Return the tool name of a call; raises if it is missing."""
    if not isinstance(value, str) or not value:
        raise malformed("the model's server answered with a tool call that names no tool")
    return value


def event_object(event: Event) -> dict[str, Any]:
    """Decode a streamed event's data, which every vendor sends as a JSON object."""
    value = json_or(event.data)
    if not isinstance(value, dict):
        raise malformed("the model's server streamed something that is not a JSON object")
    return value
