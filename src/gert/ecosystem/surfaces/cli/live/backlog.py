"""Lines that wait to be shown, because a question stands at the terminal or the terminal is busy."""

from collections import deque
from typing import Final

from gert.ecosystem.surfaces.cli.render.event_lines import Line, StyledText
from gert.ecosystem.surfaces.cli.render.text import QUIET

MOST_HELD: Final = 10_000


class Backlog:
    """A queue that forgets its oldest lines rather than grow without end, and says so."""

    def __init__(self, most: int = MOST_HELD) -> None:
        self._lines: deque[Line] = deque(maxlen=most)
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, line: Line) -> None:
        """Let a line wait."""
        self._forgotten += len(self._lines) == self._lines.maxlen
        self._lines.append(line)

    def take(self) -> list[Line]:
        """Take all lines, in order."""
        lines = list(self._lines)
        if self._forgotten:
            lines.insert(0, (StyledText(f"… {self._forgotten} earlier lines are only in the trace", QUIET),))
        self._lines.clear()
        self._forgotten = 0
        return lines
