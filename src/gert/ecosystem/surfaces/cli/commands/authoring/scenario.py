"""`gert scenario`: create, list, show, promote and demote scenarios."""

import asyncio
import os

import click
import msgspec

from gert.ecosystem.host.run.options import Recorded
from gert.ecosystem.host.scenarios.curate import (
    Curated,
    ScenarioInfo,
    demote,
    list_scenarios,
    locate,
    promote,
    scenario_info,
)
from gert.ecosystem.host.scenarios.folders import Folder
from gert.ecosystem.host.scenarios.retrace import find_record, retrace
from gert.ecosystem.host.scenarios.scaffold import scaffold
from gert.ecosystem.surfaces.cli.render.authoring.scenario_text import documents, print_scenario
from gert.ecosystem.surfaces.cli.render.output import plural, print_json, print_line
from gert.ecosystem.surfaces.cli.render.table import Cell, print_table
from gert.ecosystem.surfaces.cli.render.text import DOUBTFUL, GOOD, QUIET, clip
from gert.errors import UsageError
from gert.kernel.foundation.text import printable

COLOURS = {"golden": GOOD, "archived": QUIET, "by hand": None}
WIDEST = 60

_as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
_runbook = click.option("--runbook", metavar="FILE", help="Runbook of the scenario.")


@click.group(epilog="Example: gert scenario promote recorded/srv1-incident --name healthy-restart")
def command() -> None:
    """Create, list, show, promote and demote scenarios.

    A scenario is a folder with the answers of one run. The scenarios of `check.yaml` are in `scenarios/check/<name>/`
    next to it. `gert test` and `gert diff` run the golden ones: those that were promoted or written by hand.
    """


@command.command(epilog="Example: gert scenario new runbooks/check.yaml cold-cache --run 20260228-143000-123-abc123")
@click.argument("runbook", metavar="RUNBOOK")
@click.argument("name", metavar="NAME")
@click.option("--run", "run_id", metavar="ID", help="Create the scenario from this run.")
@click.option("--trace", metavar="FILE|DIR", help="Create the scenario from this trace.")
@click.option("--state-dir", metavar="DIR", help="State directory (default: the project's, or your own).")
@click.option("--force", is_flag=True, help="Create it even if the runbook has changed since the run.")
@_as_json
def new(
    runbook: str,
    name: str,
    run_id: str | None,
    trace: str | None,
    state_dir: str | None,
    force: bool,
    as_json: bool,
) -> int:
    """Create scenario NAME for RUNBOOK: stubs to fill in, or the answers of a recorded run.

    gert replays the run with its recorded answers; no tool is called. The scenario stays archived until you promote it.
    """
    if run_id is not None and trace is not None:
        raise UsageError("expected `--run` or `--trace`, found both")
    if run_id is None and trace is None:
        if force or state_dir is not None:
            raise UsageError("`--force` and `--state-dir` require `--run` or `--trace`", hint="name a run with --run")
        folder = scaffold(runbook, name)
        if as_json:
            print_json({"folder": folder.path, "runbook": runbook, "recorded": None})
            return 0
        print_line(f"{click.style('✓', fg=GOOD)} {printable(folder.path)}: stubs for every input and answer")
        print_line(f"  fill them in, then run `gert test {printable(runbook)} --scenario {printable(name)}`")
        return 0
    environ = dict(os.environ)

    async def make() -> tuple[str, Recorded]:
        record = await find_record(run_id, trace, runbook, state_dir, environ)
        return record.run_id, await retrace(runbook, name, record, environ, force=force)

    source, made = asyncio.run(make())
    if as_json:
        print_json({"folder": made.folder, "runbook": runbook, "recorded": source, "differs": made.differs})
        return 0
    print_line(f"{click.style('✓', fg=GOOD)} {printable(made.folder)}: recorded from run {printable(source)}")
    if made.differs:
        print_line(f"  {click.style('its replay differs from the run:', fg=DOUBTFUL)} {clip(made.differs)}")
    else:
        print_line(f"  its replay equals the run; `gert scenario promote {printable(made.folder)}` makes it golden")
    return 0


