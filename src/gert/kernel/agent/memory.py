"""What a process remembers of a run: the requests it made or read, so that it need not ask the ledger again.

It is a hint and never the truth: an append says what it expects of the ledger, and is refused where another
process was faster. What is remembered as answered stays so, since nothing on record ever changes.
"""

from collections.abc import Iterable, Sequence

import msgspec

from gert.kernel.agent.compose import ended_by, opened_by
from gert.kernel.agent.ledger import Batch, Call, End
from gert.kernel.events.envelope import decode

MOST_CALLS = 50_000
"""Requests that are remembered of one run; beyond, each is looked up."""

MOST_BYTES = 16 * 1024 * 1024
"""Lines that are kept of one run."""


class RunMemory:
    """The requests of one run.

    complete: every request of the run is here, as far as this process knows
    """

    __slots__ = ("_by_key", "_by_seq", "_bytes", "complete", "count", "lines")

    def __init__(self) -> None:
        self.complete = True
        self.count = 0
        self.lines: dict[int, bytes] = {}
        self._bytes = 0
        self._by_key: dict[str, list[int]] = {}
        self._by_seq: dict[int, Call] = {}

    def calls(self, key: str) -> list[Call]:
        """The requests under a key, the newest first."""
        return [self._by_seq[seq] for seq in reversed(self._by_key.get(key, ()))]

    def take(self, batch: Batch) -> None:
        """Remember what was appended."""
        if batch.head.count != self.count + len(batch.rows):
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

    def _take(self, calls: Iterable[Call], ends: Iterable[End]) -> None:
        for call in calls:
            self._by_seq[call.seq] = call
            self._by_key.setdefault(call.key, []).append(call.seq)
        for end in ends:
            call_ended = self._by_seq.get(end.seq)
            if call_ended is not None:
                self._by_seq[end.seq] = ended(call_ended, end)
        if len(self._by_seq) > MOST_CALLS:
            self.complete = False
            self._by_key.clear()
            self._by_seq.clear()
            self.lines.clear()


def ended(call: Call, end: End) -> Call:
    """A request after what was said about it."""
    return msgspec.structs.replace(
        call,
        outcome=call.outcome if end.outcome is None else end.outcome,
        done_seq=call.done_seq if end.done_seq is None else end.done_seq,
        drift=call.drift if end.drift is None else end.drift,
    )
