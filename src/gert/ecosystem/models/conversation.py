"""What every vendor's request is made from: the messages, and the tools with their schemas."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from gert.errors import ModelPermanentError
from gert.kernel.agent.ports.model import ModelCallOptions, ModelRequest, OutputT, ToolDefinition
from gert.kernel.agent.steps.messages import ChatMessage

StructuredOutput: TypeAlias = Literal["schema", "json", "text"]
"""How a server is told the output's schema: held to it, asked for some JSON, or by words alone."""


def messages_of(request: ModelRequest[OutputT]) -> Sequence[ChatMessage]:
    """The messages of a request; a prompt alone is one of them."""
    if request.messages:
        return request.messages
    if not request.prompt.strip():
        raise ModelPermanentError("there is nothing to ask the model: no prompt and no messages", category="request")
    return (ChatMessage(role="user", content=request.prompt),)


def parameters_of(tool: ToolDefinition) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments."""
    try:
        schema = msgspec.json.decode(tool.arguments_schema_json or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        schema = None
    if not isinstance(schema, dict):
        raise ModelPermanentError(f"the arguments of the tool `{tool.name}` have no JSON Schema", category="request")
    # Vendors want an object that says so, also where a tool takes nothing.
    return {"type": "object", "properties": {}, **schema}


def answered_call(message: ChatMessage) -> str:
    """Which call a tool's message answers."""
    if not message.tool_call_id:
        raise ModelPermanentError("a `tool` message does not say which call it answers", category="request")
    return message.tool_call_id


def needs_responses(options: ModelCallOptions) -> str | None:
    """The option that only the Responses API knows, if one is set."""
    if options.previous_response_id is not None:
        return "previous_response_id"
    return None if options.responses_input_items is None else "responses_input_items"


def in_words(schema: dict[str, Any]) -> str:
    """A schema as an instruction."""
    return (
        "Answer with one JSON object and nothing else. It must fit this JSON Schema:\n"
        + msgspec.json.encode(schema).decode()
    )


def encoded(body: object) -> bytes:
    """A request as JSON; one that has no such form, or holds half a character, is no request."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        raise ModelPermanentError(
            "the request to the model holds half a character, which cannot be sent",
            category="request",
            hint="a surrogate without its other half: decode the text as what it is",
        ) from None
    except (TypeError, ValueError, RecursionError):
        raise ModelPermanentError("the request to the model has no JSON form", category="request") from None
