"""The command `gert-tui`: parse, open the screen, print what happened on the normal screen afterwards."""

import os
import sys
from typing import Any

import click

from gert.ecosystem.surfaces.start import run_program
from gert.errors import UsageError


@click.command(
    name="gert-tui",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: gert-tui runbooks/restart-pod.yaml",
)
@click.argument("file", required=False, metavar="[RUNBOOK]")
@click.option("--run", "run_id", metavar="ID", help="Watch or resume this run; a unique prefix, or `last`.")
@click.option("--step", "steps", is_flag=True, help="Wait for Enter before every call of runs that are started here.")
@click.option(
    "--readonly", "read_only", is_flag=True, help="Start, answer and cancel nothing; only dry-run and replay."
)
@click.option("--as", "actor", metavar="ACTOR", help="Actor and approver to record (default: the current user).")
@click.option("--key", metavar="NAME|FILE", help="Key to sign approvals and messages with.")
@click.option("--policy", "policies", multiple=True, metavar="FILE", help="Add a policy to the floor of every run.")
@click.option("--root", metavar="DIR", default=".", show_default=True, help="Folder whose runbooks are listed.")
@click.option("--state-dir", metavar="DIR", help="State directory (default: the project's, or your own).")
@click.option("--db", metavar="FILE", help="Use this SQLite ledger.")
@click.option("--dsn", metavar="DSN", help="Use this Postgres ledger; env:NAME reads the DSN from a variable.")
def command(file: str | None, run_id: str | None, **options: Any) -> int:
    """Run an incident from one screen: runbooks, runs and approvals.

    Each run has a process of its own: closing the screen does not stop it. Everything here is also a command; `?` names
    it. Where there is no terminal, or TERM=dumb or ACCESSIBLE is set, use `gert exec` and `gert logs --follow`.
    """
    if file is not None and run_id is not None:
        raise UsageError("expected a RUNBOOK or `--run`, found both", hint="pass only one of them")
    _require_terminal(os.environ.get("TERM"), accessible=bool(os.environ.get("ACCESSIBLE")))
    if os.environ.get("SSH_CONNECTION"):
        # Before Textual is imported: it reads them then.
        os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
        os.environ.setdefault("TEXTUAL_FPS", "20")
    # Textual removes NO_COLOR from the environment that tools inherit.
    environ = dict(os.environ)
    _use_terminal_size()
    from gert.ecosystem.host.config.machine.user import user_name
    from gert.ecosystem.surfaces.tui.app import GertApp
    from gert.ecosystem.surfaces.tui.desk import Desk
    from gert.ecosystem.surfaces.tui.keys import read_keymap

    desk = Desk(environ=environ, **{**options, "actor": options["actor"] or user_name()})
    run = (desk.place, desk.find(run_id)) if run_id is not None else None
    if file is not None:
        file = os.path.realpath(file)
        if not os.path.isfile(file):
            raise UsageError(f"there is no file `{file}`")
        desk.root = os.path.dirname(file) if not file.startswith(os.path.realpath(desk.root) + os.sep) else desk.root
    app = GertApp(desk, run, file, read_keymap(environ))
    try:
        app.run()
    finally:
        desk.close()
    for line in app.exit_lines:
        click.echo(line)
    return app.return_code or 0


def _use_terminal_size() -> None:
    """Forget COLUMNS and LINES where the terminal says its size: they are what it was when a shell exported them.

    A screen that trusts them draws beyond the edge of a smaller terminal, which scrolls the top out of sight, and never
    learns that the terminal was resized.
    """
    try:
        size = os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ is not None else 1)
    except (OSError, ValueError):
        return
    if size.columns > 0 and size.lines > 0:
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)


def _require_terminal(term: str | None, *, accessible: bool) -> None:
    if accessible or term == "dumb" or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "gert-tui needs a terminal that it can draw on",
            hint="`gert exec` and `gert logs --follow` print lines instead",
        )


def main() -> None:
    """Run the screen; an error is one line on standard error."""
    run_program(command)
