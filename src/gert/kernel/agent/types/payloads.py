"""Events of agent runs as people read and write them, and the way between these models and the ledger's lines."""

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
"""The model of each type of event."""


_CLOCKS: list[Callable[[], datetime]] = []
"""What tells the time of an event that is made by hand. The kernel has no clock, and reads its events from lines."""


def tell_time_by(clock: Callable[[], datetime]) -> None:
    """Give events that are made by hand, and without a time, the time of this clock."""
    _CLOCKS[:] = [clock]


def _moment() -> datetime:
    if not _CLOCKS:
        raise InputError("an event needs a `timestamp`")
    return _CLOCKS[0]()


class KernelEvent(BaseModel):
    """One event of an agent run, as it stands in the ledger.

    prev_event_hash: the hash of the line before; None for the first event of a run
    event_hash: the hash of its own line, as it is stored
    parent_step_key: the step it belongs to
    timestamp: when it was appended; the time now for one that is made by hand
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
    timestamp: AwareDatetime = Field(default_factory=_moment)
    payload: Annotated[EventPayload, Field(discriminator="kind")]

    @model_validator(mode="after")
    def payload_matches_event_type(self) -> "KernelEvent":
        """Refuse a payload of another type than the event's."""
        if self.payload.kind != self.event_type.value:
            raise ValueError(f"expected a payload of `{self.event_type.value}`, found `{self.payload.kind}`")
        return self


def event_from_line(line: bytes) -> KernelEvent:
    """Read an event of an agent run from its line in a ledger; other events are refused."""
    stored = line.removesuffix(b"\n")
    return _event(stored, decode(stored))


def known_events(lines: Iterable[bytes]) -> Iterator[KernelEvent]:
    """Read events of an agent run, and pass over those of types only a later version knows."""
    for line in lines:
        stored = line.removesuffix(b"\n")
        envelope = decode(stored)
        if envelope.type in catalogue():
            yield _event(stored, envelope)


def _event(stored: bytes, envelope: Envelope) -> KernelEvent:
    kind = _kind_of(envelope)
    if envelope.tenant is None:
        raise TraceError(f"the event `{envelope.type}` belongs to no tenant, as every event of an agent run does")
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
    """Give what the ledger writes for a payload, or say why it cannot be written."""
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
    """Give a payload as canonical JSON of the profile "v1", every field written."""
    return canonical_json_dumps(payload.model_dump())


@checked
def compute_allowed_tools_hash(tool_names: Sequence[str]) -> str:
    """Hash a set of tools; each is given as `name|tool_version|schema_version|schema_hash`, or by its name alone."""
    return joined_hash(tool_names)


def _kind_of(envelope: Envelope) -> type[BaseModel]:
    kind = PAYLOADS.get(envelope.type)
    if kind is None:
        whose = "a runbook run" if envelope.type in catalogue() else "a type this version does not know"
        raise TraceError(f"expected an event of an agent run, found `{envelope.type}`, an event of {whose}")
    return kind


def _read(envelope: Envelope, kind: type[BaseModel]) -> Any:
    payload = envelope.payload
    if isinstance(payload, UnknownEvent):
        raise TraceError(f"the event `{envelope.type}` cannot be read: {payload.objection}")
    return kind.model_validate(payload, from_attributes=True)


def _hint(payload: EventPayload) -> str | None:
    if getattr(payload, "request_seq", 0) is None:
        return "set `request_seq` to the number of the request it ends"
    return None


def _first(error: ValidationError) -> str:
    """The first thing that does not fit, in one line."""
    found = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in found["loc"])
    return f"`{where}`: {said(ValueError(found['msg']))}" if where else said(ValueError(found["msg"]))
