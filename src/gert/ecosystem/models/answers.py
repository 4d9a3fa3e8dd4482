"""From what a model answered, in whichever vendor's words, to a result of the port."""

import json
from typing import Any, Final, NoReturn

import msgspec
from pydantic import ValidationError

from gert.ecosystem.models.errors import malformed, shown
from gert.ecosystem.models.prices import Pricing, Tokens
from gert.ecosystem.models.schemas import VALUE, output_format
from gert.ecosystem.models.sse import Event
from gert.errors import CanonicalError, ModelPermanentError
from gert.kernel.agent.ports.model import ModelAPIModeUsed, ModelRequest, ModelResult, OutputT, ToolCall
from gert.kernel.agent.steps.outputs import blank_output
from gert.kernel.foundation.canonical_v1 import canonicalize_json_object
from gert.kernel.foundation.redaction import Redactor

_MOST_PROBLEMS: Final = 3
_MOST_LISTED: Final = 1000


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a model said, before it is read as an output.

    stopped: why there is no more of it, where that is a reason not to take it: `length`, `refusal`,
        `content_filter`, `paused`
    refusal: its words when it refused
    cost: in US dollars, where the answer itself tells it
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
    """The answer without secrets, wherever in it a server repeats one: all of it is recorded."""
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
    """Read an answer as the output that was asked for; raises where it is neither that nor tool calls.

    What is raised then holds what the answer used: it is paid for all the same.
    """
    try:
        if answer.stopped is not None:
            _refuse(answer, redactor)
        output, raw = _output(request, answer, redactor)
        usage = pricing.usage(request.model, answer.model, answer.tokens, answer.cost)
    except ModelPermanentError as error:
        error.usage = pricing.told(request.model, answer.model, answer.tokens, answer.cost)
        raise
    return ModelResult(output, usage, answer.tool_calls, raw, mode, answer.response_id, answer.items)


def _refuse(answer: Answer, redactor: Redactor) -> NoReturn:
    if answer.stopped == "length":
        raise ModelPermanentError(
            "the model's answer was cut off at its length limit", category="length", hint="allow more output tokens"
        )
    if answer.stopped == "paused":
        raise ModelPermanentError("the model paused before its answer was complete", category="incomplete")
    words = f": {shown(answer.refusal, redactor)}" if answer.refusal else ""
    if answer.stopped == "content_filter":
        raise ModelPermanentError(f"the model's answer was held back by a content filter{words}", category="refusal")
    raise ModelPermanentError(f"the model refused to answer{words}", category="refusal")


def _output(request: ModelRequest[OutputT], answer: Answer, redactor: Redactor) -> tuple[OutputT, str]:
    text = _without_fence(answer.text)
    problem = "it says nothing"
    if text:
        try:
            return _validated(request.output_schema, text), text
        except ValidationError as error:
            problem = _problems(error, redactor)
        except (ValueError, RecursionError):
            problem = "it is not JSON"
    if answer.tool_calls:
        # What it says beside its calls is a remark, and kept with the items.
        return blank_output(request.output_schema), ""
    said = f"; it says `{shown(text, redactor)}`" if text else ""
    raise ModelPermanentError(
        f"the model's answer is not a `{request.output_schema.__name__}`: {problem}{said}", category="invalid_output"
    )


def _validated(output_schema: type[OutputT], text: str) -> OutputT:
    if not output_format(output_schema).wrapped:
        return output_schema.model_validate_json(text)
    value = json.loads(text)
    inner = value[VALUE] if isinstance(value, dict) and value.keys() == {VALUE} else value
    return output_schema.model_validate_json(json.dumps(inner))


def _problems(error: ValidationError, redactor: Redactor) -> str:
    """What does not fit, by place; without the values, which may be anything."""
    if error.error_count() > _MOST_LISTED:
        return f"{error.error_count()} problems"  # to list them takes more room than the answer did
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    told = [f"`{'.'.join(map(str, each['loc']))}` {each['msg']}".removeprefix("`` ") for each in problems]
    more = f" and {len(told) - _MOST_PROBLEMS} more" if len(told) > _MOST_PROBLEMS else ""
    return shown(f"{'; '.join(told[:_MOST_PROBLEMS])}{more}", redactor, 300)


def _without_fence(text: str) -> str:
    """The text inside a Markdown fence, which models put around JSON however they are asked not to."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text[text.index("\n") + 1 : -3].strip()
    return text


def canonical_arguments(arguments: object) -> str:
    """A tool call's arguments as a sorted, compact JSON object.

    What is no JSON object stays as the model wrote it: to say so is the business of whoever checks the arguments, and
    the model is told then.
    """
    text = arguments if isinstance(arguments, str) else "" if arguments is None else json_text(arguments)
    if not text.strip():
        return "{}"  # how some models call a tool without parameters
    try:
        return canonicalize_json_object(text)
    except CanonicalError:
        return text


def json_text(value: object) -> str:
    """The text of what should have been one already."""
    try:
        return json.dumps(value)
    except RecursionError:
        raise malformed("the model's server answered with a tool call that is nested too deep") from None


def message_item(text: str) -> dict[str, Any]:
    """A text as an output item."""
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def call_item(call: ToolCall) -> dict[str, Any]:
    """A tool call as an output item."""
    return {
        "type": "function_call",
        "call_id": call.tool_call_id,
        "name": call.tool_name,
        "arguments": call.arguments_json,
    }


def objects(value: object) -> list[dict[str, Any]]:
    """The objects in what should be a list of them; whatever else is in it is unknown and passed over."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text_of(value: object) -> str:
    """A text that may not be there."""
    return value if isinstance(value, str) else ""


def required_name(value: object) -> str:
    """The name of a tool that is called; a call of nothing is no answer."""
    if not isinstance(value, str) or not value:
        raise malformed("the model's server answered with a tool call that names no tool")
    return value


def event_object(event: Event) -> dict[str, Any]:
    """A streamed event's data, which is a JSON object with every vendor."""
    try:
        value = msgspec.json.decode(event.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise malformed("the model's server streamed something that is not a JSON object")
    return value
