"""The time of a run: it passes in answers alone (ADRs 0011 and 0034)."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final, TypeAlias

from gert.kernel.foundation.duration import MAX_SECONDS, format_duration

Interval: TypeAlias = tuple[float, float]
"""From when to when, in seconds since the run began."""


class Timeline:
    """What all lanes of a run know of its time.

    now: when the last answer was taken, by the clock of the host; 0 where answers are scripted
    idle: when no process drove the run
    """

    __slots__ = ("idle", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self.idle: list[Interval] = []


class Clock:
    """The time of one lane, in seconds since the run began.

    Answers of the world say when they were taken, and that moment is the same in every lane. Scripted answers only say
    how long they took, so there each lane has a time of its own.

    started, ended: when the lane had its first and its last turn
    """

    __slots__ = ("_own", "_timeline", "_waits", "ended", "has_begun", "started")

    def __init__(self, timeline: Timeline | None = None, began: float = 0.0) -> None:
        self._timeline = timeline if timeline is not None else Timeline()
        self._own = self.started = self.ended = began
        self._waits: list[Interval] = []
        self.has_begun = False

    @property
    def now(self) -> float:
        """The present moment."""
        return max(self._own, self._timeline.now)

    def lane(self) -> "Clock":
        """The clock of a lane that is forked here."""
        return Clock(self._timeline, self.now)

    def pass_to(self, at: float | None, duration: float, idle: Iterable[Interval] = ()) -> None:
        """An answer was taken."""
        # Answers are data, and may say they took longer than any clock holds.
        if at is None:
            self._own += min(duration, MAX_SECONDS)
        else:
            self._timeline.now = max(self._timeline.now, min(at, MAX_SECONDS))
        self._timeline.idle += idle

    def begin(self, after: Iterable["Clock"] = ()) -> None:
        """The lane has its first turn; since those before it were done, it waited for a free place."""
        self._own = max((self._own, *(each.ended for each in after)))
        self.wait(self._own)
        self.started, self.has_begun = self.now, True

    def end(self) -> None:
        """The lane had its last turn."""
        self.ended = self.now

    def wait(self, since: float) -> None:
        """Everything since a moment was waiting for people, or for a free lane."""
        if self.now > since:
            self._waits.append((since, self.now))

    def join(self, lanes: Iterable["Clock"]) -> None:
        """Lanes that were forked here are done: it is as late as in the last of them."""
        begun = [each for each in lanes if each.has_begun]
        self._own = max((self._own, *(each.ended for each in begun)))
        self._waits += merged(wait for each in begun for wait in each._waits)

    def since(self, start: float) -> str:
        """The time since a moment, as events carry it."""
        return written(self.now - start)

    def waited(self, start: float, end: float | None = None) -> float:
        """The seconds since a moment in which something here waited for people, a free lane or a resume."""
        if not self._waits and not self._timeline.idle:
            return 0.0
        until = self.now if end is None else end
        found = [(max(a, start), min(b, until)) for a, b in self._timeline.idle]
        for begin, stop in reversed(self._waits):
            if stop <= start:
                break
            found.append((max(begin, start), min(stop, until)))
        return sum(b - a for a, b in merged(found))


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time in intervals that do not overlap, in order: what waits at once is counted once."""
    found: list[Interval] = []
    for begin, end in sorted(intervals):
        if end <= begin:
            continue
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


_SHORTEST: Final = 0.001
"""Waits that are written down: events carry milliseconds."""


def written(seconds: float) -> str:
    """Seconds as events carry them, to the millisecond."""
    milliseconds = round(min(seconds, MAX_SECONDS) * 1000)
    return format_duration(timedelta(milliseconds=milliseconds)) if milliseconds > 0 else "0s"


def written_wait(seconds: float) -> str | None:
    """Seconds of waiting as events carry them; nothing where there was none."""
    return written(seconds) if seconds >= _SHORTEST else None
