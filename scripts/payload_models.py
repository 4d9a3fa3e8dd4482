"""The module `gert.kernel.agent.types.payload_models`, from the events of agent runs as the ledger writes them.

It is source and not classes made at run time: callers, editors and type checkers see the fields of every payload.
"""

import inspect
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from gert.kernel.events import agent
from gert.kernel.events.agent import parts

RECORDS: dict[type[msgspec.Struct], str] = {
    parts.ToolSignature: "ToolSignatureRecord",
    parts.ContextVersionOf: "ContextVersionRecord",
    parts.ToolCallOf: "ToolCallRecord",
}
"""The documented name of each part of an event."""

NAMES: dict[Any, str] = {**RECORDS, parts.Message: "ChatMessage", Any: "object", type(None): "None"}

REQUIRED = {
    "model_requested": {"messages"},
    "model_completed": {"prompt_tokens", "completion_tokens", "cost_usd"},
    "tool_completed": {"result_json"},
}
"""Fields that a documented payload requires although the ledger leaves out their default."""

NARROWED = {"reasoning_effort": "ReasoningEffort | None", "verbosity": "VerbosityLevel | None"}
"""Fields of which the documented payload accepts fewer values than the ledger, which also reads later versions."""

UNKNOWN_UNTIL_WRITTEN = "request_seq"
"""The ledger requires it; a payload that a caller makes may leave it out until it is written."""

HEADER = '''\
"""The payloads of agent events as callers read and write them.

Generated from `gert.kernel.events.agent` by `make docs`: change the events, not this file. `docs/events.md` explains
the fields.
"""

from enum import StrEnum
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from gert.kernel.agent.ports.model import ReasoningEffort, VerbosityLevel
from gert.kernel.agent.steps.messages import ChatMessage


class PayloadModel(BaseModel):
    """The data of one event: frozen, and without fields it does not declare."""

    # Built when first used: every program imports all of them, and most programs use few.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)
'''


def page() -> str:
    """Give the text of the module."""
    blocks = [HEADER]
    blocks += ["\n".join(_record(kind, name)) for kind, name in RECORDS.items()]
    blocks += ["\n".join(_payload(kind)) for kind in agent.EVENTS]
    blocks += ["\n".join(_event_types()), "\n".join(_union())]
    return "\n\n".join(blocks)


def _record(kind: type[msgspec.Struct], name: str) -> Iterator[str]:
    yield from _opening(kind, name)
    for field in msgspec.structs.fields(kind):
        yield _field(field, set())
    yield ""


def _payload(kind: type[Any]) -> Iterator[str]:
    yield from _opening(kind, f"{kind.__name__}Payload")
    yield f'    kind: Literal["{kind.type}"] = "{kind.type}"'
    # In the order of the documentation, in which the number of the request does not occur.
    for field in sorted(msgspec.structs.fields(kind), key=lambda each: each.name == UNKNOWN_UNTIL_WRITTEN):
        yield _field(field, REQUIRED.get(kind.type, set()))
    yield ""


def _opening(kind: type, name: str) -> Iterator[str]:
    yield f"class {name}(PayloadModel):"
    yield f'    """{(inspect.getdoc(kind) or "").splitlines()[0]}"""'
    yield ""


def _field(field: msgspec.structs.FieldInfo, required: set[str]) -> str:
    shape = NARROWED.get(field.name) or _shape(field.type)
    if field.name == UNKNOWN_UNTIL_WRITTEN:
        return f"    {field.name}: {shape} | None = None"
    if field.required or field.name in required:
        return f"    {field.name}: {shape}"
    if shape.startswith("list[") and field.default in (msgspec.NODEFAULT, ()):
        return f"    {field.name}: {shape} = Field(default_factory=list)"
    return f"    {field.name}: {shape} = {_literal(field.default)}"


def _shape(kind: Any) -> str:
    """A declared type as it is written in a payload; a sequence of any kind is a list."""
    if kind in NAMES:
        return NAMES[kind]
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return f"Literal[{', '.join(map(_literal, inner))}]"
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(_shape, inner))
    if origin in (list, tuple):
        return f"list[{_shape(inner[0])}]"
    if origin is dict:
        return f"dict[{_shape(inner[0])}, {_shape(inner[1])}]"
    return str(kind.__name__)


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _event_types() -> Iterator[str]:
    yield "class EventType(StrEnum):"
    yield '    """The types of events of an agent run."""'
    yield ""
    for kind in agent.EVENTS:
        yield f'    {kind.type.upper()} = "{kind.type}"'
    yield ""


def _union() -> Iterator[str]:
    first, *others = (f"{kind.__name__}Payload" for kind in agent.EVENTS)
    yield "EventPayload: TypeAlias = ("
    yield f"    {first}"
    for name in others:
        yield f"    | {name}"
    yield ")"
    yield ""
