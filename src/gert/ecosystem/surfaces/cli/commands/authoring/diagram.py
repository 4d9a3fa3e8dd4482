"""`gert diagram`: draw a runbook, or a run with the way it took."""

import os
from typing import Final

import click

from gert.ecosystem.host.diagram.draw import FORMATS, draw, run_outline, runbook_outline
from gert.ecosystem.host.runs.traces import names_run
from gert.ecosystem.surfaces.cli.options import open_runs
from gert.ecosystem.surfaces.cli.render.output import print_line, print_written
from gert.errors import UsageError
from gert.kernel.foundation.text import os_reason

_FENCE: Final = "```mermaid\n"
_MARKS: Final = (b"<svg ", b"flowchart ", b"digraph ", _FENCE.encode())
"""How a diagram begins."""

_MARKDOWN: Final = (".md", ".markdown")
_ENDINGS: Final = {
    ".svg": "svg",
    ".dot": "dot",
    ".gv": "dot",
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    **dict.fromkeys(_MARKDOWN, "mermaid"),
}
"""The formats of files, by how their names end."""


@click.command(name="diagram", epilog="Example: gert diagram runbooks/restart-pod.yaml -o restart.svg")
@click.argument("runbook", required=False, metavar="[RUNBOOK|RUN]")
@click.option("--run", "run_id", metavar="RUN", help="Run, in place of the argument.")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    help="Output format (default: that of FILE: .svg, .dot, .gv, .mmd, .mermaid or .md; else mermaid).",
)
@click.option(
    "--output",
    "-o",
    "file",
    metavar="FILE",
    help="Write to FILE, new or a diagram to draw again (default: standard output).",
)
@click.option("--policy", "policies", multiple=True, metavar="FILE", help="Add a policy file or folder.")
@click.option("--state-dir", metavar="DIR", help="State directory (default: the project's, or your own).")
@click.option("--db", metavar="FILE", help="Read the run from this SQLite ledger.")
@click.option("--dsn", metavar="DSN", help="Read the run from this Postgres ledger; env:NAME reads a variable.")
def command(
    runbook: str | None,
    run_id: str | None,
    form: str | None,
    file: str | None,
    policies: tuple[str, ...],
    state_dir: str | None,
    db: str | None,
    dsn: str | None,
) -> int:
    """Draw a runbook, or a run with the path it took: steps, branches, lanes, loops, approvals and risk.

    RUN is the id of a run, a unique prefix of it, or `last`; a file of that name is `./last`. The colour of a border is
    the risk, and ⚠ an approval; a box is around a loop, a group or lanes. In a run, dotted lines were not taken, and
    steps are coloured by their result. No step is executed.
    """
    if runbook is not None and run_id is None and names_run(runbook):
        runbook, run_id = None, runbook
    if (runbook is None) == (run_id is None):
        raise UsageError("expected a runbook or a run", hint="name one of them: a file, or a run such as `last`")
    ending = os.path.splitext(file or "")[1].lower()
    form = _form(form, ending, file)
    if run_id is not None:
        with open_runs(state_dir, db, dsn) as runs:
            outline = run_outline(runs, runs.find(run_id))
    else:
        outline = runbook_outline(runbook or "", policies)
    text = draw(outline, form)
    if ending in _MARKDOWN:
        text = f"{_FENCE}{text}```\n"
    if file is None:
        print_line(text.removesuffix("\n"))
        return 0
    if os.path.isfile(file) and not _is_diagram(file):
        raise UsageError(f"`{file}` exists already, and is not a diagram", hint="choose another file")
    try:
        with open(file, "w", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as problem:
        raise UsageError(f"cannot write `{file}`: {os_reason(problem)}") from None
    print_written(file)
    return 0


def _form(form: str | None, ending: str, file: str | None) -> str:
    """The format that was asked for, by option or by the ending of the file."""
    named = _ENDINGS.get(ending)
    if form is not None and named not in (None, form):
        raise UsageError(
            f"`{file}` is the name of a file of format `{named}`, and `--format` is `{form}`",
            hint="leave --format out, or choose another ending",
        )
    return form or named or "mermaid"


def _is_diagram(file: str) -> bool:
    """Whether a file is a diagram, which may be drawn again, or empty; no other file is overwritten."""
    try:
        with open(file, "rb") as opened:
            begin = opened.read(max(map(len, _MARKS)))
    except OSError:
        return False
    return not begin or begin.startswith(_MARKS)
