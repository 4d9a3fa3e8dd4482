"""Reads a run from its ledger for the screen: events and output since the last read, in a thread of its own."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec

from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.runs.listed_run import ListedRun
from gert.ecosystem.host.runs.listing import Runs
from gert.ecosystem.host.runs.logs import Logs, Piece, merged
from gert.ecosystem.host.runs.place import Place
from gert.errors import GertError
from gert.kernel.events.envelope import Envelope, decode
from gert.kernel.foundation.text import CONTROL_SEQUENCE, printable
from gert.kernel.runbook.program import Program

MOST_EVENTS: Final = 2000
"""Events that are shown in one go; the rest follows at the next read."""
MOST_LINES: Final = 4000
LONGEST_LINE: Final = 2000


class Update(msgspec.Struct):
    """What is new of a run."""

    events: list[Envelope]
    output: list[Piece]
    entry: ListedRun
    is_behind: bool = False
    notes: list[str] = msgspec.field(default_factory=list)


class RunFeed:
    """One run, read incrementally, in whatever thread; closing it waits for a read that is under way."""

    def __init__(self, place: Place, run_id: str) -> None:
        self._lock = threading.Lock()
        self._is_closed = False
        self._runs = Runs(place)
        self.run_id = run_id
        self._seen = 0
        self._notes = 0
        self._logs = Logs(self._runs.reader, run_id)

    def read(self) -> Update | None:
        """What is new since the last read; nothing after it was closed."""
        with self._lock:
            return None if self._is_closed else self._read()

    def _read(self) -> Update:
        lines = self._runs.reader.ask(lambda ledger: ledger.lines(self.run_id, self._seen, MOST_EVENTS))
        self._seen += len(lines)
        # After the events: a status that is older than they are would be that of a run without a driver.
        entry = self._runs.entry(self.run_id)
        events = [decode(line) for line in lines]
        output = list(merged(self._logs.read())) if entry.kind == "runbook" else []
        return Update(events, output, entry, is_behind=self._seen < entry.events, notes=self._new_notes())

    def _new_notes(self) -> list[str]:
        messages = self._runs.reader.ask(lambda ledger: ledger.messages(self.run_id, since=self._notes))
        if messages:
            self._notes = messages[-1].id
        return [each.body.decode("utf-8", "replace") for each in messages if each.kind == "note"]

    def program(self) -> Program | None:
        """The runbook as the run was started with it, for steps that have not begun."""
        entry = self._runs.entry(self.run_id)
        started: Any = entry.started_with
        if started is None:
            return None
        with suppress(GertError):
            stored = self._runs.reader.ask(lambda ledger: ledger.documents(list(started.documents.values())))
            documents = {path: stored[digest] for path, digest in started.documents.items() if digest in stored}
            return Workspace(stored=documents).program(started.file).program
        return None

    def close(self) -> None:
        """Let go of the ledger."""
        with self._lock:
            self._is_closed = True
            self._runs.close()


def output_lines(
    pieces: Iterable[Piece], most: int | None = MOST_LINES, longest: int | None = LONGEST_LINE
) -> Iterator[tuple[str, str]]:
    """Lines of output, each with the step it comes from: printable, without colours.

    most: lines of a piece, its last ones
    longest: characters of a line, its first ones
    """
    for piece in pieces:
        # rsplit: the beginning of a long piece is not looked at.
        lines = piece.text.removesuffix("\n").rsplit("\n", -1 if most is None else most)
        for line in lines[-most:] if most is not None else lines:
            # Cut first: a line may be huge.
            shown = line if longest is None else line[: 2 * longest]
            yield piece.step, printable(CONTROL_SEQUENCE.sub("", shown).removesuffix("\r").expandtabs(4))[:longest]
