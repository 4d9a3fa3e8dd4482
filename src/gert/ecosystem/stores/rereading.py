"""Events read back from their lines, as a ledger without a database needs them to know what it holds."""

from collections.abc import Iterable, Iterator

from gert.ecosystem.stores.index import Settled
from gert.errors import TraceError
from gert.kernel.agent.compose import ended_by, opened_by
from gert.kernel.agent.ledger import Batch, Head, Row
from gert.kernel.agent.snapshot import Snapshot, fold
from gert.kernel.events.agent import RunSummary
from gert.kernel.events.envelope import decode
from gert.kernel.foundation.canonical import sha256_hex


def reread(head: Head, lines: Iterable[bytes]) -> Iterator[Settled]:
    """What each line says, as it was when it was written; TraceError at one that does not follow."""
    for line in lines:
        said = _reread(head, line)
        head = said.batch.head
        yield said


def _reread(head: Head, line: bytes) -> Settled:
    event = decode(line)
    seq = head.count + 1
    if (event.seq, event.run_id, event.prev_hash) != (seq, head.run_id, head.hash):
        raise TraceError(f"line {seq} of run `{head.run_id}` does not follow from the one before")
    payload, tenant = event.payload, event.tenant or ""
    summary_type = payload.summary_type if isinstance(payload, RunSummary) else None
    opened = opened_by(payload, seq, head.run_id, tenant, event.timestamp)
    after = Head(
        head.run_id,
        event.tenant,
        seq,
        sha256_hex(line),
        fold(head.snapshot or Snapshot(), payload, seq),
        head.started_at or event.timestamp,
        event.timestamp,
    )
    row = Row(seq, event.type, event.timestamp, summary_type, line)
    calls = () if opened is None else (opened,)
    return Settled(Batch(after, (row,), calls, ended_by(payload, seq)), calls, ended_by(payload, seq))
