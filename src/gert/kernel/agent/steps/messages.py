"""Messages of a conversation with a model, in the shape every vendor's messages are made from."""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class ToolFunctionCall(BaseModel):
    """The function a model asks for, and its arguments as JSON text."""

    model_config = ConfigDict(frozen=True)

    name: str
    arguments: str


class ToolCallMessage(BaseModel):
    """One tool call an assistant's message asks for."""

    model_config = ConfigDict(frozen=True)

    id: str
    type: Literal["function"] = "function"
    function: ToolFunctionCall


class ChatMessage(BaseModel):
    """One message: an instruction, what a person or the model said, or what a tool returned.

    tool_call_id: in a `tool` message, which call it answers
    tool_calls: in an `assistant` message, what the model asked for
    """

    model_config = ConfigDict(frozen=True)

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_call_id: str | None = None
    name: str | None = None
    tool_calls: list[ToolCallMessage] | None = None
