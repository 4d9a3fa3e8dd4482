"""`gert validate`: check documents and print every finding with its position."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import click

from gert.ecosystem.host.config.workspace import Checked, Workspace
from gert.ecosystem.host.operations.validation import is_valid, passes, validation_of
from gert.ecosystem.surfaces.cli.render.output import folded, plural, print_json, print_line
from gert.errors import UsageError
from gert.kernel.foundation.columns import column_count
from gert.kernel.foundation.text import printable
from gert.kernel.runbook.document import DOCUMENT_KINDS
from gert.kernel.runbook.finding import Finding, Severity
from gert.kernel.runbook.tree_builder import DEFAULT_LIMITS

COLOURS: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "blue"}
STDIN: Final = "-"
WIDEST_LINE: Final = 160
_INDENT: Final = 4


@click.command(epilog="Example: gert validate runbooks/ tools/curl.tool.yaml --strict")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "sarif"]),
    default="text",
    show_default=True,
    help="Output format.",
)
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.option("--quiet", "-q", is_flag=True, help="Print only findings.")
@click.option(
    "--kind",
    type=click.Choice(list(DOCUMENT_KINDS)),
    help="Document kind (default: detected).",
)
def command(files: tuple[str, ...], as_json: bool, form: str, strict: bool, quiet: bool, kind: str | None) -> int:
    """Validate runbooks, tools, policies, projects, scenarios and tests.

    FILE may be a folder: gert validates every gert document in it, and every YAML file in `runbooks/`, `tools/` and
    `policies/` of a project. `-` reads a document from standard input.
    """
    if as_json and form == "sarif":
        raise UsageError("expected `--json` or `--format sarif`, found both", hint="pass only one of them")
    workspace = Workspace()
    found = _check(workspace, files, kind)
    if as_json or form != "text":
        checked = list(found)
        counted = Counter(finding.severity for each in checked for finding in each.findings)
        ok = passes(counted, strict=strict)
        if as_json or form == "json":
            print_json(validation_of(checked, counted, valid=ok, strict=strict, skipped=workspace.skipped))
        else:
            from gert.ecosystem.surfaces.cli.render.authoring.sarif import sarif

            print_json(sarif(checked))
    else:
        ok = passes(_print(workspace, found, quiet=quiet, strict=strict), strict=strict)
    return 0 if ok else 1


def _check(workspace: Workspace, files: tuple[str, ...], kind: str | None) -> Iterator[Checked]:
    for file in files:
        if file == STDIN:
            source = sys.stdin.buffer.read(DEFAULT_LIMITS.size + 1)
            yield workspace.check("<stdin>", source=source, kind=kind)
        elif kind is not None:
            yield workspace.check(file, kind=kind)
        else:
            yield from workspace.check_all([file])


def _print(workspace: Workspace, found: Iterable[Checked], *, quiet: bool, strict: bool) -> Counter[Severity]:
    """Print each file as soon as it is checked and keep only the counts: a folder may hold thousands of files."""
    counted: Counter[Severity] = Counter()
    files = unfinished = 0
    for each in found:
        files += 1
        unfinished += not each.document.is_checked
        counted.update(finding.severity for finding in each.findings)
        for finding in each.findings:
            if not (quiet and finding.severity is Severity.NOTE):
                _print_finding(each, finding)
        if not quiet:
            _print_verdict(each, ok=is_valid(each, strict=strict))
    skipped = workspace.skipped
    if not quiet and (files > 1 or skipped):
        said = f"{plural(counted[Severity.ERROR], 'error')}, {plural(counted[Severity.WARNING], 'warning')}"
        if counted[Severity.NOTE]:
            said += f", {plural(counted[Severity.NOTE], 'note')}"
        others = f"; skipped {plural(skipped, 'YAML file')} of other programs" if skipped else ""
        print_line(f"{plural(files, 'file')}: {said}{others}")
    if not quiet and unfinished:
        those = "this file" if files == 1 else plural(unfinished, "file")
        print_line(f"fix the errors first: they prevented further checks of {those}")
    return counted


def _print_verdict(each: Checked, *, ok: bool) -> None:
    mark = click.style("✓", fg="green") if ok else click.style("✗", fg="red")
    print_line(f"{mark} {printable(each.file)} ({each.document.kind})")
    for verb, is_required in (("requires", True), ("can use", False)):
        if needs := [need for need in each.secrets if need.required is is_required]:
            listed = ", ".join(f"{need.env} ({_presence(need.present)})" for need in needs)
            print_line(f"  {verb} {plural(len(needs), 'secret')}: {listed}")


def _presence(present: bool | None) -> str:
    return {True: "set", False: "missing", None: "unknown"}[present]


def _print_finding(each: Checked, finding: Finding) -> None:
    colour = COLOURS[finding.severity]
    place = f"{printable(each.file)}:{finding.line}:{finding.column}"
    label = click.style(f"{finding.severity.word}[{finding.rule}]", fg=colour, bold=True)
    message = folded(printable(finding.message), len(f"{place}: {click.unstyle(label)}: "), _INDENT)
    print_line(f"{click.style(place, bold=True)}: {label}: {message}")
    source = printable(each.document.tree.source_line(finding.line).replace("\t", " "))
    if source.strip():
        # A line may be megabytes long; show the part around the column.
        start = max(0, finding.column - WIDEST_LINE // 2)
        number = str(finding.line)
        print_line(f"  {number} | {source[start : start + WIDEST_LINE]}")
        before = " " * column_count(source[start : finding.column - 1])
        print_line(f"  {' ' * len(number)} | {before}{click.style('^', fg=colour, bold=True)}")
    if finding.hint:
        gutter = f"  {' ' * len(str(finding.line))} = "
        hint = folded(printable(finding.hint), len(gutter) + len("hint: "), len(gutter) + len("hint: "))
        print_line(f"{gutter}{click.style('hint:', fg='cyan')} {hint}")
