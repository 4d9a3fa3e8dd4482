"""The hash chain over a run's events.

Each event contains the SHA-256 of the stored bytes of the line before it. Reading checks those bytes as
they are; nothing is encoded again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from gert.errors import TraceError
from gert.kernel.events.envelope import (
    MAX_LINE_BYTES,
    Envelope,
    PlainLine,
    decode,
    decode_exact,
    decode_plain,
    encode,
    require_unambiguous,
)
from gert.kernel.events.payload import to_data
from gert.kernel.foundation.canonical import sha256_hex

GENESIS = "0" * 64
"""The `prev_hash` of the first event."""

GENESIS_FORMS = frozenset({GENESIS, "0" * 16})
"""Values that a reader accepts there: early traces have 16 zeros."""

RUN_COMPLETE = "run_complete"

AFTER_COMPLETE = frozenset({"webhook_sent"})
"""Events that may follow `run_complete`: chained like all events, and outside the seal."""

MAX_BREAKS = 1000
"""The most breaks listed in a report; all are counted."""

BreakKind = Literal["unreadable", "ambiguous", "prev_hash", "seq", "run_id", "after_complete"]


@dataclass(frozen=True, slots=True)
class Break:
    """One place where a chain is broken; lines count from 1."""

    line: int
    kind: BreakKind
    message: str


@dataclass(frozen=True, slots=True)
class Completion:
    """The `run_complete` of a chain, with the head computed from the lines before it."""

    line: int
    stored: bytes
    event: Envelope
    head: str


@dataclass(frozen=True, slots=True)
class ChainReport:
    """The result of reading a chain."""

    events: int
    run_id: str | None
    head: str
    breaks: tuple[Break, ...]
    break_count: int
    completion: Completion | None
    after_complete: int
    """Events after `run_complete`: chained, and outside any seal, so they can be appended without a key."""
    torn: str | None

    @property
    def intact(self) -> bool:
        """Whether there are events, and each follows from the one before."""
        return self.events > 0 and self.break_count == 0

    @property
    def complete(self) -> bool:
        """Whether the run ended, and its last line was written completely."""
        return self.completion is not None and self.torn is None


def read_chain(lines: Iterable[bytes]) -> ChainReport:
    """Read a chain line by line, with or without line breaks, in constant memory."""
    reader = ChainReader()
    for line in lines:
        reader.add(line)
    return reader.report()


class ChainReader:
    """Reads a chain incrementally; `report` may be called at any time."""

    def __init__(self) -> None:
        self._line = 0
        self._events = 0
        self._head = GENESIS
        self._run_id: str | None = None
        self._seq: int | None = None
        self._breaks: list[Break] = []
        self._break_count = 0
        self._completion: Completion | None = None
        self._after = 0
        # A line that cannot be read is a torn write if it is the last one, and a break otherwise.
        self._unreadable: str | None = None

    def add(self, line: bytes, type_name: str = "") -> Envelope | PlainLine[Any] | None:
        """Read the next line; None where it cannot be read.

        type_name: the type of event that it most likely is
        """
        stored = line.removesuffix(b"\n")
        event: Envelope | None = None
        if self._seq and self._completion is None and self._unreadable is None:
            following = self._next(stored, type_name)
            if following is not None:
                return following
        if self._unreadable is not None:
            self._break("unreadable", self._unreadable)
            self._unreadable = None
        self._line += 1
        try:
            event = decode(stored)
        except TraceError as error:
            self._unreadable = error.message
        else:
            self._follow(event, stored)
            self._check_unambiguous(stored)
        self._head = sha256_hex(stored)
        return event

    def report(self) -> ChainReport:
        """Return the result so far."""
        return ChainReport(
            events=self._events,
            run_id=self._run_id,
            head=self._head,
            breaks=tuple(self._breaks),
            break_count=self._break_count,
            completion=self._completion,
            after_complete=self._after,
            torn=self._unreadable,
        )

    def _next(self, stored: bytes, type_name: str) -> Envelope | PlainLine[Any] | None:
        """Decode a line that plainly follows; any other is read and judged in full."""
        if len(stored) > MAX_LINE_BYTES:
            return None
        event = decode_plain(stored, type_name) or decode_exact(stored)
        if (
            event is None
            or event.prev_hash != self._head
            or event.seq != self._events + 1
            or event.seq != self._line + 1
            or event.run_id != self._run_id
            or event.type == RUN_COMPLETE
        ):
            return None
        self._seq = self._line = self._events = event.seq
        self._head = sha256_hex(stored)
        return event

    def _follow(self, event: Envelope, stored: bytes) -> None:
        first = self._line == 1
        expected = GENESIS_FORMS if first else {self._head}
        if event.prev_hash not in expected:
            self._break("prev_hash", "`prev_hash` is not the hash of the line before")
        self._follow_seq(event.seq)
        if self._run_id is None:
            self._run_id = event.run_id
        elif event.run_id != self._run_id:
            self._break("run_id", f"expected run `{self._run_id}`, found `{event.run_id}`")
        if self._completion is not None:
            self._after += 1
            if event.type not in AFTER_COMPLETE:
                self._break("after_complete", f"`{event.type}` follows `{RUN_COMPLETE}`")
            elif not _is_as_written(event, stored):
                self._break("after_complete", f"the `{event.type}` after `{RUN_COMPLETE}` is not as gert writes it")
        elif event.type == RUN_COMPLETE:
            self._completion = Completion(self._line, stored, event, self._head)
        self._events += 1

    def _check_unambiguous(self, stored: bytes) -> None:
        try:
            require_unambiguous(stored)
        except TraceError as error:
            self._break("ambiguous", error.message)

    def _follow_seq(self, seq: int) -> None:
        # Foreign traces may have no event numbers: then no event has one.
        expected = (1 if seq else 0) if self._seq is None else (self._seq + 1 if self._seq else 0)
        if seq != expected:
            self._break("seq", f"expected event number {expected}, found {seq}")
        self._seq = seq

    def _break(self, kind: BreakKind, message: str) -> None:
        self._break_count += 1
        if len(self._breaks) < MAX_BREAKS:
            self._breaks.append(Break(self._line, kind, message))


def _is_as_written(event: Envelope, stored: bytes) -> bool:
    """Return whether a line contains only known fields: no signature covers what follows the seal."""
    try:
        return to_data(event.payload) == event.data and encode(event) == stored
    except TraceError:
        return False
