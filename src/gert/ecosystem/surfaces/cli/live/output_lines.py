"""What tools print, in lines: put together from pieces, with a carriage return starting the line anew."""

import re
from collections import deque
from typing import Final

from gert.ecosystem.surfaces.cli.render.text import LONGEST_LINE, tidy

_BREAK: Final = re.compile(r"([\r\n])")
_LONGEST_KEPT: Final = 4 * LONGEST_LINE
_LAST_PART: Final = 16 * 1024


class LineFeed:
    """One stream of one tool; holds no more than the line that has begun."""

    def __init__(self) -> None:
        self._begun = ""
        self._returned = False

    def feed(self, text: str) -> list[str]:
        """Take a piece and give the lines it completes."""
        done = []
        for piece in _BREAK.split(text):
            if piece == "\n":
                done.append(tidy(self._begun))
                self._begun, self._returned = "", False
            elif piece == "\r":
                # A line break may follow, and then the line stands as it is.
                self._returned = True
            elif piece:
                kept = "" if self._returned else self._begun
                # One character beyond the limit is kept, to tell that there was more.
                self._begun = kept + piece[: max(_LONGEST_KEPT + 1 - len(kept), 0)]
                self._returned = False
        return done

    @property
    def begun(self) -> str:
        """The line that is not complete yet."""
        return tidy(self._begun)

    def rest(self) -> list[str]:
        """Give the last line, if it was never completed."""
        begun, self._begun = self.begun, ""
        return [begun] if begun else []


class Tail:
    """The last lines of everything a step prints."""

    def __init__(self, length: int) -> None:
        self._lines: deque[str] = deque(maxlen=length)
        self._length = length
        self._feeds: dict[str, LineFeed] = {}

    def feed(self, stream: str, text: str) -> None:
        """Take a piece; of a large one only its end can matter."""
        self._lines.extend(self._feeds.setdefault(stream, LineFeed()).feed(text[-_LAST_PART:]))

    def last(self, count: int) -> list[str]:
        """The last lines, those that are not complete included."""
        begun = [feed.begun for feed in self._feeds.values() if feed.begun]
        lines = [line for line in self._lines if line] + begun
        return lines[-count:] if count > 0 else []
