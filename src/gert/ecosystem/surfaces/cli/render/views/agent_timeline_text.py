"""The timeline of an agent run as lines of text."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from gert.ecosystem.host.runs.agent_timeline import Item, Timeline
from gert.ecosystem.surfaces.cli.render import text as style
from gert.ecosystem.surfaces.cli.render.output import plural
from gert.ecosystem.surfaces.cli.render.text import LONGEST_NAME, clip, columns

TIME_WIDTH: Final = 11
MOST_SHOWN: Final = 100

_STATUS: Final[Mapping[str, tuple[str, str]]] = {
    "completed": (style.DONE, style.GOOD),
    "success": (style.DONE, style.GOOD),
    "passed": (style.DONE, style.GOOD),
    "allow": (style.DONE, style.GOOD),
    "approved": (style.DONE, style.GOOD),
    "open": (style.BEGUN, style.LIVELY),
    "requested": (style.ASKED, style.DOUBTFUL),
    "waits": (style.ASKED, style.DOUBTFUL),
    "unknown_outcome": (style.WARNING, style.DOUBTFUL),
    "paused": (style.ASKED, style.DOUBTFUL),
    "blocked": (style.ASKED, style.DOUBTFUL),
    "started": (style.BEGUN, style.LIVELY),
    "reopened": (style.AGAIN, style.LIVELY),
    "resumed": (style.AGAIN, style.LIVELY),
    "unblocked": (style.AGAIN, style.LIVELY),
    "woke": (style.AGAIN, style.LIVELY),
    "slept, completed": (style.DONE, style.GOOD),
    "stage": (style.WENT, style.LIVELY),
    "of runbook": (style.WENT, style.LIVELY),
    "has this as step": (style.WENT, style.LIVELY),
    "": (style.NOTED, style.QUIET),
}
_BAD: Final = (style.FAILED, style.BAD)


def timeline_lines(found: Timeline, limit: int | None) -> Iterator[str]:
    """Return the last items of a timeline, turn by turn, and the totals; all items without a limit."""
    items = found.items if limit is None else found.items[-limit:]
    if skipped := len(found.items) - len(items):
        yield click.style(f"  … {plural(skipped, 'earlier item')}; --all shows them", fg=style.QUIET)
    turn: int | None = None
    for item in items:
        if item.turn is not None and item.turn != turn:
            turn = item.turn
            yield f"  {click.style(f'turn {turn}', bold=True)}"
        yield _line(item)
    totals = found.totals
    parts = [
        plural(totals.turns, "turn") if totals.turns else "",
        plural(totals.model_calls, "model call"),
        plural(totals.tool_calls, "tool call"),
        f"{totals.denied} denied" if totals.denied else "",
        plural(totals.approvals, "approval") if totals.approvals else "",
        plural(totals.drifts, "drift") if totals.drifts else "",
        f"{totals.cost_usd:.6f} USD",
    ]
    yield f"  {', '.join(part for part in parts if part)}"
    if found.unreadable:
        yield click.style(f"  {plural(found.unreadable, 'line')} cannot be read", fg=style.DOUBTFUL)


def as_data(found: Timeline, *, whole: bool) -> dict[str, Any]:
    """Return a timeline as JSON: the last items, or all."""
    items = found.items if whole else found.items[-MOST_SHOWN:]
    return {
        "timeline": items,
        "timeline_skipped": len(found.items) - len(items),
        "totals": found.totals,
    }


def _line(item: Item) -> str:
    icon, colour = _STATUS.get(item.status, (style.AGAIN, style.DOUBTFUL) if item.kind == "drift" else _BAD)
    took = f"{item.took:.3f}s" if item.took is not None else ""
    cost = f"{item.cost_usd:.6f} USD" if item.cost_usd else ""
    status = "" if item.status in ("completed", "success", "") and item.kind != "run" else item.status
    name = f"{item.kind} {clip(item.name, LONGEST_NAME)}".strip()
    text = columns(f"{icon} {name}", clip(status, LONGEST_NAME), took, cost)
    time = click.style(f"{item.seconds:+.3f}s".rjust(TIME_WIDTH), fg=style.QUIET)
    detail = f"  {click.style(style.value_text(item.detail), fg=style.QUIET)}" if item.detail else ""
    return f"{time}  {click.style(text, fg=colour)}{detail}"
