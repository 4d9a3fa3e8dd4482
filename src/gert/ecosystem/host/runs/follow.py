"""Follow a run while it is written."""

from collections.abc import Iterator
from threading import Event

from gert.ecosystem.host.runs.ledger_reader import LedgerReader


class Following:
    """Reads a run from where it was read last.

    seen: the number of the last line that was given
    """

    def __init__(self, run_id: str, reader: LedgerReader, since: int = 0) -> None:
        self._run_id = run_id
        self._archive = reader
        self.seen = since

    def lines(self) -> Iterator[bytes]:
        """The lines that were not read here yet."""
        for line in self._archive.lines(self._run_id, self.seen):
            self.seen += 1
            yield line

    def wait(self, seconds: float, stop: Event) -> None:
        """Wait until there may be more, for so long at most."""
        self._archive.wait(self._run_id, self.seen, seconds, stop)
