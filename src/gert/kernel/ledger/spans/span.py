"""A span: its ids, which follow from the run and the number of an event, and its bounded attributes."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

import msgspec

from gert.kernel.foundation.canonical import canonical, sha256_hex
from gert.kernel.foundation.timestamps import parse_timestamp
from gert.kernel.ledger.spending import BRANCHES, root_of

Value: TypeAlias = str | int | float | bool | tuple[str, ...]
Attributes: TypeAlias = dict[str, Value]

LONGEST: Final = 1024
"""Characters of an attribute."""
LONGEST_CONTENT: Final = 16 * 1024
"""Characters of an attribute that holds content: messages, arguments, results."""
MOST_MARKS: Final = 128
"""Marks of one span; `gert.dropped_marks` counts the others."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_LARGEST: Final = 2**63 - 1


class Mark(msgspec.Struct, frozen=True):
    """Something that happened within a span: an event of OpenTelemetry.

    at: nanoseconds since 1970
    """

    name: str
    at: int
    attributes: Attributes = {}


class Link(msgspec.Struct, frozen=True):
    """A span of another run that this one is related to."""

    trace_id: str
    span_id: str
    attributes: Attributes = {}


class Span(msgspec.Struct, kw_only=True):
    """A run, a step, a call or an approval, from its start to its end in nanoseconds since 1970.

    error: the kind of error that ended it
    message: what the error says; only where content is exported
    is_open: it has not ended; `end` is the last that is known of it
    """

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None = None
    kind: Literal["internal", "client"] = "internal"
    start: int
    end: int = 0
    attributes: Attributes = msgspec.field(default_factory=dict)
    marks: list[Mark] = msgspec.field(default_factory=list)
    links: list[Link] = msgspec.field(default_factory=list)
    error: str | None = None
    message: str | None = None
    is_open: bool = False

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.end - self.start) / 1e9

    def mark(self, name: str, at: int, attributes: dict[str, Any]) -> None:
        """Add a mark, unless there are too many."""
        if len(self.marks) < MOST_MARKS:
            self.marks.append(Mark(name, at, bounded(attributes)))
        else:
            self.attributes["gert.dropped_marks"] = int(self.attributes.get("gert.dropped_marks", 0)) + 1  # type: ignore[arg-type]


def trace_id_of(run_id: str) -> str:
    """Return the id of a run's trace; an agent shares it with its sub-agents and forks."""
    return sha256_hex(canonical(["gert.trace", root_of(run_id)]))[:32]


def span_id_of(run_id: str, seq: int, part: int = 0) -> str:
    """Return the id of the span that an event begins; `part` tells spans apart that one event begins."""
    return sha256_hex(canonical(["gert.span", run_id, seq, part]))[:16]


def parent_of(run_id: str) -> str | None:
    """Return the run that a sub-agent or a fork belongs to, which its id says."""
    found = max(run_id.rfind(mark) for mark in BRANCHES)
    return run_id[:found] if found > 0 else None


def link_to(run_id: str, relation: str) -> Link:
    """Return a link to the span of another run, which its first event begins."""
    attributes: Attributes = {"gert.link.relation": relation, "gert.run.id": clipped(run_id)}
    return Link(trace_id_of(run_id), span_id_of(run_id, 1), attributes)


def nanoseconds(timestamp: str) -> int:
    """Convert the timestamp of an event to nanoseconds since 1970; TraceError where it is none."""
    return max((parse_timestamp(timestamp) - _EPOCH) // _MICROSECOND * 1000, 0)


def clipped(text: str, longest: int = LONGEST) -> str:
    """Cut a text to a length, and replace what UTF-8 cannot hold."""
    short = text if len(text) <= longest else text[: longest - 1] + "…"
    return short.encode("utf-8", "replace").decode()


def bounded(attributes: dict[str, Any]) -> Attributes:
    """Return attributes that every backend takes: no empty ones, short texts, numbers of 64 bits."""
    found = {name: _value(value) for name, value in attributes.items()}
    return {name: value for name, value in found.items() if value is not None}


def _value(value: Any) -> Value | None:
    if isinstance(value, str):
        return clipped(value) if value else None
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST else str(value)
    if isinstance(value, float):
        return value
    return tuple(clipped(str(each), 256) for each in list(value)[:64]) or None


def content(value: Any) -> str:
    """Return a value as the text of a content attribute, cut to its length."""
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
    return clipped(text, LONGEST_CONTENT)
