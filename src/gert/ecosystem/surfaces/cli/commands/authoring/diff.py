"""`gert diff`: replay golden scenarios and show what changed."""

from typing import Any

import click
import msgspec

from gert.ecosystem.host.scenarios.compare_scenarios import Compared, Comparison, compare, select_scenarios
from gert.ecosystem.surfaces.cli.render.authoring.diff_markdown import markdown
from gert.ecosystem.surfaces.cli.render.authoring.diff_text import print_comparison
from gert.ecosystem.surfaces.cli.render.output import print_json, print_line
from gert.errors import UsageError


@click.command(epilog="Example: gert diff runbooks/restart-pod.yaml --against main --markdown")
@click.argument("runbook", metavar="RUNBOOK")
@click.option(
    "--scenario", "names", multiple=True, metavar="NAME|DIR", help="Compare only this scenario; may be repeated."
)
@click.option("--all", "include_archived", is_flag=True, help="Include archived scenarios.")
@click.option("--against", metavar="REV", help="Compare with the runbook at this git revision.")
@click.option("--json", "as_json", is_flag=True, help="Print the changes as JSON.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the changes as Markdown for a pull request.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 if anything changed.")
def command(
    runbook: str,
    names: tuple[str, ...],
    include_archived: bool,
    against: str | None,
    as_json: bool,
    as_markdown: bool,
    exit_code: bool,
) -> int:
    """Replay the golden scenarios of RUNBOOK and show what changed since they were recorded.

    Each scenario is compared with the trace it was recorded from, or with its test if there is no trace. With
    `--against`, gert reads the runbook, its tools and policies at that git revision and replays the same scenarios on
    both. No tool is called and no file is written. Exit code: 0, or 1 with --exit-code if anything changed.
    """
    if as_json and as_markdown:
        raise UsageError("expected `--json` or `--markdown`, found both")
    folders = select_scenarios(runbook, names, include_archived=include_archived)
    found = compare(runbook, folders, against=against)
    if as_json:
        print_json(_document(found))
    elif as_markdown:
        print_line(markdown(found))
    else:
        print_comparison(found)
    return 1 if exit_code and found.changed else 0


def _document(found: Comparison) -> dict[str, Any]:
    return {
        "runbook": found.runbook,
        "file": found.file,
        "against": found.against,
        "commit": found.commit,
        "scenarios": [_scenario(each) for each in found.compared],
        "unchanged": len(found.compared) - found.changed,
        "changed": found.changed,
    }


def _scenario(each: Compared) -> dict[str, Any]:
    said: dict[str, Any] = msgspec.to_builtins(each)
    changes = said.pop("changes") or {"before": None, "after": None}
    return {
        "scenario": said.pop("scenario"),
        "folder": said.pop("folder"),
        "same": each.is_same,
        "baseline": said.pop("baseline"),
        "before": changes.pop("before"),
        "after": changes.pop("after"),
        "changes": {name: value for name, value in changes.items() if value not in (None, False, [], ())},
        **said,
    }
