"""Run outcomes as text: a bar for each ending, and details below."""

import re
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

import click

from gert.ecosystem.surfaces.cli.render.output import plural, print_line
from gert.ecosystem.surfaces.cli.render.text import BAD, CATEGORY, DOUBTFUL, QUIET, clip, elapsed
from gert.kernel.events.outcomes import ENDINGS, RunbookOutcomes
from gert.kernel.events.tally import Durations
from gert.kernel.events.vocabulary import OUTCOME_CATEGORIES
from gert.kernel.foundation.text import path_text

BAR: Final = 22
TOP_CODES: Final = 10
TOP_PLACES: Final = 5
MOST_RUNBOOKS: Final = 50
COLOURS: Final = {**CATEGORY, "failed": BAD, "error": BAD, "cancelled": DOUBTFUL, "incomplete": DOUBTFUL}
UNITS: Final = {"d": "day", "h": "hour", "m": "minute", "s": "second"}
_NAME: Final = 60


def print_runbooks(runbooks: Sequence[RunbookOutcomes], since: str | None) -> None:
    """Print each runbook; `since` is the value of --since if it is a duration."""
    full, empty = bar_characters()
    for each in runbooks[:MOST_RUNBOOKS]:
        print_line()
        about = f"({plural(each.runs, 'run')}, {period(each, since)})"
        print_line(f"  {click.style(clip(each.runbook, _NAME), bold=True)} {about}")
        print_line()
        _say_endings(each, full, empty)
        for title, lines in _sections(each):
            print_line()
            print_line(f"  {title}:")
            for line in lines:
                print_line(f"    {line}")
    print_line()
    if len(runbooks) > MOST_RUNBOOKS:
        print_line(f"  and {plural(len(runbooks) - MOST_RUNBOOKS, 'more runbook')}: `--json` has them all")


def bar(share: float, full: str, empty: str) -> str:
    """Draw a share between 0 and 1; a share above 0 is always visible."""
    filled = max(round(share * BAR), 1 if share else 0)
    return full * filled + empty * (BAR - filled)


def percent_text(percent: float) -> str:
    """A share in whole percent; `0%` and `100%` are exact."""
    if 0 < percent < 0.5:
        return "<1%"
    if 99.5 <= percent < 100:
        return ">99%"
    return f"{percent:.0f}%"


def period(each: RunbookOutcomes, since: str | None) -> str:
    """`last 7 days`, or the days of the first and the last run."""
    if since is not None:
        match = re.fullmatch(r"([0-9]+)([dhms])", since)
        if match is None:
            return f"last {since}"
        count, unit = int(match[1]), UNITS[match[2]]
        return f"last {unit}" if count == 1 else f"last {plural(count, unit)}"
    first, last = f"{each.first:%Y-%m-%d}", f"{each.last:%Y-%m-%d}"
    return first if first == last else f"{first} to {last}"


def bar_characters() -> tuple[str, str]:
    """Block characters if the stream can encode them."""
    try:
        "█░".encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return "#", "."
    return "█", "░"


def _say_endings(each: RunbookOutcomes, full: str, empty: str) -> None:
    shown = [name for name in ENDINGS if name in OUTCOME_CATEGORIES or each.endings[name]]
    shares = {name: f"({percent_text(each.percent(name))})" for name in shown}
    wide = max(5, *map(len, shares.values()))
    digits = max(4, len(str(each.runs)) + 1)
    for name in shown:
        count = each.endings[name]
        line = f"{name + ':':<11}{count:>{digits}} {shares[name]:<{wide}}  "
        drawn = bar(count / each.runs, full, empty)
        print_line(f"  {line}{click.style(drawn, fg=COLOURS.get(name) if count else QUIET)}")


def _sections(each: RunbookOutcomes) -> Iterator[tuple[str, list[str]]]:
    codes = each.top_codes()
    if codes:
        yield "Top outcome codes", _counted(codes, len(codes) + bool(each.codes.beyond))
    if each.durations.count:
        yield "Duration", [_spread(each.durations)]
    if each.waits.longest:
        yield "of it waiting", [_spread(each.waits)]
    failures = each.failures_by_kind()
    if failures:
        rows = [(kind, count, _places(steps)) for kind, count, steps in failures]
        wide, digits = max(len(kind) for kind, _, _ in rows), max(len(str(count)) for _, count, _ in rows)
        yield "Failures", [f"{clip(kind, _NAME):<{wide}}  {count:>{digits}}  {at}".rstrip() for kind, count, at in rows]
    violations = each.repeated_violations()
    if violations:
        yield "Repeated contract violations", _violations(violations)
    if each.break_glass.total:
        uses, runs = plural(each.break_glass.total, "decision"), plural(each.break_glass_runs, "run")
        by = [f"{clip(actor, _NAME)}{_at(step)} ({count})" for (actor, step), count in each.break_glass.top(TOP_PLACES)]
        yield "Break-glass", [f"{uses} overridden in {runs}: {_first(by, len(each.break_glass))}"]


def _counted(rows: Sequence[tuple[str, int]], total: int) -> list[str]:
    shown = [(clip(name, _NAME), count) for name, count in rows[:TOP_CODES]]
    wide, digits = max(len(name) for name, _ in shown), max(3, *(len(str(count)) for _, count in shown))
    lines = [f"{name:<{wide}}  {count:>{digits}}" for name, count in shown]
    return [*lines, f"and {total - TOP_CODES} more"] if total > TOP_CODES else lines


def _spread(measured: Durations) -> str:
    shown = (
        ("median", measured.percentile(50)),
        ("p95", measured.percentile(95)),
        ("longest", measured.longest),
    )
    return ", ".join(f"{name} {elapsed(timedelta(seconds=seconds or 0))}" for name, seconds in shown)


def _violations(rows: Sequence[tuple[str, str, int, int]]) -> list[str]:
    lines = [
        f"{clip(kind, _NAME)}{_at(step)}  in {plural(runs, 'run')}" + (f", {times} times" if times > runs else "")
        for kind, step, runs, times in rows[:TOP_CODES]
    ]
    return [*lines, f"and {len(rows) - TOP_CODES} more"] if len(rows) > TOP_CODES else lines


def _places(steps: Sequence[tuple[str, int]]) -> str:
    named = [(path_text(step), count) for step, count in steps if step]
    if not named:
        return ""
    shown = [f"{clip(step, _NAME)} ({count})" for step, count in named[:TOP_PLACES]]
    return "at " + (clip(named[0][0], _NAME) if len(steps) == 1 else _first(shown, len(named)))


def _first(shown: Sequence[str], total: int) -> str:
    return ", ".join(shown) + (f", and {total - TOP_PLACES} more" if total > TOP_PLACES else "")


def _at(step: str) -> str:
    return f" at {clip(path_text(step), _NAME)}" if step else ""
