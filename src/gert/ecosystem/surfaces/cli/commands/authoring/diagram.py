"""`gert diagram`: draw a runbook, or a run with the way it took."""

import click

from gert.ecosystem.host.diagram.draw import FORMATS, draw, run_outline, runbook_outline
from gert.ecosystem.surfaces.cli.options import open_runs
from gert.ecosystem.surfaces.cli.render.output import print_line
from gert.errors import UsageError


@click.command(name="diagram", epilog="Example: gert diagram runbooks/restart-pod.yaml --format svg -o restart.svg")
@click.argument("runbook", required=False, metavar="[RUNBOOK]")
@click.option("--run", "run_id", metavar="ID", help="Draw this run, with the way it took.")
@click.option(
    "--format", "form", type=click.Choice(list(FORMATS)), default="mermaid", show_default=True, help="Output format."
)
@click.option("--output", "-o", "file", metavar="FILE", help="Write to FILE (default: standard output).")
@click.option("--policy", "policies", multiple=True, metavar="FILE", help="Add a policy file or folder.")
@click.option("--state-dir", metavar="DIR", help="State directory (default: the project's, or your own).")
@click.option("--db", metavar="FILE", help="Read the run from this SQLite ledger.")
@click.option("--dsn", metavar="DSN", help="Read the run from this Postgres ledger; env:NAME reads a variable.")
def command(
    runbook: str | None,
    run_id: str | None,
    form: str,
    file: str | None,
    policies: tuple[str, ...],
    state_dir: str | None,
    db: str | None,
    dsn: str | None,
) -> int:
    """Draw RUNBOOK as text: steps, branches, lanes, loops, approvals and risk.

    The colour of a border is the risk; ⚠ is an approval, a dashed border a person or lanes. With --run, the result of
    each step is shown as well. No step is executed.
    """
    if (runbook is None) == (run_id is None):
        raise UsageError("expected a RUNBOOK or `--run`", hint="pass exactly one of them")
    if run_id is not None:
        with open_runs(state_dir, db, dsn) as runs:
            outline = run_outline(runs, runs.find(run_id))
    else:
        outline = runbook_outline(runbook or "", policies)
    text = draw(outline, form)
    if file is None:
        print_line(text.removesuffix("\n"))
        return 0
    try:
        with open(file, "w", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as problem:
        raise UsageError(f"cannot write `{file}`: {(problem.strerror or str(problem)).lower()}") from None
    return 0
