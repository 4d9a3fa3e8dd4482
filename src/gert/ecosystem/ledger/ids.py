"""The time, and ids that sort by it."""

import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from time import time_ns
from typing import Final

from gert.kernel.events.envelope import format_timestamp

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"


def utc_now() -> datetime:
    """The time."""
    return datetime.now(UTC)


class Stamps:
    """Formats the time for events; the part up to the second is cached."""

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def now(self) -> str:
        """The time, in UTC with microseconds."""
        second, rest = divmod(time_ns(), 1_000_000_000)
        if second != self._second:
            self._text = format_timestamp(datetime.fromtimestamp(second, UTC))[:-7]
            self._second = second
        return f"{self._text}{rest // 1000:06d}Z"


def stamps_of(clock: Callable[[], datetime]) -> Callable[[], str]:
    """The time by a clock, as events carry it."""
    return Stamps().now if clock is utc_now else lambda: format_timestamp(clock())


def new_id(moment: datetime) -> str:
    """An id that sorts by time, to the microsecond, and is a safe file name everywhere."""
    chance = "".join(secrets.choice(_ALPHABET) for _ in range(8))
    return f"{moment.astimezone(UTC):%Y%m%d-%H%M%S-%f}-{chance}"
