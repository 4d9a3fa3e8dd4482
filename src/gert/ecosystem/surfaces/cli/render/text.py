"""Parts of lines about events: icons, colours, and data that is clipped and escaped."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from gert.errors import InputError
from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook import Failure, Outcome
from gert.kernel.foundation.duration import parse_duration
from gert.kernel.foundation.text import CONTROL_SEQUENCE, printable, with_marked_newlines

BEGUN: Final = "▸"
DONE: Final = "✓"
FAILED: Final = "✗"
SKIPPED: Final = "–"  # noqa: RUF001  # it stands in a column of icons
REFUSED: Final = "⊘"
WARNING: Final = "!"
ASKED: Final = "?"
WENT: Final = "→"
AGAIN: Final = "↻"
ENDED: Final = "■"
NOTED: Final = "·"
QUOTED: Final = "│ "

GOOD: Final = "green"
BAD: Final = "red"
DOUBTFUL: Final = "yellow"
QUIET: Final = "bright_black"
LIVELY: Final = "cyan"

LONGEST_NAME: Final = 120
LONGEST_TITLE: Final = 72
LONGEST_VALUE: Final = 160
LONGEST_LINE: Final = 400
MOST_LINES: Final = 8


class Description(NamedTuple):
    """The description of an event.

    text: one line, beginning with the name of the step
    notes: further lines, shown below
    news: shown while the run runs; a timeline shows every event
    """

    icon: str
    text: str
    colour: str | None = None
    notes: tuple[str, ...] = ()
    news: bool = True


class Subject(NamedTuple):
    """The subject of an event: the name of its step (or of its run), and what the step does.

    interrupted: a process ended during a call of it
    """

    name: str
    does: str = ""
    interrupted: bool = False


Describers: TypeAlias = Mapping[type[Payload], Callable[[Any, Subject], Description]]
"""The function that describes each class of event."""

STATUS: Final[Mapping[str, tuple[str, str]]] = {
    "success": (DONE, GOOD),
    "failed": (FAILED, BAD),
    "error": (FAILED, BAD),
    "skipped": (SKIPPED, QUIET),
}
CATEGORY: Final[Mapping[str, str]] = {
    "resolved": GOOD,
    "no_action": GOOD,
    "escalated": DOUBTFUL,
    "needs_rca": DOUBTFUL,
}


def clip(text: str, longest: int = LONGEST_LINE) -> str:
    """One escaped line of limited length."""
    # Cut first: escaping a megabyte takes time.
    text = text.rstrip("\n")
    return printable(text) if len(text) <= longest else printable(text[: longest - 1]) + "…"


def lines_of(text: str) -> tuple[str, ...]:
    """The first lines of a text, escaped and marked as quoted, so that none looks like a line of gert."""
    head = text[: LONGEST_LINE * MOST_LINES]
    lines = [line for line in head.splitlines() if line.strip()]
    cut = len(lines) > MOST_LINES or len(head) < len(text)
    shown = tuple(f"{QUOTED}{tidy(line)}" for line in lines[:MOST_LINES])
    return (*shown, f"{QUOTED}…") if cut else shown


def tidy(line: str) -> str:
    """A line of a tool's output without its colours."""
    head = line[: 4 * LONGEST_LINE]
    plain = CONTROL_SEQUENCE.sub("", head).expandtabs(4).rstrip(" ")
    return clip(plain if len(head) == len(line) else plain + "…", LONGEST_LINE)


def value_text(value: Any, longest: int = LONGEST_VALUE) -> str:
    """A value of any type on one short line: text as it is, everything else as JSON."""
    if isinstance(value, str):
        return clip(with_marked_newlines(value.strip("\n")[: longest + 1]), longest)
    try:
        return clip(msgspec.json.encode(value).decode(), longest)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return "…"  # only a foreign trace can hold such a value


def pairs(values: dict[str, Any]) -> tuple[str, ...]:
    """`name = value`, one line each."""
    first = islice(values.items(), MOST_LINES)
    lines = [f"{clip(name, LONGEST_NAME)} = {value_text(value)}" for name, value in first]
    return (*lines, f"… {len(values) - MOST_LINES} more") if len(values) > MOST_LINES else tuple(lines)


def listed(names: tuple[str, ...]) -> str:
    """Names on one line, the first few of many."""
    shown = ", ".join(clip(name, LONGEST_NAME) for name in names[:MOST_LINES])
    return f"{shown}, … {len(names) - MOST_LINES} more" if len(names) > MOST_LINES else shown


def failure_lines(failure: Failure | None) -> tuple[str, ...]:
    """The kind and the message of a failure."""
    if failure is None:
        return ()
    first, *rest = lines_of(failure.message) or ("no message",)
    return (f"{failure.kind}: {first.removeprefix(QUOTED)}", *rest)


def outcome_text(outcome: Outcome) -> str:
    """`resolved: pod_restarted`."""
    return f"{outcome.category}: {clip(outcome.code, LONGEST_NAME)}"


def columns(*texts: str) -> str:
    """Join the parts of a line; empty parts leave no gap."""
    return "  ".join(text for text in texts if text)


def elapsed(duration: timedelta) -> str:
    """A short duration: `132ms`, `4.2s`, `2m05s`, `1h02m`, `3d04h`."""
    millis = duration // timedelta(milliseconds=1)
    if millis < 1000:
        return f"{max(millis, 0)}ms"
    if millis < 60_000:
        return f"{millis // 100 / 10:.1f}s"
    minutes, seconds = divmod(millis // 1000, 60)
    if minutes < 60:
        return f"{minutes}m{seconds:02}s"
    hours, minutes = divmod(minutes, 60)
    # Up to two days, hours are easier to read.
    return f"{hours}h{minutes:02}m" if hours < 48 else f"{hours // 24}d{hours % 24:02}h"


def age(duration: timedelta) -> str:
    """A duration in its largest unit: `4s`, `2m`, `1h`, `3d`."""
    seconds = max(duration // timedelta(seconds=1), 0)
    for unit, size, until in (("s", 1, 60), ("m", 60, 3600), ("h", 3600, 2 * 86400)):
        if seconds < until:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86400}d"


def took_text(duration: str, waited: str | None, *, interrupted: bool = False) -> str:
    """The duration, and how much of it was spent waiting; when a call was interrupted, no record says."""
    if not waited:
        return duration_text(duration)
    part = duration_text(waited)
    part = f"up to {part} of it waiting or interrupted" if interrupted else f"{part} of it waiting"
    return f"{duration_text(duration)} ({part})"


def duration_text(text: str) -> str:
    """A recorded duration in short form, or the text itself if it is not a duration."""
    try:
        return elapsed(parse_duration(text))
    except InputError:
        return clip(text, 20)
