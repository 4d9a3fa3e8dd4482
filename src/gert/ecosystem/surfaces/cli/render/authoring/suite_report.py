"""The report of `gert test` and `gert policy test`: as text, JSON and JUnit XML."""

import difflib
import os
from collections.abc import Iterable, Iterator
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import click

from gert.ecosystem.host.scenarios.suite import UNUSED, Covered, Tested, report_of
from gert.ecosystem.surfaces.cli.render.output import plural, print_line, print_lines
from gert.errors import UsageError
from gert.kernel.foundation.text import os_reason, printable
from gert.kernel.scenario.coverage import Part

_MARKS = {
    "passed": ("✓", "green"),
    "failed": ("✗", "red"),
    "error": ("!", "red"),
    "skipped": ("-", None),
    "updated": ("✓", "yellow"),
}


class Report:
    """Collects results and prints them as they arrive."""

    def __init__(self, *, quiet: bool = False, verbose: bool = False) -> None:
        self.tests: list[Tested] = []
        self.coverage: list[Covered] = []
        self.seconds = 0.0
        self.stopped = False
        self._quiet = quiet
        self._verbose = verbose
        self._runbook: str | None = None

    def tested(self, tested: Tested, changed: Iterable[str] = ()) -> None:
        """Add the result of a scenario and print it, with the change of its test."""
        self.tests.append(tested)
        if self._quiet:
            return
        lines = list(self._lines(tested))
        if lines and tested.runbook != self._runbook:
            self._runbook = tested.runbook
            print_line(click.style(printable(tested.runbook or "without a runbook"), bold=True))
        print_lines((*lines, *changed))

    def covered(self, covered: Covered) -> None:
        """Add the coverage of a runbook."""
        self.coverage.append(covered)

    def count(self, *verdicts: str) -> int:
        """Count the scenarios with one of these verdicts."""
        return sum(1 for each in self.tests if each.verdict in verdicts)

    @property
    def is_passed(self) -> bool:
        """Whether no scenario failed; an updated one has not."""
        return not self.count("failed", "error")

    def _lines(self, tested: Tested) -> Iterator[str]:
        if tested.verdict == "skipped" and not self._verbose:
            return
        mark, colour = _MARKS[tested.verdict]
        name = printable(tested.scenario).ljust(36)
        ended = printable(tested.outcome or tested.status or "")
        yield f"  {click.style(mark, fg=colour)} {name} {_took(tested)}  {ended}".rstrip()
        if tested.message:
            yield f"      {printable(tested.message)}"
        for difference in tested.differences[: None if self._verbose else 1]:
            yield f"      {printable(str(difference))}"
            if difference.hint:
                yield f"      {click.style('hint:', fg='cyan')} {printable(difference.hint)}"
        if len(tested.differences) > 1 and not self._verbose:
            yield f"      and {plural(len(tested.differences) - 1, 'difference')} more (-v shows all)"
        if tested.hint:
            yield f"      {click.style('hint:', fg='cyan')} {printable(tested.hint)}"
        shows_all = self._verbose or tested.verdict == "failed"
        for note in tested.notes:
            if shows_all or note.startswith(UNUSED):
                yield f"      {click.style('note:', fg='yellow')} {printable(note)}"

    def summary(self, *, coverage: bool) -> Iterator[str]:
        """The coverage and the totals."""
        if coverage:
            yield from self._coverage()
        counts = [f"{self.count('passed')} passed"]
        failed, updated = self.count("failed", "error"), self.count("updated")
        counts += [f"{updated} updated"] if updated else []
        counts += [click.style(f"{failed} failed", fg="red")] if failed else []
        skipped = self.count("skipped")
        counts += [f"{skipped} archived (--all runs them)"] if skipped else []
        stopped = ", stopped at the first failure" if self.stopped else ""
        yield f"{', '.join(counts)} in {self.seconds:.2f} s{stopped}"

    def _coverage(self) -> Iterator[str]:
        for covered in sorted(self.coverage, key=lambda each: each.runbook):
            report = covered.report
            parts = {"steps": report.steps, "arms": report.arms, "outcomes": report.outcomes}
            shown = ", ".join(f"{name} {_share(part)}" for name, part in parts.items())
            mark = click.style("✓", fg="green") if report.is_complete else click.style("○", fg="yellow")
            yield f"{mark} {printable(covered.runbook)}: {shown}"
            for name, part in parts.items():
                yield from (f"    no scenario reaches {name[:-1]} {printable(each)}" for each in part.missed)

    def as_json(self, *, coverage: bool) -> dict[str, Any]:
        """The report as JSON."""
        document: dict[str, Any] = {**report_of(self.tests, self.seconds, stopped=self.stopped)}
        if coverage:
            document["coverage"] = [
                {"runbook": each.runbook, "complete": each.report.is_complete, **_parts(each)} for each in self.coverage
            ]
        return document