@command.command(name="promote", epilog="Example: gert scenario promote recorded/srv1-incident --name healthy-restart")
@click.argument("named", metavar="NAME|DIR")
@click.option("--name", metavar="NAME", help="New name of the scenario.")
@_runbook
@_as_json
def promote_command(named: str, name: str | None, runbook: str | None, as_json: bool) -> int:
    """Make a scenario golden, so that `gert test` and `gert diff` run it.

    gert copies a folder from elsewhere to its runbook: the one it was recorded from, or the one of --runbook.
    """
    return _say_curated(promote(_named(named, runbook), name=name, runbook=runbook), as_json=as_json)


@command.command(name="demote", epilog="Example: gert scenario demote healthy-restart")
@click.argument("named", metavar="NAME|DIR")
@_runbook
@_as_json
def demote_command(named: str, runbook: str | None, as_json: bool) -> int:
    """Archive a scenario: it keeps its folder and runs only with `--all`."""
    return _say_curated(demote(locate(named, runbook)), as_json=as_json)


@command.command(name="list", epilog="Example: gert scenario list runbooks/check.yaml --golden")
@click.argument("names", nargs=-1, metavar="[RUNBOOK|DIR]...")
@click.option("--golden", is_flag=True, help="Only golden scenarios.")
@_as_json
def list_command(names: tuple[str, ...], golden: bool, as_json: bool) -> int:
    """List the scenarios of runbooks or folders (default: the current folder)."""
    found = [each for each in list_scenarios(names or (".",)) if not (golden and each.kind == "archived")]
    if as_json:
        print_json(found)
        return 0
    if not found:
        print_line("No scenarios found.")
        print_line(
            f"  {click.style('hint:', fg='cyan')} create one with `gert scenario new` or `gert exec --record DIR`"
        )
        return 0
    headings = ("runbook", "scenario", "status", "expects", "recorded", "description")
    print_table(headings, [_row(each) for each in found], ("description", "recorded", "runbook"))
    print_line(plural(len(found), "scenario"))
    return 0


@command.command(name="show", epilog="Example: gert scenario show healthy-restart")
@click.argument("named", metavar="NAME|DIR")
@_runbook
@_as_json
def show_command(named: str, runbook: str | None, as_json: bool) -> int:
    """Show the answers and expectations of a scenario."""
    folder = locate(named, runbook)
    entry = scenario_info(folder)
    if as_json:
        scenario, test = documents(folder)
        print_json({**msgspec.to_builtins(entry), "answers": scenario, "expectations": test})
    else:
        print_scenario(folder, entry)
    return 0


def _named(named: str, runbook: str | None) -> Folder:
    """Find a scenario by folder, or by name among those of `runbook`."""
    return locate(named) if os.path.isdir(named) else locate(named, runbook)


def _say_curated(done: Curated, *, as_json: bool) -> int:
    if as_json:
        print_json(done)
        return 0
    status = "golden" if done.golden else "archived"
    verb = "is now" if done.changed else "is already"
    print_line(f"{click.style('✓', fg=GOOD)} {printable(done.folder)} {verb} {status}")
    if done.moved_from is not None:
        print_line(f"  from {printable(done.moved_from)}")
    if done.rewritten:
        print_line(f"  {click.style('note:', fg=DOUBTFUL)} its test was rewritten: comments in it are lost")
    return 0


def _row(each: ScenarioInfo) -> list[Cell]:
    return [
        each.runbook or "none",
        each.scenario,
        ("unreadable", DOUBTFUL) if each.problem is not None else (each.kind, COLOURS[each.kind]),
        clip(each.expects or "", WIDEST),
        (clip(each.recorded or "", 40).partition(".")[0], QUIET),
        clip(" ".join((each.problem or each.description or "").split()), WIDEST),
    ]
