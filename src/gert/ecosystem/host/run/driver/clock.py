"""The clock of a run: seconds since its first event, across every process that drove it."""

import time
from collections.abc import Iterable

from gert.ecosystem.host.run.record.journal import now
from gert.kernel.events.envelope import decode, parse_timestamp
from gert.kernel.events.runbook import RunResumed


class RunClock:
    """Tells how old a run is, and when no process drove it.

    recorded: the events on record where a run is resumed; none where it begins now
    """

    def __init__(self, recorded: Iterable[bytes] = ()) -> None:
        self._began = time.monotonic()
        self._age = self._last = 0.0
        self._gaps: list[tuple[float, float]] = []
        self._is_resumed = False
        first = None
        for event in map(decode, recorded):
            moment = parse_timestamp(event.timestamp)
            first = first or moment
            at = (moment - first).total_seconds()
            if event.type == RunResumed.type:
                self._gaps.append((self._last, at))
            self._last = max(self._last, at)
        if first is not None:
            self._is_resumed = True
            # The clock of the machine may have been set back since.
            self._age = max(self._last, (now() - first).total_seconds())

    @property
    def age(self) -> float:
        """Seconds since the first event."""
        return round(self._age + time.monotonic() - self._began, 3)

    def idle(self) -> tuple[tuple[float, float], ...]:
        """When no process drove the run, up to now; its last event is the last sign of the process before."""
        current = [(self._last, self.age)] if self._is_resumed else []
        return tuple((round(begin, 3), round(end, 3)) for begin, end in (*self._gaps, *current))
