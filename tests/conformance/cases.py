"""The cases of `conformance/validate`, and the findings they expect, read from their comments."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gert.kernel.runbook.finding import Finding, Severity
from gert.kernel.runbook.validate.catalogue import RULES

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "conformance" / "validate"

_TRAILING = re.compile(r"#\s*expect:\s*(.+?)\s*$")
_HEADER = re.compile(r"^#\s*expect-at\s+(\d+)(?::(\d+))?:\s*(.+?)\s*$")
_ITEM = re.compile(r'([YSJD]\d\d)(?:@(\d+))?\s+(error|warning|note)(?:\s+"([^"]*)")?(?:;\s*|$)')


@dataclass(frozen=True)
class Expected:
    """One finding a file expects; the column and the words only where they are pinned."""

    line: int
    rule: str
    severity: str
    column: int | None = None
    words: str | None = None

    def fits(self, finding: Finding) -> bool:
        """Whether a finding is the expected one."""
        return (
            (self.line, self.rule, self.severity) == (finding.line, finding.rule, finding.severity.word)
            and self.column in (None, finding.column)
            and (self.words is None or self.words in finding.message)
        )

    def __str__(self) -> str:
        place = f"{self.line}:{self.column}" if self.column is not None else f"{self.line}"
        words = f' "{self.words}"' if self.words is not None else ""
        return f"{place}: {self.rule} {self.severity}{words}"


def files(*folders: str) -> list[Path]:
    """Every document below folders of `conformance/validate`, in a stable order."""
    found = (file for folder in folders for file in (CASES / folder).rglob("*.y*ml"))
    return sorted(found, key=lambda file: file.as_posix())


def text_of(file: Path) -> str:
    """The text of a file with its own line ends."""
    return file.read_bytes().decode("utf-8")


def sentence(file: Path) -> str:
    """What the first line of a file says it shows."""
    first = re.split(r"\r\n|\n|\r", text_of(file), maxsplit=1)[0]
    return first.lstrip("# ").strip()


def expectations(text: str) -> list[Expected]:
    """The findings a document's comments ask for."""
    found: list[Expected] = []
    for number, line in enumerate(re.split(r"\r\n|\n|\r", text), start=1):
        if header := _HEADER.match(line):
            column = int(header[2]) if header[2] else None
            found += _items(header[3], int(header[1]), column)
        elif trailing := _TRAILING.search(line):
            found += _items(trailing[1], number, None)
    return found


def _items(text: str, line: int, column: int | None) -> Iterator[Expected]:
    at = 0
    while at < len(text):
        item = _ITEM.match(text, at)
        if item is None:
            raise ValueError(f"line {line}: cannot read the expectation `{text[at:]}`")
        rule, pinned, severity, words = item.groups()
        yield Expected(line, rule, severity, int(pinned) if pinned else column, words)
        at = item.end()


def difference(expected: list[Expected], found: list[Finding]) -> str:
    """What is missing and what is too much, one to a line; empty where the two agree.

    Notes never fail a check, so they count only in a file that expects one.
    """
    minds_notes = any(each.severity == "note" for each in expected)
    rest = [each for each in found if minds_notes or each.severity > Severity.NOTE]
    missing = []
    # The most particular expectations choose first, so that a plain one cannot take their finding.
    for each in sorted(expected, key=lambda e: (e.column is None) + (e.words is None)):
        match = next((finding for finding in rest if each.fits(finding)), None)
        if match is None:
            missing.append(f"  - expected {each}")
        else:
            rest.remove(match)
    surplus = [f"  + found    {f.line}:{f.column}: {f.rule} {f.severity.word}: {f.message}" for f in rest]
    return "\n".join([*sorted(missing), *surplus])


def rules_expected(paths: list[Path]) -> Counter[str]:
    """How often each rule is expected in some files."""
    return Counter(each.rule for path in paths for each in expectations(text_of(path)))


def params(paths: list[Path]) -> Any:
    """Files as test parameters; the id is the file's place and what it shows."""
    return [pytest.param(path, id=f"{path.relative_to(CASES)}: {sentence(path)}") for path in paths]


def objections(findings: list[Finding]) -> list[str]:
    """What is wrong with the form of findings, whatever they are about."""
    return [f"{each.rule} {each.line}:{each.column} {why}: {each.message!r}" for each in findings for why in _why(each)]


def _why(finding: Finding) -> Iterator[str]:
    if finding.rule not in RULES:
        yield "is not in the catalogue"
    if finding.line < 1 or finding.column < 1:
        yield "has no place"
    if not re.match(r"[a-z`0-9]", finding.message) or finding.message.endswith("."):
        yield "does not begin and end as messages do"
    if not (finding.message.isprintable() and (finding.hint is None or finding.hint.isprintable())):
        yield "is not one printable line"
    if re.search(r"\b(None|NoneType|Traceback)\b|object at 0x|[\[{(]'", finding.message):
        yield "speaks Python"
