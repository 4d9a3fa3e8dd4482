"""The pane of output: bounded, at its tail unless it is scrolled up, and wrapped again when its width changes."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from rich.cells import chop_cells
from textual.events import Resize
from textual.widgets import Log

MOST_SHOWN: Final = 10_000
"""Lines that are kept; the ledger keeps everything."""


class OutputLog(Log):
    """A log that wraps its lines or not; both are cheap, since only new lines are split."""

    def __init__(self, *, id: str, most: int = MOST_SHOWN) -> None:  # noqa: A002 - as in Textual
        super().__init__(max_lines=most, id=id)
        self.kept: deque[str] = deque(maxlen=most)
        self.wraps = False
        self._width = 0

    def add(self, lines: Iterable[str]) -> None:
        """Write lines in one go."""
        new = list(lines)[-(self.kept.maxlen or 1) :]
        self.kept.extend(new)
        if new:
            self.write_lines(self._split(new))

    def toggle_wrap(self) -> bool:
        """Wrap lines, or let them run out of the pane."""
        self.wraps = not self.wraps
        self._again()
        return self.wraps

    def on_resize(self, event: Resize) -> None:
        """Wrap again for the new width."""
        if self.wraps and event.size.width != self._width:
            self._again()

    def _again(self) -> None:
        at_end = self.is_vertical_scroll_end
        self.clear()
        self.write_lines(self._split(self.kept), scroll_end=at_end)

    def _split(self, lines: Iterable[str]) -> Iterator[str]:
        self._width = self.scrollable_content_region.width
        if not self.wraps or self._width < 2:
            yield from lines
            return
        for line in lines:
            yield from chop_cells(line, self._width) or [""]
