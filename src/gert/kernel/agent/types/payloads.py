"""Convert events of agent runs between their documented models and the ledger's lines."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, get_args

import msgspec
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from gert.errors import InputError, TraceError
from gert.kernel.agent.steps.question import joined_hash
from gert.kernel.agent.types.payload_models import EventPayload, EventType
from gert.kernel.events.catalogue import catalogue
from gert.kernel.events.chain import GENESIS_FORMS
from gert.kernel.events.envelope import Envelope, decode, parse_timestamp
from gert.kernel.events.payload import Payload, UnknownEvent, check_json, said
from gert.kernel.foundation.arguments import checked
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps
from gert.kernel.ledger.projection import event_id

PAYLOADS: Mapping[str, type[BaseModel]] = {kind.model_fields["kind"].default: kind for kind in get_args(EventPayload)}
"""The documented model of each type of event."""


_CLOCKS: list[Callable[[], datetime]] = []
"""The clock for events that a caller makes without a time. The kernel has none: it reads events from lines."""


def set_event_clock(clock: Callable[[], datetime]) -> None:
    """Set the clock for events that a caller makes without a time."""
    _CLOCKS[:] = [clock]


def event_moment() -> datetime:
    """Return the current time by the clock that the host has set."""
    if not _CLOCKS:
        raise InputError("an event needs a `timestamp`")
    return _CLOCKS[0]()


class KernelEvent(BaseModel):
    """One event of an agent run.

    prev_event_hash: the hash of the previous line; None for the first event of a run
    event_hash: the hash of its own line, as it is stored
    parent_step_key: the step it belongs to
    timestamp: when it was appended; the current time for an event that a caller makes
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    event_id: str
    run_id: str
    tenant_id: str
    seq: int
    event_type: EventType
    prev_event_hash: str | None = None
    event_hash: str
    parent_step_key: str | None = None
    timestamp: AwareDatetime = Field(default_factory=event_moment)
    payload: Annotated[EventPayload, Field(discriminator="kind")]

    @model_validator(mode="after")
    def payload_matches_event_type(self) -> "KernelEvent":
        """Refuse a payload whose type is not the event's."""
        if self.payload.kind != self.event_type.value:
            raise ValueError(f"expected a payload of `{self.event_type.value}`, found `{self.payload.kind}`")
        return self


def event_from_line(line: bytes) -> KernelEvent:
    """Read an event of an agent run from its line; TraceError for other events."""
    stored = line.removesuffix(b"\n")
    return _event(stored, decode(stored))


def known_events(lines: Iterable[bytes]) -> Iterator[KernelEvent]:
    """Read events of an agent run; skip types that only a later version knows."""
    for line in lines:
        stored = line.removesuffix(b"\n")
        envelope = decode(stored)
        if envelope.type in catalogue():
            yield _event(stored, envelope)


def _event(stored: bytes, envelope: Envelope) -> KernelEvent:
    kind = _kind_of(envelope)
    if envelope.tenant is None:
        raise TraceError(f"the event `{envelope.type}` has no tenant; every event of an agent run has one")
    try:
        return KernelEvent(
            event_id=event_id(envelope.run_id, envelope.seq),
            run_id=envelope.run_id,
            tenant_id=envelope.tenant,
            seq=envelope.seq,
            event_type=EventType(envelope.type),
            prev_event_hash=None if envelope.prev_hash in GENESIS_FORMS else envelope.prev_hash,
            event_hash=sha256_hex(stored),
            parent_step_key=envelope.path,
            timestamp=parse_timestamp(envelope.timestamp),
            payload=_read(envelope, kind),
        )
    except ValidationError as error:
        raise TraceError(f"the event `{envelope.type}` cannot be read: {_first(error)}") from error


def to_entry_payload(payload: EventPayload) -> Payload:
    """Convert a payload to the form that the ledger writes; TraceError if it cannot be written."""
    kind = getattr(payload, "kind", None)
    if not isinstance(kind, str) or type(payload) is not PAYLOADS.get(kind):
        raise TraceError(f"expected a payload of an agent event, found a `{type(payload).__name__}`")
    try:
        data = payload.model_dump(exclude={"kind"}, exclude_none=True, warnings=False)
        check_json(data, "data")
        return msgspec.convert(data, catalogue()[kind])
    except (TypeError, ValueError, RecursionError) as error:
        raise TraceError(f"the event `{kind}` cannot be written: {said(error)}", hint=_hint(payload)) from error


@checked
def payload_to_canonical_json(payload: EventPayload) -> str:
    """Return a payload as canonical JSON of the profile "v1", with every field."""
    return canonical_json_dumps(payload.model_dump())


@checked
def compute_allowed_tools_hash(tool_names: Sequence[str]) -> str:
    """Hash a set of tools, each given as `name|tool_version|schema_version|schema_hash` or by its name alone."""
    return joined_hash(tool_names)


def _kind_of(envelope: Envelope) -> type[BaseModel]:
    kind = PAYLOADS.get(envelope.type)
    if kind is None:
        whose = "a runbook run" if envelope.type in catalogue() else "an unknown type"
        raise TraceError(f"expected an event of an agent run, found `{envelope.type}`, an event of {whose}")
    return kind


def _read(envelope: Envelope, kind: type[BaseModel]) -> Any:
    payload = envelope.payload
    if isinstance(payload, UnknownEvent):
        raise TraceError(f"the event `{envelope.type}` cannot be read: {payload.objection}")
    return kind.model_validate(payload, from_attributes=True)


def _hint(payload: EventPayload) -> str | None:
    if getattr(payload, "request_seq", 0) is None:
        return "set `request_seq` to the number of the request that it ends"
    return None


def _first(error: ValidationError) -> str:
    """Describe the first problem in one line."""
    found = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in found["loc"])
    return f"`{where}`: {said(ValueError(found['msg']))}" if where else said(ValueError(found["msg"]))
