"""The time of a run, which only answers advance (ADRs 0011 and 0034)."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final, TypeAlias

from gert.kernel.foundation.duration import MAX_SECONDS, format_duration

Interval: TypeAlias = tuple[float, float]
"""Start and end, in seconds since the run began."""


class Timeline:
    """The time that all lanes of a run share.

    now: when the last answer arrived, by the host's clock; 0 if answers are scripted
    idle: intervals in which no process drove the run
    """

    __slots__ = ("idle", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self.idle: list[Interval] = []


class Clock:
    """The time of one lane, in seconds since the run began.

    Live answers carry the time they arrived, which is the same in every lane. Scripted answers only carry
    a duration, so each lane then has its own time.

    started, ended: when the lane ran its first and its last step
    """

    __slots__ = ("_own", "_timeline", "_waits", "ended", "has_begun", "started")

    def __init__(self, timeline: Timeline | None = None, began: float = 0.0) -> None:
        self._timeline = timeline if timeline is not None else Timeline()
        self._own = self.started = self.ended = began
        self._waits: list[Interval] = []
        self.has_begun = False

    @property
    def now(self) -> float:
        """The current time."""
        own, shared = self._own, self._timeline.now
        return own if own > shared else shared

    def fork(self) -> "Clock":
        """Return the clock of a lane forked now."""
        return Clock(self._timeline, self.now)

    def advance(self, at: float | None, duration: float, idle: Iterable[Interval] = ()) -> None:
        """Advance to the time of an answer."""
        # Answers are data: a scripted duration can exceed what a clock can hold.
        if at is None:
            self._own += min(duration, MAX_SECONDS)
        else:
            self._timeline.now = max(self._timeline.now, min(at, MAX_SECONDS))
        if idle:
            self._timeline.idle += idle

    def begin(self, after: Iterable["Clock"] = ()) -> None:
        """Start the lane; the time since the lanes before it ended counts as waiting."""
        self._own = max((self._own, *(each.ended for each in after)))
        self.wait(self._own)
        self.started, self.has_begun = self.now, True

    def end(self) -> None:
        """End the lane."""
        self.ended = self.now

    def wait(self, since: float) -> None:
        """Count the time since `since` as waiting for people or for a free lane."""
        if self.now > since:
            self._waits.append((since, self.now))

    def join(self, lanes: Iterable["Clock"]) -> None:
        """Join the lanes forked here: advance to the latest of their clocks."""
        begun = [each for each in lanes if each.has_begun]
        self._own = max((self._own, *(each.ended for each in begun)))
        self._waits += merge_intervals(wait for each in begun for wait in each._waits)

    def since(self, start: float) -> str:
        """Format the time since `start` for an event."""
        return format_seconds(self.now - start)

    def waited(self, start: float, end: float | None = None) -> float:
        """Return the seconds since `start` spent waiting for people, a free lane or a resume."""
        if not self._waits and not self._timeline.idle:
            return 0.0
        until = self.now if end is None else end
        found = [(max(a, start), min(b, until)) for a, b in self._timeline.idle]
        for begin, stop in reversed(self._waits):
            if stop <= start:
                break
            found.append((max(begin, start), min(stop, until)))
        return sum(b - a for a, b in merge_intervals(found))


def merge_intervals(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge overlapping intervals, in order, so that simultaneous waits count once."""
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
"""The shortest wait to record: events carry milliseconds."""


def format_seconds(seconds: float) -> str:
    """Format seconds for an event, to the millisecond."""
    if seconds <= 0:
        return "0s"
    milliseconds = round(min(seconds, MAX_SECONDS) * 1000)
    return format_duration(timedelta(milliseconds=milliseconds)) if milliseconds > 0 else "0s"


def format_wait(seconds: float) -> str | None:
    """Format seconds of waiting for an event, or None if there was no wait."""
    return format_seconds(seconds) if seconds >= _SHORTEST else None
