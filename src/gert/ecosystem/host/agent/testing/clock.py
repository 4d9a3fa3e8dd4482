"""A clock and ids that a test controls."""

from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Final

from gert.errors import InputError

START: Final = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """A clock that moves only when the test moves it, and never back.

    Pass it to a store: `InMemoryStore(clock=FakeClock())`. With a tick, each reading advances it, so that no two events
    have the same time.
    """

    def __init__(self, start: datetime = START, *, tick: float | timedelta = 0) -> None:
        if start.tzinfo is None:
            raise InputError("a clock needs a time zone", hint="datetime(2026, 1, 1, tzinfo=UTC)")
        self._now = start.astimezone(UTC)
        self._tick = _forward(tick)
        # Ledgers read the clock from other threads.
        self._lock = Lock()

    def __call__(self) -> datetime:
        """Return the time."""
        with self._lock:
            self._now += self._tick
            return self._now

    def __repr__(self) -> str:
        return f"FakeClock({self._now.isoformat()})"

    def advance(self, by: float | timedelta) -> datetime:
        """Advance the clock by seconds or a timedelta."""
        step = _forward(by)
        with self._lock:
            self._now += step
            return self._now

    def move_to(self, moment: datetime) -> datetime:
        """Advance the clock to a moment."""
        if moment.tzinfo is None:
            raise InputError("a moment needs a time zone")
        with self._lock:
            if moment < self._now:
                raise InputError(f"a clock cannot be set back: it is already {self._now.isoformat()}")
            self._now = moment.astimezone(UTC)
            return self._now


class FakeIds:
    """Consecutive ids: `run-000001`, `run-000002`, …"""

    def __init__(self, prefix: str = "run") -> None:
        self._prefix = prefix
        self._given = 0
        self._lock = Lock()

    def __call__(self) -> str:
        """Return the next id."""
        with self._lock:
            self._given += 1
            return f"{self._prefix}-{self._given:06d}"


def _forward(by: float | timedelta) -> timedelta:
    step = by if isinstance(by, timedelta) else timedelta(seconds=by)
    if step < timedelta(0):
        raise InputError("a clock cannot be set back")
    return step
