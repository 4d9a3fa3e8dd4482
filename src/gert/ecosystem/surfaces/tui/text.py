"""Text for the screen: what comes from outside is shown as it is, and never as markup or escape."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from rich.text import Text

from gert.ecosystem.surfaces.tui.steps import MARKS, WORDS, Node
from gert.kernel.events.envelope import Envelope
from gert.kernel.foundation.text import one_line, printable

STYLES: Final = {
    "success": "green",
    "failed": "bold red",
    "error": "bold red",
    "running": "bold cyan",
    "waiting": "bold yellow",
    "skipped": "dim",
    "pending": "dim",
    "part": "",
}
RUN_MARKS: Final = {
    "running": ("→", "bold cyan"),
    "waiting": ("⚠", "bold yellow"),
    "cut-off": ("⚠", "bold yellow"),
    "completed": ("✓", "green"),
    "failed": ("✗", "bold red"),
    "error": ("✗", "bold red"),
    "in-doubt": ("✗", "bold red"),
    "cancelled": ("-", "dim"),
    "abandoned": ("-", "dim"),
}
"""The icon and the style of a run, by its status."""
RISKS: Final = {"low": "green", "medium": "yellow", "high": "red", "critical": "bold red"}
_LONGEST: Final = 400


def plain(text: Any, style: str = "") -> Text:
    """A text as it is: printable line by line, without markup."""
    return Text("\n".join(printable(line.expandtabs(4)) for line in str(text).split("\n")), style=style, end="")


def step_label(node: Node, now: datetime | None = None) -> Text:
    """One line of the tree of steps: icon, name, duration, what it waits for."""
    label = Text(end="")
    label.append(f"{MARKS[node.status]} ", STYLES[node.status])
    label.append(printable(node.name), "" if node.status != "skipped" else "dim")
    if node.total is not None:
        done = sum(1 for each in node.children.values() if each.has_ended)
        label.append(f" {done} of {node.total:,}", "dim")
    if node.waits:
        label.append(f" ⚠ {node.waits}" if node.status != "waiting" else f" {node.waits}", "yellow")
    if node.duration and node.status not in ("skipped", "pending"):
        label.append(f" {node.duration}", "dim")
    elif node.status == "running" and node.began is not None and now is not None:
        label.append(f" {seconds(now - node.began)}", "dim")
    if node.risk in ("high", "critical"):
        label.append(f" {node.risk}", RISKS[node.risk])
    return label


def seconds(elapsed: Any) -> str:
    """A duration, short."""
    total = max(0.0, elapsed.total_seconds())
    if total < 60:
        return f"{total:.0f}s"
    minutes, rest = divmod(int(total), 60)
    return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"


def utc_now() -> datetime:
    """The time."""
    return datetime.now(UTC)


def status_words(status: str) -> str:
    """A status in words."""
    return WORDS.get(status, status)


def json_lines(value: Any) -> list[str]:
    """A value as indented JSON, printable."""
    return [printable(line) for line in json.dumps(value, indent=2, ensure_ascii=False, default=str).split("\n")]


def event_lines(events: list[Envelope]) -> Iterator[str]:
    """Events, one a line."""
    for event in events:
        where = f" {event.path}" if event.path else ""
        data = one_line(json.dumps(event.data, ensure_ascii=False, default=str), _LONGEST)
        yield printable(f"{event.seq:>5} {event.timestamp[11:23]} {event.type}{where} {data}")


def diff_text(lines: list[str]) -> Text:
    """Lines of a preview, with the colours of a diff."""
    shown = Text()
    for line in lines:
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        shown.append(printable(line) + "\n", style)
    return shown
