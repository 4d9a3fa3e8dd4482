"""The time, for agents."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """The time now, in UTC."""
    return datetime.now(UTC)
