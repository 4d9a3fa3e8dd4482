"""Times as events carry them: text in UTC with microseconds, which sorts by time."""

from datetime import UTC, datetime

from gert.errors import TraceError


def format_timestamp(moment: datetime) -> str:
    """Format a time for an event: UTC, with microseconds."""
    if moment.tzinfo is None:
        raise TraceError("a timestamp needs a time zone")
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_timestamp(text: str) -> datetime:
    """Parse the timestamp of an event."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise TraceError(f"`{text}` is not a timestamp") from None
    if moment.tzinfo is None:
        raise TraceError(f"the timestamp `{text}` has no time zone")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise TraceError(f"the timestamp `{text}` is beyond the calendar") from None
