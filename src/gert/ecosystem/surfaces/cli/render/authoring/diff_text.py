"""Changes as text: each scenario before and after, and the differences below."""

from collections.abc import Iterator
from typing import Final

import click

from gert.ecosystem.host.scenarios.compare_scenarios import Compared, Comparison
from gert.ecosystem.host.scenarios.folders import TEST_FILE
from gert.ecosystem.surfaces.cli.render.output import print_line
from gert.ecosystem.surfaces.cli.render.text import DOUBTFUL, GOOD, LIVELY, clip
from gert.kernel.scenario.changes import Changed, Changes

MOST_SHOWN: Final = 20
WIDEST: Final = 60
GAP: Final = 5
FAILURE: Final = "Failure changed"


def print_comparison(found: Comparison) -> None:
    """Print everything, and how many changed."""
    print_line()
    since = f" (against {clip(found.against, 80)})" if found.against is not None else ""
    print_line(f"  {click.style(clip(found.runbook), bold=True)}{since}")
    print_line()
    if not found.compared:
        print_line("  No golden scenarios to compare.")
        hint = "record one with `gert exec --record DIR` and promote it, or pass `--all` to include archived ones"
        print_line(f"    {click.style('hint:', fg=LIVELY)} {hint}")
        return
    width = max((len(_after(each)) for each in found.compared), default=0)
    for each in found.compared:
        _say_scenario(each, min(width, WIDEST) + GAP)
    print_line(f"  {len(found.compared) - found.changed} unchanged, {found.changed} changed")


def verdict(each: Compared) -> str:
    """The result of a comparison in two words."""
    changes = each.changes
    if each.problem is not None or changes is None:
        return "cannot be compared!"
    if changes.outcome_changed:
        return "outcome changed!"
    if each.missing:
        return "answers missing!"
    kinds = (
        (changes.reached or changes.unreached, "steps changed!"),
        (changes.decisions or changes.risks, "governance changed!"),
        (changes.commands, "commands changed!"),
        (changes.failure or changes.meta, "outcome details changed!"),
        (changes.outputs, "outputs changed!"),
    )
    return next((words for some, words in kinds if some), "same")


def sections(each: Compared) -> Iterator[tuple[str, list[str]]]:
    """The differences, by title."""
    changes = each.changes
    if each.problem is not None:
        yield "Cannot be compared", [clip(each.problem)]
    if changes is not None:
        for title, lines in _changed(changes):
            # A missing answer fails the run; it is reported once, below.
            if lines and not (each.missing and title == FAILURE):
                yield title, lines
    if each.missing:
        yield "Answers missing", _few([clip(message) for message in each.missing])


def notes(each: Compared) -> Iterator[str]:
    """Notes that are not changes."""
    if each.baseline == "test":
        yield f"compared with `{TEST_FILE}`"
    yield from _few([clip(note) for note in each.notes])


def _changed(changes: Changes) -> Iterator[tuple[str, list[str]]]:
    added = [f"+ {clip(step)} (newly reached)" for step in changes.reached]
    gone = [f"- {clip(step)} (no longer reached)" for step in changes.unreached]
    yield "Steps changed", [*_few(added), *_few(gone)]
    yield FAILURE, [_arrow(changes.failure)] if changes.failure is not None else []
    yield "Outcome details changed", _pairs(changes.meta)
    yield "Decisions changed", _pairs(changes.decisions)
    yield "Risk changed", _pairs(changes.risks)
    yield "Commands changed", _pairs(changes.commands)
    yield "Outputs changed", _pairs(changes.outputs)


def _pairs(changed: tuple[Changed, ...]) -> list[str]:
    return _few([f"{clip(each.name)}: {_arrow(each)}" for each in changed])


def _arrow(each: Changed) -> str:
    return f"{clip(each.before)} → {clip(each.after)}"


def _few(lines: list[str]) -> list[str]:
    return [*lines[:MOST_SHOWN], f"… {len(lines) - MOST_SHOWN} more"] if len(lines) > MOST_SHOWN else lines


def _after(each: Compared) -> str:
    return clip(str(each.changes.after), WIDEST) if each.changes is not None else "unknown"


def _say_scenario(each: Compared, width: int) -> None:
    print_line(f"  Scenario: {clip(each.scenario)}")
    if each.changes is not None:
        print_line(f"    Before: {clip(str(each.changes.before), WIDEST)}")
    said = verdict(each)
    mark = click.style(f"✓ {said}", fg=GOOD) if each.is_same else click.style(f"⚠ {said}", fg=DOUBTFUL)
    print_line(f"    After:  {_after(each).ljust(width)}{mark}")
    for title, lines in sections(each):
        print_line(f"    {title}:")
        for line in lines:
            print_line(f"      {line}")
    for note in notes(each):
        print_line(f"    note: {note}")
    print_line()
