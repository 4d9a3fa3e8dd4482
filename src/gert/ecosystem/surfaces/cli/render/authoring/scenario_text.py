"""A scenario as text: its inputs, answers and expectations."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from gert.ecosystem.host.config.files import read_map
from gert.ecosystem.host.scenarios.curate import ScenarioInfo
from gert.ecosystem.host.scenarios.folders import Folder
from gert.ecosystem.surfaces.cli.render.output import plural, print_line
from gert.ecosystem.surfaces.cli.render.text import LONGEST_NAME, clip, value_text
from gert.kernel.runbook.tree import Map

MOST_SHOWN: Final = 30
WIDEST: Final = 100
SECTIONS: Final = {
    "inputs": "Inputs",
    "input_answers": "Resolved inputs",
    "tool_responses": "Tools answer",
    "extension_responses": "Extensions answer",
    "evidence": "Evidence",
    "approvals": "Approvals",
}
_NOT_EXPECTED: Final = frozenset({"description", "golden", "extensions", "tags"})


def documents(folder: Folder) -> tuple[Map, Map | None]:
    """Read the files of a scenario."""
    test = read_map(folder.test, "expectations") if folder.has_test else None
    return read_map(folder.scenario, "answers"), test


def print_scenario(folder: Folder, entry: ScenarioInfo) -> None:
    """Print a scenario in brief."""
    scenario, test = documents(folder)
    print_line(f"{click.style(clip(entry.scenario), bold=True)} ({entry.kind})")
    for title, text in (("folder", entry.folder), ("runbook", entry.runbook), ("recorded", entry.recorded)):
        if text is not None:
            print_line(f"  {title + ':':<12}{clip(text)}")
    if entry.description is not None:
        print_line(f"  {clip(' '.join(entry.description.split()))}")
    for section, title in SECTIONS.items():
        given = scenario.get(section)
        if isinstance(given, Mapping) and given:
            _say_lines(title, _lines(section, given))
    stopped = scenario.get("cancelled")
    if isinstance(stopped, Mapping):
        _say_lines("Stopped", [value_text(stopped.get("reason"), WIDEST)])
    expected = {name: value for name, value in (test or {}).items() if name not in _NOT_EXPECTED}
    wanted = [f"{clip(name, LONGEST_NAME)}: {value_text(value, WIDEST)}" for name, value in expected.items()]
    _say_lines("Expects", wanted or ["that it completes"])


def _say_lines(title: str, lines: list[str]) -> None:
    print_line(f"  {title}:")
    for line in lines[:MOST_SHOWN]:
        print_line(f"    {line}")
    if len(lines) > MOST_SHOWN:
        print_line(f"    … {len(lines) - MOST_SHOWN} more: `--json` has them all")


def _lines(section: str, given: Mapping[str, Any]) -> list[str]:
    if section in ("inputs", "input_answers"):
        return [f"{clip(name, LONGEST_NAME)} = {value_text(value, WIDEST)}" for name, value in given.items()]
    return [f"{clip(key, LONGEST_NAME)}: {_brief(answers)}" for key, answers in given.items()]


def _brief(answers: Any) -> str:
    """Summarize an answer, or the number of answers and the first of them."""
    if isinstance(answers, list):
        first = f", first {_brief(answers[0])}" if answers else ""
        return plural(len(answers), "answer") + first if len(answers) != 1 else _brief(answers[0])
    if not isinstance(answers, Mapping):
        return value_text(answers, WIDEST)
    return clip(", ".join(_parts(answers)), WIDEST)


def _parts(answer: Mapping[str, Any]) -> Iterator[str]:
    for name, value in answer.items():
        text = " ".join(value_text(value, WIDEST).split())
        yield f"{clip(name, LONGEST_NAME)} {text}" if text else f"{clip(name, LONGEST_NAME)} empty"
