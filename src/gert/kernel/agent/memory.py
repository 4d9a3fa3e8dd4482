"""What a process remembers of a run: the requests it made or read, so that it need not ask the ledger again.

It is a hint and never the truth: an append says what it expects of the ledger, and is refused where another
process was faster. What is remembered as answered stays so, since nothing on record ever changes.
"""

from collections.abc import Iterable, Sequence

import msgspec

from gert.kernel.events.envelope import decode
from gert.kernel.ledger.projection import ended_by, opened_by
from gert.kernel.ledger.record import Batch, Call, CallEnd

MOST_CALLS = 50_000
"""Requests that are remembered of one run; beyond, each is looked up."""

MOST_BYTES = 16 * 1024 * 1024
"""Lines that are kept of one run."""

CALL_BYTES = 1000
"""What a request that is remembered takes, about."""


class RunMemory:
    """The requests of one run.

    complete: every request of the run is here, as far as this process knows
    drifts: for which changed questions answers were taken, by the number of the request
    """

    __slots__ = ("_by_key", "_by_seq", "_bytes", "_doubted", "complete", "count", "drifts", "lines")

    def __init__(self) -> None:
        self.complete = True
        self.count = 0
        self.lines: dict[int, bytes] = {}
        self._bytes = 0
        self._by_key: dict[str, list[int]] = {}
        self._by_seq: dict[int, Call] = {}
        self._doubted: set[str] = set()
        self.drifts: set[tuple[int, str]] = set()

    @property
    def size(self) -> int:
        """How many bytes all this takes, about."""
        return self._bytes + CALL_BYTES * (len(self._by_seq) + len(self.drifts))

    def knows(self, key: str) -> bool:
        """Whether what is remembered of a key is worth anything."""
        return self.complete and key not in self._doubted

    def doubt(self, key: str) -> None:
        """Somebody else has asked under a key: the ledger knows more of it."""
        self._doubted.add(key)

    def learn(self, key: str, calls: Sequence[Call]) -> None:
        """Remember what the ledger says of a key; what was heard since stays."""
        if not self.complete:
            return
        seqs = self._by_key.get(key, [])
        for call in calls:
            known = self._by_seq.get(call.seq)
            if known is None or (known.done_seq or 0) <= (call.done_seq or 0):
                self._by_seq[call.seq] = call
        found = sorted({*seqs, *(call.seq for call in calls)})
        if found:
            self._by_key[key] = found
        self._doubted.discard(key)

    def calls(self, key: str) -> list[Call]:
        """The requests under a key, the newest first."""
        return [self._by_seq[seq] for seq in reversed(self._by_key.get(key, ()))]

    def take(self, batch: Batch) -> None:
        """Remember what was appended."""
        if batch.head.count != self.count + len(batch.events):
            # Somebody else has written in between, and what it was is not known.
            self.complete = False
        self.count = max(self.count, batch.head.count)
        self._take(batch.calls, batch.ends)

    def read(self, first: int, lines: Sequence[bytes]) -> None:
        """Remember lines that were read, which follow those remembered so far."""
        for seq, line in enumerate(lines, start=first):
            event = decode(line)
            payload = event.payload
            opened = opened_by(payload, seq, event.run_id, event.tenant or "", event.timestamp)
            ends = ended_by(payload, seq)
            if (opened is not None or ends) and self._bytes < MOST_BYTES:
                self.lines[seq] = line
                self._bytes += len(line)
            self._take(() if opened is None else (opened,), ends)
        self.count = max(self.count, first + len(lines) - 1)

    def _take(self, calls: Iterable[Call], ends: Iterable[CallEnd]) -> None:
        for call in calls:
            # What was looked up meanwhile may be newer.
            self._by_seq.setdefault(call.seq, call)
            seqs = self._by_key.setdefault(call.key, [])
            if not seqs or seqs[-1] < call.seq:
                seqs.append(call.seq)
            elif call.seq not in seqs:
                seqs.append(call.seq)
                seqs.sort()
        for end in ends:
            call_ended = self._by_seq.get(end.seq)
            if call_ended is not None:
                self._by_seq[end.seq] = ended(call_ended, end)
            if end.drift is not None:
                self.drifts.add((end.seq, end.drift))
        if len(self._by_seq) > MOST_CALLS:
            self.complete = False
            self._by_key.clear()
            self._by_seq.clear()
            self._doubted.clear()
            self.drifts.clear()
            self.lines.clear()
            self._bytes = 0


def ended(call: Call, end: CallEnd) -> Call:
    """A request after what was said about it."""
    return msgspec.structs.replace(
        call,
        outcome=call.outcome if end.outcome is None else end.outcome,
        done_seq=call.done_seq if end.done_seq is None else end.done_seq,
        drift=call.drift if end.drift is None else end.drift,
    )
