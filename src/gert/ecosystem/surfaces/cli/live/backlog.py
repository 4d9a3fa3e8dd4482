"""Lines that wait to be shown while a prompt is open or the terminal is busy."""

from collections import deque
from typing import Final

from gert.ecosystem.surfaces.cli.render.text import QUIET
from gert.ecosystem.surfaces.cli.render.views.event_lines import Line, StyledText

MAX_LINES: Final = 10_000


class Backlog:
    """A bounded queue: it drops its oldest lines and reports how many."""

    def __init__(self, most: int = MAX_LINES) -> None:
        self._lines: deque[Line] = deque(maxlen=most)
        self._dropped = 0

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, line: Line) -> None:
        """Add a line."""
        self._dropped += len(self._lines) == self._lines.maxlen
        self._lines.append(line)

    def next(self) -> Line | None:
        """Take the oldest line."""
        return self._lines.popleft() if self._lines else None

    def take(self) -> list[Line]:
        """Take all lines, in order."""
        lines = list(self._lines)
        if self._dropped:
            lines.insert(0, (StyledText(f"… {self._dropped} earlier lines are only in the trace", QUIET),))
        self._lines.clear()
        self._dropped = 0
        return lines
