"""The parts of every vendor's request: messages, and tools with their schemas."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from gert.errors import ModelPermanentError
from gert.kernel.agent.ports.model import ModelCallOptions, ModelRequest, OutputT, ToolDefinition
from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.foundation.lenient_json import json_or

StructuredOutput: TypeAlias = Literal["schema", "json", "text"]
"""How the output's schema is enforced: by the server, by its JSON mode, or by an instruction alone."""


def messages_of(request: ModelRequest[OutputT]) -> Sequence[ChatMessage]:
    """Return the messages of a request; a prompt becomes one user message."""
    if request.messages:
        return request.messages
    if not request.prompt.strip():
        raise ModelPermanentError("the model request has neither a prompt nor messages", category="request")
    return (ChatMessage(role="user", content=request.prompt),)


def parameters_of(tool: ToolDefinition) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments."""
    schema = json_or(tool.arguments_schema_json or "{}")
    if not isinstance(schema, dict):
        raise ModelPermanentError(f"the arguments of the tool `{tool.name}` have no JSON Schema", category="request")
    # Vendors require an explicit object, even if a tool has no arguments.
    return {"type": "object", "properties": {}, **schema}


def call_id_of(message: ChatMessage) -> str:
    """Return the id of the call that a tool's message answers."""
    if not message.tool_call_id:
        raise ModelPermanentError("a `tool` message has no `tool_call_id`", category="request")
    return message.tool_call_id


def needs_responses(options: ModelCallOptions) -> str | None:
    """Return the option that requires the Responses API, if one is set."""
    if options.previous_response_id is not None:
        return "previous_response_id"
    return None if options.responses_input_items is None else "responses_input_items"


def schema_instruction(schema: dict[str, Any]) -> str:
    """Return a schema as an instruction to the model."""
    return (
        "Answer with one JSON object and nothing else. It must fit this JSON Schema:\n"
        + msgspec.json.encode(schema).decode()
    )


def encoded(body: object) -> bytes:
    """Encode a request as JSON; raises if it has no JSON form."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        raise ModelPermanentError(
            "the request to the model contains a lone surrogate, which cannot be sent",
            category="request",
            hint="decode the text with its real encoding",
        ) from None
    except (TypeError, ValueError, RecursionError):
        raise ModelPermanentError("the request to the model has no JSON form", category="request") from None
