"""The index of promises: every row has a place, and every place is real."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.conformance.cases import CASES, ROOT

CONFORMANCE = ROOT / "conformance"
TEXT = (CONFORMANCE / "README.md").read_text("utf-8")
AGENT = (CONFORMANCE / "agent-kernel.md").read_text("utf-8")
INDEX = TEXT.split("\n# Index of promises\n")[1].split("\n# Kept elsewhere\n")[0] + AGENT

# The headings of the agent kernel's contract; what is built later has an index of its own.
CONTRACT = (
    "Replay Policy",
    "Kernel Policy Modes",
    "Run Lifecycle Contracts",
    "Model Request Invariants",
    "Model Completion Metadata",
    "Model API Mode Defaults",
    "Tool Determinism Invariants",
    "Tool IO Policy Hooks",
    "Checkpoints and Artifacts",
    "Agent Observability",
    "Event Streaming and Leases",
    "Versioning and Compatibility Contracts",
)
# The sections of the runner-kernel interface that say what must hold.
RUNNER_KERNEL = ("RK1", "RK2", "RK3", "RK4", "data flow", "messages", "transport", "enforcement")
SECTION = re.compile(
    r"(kernel-v0|ecosystem-v0) §\d+(\.\d+)?|decision \d+|what must hold \d+|runner-kernel ("
    + "|".join(RUNNER_KERNEL)
    + ")|"
    + "|".join(map(re.escape, CONTRACT))
)

# What the index has to speak of; the rest of the specification is not built yet.
PROMISED = {
    *(f"kernel-v0 §{number}" for number in (3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 17)),
    *(f"ecosystem-v0 §{number}" for number in (2, 3, 4, 5, 6, 12, 13, 14, 15, 16, 18)),
    *CONTRACT,
    *(f"runner-kernel {name}" for name in RUNNER_KERNEL),
    *(f"what must hold {number}" for number in (*range(1, 10), *range(14, 19))),
    *(f"decision {number}" for number in (*range(5, 39), *range(40, 45), 46, 47, *range(48, 52), *range(52, 60))),
}


class Row(NamedTuple):
    """One promise, and the places that keep it."""

    section: str
    promise: str
    places: tuple[str, ...]


def rows() -> list[Row]:
    found = []
    for line in INDEX.splitlines():
        if not line.startswith("|") or line.startswith(("|---", "| Section |")):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert len(cells) == 3, f"a row has a section, a promise and a place: {line}"
        found.append(Row(cells[0], cells[1], tuple(place.strip() for place in cells[2].split(",") if place.strip())))
    return found


ROWS = rows()
PLACES = sorted({place for row in ROWS for place in row.places})
THEMES = sorted(
    folder.relative_to(CONFORMANCE).as_posix()
    for parent in (CONFORMANCE, CASES, CASES / "good", CASES / "bad")
    for folder in parent.iterdir()
    if folder.is_dir() and not folder.name.startswith((".", "_"))
)


def file_of(place: str) -> Path:
    path = place.strip("`").partition("::")[0]
    return (ROOT if path.startswith("tests/") else CONFORMANCE) / path


@cache
def names_in(file: Path) -> frozenset[str]:
    """The tests of a file and their classes, as pytest names them."""
    found = set()
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return frozenset(name for name in found if name.rpartition("::")[2].lower().startswith("test"))


def objection_to(place: str) -> str:
    """Why this is no place of a promise."""
    file, name = file_of(place), place.strip("`").partition("::")[2]
    if not file.is_file():
        return f"{place} is not there"
    if not file.is_relative_to(CONFORMANCE if not place.startswith("`tests/") else ROOT / "tests"):
        return f"{place} is in no folder for promises"
    if bool(name) != (file.suffix == ".py"):
        return f"{place}: a test is named, a case is a file"
    return f"{file.name} defines no {name}" if name and name not in names_in(file) else ""


class TestRows:
    def test_every_promise_has_a_section_and_a_place(self) -> None:
        odd = [
            row
            for row in ROWS
            if not SECTION.fullmatch(row.section)
            or not row.promise
            or not row.places
            or not all(re.fullmatch(r"`[^`\s]+`", place) for place in row.places)
        ]
        assert odd == []

    def test_no_promise_is_made_twice(self) -> None:
        assert [row for row, times in Counter((row.section, row.promise) for row in ROWS).items() if times > 1] == []

    def test_no_section_is_left_out(self) -> None:
        spoken_of = {re.sub(r"\.\d+$", "", row.section) for row in ROWS}
        assert spoken_of >= PROMISED


class TestPlaces:
    def test_every_place_is_real(self) -> None:
        assert [problem for place in PLACES if (problem := objection_to(place))] == []

    @pytest.mark.parametrize("theme", THEMES)
    def test_every_theme_is_spoken_of(self, theme: str) -> None:
        assert f"`{theme}/" in TEXT
