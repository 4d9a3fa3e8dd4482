"""What a ledger without a database knows of its runs: where they end, their calls, their summaries, their leases."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import NamedTuple

from msgspec import structs

from gert.ecosystem.stores.settling import check_follows, rival, settled
from gert.kernel.agent.ledger import (
    Batch,
    Call,
    End,
    Expect,
    Head,
    Held,
    Lease,
    Overtaken,
    Write,
    may_append,
)
from gert.kernel.agent.memory import ended
from gert.kernel.agent.verifying import seal_head
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.foundation.signature import Key

_Identity = tuple[str, str, str]
_Place = tuple[str, int]
_Asked = dict[tuple[str, str], list[str]]


class Settled(NamedTuple):
    """A batch that may be written: its new calls as they stand after it, and what it says about those before."""

    batch: Batch
    calls: Sequence[Call]
    ends: Sequence[End]


class Run:
    """One run, without its lines.

    asked: when each tool was requested, by tenant and name, the first time first
    """

    __slots__ = ("asked", "by_key", "calls", "head", "lease", "open", "summaries")

    def __init__(self, run_id: str) -> None:
        self.head = Head(run_id)
        self.lease: Lease | None = None
        self.asked: _Asked = {}
        self.calls: dict[int, Call] = {}
        self.by_key: dict[str, list[int]] = {}
        # In the order they were made: numbers only grow.
        self.open: dict[int, None] = {}
        self.summaries: dict[str, list[int]] = {}


class Index:
    """All runs that are known.

    look_around: called before it is asked who holds a semantic key, which may be a run nobody has looked at yet
    """

    def __init__(self, look_around: Callable[[], object] = lambda: None) -> None:
        self._look_around = look_around
        self._runs: dict[str, Run] = {}
        self._asked: _Asked = {}
        # The first of them has the key; there may be more where a call turns out to have happened after all.
        self._held: dict[_Identity, dict[_Place, Call]] = {}
        self._alike: dict[_Identity, dict[_Place, None]] = {}

    # --- what is written

    def settle(
        self, run_id: str, write: Write, expects: Sequence[Expect], fence: int | None, moment: datetime, key: Key | None
    ) -> Settled | Overtaken | Held:
        """What may be written of what `write` makes of the end of a run; nothing is changed yet."""
        run = self.run(run_id)
        may_append(run.lease, fence, moment)
        for expected, last_seq in expects:
            if run.by_key.get(expected, (0,))[-1] != last_seq:
                return Overtaken(expected)
        batch = write(run.head, format_timestamp(moment))
        check_follows(run.head, batch)
        calls, ends = settled(batch)
        if calls and (other := rival(run_id, calls, ends, self._holders_of)) is not None:
            return Held(other)
        if key is not None and batch.rows:
            batch = batch._replace(head=structs.replace(batch.head, seal=seal_head(batch.head, key)))
        return Settled(batch, calls, ends)

    def take(self, said: Settled) -> None:
        """Take note of a batch that was written."""
        batch, calls, ends = said
        if not batch.rows:
            return
        run = self._runs.setdefault(batch.head.run_id, Run(batch.head.run_id))
        for row in batch.rows:
            if row.summary_type is not None:
                run.summaries.setdefault(row.summary_type, []).append(row.seq)
        for end in ends:
            if (before := run.calls.get(end.seq)) is not None:
                self._change(run, ended(before, end))
        for call in calls:
            run.by_key.setdefault(call.key, []).append(call.seq)
            if call.kind == "tool":
                for asked in (run.asked, self._asked):
                    insort(asked.setdefault((call.tenant, call.name), []), call.timestamp)
            self._change(run, call)
        run.head = batch.head

    def put_lease(self, run_id: str, lease: Lease | None) -> None:
        """Take note of who has a run."""
        self._runs.setdefault(run_id, Run(run_id)).lease = lease

    def put_head(self, head: Head) -> None:
        """Let a run end here, whatever its events come to."""
        self._runs.setdefault(head.run_id, Run(head.run_id)).head = head

    def _change(self, run: Run, call: Call) -> None:
        run.calls[call.seq] = call
        if call.outcome == "open":
            run.open[call.seq] = None
        else:
            run.open.pop(call.seq, None)
        if call.semantic_key is None:
            return
        identity = (call.tenant, call.name, call.semantic_key)
        place = (call.run_id, call.seq)
        self._alike.setdefault(identity, {})[place] = None
        # All that hold it are kept: runs are read in any order, and who had it first may be the last to let go.
        held = self._held.setdefault(identity, {})
        if call.held:
            held[place] = call
        else:
            held.pop(place, None)
        if not held:
            del self._held[identity]

    def _holders_of(self, call: Call) -> Iterable[Call]:
        self._look_around()
        return self._held.get((call.tenant, call.name, call.semantic_key or ""), {}).values()

    # --- what is read

    def run(self, run_id: str) -> Run:
        """A run, which may have no events, and is then not kept."""
        return self._runs.get(run_id) or Run(run_id)

    def calls(self, run_id: str, key: str, limit: int) -> list[Call]:
        """The requests under a key, the newest first."""
        run = self.run(run_id)
        return [run.calls[seq] for seq in islice(reversed(run.by_key.get(key, [])), limit)]

    def open_calls(self, run_id: str, limit: int) -> list[Call]:
        """The requests without an end, the oldest first."""
        run = self.run(run_id)
        return [run.calls[seq] for seq in islice(run.open, limit)]

    def holder(self, tenant: str, name: str, semantic_key: str) -> Call | None:
        """The call that holds a semantic key, or else the newest that had it."""
        identity = (tenant, name, semantic_key)
        if (held := next(iter(self._held.get(identity, {}).values()), None)) is not None:
            return held
        alike = [self._runs[run_id].calls[seq] for run_id, seq in self._alike.get(identity, ())]
        return max(alike, key=lambda call: (call.timestamp, call.seq), default=None)

    def count_calls(self, name: str, run_id: str | None, tenant: str | None, since: str) -> int:
        """How often a tool was requested."""
        asked = self.run(run_id).asked if run_id is not None else self._asked
        wanted = [times for who, times in asked.items() if who[1] == name and tenant in (None, who[0])]
        return sum(len(times) - bisect_left(times, since) for times in wanted)

    def summaries(self, run_id: str, summary_type: str | None, limit: int) -> list[int]:
        """The numbers of the newest summaries, the newest first."""
        kept = self.run(run_id).summaries
        if summary_type is not None:
            return list(islice(reversed(kept.get(summary_type, [])), limit))
        return list(islice(merge(*map(reversed, kept.values()), reverse=True), limit))

    def latest_summaries(self, run_id: str, prefix: str) -> list[int]:
        """The numbers of the newest summary of each type that begins with a prefix, by type."""
        kept = self.run(run_id).summaries
        return [kept[each][-1] for each in sorted(kept, key=str.encode) if each.startswith(prefix)]

    def runs(self, tenant: str | None, since: str | None, status: str | None, limit: int | None) -> list[Head]:
        """Runs, the last written first."""
        found = [
            run.head
            for run in self._runs.values()
            if run.head.count
            and tenant in (None, run.head.tenant)
            and (since is None or run.head.updated_at >= since)
            and (status is None or (run.head.snapshot is not None and run.head.snapshot.status == status))
        ]
        found.sort(key=lambda head: (head.updated_at, head.run_id), reverse=True)
        return found[:limit]
