"""`gert diff`: whether what happened before would still come to the same."""

from typing import Any

import click
import msgspec

from gert.ecosystem.host.scenarios.compare import Compared, Comparison, chosen, compare
from gert.ecosystem.surfaces.cli.render.diff_markdown import markdown
from gert.ecosystem.surfaces.cli.render.diff_text import say_comparison
from gert.ecosystem.surfaces.cli.render.output import say, say_json
from gert.errors import UsageError


@click.command(epilog="Example: gert diff runbooks/restart-pod.yaml --against main --markdown")
@click.argument("runbook", metavar="RUNBOOK")
@click.option("--scenario", "names", multiple=True, metavar="NAME|DIR", help="Only this scenario; may be repeated.")
@click.option("--all", "include_archived", is_flag=True, help="Archived scenarios, too.")
@click.option("--against", metavar="REV", help="Compare with the runbook at this git revision instead.")
@click.option("--json", "as_json", is_flag=True, help="Print the changes as JSON.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print them for a pull request.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when something changed.")
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

    Each is held against the trace of the run it was recorded from, or against its test where there is none. With
    `--against`, the runbook with its tools and policies is taken from git, and the same scenarios run on both.
    Nothing is started and nothing is written. Exits with 0 also when something changed, unless --exit-code is given.
    """
    if as_json and as_markdown:
        raise UsageError("expected `--json` or `--markdown`, found both")
    folders = chosen(runbook, names, include_archived=include_archived)
    found = compare(runbook, folders, against=against)
    if as_json:
        say_json(_document(found))
    elif as_markdown:
        say(markdown(found))
    else:
        say_comparison(found)
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
