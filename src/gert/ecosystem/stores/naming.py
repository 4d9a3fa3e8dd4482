"""The time, and ids that sort by it."""

import secrets
from datetime import UTC, datetime
from typing import Final

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"


def utc_now() -> datetime:
    """The time."""
    return datetime.now(UTC)


def new_id(moment: datetime) -> str:
    """An id that sorts by time, to the microsecond, and is a safe file name everywhere."""
    chance = "".join(secrets.choice(_ALPHABET) for _ in range(8))
    return f"{moment.astimezone(UTC):%Y%m%d-%H%M%S-%f}-{chance}"
