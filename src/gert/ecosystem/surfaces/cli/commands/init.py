"""`gert init`: a project that validates, passes its tests and runs, or an agent that does, to begin with."""

import os
import shlex
from collections.abc import Iterator

import click

from gert.ecosystem.host.scaffold.agent_files import PROFILES, Profile
from gert.ecosystem.host.scaffold.agent_project import begin_agent_project
from gert.ecosystem.host.scaffold.starter_files import COURTESY, RUNBOOK, name_from, starter_files
from gert.ecosystem.host.scaffold.write_files import Placed, place
from gert.ecosystem.surfaces.cli.render.output import plural, say, say_json
from gert.errors import UsageError
from gert.kernel.foundation.names import is_safe_name
from gert.kernel.foundation.text import printable


@click.command(name="init", epilog="Example: gert init my-runbooks")
@click.argument("folder", metavar="DIR", required=False)
@click.option("--profile", type=click.Choice(PROFILES), help="Begin an agent project: guarded, or permissive.")
@click.option("--name", metavar="NAME", help="Name of the project; that of the folder when left out.")
@click.option("--force", is_flag=True, help="Replace files that are in the way.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def command(folder: str | None, profile: Profile | None, name: str | None, force: bool, as_json: bool) -> int:
    """Begin a project in DIR: a runbook, its tool, a policy, scenarios that cover all of it, and a CI workflow.

    DIR is made if it is not there; `.` and a folder under version control work as well. Nothing that is there is
    overwritten: where something is in the way, it is named and nothing is written. A README.md or .gitignore of
    your own stays as it is, also with --force.

    With --profile an agent project is begun instead, in the folder you are in unless DIR says another: `app.py`, which
    runs at once, and a README.md. A folder that is not empty is refused; with --force, files of these names are
    replaced.
    """
    if folder is None and profile is None:
        raise UsageError("missing argument `DIR`", hint="`.` is the folder you are in")
    folder = "." if folder is None else folder
    _require_text(folder)
    chosen = _name(name, folder)
    if profile is not None:
        placed = begin_agent_project(folder, profile, name=chosen, force=force)
    else:
        placed = place(os.path.normpath(folder), starter_files(chosen), yields=COURTESY, force=force)
    if as_json:
        say_json(
            {
                "folder": os.path.abspath(folder),
                "name": chosen,
                "written": placed.written,
                "replaced": placed.replaced,
                "kept": placed.kept,
                **({"profile": profile} if profile is not None else {}),
                "next": list(_next(folder, profile)),
            }
        )
    else:
        for line in _lines(folder, chosen, placed, profile):
            say(line)
    return 0


def _require_text(folder: str) -> None:
    if not folder:
        raise UsageError("DIR is empty", hint="`.` is the folder you are in")
    try:
        folder.encode()
    except UnicodeEncodeError:
        raise UsageError("DIR is not UTF-8 text") from None


def _name(name: str | None, folder: str) -> str:
    if name is None:
        return name_from(os.path.basename(os.path.abspath(folder)))
    if not is_safe_name(name):
        raise UsageError(f"`{name}` is not a name for a project", hint="letters, digits, `-`, `_` and `.`")
    return name


def _lines(folder: str, name: str, placed: Placed, profile: Profile | None) -> Iterator[str]:
    count = plural(len(placed.written) + len(placed.replaced), "file")
    yield f"{click.style('✓', fg='green')} project {printable(name)} in {printable(folder)}: {count}"
    for path in placed.written:
        yield f"  {path}"
    for path in placed.replaced:
        yield f"  {path} (replaced)"
    for path in placed.kept:
        advice = "; add `runs/` and `approvals/` to it, where runs are recorded" if path == ".gitignore" else ""
        yield f"  {path} (yours was kept{advice})"
    yield ""
    yield "Next:"
    yield from (f"  {line}" for line in _next(folder, profile))


def _next(folder: str, profile: Profile | None) -> Iterator[str]:
    """What to do now, as it can be typed."""
    if os.path.abspath(folder) != os.getcwd():
        yield f"cd {shlex.quote(printable(os.path.join('.', folder) if folder.startswith('-') else folder))}"
    if profile is not None:
        yield "python app.py"
        yield "artana run list"
        return
    yield "gert validate . --strict"
    yield "gert test . --coverage"
    yield f"gert exec {RUNBOOK}"
