"""Splits the output of tools into lines; a carriage return restarts the line."""

import re
from collections import deque
from typing import Final

from gert.ecosystem.surfaces.cli.render.text import LONGEST_LINE, tidy

_BREAK: Final = re.compile(r"([\r\n])")
_LONGEST_KEPT: Final = 4 * LONGEST_LINE
_LAST_PART: Final = 16 * 1024
_MOST_SHOWN: Final = 5
"""Lines to show of what a failed step printed."""


class LineFeed:
    """One stream of one tool; keeps only the incomplete line."""

    def __init__(self) -> None:
        self._begun = ""
        self._returned = False

    def feed(self, text: str) -> list[str]:
        """Add text and return the lines it completes."""
        done = []
        for piece in _BREAK.split(text):
            if piece == "\n":
                done.append(tidy(self._begun))
                self._begun, self._returned = "", False
            elif piece == "\r":
                # If a line break follows, the line is kept as it is.
                self._returned = True
            elif piece:
                kept = "" if self._returned else self._begun
                # One character beyond the limit is kept, to show that there was more.
                self._begun = kept + piece[: max(_LONGEST_KEPT + 1 - len(kept), 0)]
                self._returned = False
        return done

    @property
    def begun(self) -> str:
        """The incomplete line."""
        return tidy(self._begun)

    def rest(self) -> list[str]:
        """Return the last line if it was never completed."""
        begun, self._begun = self.begun, ""
        return [begun] if begun else []


class Tail:
    """The last lines of everything a step prints."""

    def __init__(self, length: int) -> None:
        self._lines: deque[str] = deque(maxlen=length)
        self._feeds: dict[str, LineFeed] = {}

    def feed(self, stream: str, text: str) -> None:
        """Add text; only the end of a long text matters."""
        self._lines.extend(self._feeds.setdefault(stream, LineFeed()).feed(text[-_LAST_PART:]))

    def last(self, count: int) -> list[str]:
        """The last lines, including incomplete ones."""
        begun = [feed.begun for feed in self._feeds.values() if feed.begun]
        lines = [line for line in self._lines if line] + begun
        return lines[-count:] if count > 0 else []


class FailureTail:
    """What a step printed last, to show below its failure: on standard error, or else on standard output."""

    def __init__(self) -> None:
        # Split into lines only if the step fails: most do not, and some print much.
        self._texts = {"stderr": "", "stdout": ""}

    def feed(self, stream: str, text: str) -> None:
        """Add text."""
        self._texts[stream] = (self._texts.get(stream, "") + text)[-_LAST_PART:]

    def lines(self, message: str) -> list[str]:
        """The last lines; none where the message of the failure has all of them."""
        found: list[str] = []
        for stream, text in self._texts.items():
            tail = Tail(_MOST_SHOWN)
            tail.feed(stream, text)
            found = found or tail.last(_MOST_SHOWN)
        return [] if len(found) == 1 and found[0].strip() in message else found
