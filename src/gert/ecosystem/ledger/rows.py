"""Conversion between rows of the database and structs of the kernel."""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec

from gert.errors import TraceError
from gert.kernel.events.envelope import format_timestamp, parse_timestamp
from gert.kernel.ledger.agent_fold import AgentSnapshot
from gert.kernel.ledger.head_seal import encode_snapshot
from gert.kernel.ledger.record import NEVER, Head, Holder, Lease, Message, TicketRow
from gert.kernel.ledger.runbook_fold import RunbookSnapshot
from gert.kernel.ledger.runner_fold import RunnerSnapshot

_Snapshot: TypeAlias = AgentSnapshot | RunbookSnapshot | RunnerSnapshot
_SNAPSHOT: Final[msgspec.json.Decoder[_Snapshot]] = msgspec.json.Decoder(_Snapshot)
_TEXT: Final = {str, type(None)}
_HOLDER: Final = msgspec.json.Decoder(Holder)
HEAD_WIDTH: Final = 11
_UNREADABLE: Final = (msgspec.MsgspecError, TypeError, UnicodeDecodeError, RecursionError)


def head_of(row: Sequence[Any]) -> Head:
    """The head of a run from `sql.HEAD_COLUMNS`."""
    run_id, kind, tenant, count, hashed, answers, answers_hash, snapshot, started_at, updated_at, seal = row
    numbers, texts = (count, answers), (run_id, kind, hashed, answers_hash, started_at, updated_at)
    # SQLite keeps what it is given, whatever the type of a column.
    if not ({*map(type, numbers)} <= {int} and {*map(type, texts)} <= {str} and {type(tenant), type(seal)} <= _TEXT):
        raise TraceError(f"the head of run `{run_id}` cannot be read")
    return Head(
        run_id, kind, tenant, count, hashed, answers, answers_hash, _snapshot(snapshot, run_id), started_at,
        updated_at, seal,
    )  # fmt: skip


def head_values(head: Head) -> tuple[Any, ...]:
    """The values of `sql.HEAD_COLUMNS`."""
    return (
        head.run_id, head.kind, head.tenant, head.count, head.hash, head.answers, head.answers_hash,
        encode_snapshot(head), head.started_at, head.updated_at, head.seal,
    )  # fmt: skip


def message_of(row: Sequence[Any]) -> Message:
    """A message from `sql.MESSAGE_COLUMNS`; other programs write them too, and SQLite keeps any type they give."""
    number, run_id, kind, received_at, body, ticket_id, taken = row
    data = bytes(body) if isinstance(body, bytes) else str(body).encode(errors="replace")
    return Message(number, run_id, kind, str(received_at), data, ticket_id, taken)


def ticket_of(row: Sequence[Any]) -> TicketRow:
    """A ticket from `sql.TICKET_COLUMNS`; a value of another type than its column has is not equal to any text."""
    values: list[Any] = [str(value) if isinstance(value, bytes) else value for value in row]
    return TicketRow(*values)


def lease_of(run_id: str, row: Sequence[Any]) -> Lease | None:
    """A lease from `sql.LEASE_COLUMNS`, as it was last written; None where no worker ever had one."""
    worker_id, token, expires, seconds, holder = row
    if not token:
        return None
    if type(token) is not int or {type(worker_id), type(expires)} - _TEXT or not isinstance(seconds, int | float):
        raise TraceError(f"the lease of run `{run_id}` cannot be read")
    try:
        process = None if holder is None else _HOLDER.decode(holder)
    except _UNREADABLE:
        process = None
    return Lease(run_id, worker_id, token, NEVER if expires is None else parse_timestamp(expires), seconds, process)


def lease_values(lease: Lease) -> tuple[Any, ...]:
    """The values of `sql.SET_LEASE`."""
    expires = format_timestamp(lease.expires_at) if lease.worker_id is not None else None
    holder = msgspec.json.encode(lease.holder) if lease.holder is not None else None
    return lease.run_id, lease.worker_id, lease.token, expires, lease.seconds, holder


def _snapshot(data: Any, run_id: str) -> _Snapshot | None:
    if data is None:
        return None
    try:
        found = _SNAPSHOT.decode(data)
    except _UNREADABLE:
        raise TraceError(f"the snapshot of run `{run_id}` cannot be read") from None
    return found
