"""Rows of a ledger in a database as the kernel knows them."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gert.ecosystem.stores.settling import NEVER
from gert.errors import TraceError
from gert.kernel.agent.ledger import Call, Head, Lease
from gert.kernel.agent.snapshot import Snapshot
from gert.kernel.events.envelope import parse_timestamp

_SNAPSHOT: Final = msgspec.json.Decoder(Snapshot)
encode: Final = msgspec.json.Encoder().encode


def head_of(row: Sequence[Any]) -> Head:
    """The end of a run from `sql.HEAD_COLUMNS`."""
    run_id, tenant, count, hashed, snapshot, started_at, updated_at, seal = row
    return Head(run_id, tenant, count, hashed, snapshot_of(snapshot, run_id), started_at, updated_at, seal)


def snapshot_of(data: Any, run_id: str) -> Snapshot | None:
    """What a run comes to so far; none for the run of a runbook."""
    if data is None:
        return None
    try:
        return _SNAPSHOT.decode(data)
    except (msgspec.MsgspecError, TypeError, UnicodeDecodeError, RecursionError):
        raise TraceError(f"what run `{run_id}` comes to cannot be read") from None


def call_of(row: Sequence[Any]) -> Call:
    """A request from `sql.CALL_COLUMNS`."""
    return Call(*row)


def lease_of(run_id: str, worker_id: str | None, token: int, expires: str | None) -> Lease | None:
    """A lease as it was last written; none where nobody ever had one."""
    if not token:
        return None
    return Lease(run_id, worker_id, token, parse_timestamp(expires) if expires is not None else NEVER)
