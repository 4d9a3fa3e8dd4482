"""What every ledger settles the same way: whether a batch follows, what its calls come to, and who has a lease."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from gert.ecosystem.stores.batch import check_batch
from gert.ecosystem.stores.names import check_call, check_name
from gert.errors import InputError, RunError, TraceError
from gert.kernel.agent.ledger import HOLDING, Batch, Call, End, Head, Lease
from gert.kernel.agent.memory import ended
from gert.kernel.events.envelope import MAX_LINE_BYTES
from gert.kernel.foundation.names import is_run_id

MAX_TTL: Final = timedelta(days=366).total_seconds()
NEVER: Final = datetime.min.replace(tzinfo=UTC)


def check_run_id(run_id: str) -> None:
    """Refuse what cannot name a run: RunError."""
    if not is_run_id(run_id):
        raise RunError(f"`{run_id}` is not a run id", hint="letters, digits and ._:@+=~- only")


def check_follows(head: Head, batch: Batch) -> None:
    """Refuse a batch that does not go on where the run ends: TraceError; or by names nobody could find: InputError."""
    rows = batch.rows
    if batch.head.count != head.count + len(rows) or batch.head.run_id != head.run_id:
        raise TraceError(f"the batch does not follow event {head.count} of run `{head.run_id}`")
    if not rows and (batch.calls or batch.ends):
        raise TraceError(f"the batch for run `{head.run_id}` has calls and no events")
    if batch.head.tenant != head.tenant:
        if head.count:
            raise TraceError(f"the batch says that run `{head.run_id}` belongs to another tenant than it does")
        check_name("tenant", batch.head.tenant)
    for call in batch.calls:
        check_call(call)
    name, seq = head.run_id.encode(), head.count
    for _, _, _, summary_type, line in rows:
        seq += 1
        if summary_type is not None:
            check_name("summary type", summary_type)
        # As all lines of ours begin and end; any other is read to find out.
        begins = b'{"seq":%d,"run_id":"%b","type":"' % (seq, name)
        if line[: len(begins)] == begins and line[-2:] == b"}}" and b"\n" not in line and len(line) <= MAX_LINE_BYTES:
            continue
        check_batch(head.run_id, seq, [line], ())


def settled(batch: Batch) -> tuple[Sequence[Call], Sequence[End]]:
    """The new calls as they stand after the whole batch, and what it says about calls before it."""
    if not (batch.calls and batch.ends):
        return batch.calls, batch.ends
    calls = {call.seq: call for call in batch.calls}
    before = [end for end in batch.ends if end.seq not in calls]
    for end in batch.ends:
        if end.seq in calls:
            calls[end.seq] = ended(calls[end.seq], end)
    return list(calls.values()), before


def rival(
    run_id: str, calls: Sequence[Call], ends: Sequence[End], holders: Callable[[Call], Iterable[Call]]
) -> Call | None:
    """The call that keeps one of the new ones from being made: it holds the semantic key, and still does afterwards.

    holders: all calls that may have happened and mean the same; there are several where one turned out to have
        happened after another was made
    """
    freed = {end.seq for end in ends if end.outcome is not None and end.outcome not in HOLDING}
    taken: dict[tuple[str, str, str | None], Call] = {}
    for call in calls:
        if not call.held:
            continue
        identity = (call.tenant, call.name, call.semantic_key)
        other = taken.setdefault(identity, call)
        if other is not call:
            return other
        for kept in holders(call):
            if not (kept.run_id == run_id and kept.seq in freed):
                return kept
    return None


# --- leases


def holds(lease: Lease | None, moment: datetime) -> Lease | None:
    """The lease, if somebody holds it."""
    return lease if lease is not None and lease.worker_id is not None and lease.expires_at > moment else None


def acquired(lease: Lease | None, run_id: str, worker_id: str, ttl_seconds: float, moment: datetime) -> Lease | None:
    """The lease after a worker wants it; None where another has it."""
    until = _until(worker_id, ttl_seconds, moment)
    held = holds(lease, moment)
    if held is None:
        return Lease(run_id, worker_id, (lease.token if lease is not None else 0) + 1, until)
    return Lease(run_id, worker_id, held.token, until) if held.worker_id == worker_id else None


def renewed(lease: Lease | None, worker_id: str, ttl_seconds: float, moment: datetime) -> Lease | None:
    """The lease after its holder prolongs it; None where somebody else, or nobody, has it."""
    until = _until(worker_id, ttl_seconds, moment)
    held = holds(lease, moment)
    if held is None or held.worker_id != worker_id:
        return None
    return Lease(held.run_id, worker_id, held.token, until)


def released(lease: Lease | None, worker_id: str, moment: datetime) -> Lease | None:
    """The lease after its holder gives it back, which keeps its token; None where it did not have it."""
    check_name("worker id", worker_id)
    held = holds(lease, moment)
    return Lease(held.run_id, None, held.token, NEVER) if held is not None and held.worker_id == worker_id else None


def _until(worker_id: str, ttl_seconds: float, moment: datetime) -> datetime:
    if not worker_id:
        raise InputError("a worker needs a name to hold a lease")
    check_name("worker id", worker_id)
    if not 0 < ttl_seconds <= MAX_TTL:
        raise InputError(f"expected a lease of at most {MAX_TTL:.0f} seconds, and more than 0, found {ttl_seconds}")
    return moment + timedelta(seconds=ttl_seconds)
