"""Reading a run on as it is written: from a file, or from a ledger."""

import os
from collections.abc import Iterator
from threading import Event
from typing import BinaryIO

from gert.ecosystem.host.archive import Archive
from gert.ecosystem.host.ledger import open_file
from gert.ecosystem.stores.append_file import read_lines
from gert.kernel.events.envelope import MAX_LINE_BYTES


class Following:
    """Reads a run from where it was read last.

    seen: the number of the last line that was given
    """

    def __init__(self, run_id: str, archive: Archive | None, trace: str | None, since: int = 0) -> None:
        self._run_id = run_id
        self._archive = archive
        self._trace = trace
        self._since = since
        self._offset = 0
        self._last = b""
        self.seen = since if archive is not None else 0

    def lines(self) -> Iterator[bytes]:
        """The whole lines nobody has seen here yet; one that is being written comes the next time."""
        if self._archive is not None:
            for line in self._archive.lines(self._run_id, self.seen):
                self.seen += 1
                yield line
        elif self._trace is not None and os.path.exists(self._trace):
            with open_file(self._trace) as file, open(file.fileno(), "rb", closefd=False) as lines:
                self._go_on(lines)
                for line in read_lines(lines, MAX_LINE_BYTES):
                    if not line.endswith(b"\n"):
                        return
                    self._offset = lines.tell()
                    # One that is too long is not read whole, and cannot be found again.
                    self._last = line if len(line) <= MAX_LINE_BYTES + 1 else b""
                    self.seen += 1
                    if self.seen > self._since:
                        yield line.removesuffix(b"\n")

    def _go_on(self, lines: BinaryIO) -> None:
        """Go to where it was read last; a trace that was cut back meanwhile is read again, past as many lines."""
        lines.seek(self._offset - len(self._last))
        if lines.read(len(self._last)) != self._last:
            self._since = max(self._since, self.seen)
            self._offset, self._last, self.seen = 0, b"", 0
            lines.seek(0)

    def wait(self, seconds: float, stop: Event) -> None:
        """Wait until there may be more: woken by whoever writes to a ledger, and for so long at most."""
        if self._archive is not None:
            self._archive.wait(self._run_id, self.seen, seconds, stop)
        else:
            stop.wait(seconds)
