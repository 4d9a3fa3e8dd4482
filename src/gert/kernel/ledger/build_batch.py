"""Build the batch that a ledger appends: events of an agent or runner run, numbered, chained and projected."""

from collections.abc import Sequence
from functools import cache
from typing import Literal, NamedTuple

import msgspec

from gert.errors import RunError, TraceError
from gert.kernel.events.envelope import MAX_LINE_BYTES, encode_payload
from gert.kernel.events.payload import Payload, plain, said
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.names import is_run_id
from gert.kernel.ledger.projection import Projection, summary_type_of
from gert.kernel.ledger.record import Batch, Event, Head

ROOM = 64 * 1024
"""Bytes of a line that are reserved for the envelope around a payload."""


class Entry(NamedTuple):
    """An event to be written, and the step it belongs to."""

    payload: Payload
    parent_step_key: str | None = None


def build_batch(
    head: Head, moment: str, tenant: str | None, entries: Sequence[Entry], kind: Literal["agent", "runner"] = "agent"
) -> Batch:
    """Number, chain, fold and index events at the end of a run of an agent or a runner."""
    if not head.count and not is_run_id(head.run_id):
        raise RunError(f"`{head.run_id}` is not a run id", hint="letters, digits and ._:@+=~- only")
    require_kind(head, kind, tenant)
    events: list[Event] = []
    is_same = head.kind == kind and head.tenant == tenant
    projection = Projection(head if is_same else msgspec.structs.replace(head, kind=kind, tenant=tenant))
    seq, chain = head.count, head.hash
    for payload, path in entries:
        seq += 1
        line = _line(payload, seq, head.run_id, moment, path, chain, tenant)
        chain = sha256_hex(line)
        events.append(Event(seq, payload.type, moment, summary_type_of(payload), line))
        projection.add(payload, seq, moment)
    after = Head(
        head.run_id, kind, tenant, seq, chain, snapshot=projection.snapshot,
        started_at=head.started_at or moment, updated_at=moment,
    )  # fmt: skip
    return Batch(
        after, events, projection.calls, projection.ends, tickets=projection.tickets,
        ticket_ends=projection.ticket_ends, responses=projection.responses, spends=projection.spends,
    )  # fmt: skip


def require_agent_run(head: Head, tenant: str | None = None) -> None:
    """Refuse a run of another kind, and one of another tenant: RunError."""
    require_kind(head, "agent", tenant)


def require_kind(head: Head, kind: str, tenant: str | None) -> None:
    """Refuse a run of another kind than is written, and one of another tenant: RunError."""
    if head.count and head.kind != kind:
        raise RunError(f"run `{head.run_id}` is a {head.kind} run", hint="`gert run show` describes it")
    if tenant is not None and head.tenant is not None and head.tenant != tenant:
        raise RunError(f"run `{head.run_id}` belongs to another tenant")


def check_writable(payload: Payload) -> None:
    """Refuse an event that could not be decoded again, or is too large for a line: TraceError.

    Nothing checks the fields of an event when it is made, and some of them come from ports, hooks and callers.
    """
    _written(payload)


@cache
def _decoder(kind: type[Payload]) -> "msgspec.json.Decoder[Payload]":
    return msgspec.json.Decoder(kind)


_encode = msgspec.json.Encoder(enc_hook=plain).encode


def _written(payload: Payload) -> bytes:
    """Encode the data of an event."""
    try:
        data = _encode(payload)
        again = _decoder(type(payload)).decode(data)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise TraceError(f"the event `{payload.type}` cannot be written: {said(error)}") from error
    # NaN and infinity are written as null.
    if again != payload:
        raise TraceError(f"the event `{payload.type}` cannot be written: it would be read as something else")
    if len(data) > MAX_LINE_BYTES - ROOM:
        raise TraceError(f"the event `{payload.type}` is too large: expected at most {MAX_LINE_BYTES - ROOM} bytes")
    return data


def _line(
    payload: Payload, seq: int, run_id: str, moment: str, path: str | None, prev_hash: str, tenant: str | None
) -> bytes:
    data = msgspec.Raw(_written(payload))
    try:
        return encode_payload(payload, seq, run_id, moment, None, path, prev_hash, tenant, data)
    except (TypeError, ValueError, RecursionError) as error:
        raise TraceError(f"the event `{payload.type}` cannot be written: {said(error)}") from error
