"""`gert init`: create a runbook project or an agent project."""

import os
import shlex
from collections.abc import Iterator

import click

from gert.ecosystem.host.scaffold.agent_files import PROFILES, Profile
from gert.ecosystem.host.scaffold.agent_project import create_agent_project
from gert.ecosystem.host.scaffold.starter_files import OPTIONAL_FILES, RUNBOOK, name_from, starter_files
from gert.ecosystem.host.scaffold.write_files import WrittenFiles, write_all
from gert.ecosystem.surfaces.cli.render.output import plural, print_json, print_lines
from gert.errors import UsageError
from gert.kernel.foundation.names import is_safe_name
from gert.kernel.foundation.text import is_text, printable


@click.command(name="init", epilog="Example: gert init my-runbooks")
@click.argument("folder", metavar="DIR", required=False)
@click.option(
    "--profile", type=click.Choice(PROFILES), help="Create an agent project: `enforced` is guarded, `dev` permissive."
)
@click.option("--name", metavar="NAME", help="Name of the project (default: the name of the folder).")
@click.option("--force", is_flag=True, help="Replace existing files.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(folder: str | None, profile: Profile | None, name: str | None, force: bool, as_json: bool) -> int:
    """Create a project in DIR: a runbook, its tool, a policy, scenarios that cover the runbook, and a CI workflow.

    gert creates DIR if it does not exist; `.` and a folder under version control work as well. If a file exists
    already, gert names it and writes nothing; --force replaces it. Your own README.md and .gitignore are always kept.

    With --profile, gert creates an agent project instead: an `app.py` that runs as it is, and a README.md. DIR defaults
    to the current folder and must be empty; with --force, files of these names are replaced.
    """
    if folder is None and profile is None:
        raise UsageError("missing argument `DIR`", hint="pass `.` for the current folder")
    folder = "." if folder is None else folder
    _require_text(folder)
    chosen = _name(name, folder)
    if profile is not None:
        placed = create_agent_project(folder, profile, name=chosen, force=force)
    else:
        placed = write_all(os.path.normpath(folder), starter_files(chosen), yields=OPTIONAL_FILES, force=force)
    if as_json:
        print_json(
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
        print_lines(_lines(folder, chosen, placed, profile))
    return 0


def _require_text(folder: str) -> None:
    if not folder:
        raise UsageError("DIR is empty", hint="pass `.` for the current folder")
    if not is_text(folder):
        raise UsageError("DIR is not UTF-8 text")


def _name(name: str | None, folder: str) -> str:
    if name is None:
        return name_from(os.path.basename(os.path.abspath(folder)))
    if not is_safe_name(name):
        raise UsageError(f"invalid project name `{name}`", hint="use letters, digits, `-`, `_` and `.`")
    return name


def _lines(folder: str, name: str, placed: WrittenFiles, profile: Profile | None) -> Iterator[str]:
    count = plural(len(placed.written) + len(placed.replaced), "file")
    yield f"{click.style('✓', fg='green')} project {printable(name)} in {printable(folder)}: {count}"
    for path in placed.written:
        yield f"  {path}"
    for path in placed.replaced:
        yield f"  {path} (replaced)"
    for path in placed.kept:
        advice = "; add `runs/` and `approvals/` to it" if path == ".gitignore" else ""
        yield f"  {path} (kept your own{advice})"
    yield ""
    yield "Next:"
    yield from (f"  {line}" for line in _next(folder, profile))


def _next(folder: str, profile: Profile | None) -> Iterator[str]:
    """Commands to run next."""
    if os.path.abspath(folder) != os.getcwd():
        yield f"cd {shlex.quote(printable(os.path.join('.', folder) if folder.startswith('-') else folder))}"
    if profile is not None:
        yield "python app.py"
        yield "artana run list"
        return
    yield "gert validate . --strict"
    yield "gert test . --coverage"
    yield f"gert exec {RUNBOOK}"
