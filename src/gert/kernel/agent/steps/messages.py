"""Messages of a conversation with a model, independent of the vendor."""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class ToolFunctionCall(BaseModel):
    """The function a model calls, and its arguments as JSON text."""

    model_config = ConfigDict(frozen=True)

    name: str
    arguments: str


class ToolCallMessage(BaseModel):
    """One tool call of an assistant's message."""

    model_config = ConfigDict(frozen=True)

    id: str
    type: Literal["function"] = "function"
    function: ToolFunctionCall


class ChatMessage(BaseModel):
    """One message: an instruction, the text of a user or the model, or the result of a tool.

    tool_call_id: in a `tool` message, which call it answers
    tool_calls: in an `assistant` message, the tools the model called
    """

    model_config = ConfigDict(frozen=True)

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_call_id: str | None = None
    name: str | None = None
    tool_calls: list[ToolCallMessage] | None = None
