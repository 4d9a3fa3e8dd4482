"""Types used in the events of an agent run."""

from typing import Any, Literal

import msgspec

ApiMode = Literal["auto", "responses", "chat"]
"""The vendor API that a step requests; `auto` uses Responses if available."""

ApiModeUsed = Literal["responses", "chat"]
"""The vendor API that was used."""

ToolOutcome = Literal["success", "transient_error", "permanent_error", "unknown_outcome"]
"""How a tool call ended; a call with an unknown outcome may have happened."""

ModelFailure = Literal["failed", "timeout", "cancelled", "abandoned"]
"""Why a model step has no answer; `abandoned` if the caller died or gave up."""

WorkflowStepFailure = Literal["failed", "cancelled", "abandoned"]
"""Why a step of a workflow was not completed."""


class ToolSignature(msgspec.Struct, frozen=True, omit_defaults=True, order=True):
    """Identifies a tool offered to a model."""

    name: str
    tool_version: str
    schema_version: str
    schema_hash: str


class ContextVersionOf(msgspec.Struct, frozen=True, omit_defaults=True):
    """The builder of the context of a model step."""

    system_prompt_hash: str | None = None
    context_builder_version: str | None = None
    compaction_version: str | None = None


class ToolCallOf(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tool call requested by a model; its arguments are canonical JSON."""

    tool_name: str
    arguments_json: str
    tool_call_id: str | None = None


class FunctionOf(msgspec.Struct, frozen=True):
    """The function a message calls."""

    name: str
    arguments: str


class MessageCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool call in a message."""

    id: str
    function: FunctionOf
    type: Literal["function"] = "function"


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message sent to a model."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_call_id: str | None = None
    name: str | None = None
    tool_calls: list[MessageCall] | None = None


Items = list[dict[str, Any]]
"""Items of a Responses request or answer, unchanged."""
