"""`gert scenario`: make scenarios, see which there are, and say which of them are golden."""

import asyncio
import os

import click
import msgspec

from gert.ecosystem.host.run.options import Recorded
from gert.ecosystem.host.scenarios.curate import Curated, Entry, demote, entries, entry_of, locate, promote
from gert.ecosystem.host.scenarios.folders import Folder
from gert.ecosystem.host.scenarios.retrace import find_record, retrace
from gert.ecosystem.host.scenarios.scaffold import scaffold
from gert.ecosystem.surfaces.cli.render.output import plural, say, say_json, say_table
from gert.ecosystem.surfaces.cli.render.scenario_text import documents, say_scenario
from gert.ecosystem.surfaces.cli.render.text import DOUBTFUL, GOOD, QUIET, clip
from gert.errors import UsageError
from gert.kernel.foundation.text import printable

COLOURS = {"golden": GOOD, "archived": QUIET, "by hand": None}
WIDEST = 60

_as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
_runbook = click.option("--runbook", metavar="FILE", help="The runbook it belongs to.")


@click.group(epilog="Example: gert scenario promote recorded/srv1-incident --name healthy-restart")
def command() -> None:
    """Make, list, promote and demote scenarios.

    A scenario is a folder with the answers of one run. Those of `check.yaml` lie in `scenarios/check/<name>/` next to
    it. `gert test` and `gert diff` take the golden ones: promoted, or written by hand.
    """


@command.command(epilog="Example: gert scenario new runbooks/check.yaml cold-cache --run 20260228-143000-123-abc123")
@click.argument("runbook", metavar="RUNBOOK")
@click.argument("name", metavar="NAME")
@click.option("--run", "run_id", metavar="ID", help="Make it from this recorded run.")
@click.option("--trace", metavar="FILE|DIR", help="Make it from the run of this trace.")
@click.option("--state-dir", metavar="DIR", help="Where runs are kept; the project or your state folder otherwise.")
@click.option("--force", is_flag=True, help="Even if the runbook has changed since that run.")
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
    """Make a scenario NAME for RUNBOOK: stubs to fill in, or the answers of a run that was recorded.

    A run is driven again by its own answers; nothing is started. Its scenario is archived until it is promoted.
    """
    if run_id is not None and trace is not None:
        raise UsageError("expected `--run` or `--trace`, found both")
    if run_id is None and trace is None:
        if force or state_dir is not None:
            raise UsageError("`--force` and `--state-dir` are about a recorded run", hint="name it with --run")
        folder = scaffold(runbook, name)
        if as_json:
            say_json({"folder": folder.path, "runbook": runbook, "recorded": None})
            return 0
        say(f"{click.style('✓', fg=GOOD)} {printable(folder.path)}: stubs for every input and question")
        say(f"  fill them in, then `gert test {printable(runbook)} --scenario {printable(name)}`")
        return 0
    environ = dict(os.environ)

    async def make() -> tuple[str, Recorded]:
        record = await find_record(run_id, trace, runbook, state_dir, environ)
        return record.run_id, await retrace(runbook, name, record, environ, force=force)

    source, made = asyncio.run(make())
    if as_json:
        say_json({"folder": made.folder, "runbook": runbook, "recorded": source, "differs": made.differs})
        return 0
    say(f"{click.style('✓', fg=GOOD)} {printable(made.folder)}: recorded from run {printable(source)}")
    if made.differs:
        say(f"  {click.style('it does not replay to the same:', fg=DOUBTFUL)} {clip(made.differs)}")
    else:
        say(f"  it replays to the same; `gert scenario promote {printable(made.folder)}` makes it golden")
    return 0


@command.command(name="promote", epilog="Example: gert scenario promote recorded/srv1-incident --name healthy-restart")
@click.argument("named", metavar="NAME|DIR")
@click.option("--name", metavar="NAME", help="What it is called from now on.")
@_runbook
@_as_json
def promote_command(named: str, name: str | None, runbook: str | None, as_json: bool) -> int:
    """Make a scenario golden, so that `gert test` and `gert diff` run it.

    A folder that lies elsewhere is copied to its runbook: the one it was recorded from, or the one --runbook names.
    """
    return _say_curated(promote(_named(named, runbook), name=name, runbook=runbook), as_json=as_json)


@command.command(name="demote", epilog="Example: gert scenario demote healthy-restart")
@click.argument("named", metavar="NAME|DIR")
@_runbook
@_as_json
def demote_command(named: str, runbook: str | None, as_json: bool) -> int:
    """Archive a scenario: it stays where it is, and runs only with `--all`."""
    return _say_curated(demote(locate(named, runbook)), as_json=as_json)


@command.command(name="list", epilog="Example: gert scenario list runbooks/check.yaml --golden")
@click.argument("names", nargs=-1, metavar="[RUNBOOK|DIR]...")
@click.option("--golden", is_flag=True, help="Only those that run by default.")
@_as_json
def list_command(names: tuple[str, ...], golden: bool, as_json: bool) -> int:
    """List the scenarios of runbooks, or everything below folders; below this one where none is named."""
    found = [each for each in entries(names or (".",)) if not (golden and each.kind == "archived")]
    if as_json:
        say_json([msgspec.to_builtins(each) for each in found])
        return 0
    if not found:
        say("No scenarios found.")
        say(f"  {click.style('hint:', fg='cyan')} `gert scenario new` makes one, `gert exec --record DIR` records one")
        return 0
    headings = ("runbook", "scenario", "standing", "expects", "recorded", "description")
    say_table(headings, [_row(each) for each in found])
    say(plural(len(found), "scenario"))
    return 0


@command.command(name="show", epilog="Example: gert scenario show healthy-restart")
@click.argument("named", metavar="NAME|DIR")
@_runbook
@_as_json
def show_command(named: str, runbook: str | None, as_json: bool) -> int:
    """Show what a scenario answers and what is expected of it."""
    folder = locate(named, runbook)
    entry = entry_of(folder)
    if as_json:
        scenario, test = documents(folder)
        say_json({**msgspec.to_builtins(entry), "answers": scenario, "expectations": test})
    else:
        say_scenario(folder, entry)
    return 0


def _named(named: str, runbook: str | None) -> Folder:
    """A folder may lie anywhere; a bare name is looked for at the runbook, if one is named."""
    return locate(named) if os.path.isdir(named) else locate(named, runbook)


def _say_curated(done: Curated, *, as_json: bool) -> int:
    if as_json:
        say_json(msgspec.to_builtins(done))
        return 0
    standing = "golden" if done.golden else "archived"
    already = "" if done.changed else " already"
    say(f"{click.style('✓', fg=GOOD)} {printable(done.folder)} is {standing}{already}")
    if done.moved_from is not None:
        say(f"  from {printable(done.moved_from)}")
    if done.rewritten:
        say(f"  {click.style('note:', fg=DOUBTFUL)} its test was written anew: comments in it are lost")
    return 0


def _row(each: Entry) -> list[tuple[str, str | None]]:
    if each.problem is not None:
        standing: tuple[str, str | None] = ("unreadable", DOUBTFUL)
    else:
        standing = (each.kind, COLOURS[each.kind])
    return [
        (each.runbook or "none", None),
        (each.scenario, None),
        standing,
        (clip(each.expects or "", WIDEST), None),
        (clip(each.recorded or "", 40).partition(".")[0], QUIET),
        (clip(" ".join((each.problem or each.description or "").split()), WIDEST), None),
    ]