def _parts(covered: Covered) -> dict[str, Any]:
    report = covered.report
    parts = {"steps": report.steps, "arms": report.arms, "outcomes": report.outcomes}
    return {name: {"reached": part.reached, "total": part.total, "missed": part.missed} for name, part in parts.items()}


def _share(part: Part) -> str:
    percent = 100 if not part.total else 100 * part.reached // part.total
    return f"{part.reached}/{part.total} ({percent} %)"


def _took(tested: Tested) -> str:
    return f"{tested.seconds * 1000:5.0f} ms" if tested.verdict != "skipped" else "        "


def changes(path: str, before: str, after: str) -> Iterator[str]:
    """The diff of an updated file."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), path, path, n=1, lineterm="")
    for line in lines:
        colour = {"+": "green", "-": "red"}.get(line[:1])
        yield f"      {click.style(printable(line), fg=colour)}"


def write_junit(path: str, report: Report) -> None:
    """Write the report as JUnit XML."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(junit(report))
    except OSError as problem:
        raise UsageError(f"cannot write the report to `{path}`: {os_reason(problem)}") from None


def junit(report: Report) -> str:
    """The report as JUnit XML: one suite per runbook, one case per scenario."""
    suites: dict[str, list[Tested]] = {}
    for tested in report.tests:
        suites.setdefault(tested.runbook, []).append(tested)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites{_totals(report.tests)}>"]
    for runbook, tests in suites.items():
        lines.append(f"  <testsuite name={_attribute(runbook or 'without a runbook')}{_totals(tests)}>")
        lines += [line for tested in tests for line in _case(tested)]
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>", ""])


def _case(tested: Tested) -> Iterator[str]:
    stem = os.path.splitext(os.path.basename(tested.runbook))[0]
    head = f"<testcase classname={_attribute(stem)} name={_attribute(tested.scenario)}"
    head += f' time="{tested.seconds:.4f}"'
    if tested.verdict in ("passed", "updated"):
        yield f"    {head}/>"
        return
    yield f"    {head}>"
    if tested.verdict == "skipped":
        yield f"      <skipped message={_attribute(tested.message or '')}/>"
    elif tested.verdict == "error":
        yield f"      <error message={_attribute(tested.message or '')}/>"
    else:
        text = "\n".join(str(each) for each in tested.differences)
        first = text.partition("\n")[0]
        yield f"      <failure message={_attribute(first)}>{escape(_xml(text))}</failure>"
    yield "    </testcase>"


def _totals(tests: list[Tested]) -> str:
    count = {verdict: sum(1 for each in tests if each.verdict == verdict) for verdict in _MARKS}
    seconds = sum(each.seconds for each in tests)
    return (
        f' tests="{len(tests)}" failures="{count["failed"]}" errors="{count["error"]}"'
        f' skipped="{count["skipped"]}" time="{seconds:.4f}"'
    )


def _attribute(text: str) -> str:
    return quoteattr(_xml(text), {"\n": "&#10;", "\t": "&#9;", "\r": "&#13;"})


def _xml(text: str) -> str:
    """Replace characters that XML cannot hold, and those that could deceive a reader of the report."""
    return "".join(each if each in "\t\n\r" else printable(each) for each in text)
