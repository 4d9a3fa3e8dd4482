"""A clock and ids that a test decides."""

from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Final

from gert.errors import InputError

START: Final = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """A clock that stands still until it is told to go on, and never goes back.

    It is called as a ledger calls its clock: `InMemoryStore(clock=FakeClock())`. With a tick, each look at it moves it
    on, so that no two events have the same time.
    """

    def __init__(self, start: datetime = START, *, tick: float | timedelta = 0) -> None:
        if start.tzinfo is None:
            raise InputError("a clock needs a time zone", hint="datetime(2026, 1, 1, tzinfo=UTC)")
        self._now = start.astimezone(UTC)
        self._tick = _forward(tick)
        # Ledgers look at the clock from threads of their own.
        self._lock = Lock()

    def __call__(self) -> datetime:
        """The time."""
        with self._lock:
            self._now += self._tick
            return self._now

    def __repr__(self) -> str:
        return f"FakeClock({self._now.isoformat()})"

    def advance(self, by: float | timedelta) -> datetime:
        """Let time pass: seconds, or a timedelta."""
        step = _forward(by)
        with self._lock:
            self._now += step
            return self._now

    def move_to(self, moment: datetime) -> datetime:
        """Let time pass until a moment."""
        if moment.tzinfo is None:
            raise InputError("a moment needs a time zone")
        with self._lock:
            if moment < self._now:
                raise InputError(f"a clock does not go back: it is {self._now.isoformat()} already")
            self._now = moment.astimezone(UTC)
            return self._now


class FakeIds:
    """Ids in a row: `run-000001`, `run-000002`, …"""

    def __init__(self, prefix: str = "run") -> None:
        self._prefix = prefix
        self._given = 0
        self._lock = Lock()

    def __call__(self) -> str:
        """The next id."""
        with self._lock:
            self._given += 1
            return f"{self._prefix}-{self._given:06d}"


def _forward(by: float | timedelta) -> timedelta:
    step = by if isinstance(by, timedelta) else timedelta(seconds=by)
    if step < timedelta(0):
        raise InputError("a clock does not go back")
    return step
