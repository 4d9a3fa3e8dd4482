"""`gert init`: a project that validates, passes its tests and runs, to begin with."""

import os
import shlex
from collections.abc import Iterator

import click

from gert.ecosystem.host.scaffold.placing import Placed, place
from gert.ecosystem.host.scaffold.starter_files import COURTESY, RUNBOOK, name_from, starter_files
from gert.ecosystem.surfaces.cli.output import plural, say, say_json
from gert.errors import UsageError
from gert.kernel.foundation.names import is_safe_name
from gert.kernel.foundation.text import printable


@click.command(name="init", epilog="Example: gert init my-runbooks")
@click.argument("folder", metavar="DIR")
@click.option("--name", metavar="NAME", help="Name of the project; that of the folder when left out.")
@click.option("--force", is_flag=True, help="Replace files that are in the way.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def command(folder: str, name: str | None, force: bool, as_json: bool) -> int:
    """Begin a project in DIR: a runbook, its tool, a policy, scenarios that cover all of it, and a CI workflow.

    DIR is made if it is not there; `.` and a folder under version control work as well. Nothing that is there is
    overwritten: where something is in the way, it is named and nothing is written. A README.md or .gitignore of
    your own stays as it is, also with --force.
    """
    _require_text(folder)
    chosen = _name(name, folder)
    placed = place(os.path.normpath(folder), starter_files(chosen), yields=COURTESY, force=force)
    if as_json:
        say_json(
            {
                "folder": os.path.abspath(folder),
                "name": chosen,
                "written": placed.written,
                "replaced": placed.replaced,
                "kept": placed.kept,
                "next": list(_next(folder)),
            }
        )
    else:
        for line in _lines(folder, chosen, placed):
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


def _lines(folder: str, name: str, placed: Placed) -> Iterator[str]:
    count = plural(len(placed.written) + len(placed.replaced), "file")
    yield f"{click.style('✓', fg='green')} project {printable(name)} in {printable(folder)}: {count}"
    for path in placed.written:
        yield f"  {path}"
    for path in placed.replaced:
        yield f"  {path} (replaced)"
    for path in placed.kept:
        advice = "; add `runs/` to it, where runs are recorded" if path == ".gitignore" else ""
        yield f"  {path} (yours was kept{advice})"
    yield ""
    yield "Next:"
    yield from (f"  {line}" for line in _next(folder))


def _next(folder: str) -> Iterator[str]:
    """What to do now, as it can be typed."""
    if os.path.abspath(folder) != os.getcwd():
        yield f"cd {shlex.quote(printable(os.path.join('.', folder) if folder.startswith('-') else folder))}"
    yield "gert validate . --strict"
    yield "gert test . --coverage"
    yield f"gert exec {RUNBOOK}"
