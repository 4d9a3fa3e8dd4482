"""What events of an agent run are made of."""

from typing import Any, Literal

import msgspec

ApiMode = Literal["auto", "responses", "chat"]
"""Which interface of a model's vendor a step wants; `auto` takes Responses where there are any."""

ApiModeUsed = Literal["responses", "chat"]
"""Which it was."""

ToolOutcome = Literal["success", "transient_error", "permanent_error", "unknown_outcome"]
"""How a tool call ended; nobody knows whether a call of unknown outcome happened."""

ModelFailure = Literal["failed", "timeout", "cancelled", "abandoned"]
"""Why a model step has no answer; it was abandoned where whoever asked died or gave up."""

WorkflowStepFailure = Literal["failed", "cancelled", "abandoned"]
"""Why a step of a workflow was not taken to its end."""


class ToolSignature(msgspec.Struct, frozen=True, omit_defaults=True, order=True):
    """What identifies a tool a model was offered."""

    name: str
    tool_version: str
    schema_version: str
    schema_hash: str


class ContextVersionOf(msgspec.Struct, frozen=True, omit_defaults=True):
    """With which builder the context of a model step was made."""

    system_prompt_hash: str | None = None
    context_builder_version: str | None = None
    compaction_version: str | None = None


class ToolCallOf(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call a model asked for; its arguments are canonical JSON."""

    tool_name: str
    arguments_json: str
    tool_call_id: str | None = None


class FunctionOf(msgspec.Struct, frozen=True):
    """The function a message calls."""

    name: str
    arguments: str


class MessageCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of a tool as it stands in a message."""

    id: str
    function: FunctionOf
    type: Literal["function"] = "function"


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message a model was shown."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_call_id: str | None = None
    name: str | None = None
    tool_calls: list[MessageCall] | None = None


Items = list[dict[str, Any]]
"""Items of a Responses request or answer, as they came."""
