"""The command `artana`: the agent kernel's own command line, exactly as its specification documents it.

It reads what `gert run` reads and creates what `gert init --profile` creates; only the output format differs.
Exit codes: 0 done, 1 `error: …` or an invalid ledger, 2 usage.
"""

import os
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from gert.ecosystem.surfaces.cli.render.output import discard_output, escape_unencodable
from gert.errors import Exit, GertError, UsageError
from gert.kernel.foundation.text import os_reason, printable

DATABASE: Final = ".state.db"
MOST_SUMMARIES: Final = 20

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _inspects(command: _Command) -> _Command:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one line of JSON."),
        click.option(
            "--dsn", metavar="DSN", help="Postgres ledger to read, or env:NAME to take the DSN from a variable."
        ),
        click.option("--db", metavar="FILE", help=f"SQLite ledger to read.  [default: {DATABASE}]"),
    ):
        command = option(command)
    return command


def _of_run(command: _Command) -> _Command:
    return click.argument("run_id")(_inspects(command))


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]}, epilog="Example: artana init my-agent --profile enforced"
)
def group() -> None:
    """Inspect durable agent runs and create agent projects."""


@group.group(epilog="Example: artana run list")
def run() -> None:
    """Inspect the runs of a ledger."""


@run.command("list", epilog="Example: artana run list --tenant acme --since 2026-02-28")
@click.option("--tenant", metavar="ID", help="Only runs of this tenant.")
@click.option("--since", metavar="ISO", help="Only runs updated since this time.")
@_inspects
def list_(tenant: str | None, since: str | None, db: str | None, dsn: str | None, as_json: bool) -> None:
    """List run ids, the newest first."""
    from gert.ecosystem.surfaces.cli.render.runs import artana_runs

    try:
        moment = artana_runs.moment_of(since)
    except UsageError as problem:
        raise click.UsageError(problem.message) from None
    artana_runs.list_runs(_place(db, dsn), tenant, since, moment, as_json=as_json)


@run.command(epilog="Example: artana run tail ticket-1042 --since-seq 2")
@click.option("--follow", is_flag=True, help="Keep printing new events until Ctrl-C.")
@click.option("--since-seq", type=click.IntRange(0), default=0, metavar="N", help="Only events after this number.")
@_of_run
def tail(run_id: str, follow: bool, since_seq: int, db: str | None, dsn: str | None, as_json: bool) -> None:
    """Show the events of a run."""
    from gert.ecosystem.surfaces.cli.render.runs import artana_runs

    artana_runs.tail(_place(db, dsn), run_id, since_seq, follow=follow, as_json=as_json)


@run.command("verify-ledger", epilog="Example: artana run verify-ledger ticket-1042")
@_of_run
def verify_ledger(run_id: str, db: str | None, dsn: str | None, as_json: bool) -> int:
    """Verify that the record of a run is complete and unchanged."""
    from gert.ecosystem.surfaces.cli.render.runs import artana_runs

    return artana_runs.verify_ledger(_place(db, dsn), run_id, as_json=as_json)


@run.command(epilog="Example: artana run status ticket-1042 --json")
@_of_run
def status(run_id: str, db: str | None, dsn: str | None, as_json: bool) -> None:
    """Show the status of a run."""
    from gert.ecosystem.surfaces.cli.render.runs import artana_runs

    artana_runs.status(_place(db, dsn), run_id, as_json=as_json)


@run.command(epilog="Example: artana run summaries ticket-1042 --type artifact::ticket --limit 5")
@click.option("--type", "summary_type", metavar="TYPE", help="Only summaries of this type.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=MOST_SUMMARIES,
    show_default=True,
    metavar="N",
    help="Maximum number of summaries.",
)
@_of_run
def summaries(
    run_id: str, summary_type: str | None, limit: int, db: str | None, dsn: str | None, as_json: bool
) -> None:
    """Show the newest summaries of a run."""
    from gert.ecosystem.surfaces.cli.render.runs import artana_runs

    artana_runs.summaries(_place(db, dsn), run_id, summary_type, limit, as_json=as_json)


@run.command(epilog="Example: artana run artifacts ticket-1042")
@_of_run
def artifacts(run_id: str, db: str | None, dsn: str | None, as_json: bool) -> None:
    """Show the newest value of each artifact of a run."""
    from gert.ecosystem.surfaces.cli.render.runs import artana_runs

    artana_runs.artifacts(_place(db, dsn), run_id, as_json=as_json)


@group.command(epilog="Example: artana init my-agent --profile dev")
@click.argument("path", default=".")
@click.option(
    "--profile",
    type=click.Choice(("enforced", "dev")),
    default="enforced",
    show_default=True,
    help="Safety settings of the new project.",
)
@click.option("--force", is_flag=True, help="Write into a folder that is not empty.")
def init(path: str, profile: Any, force: bool) -> None:
    """Create an agent project in PATH (default: the current folder)."""
    from gert.ecosystem.host.scaffold.agent_project import create_agent_project

    placed = create_agent_project(path, profile, force=force)
    for name in sorted((*placed.written, *placed.replaced)):
        click.echo(printable(os.path.join(path, name)))


def _place(db: str | None, dsn: str | None) -> tuple[str, str | None]:
    if db is not None and dsn is not None:
        raise click.UsageError("--db and --dsn name two ledgers; pass only one")
    return db if db is not None else DATABASE, dsn


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return the exit code of the process."""
    try:
        escape_unencodable()
        given = sys.argv[1:] if arguments is None else arguments
        with group.make_context("artana", list(given)) as running:
            result: Any = group.invoke(running)
        if sys.stdout is not None:
            sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except GertError as problem:
        return _complain(problem.message, Exit.REFUSED)
    except click.ClickException as problem:
        problem.show()
        return Exit.USAGE
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except BrokenPipeError:
        discard_output()
        return Exit.READER_GONE
    except OSError as problem:
        discard_output()
        return _complain(os_reason(problem), Exit.REFUSED)
    except Exception as problem:
        if os.environ.get("GERT_DEBUG"):
            raise
        return _complain(f"internal error: {type(problem).__name__}: {problem}", Exit.REFUSED)


def _complain(message: str, code: int) -> int:
    click.echo(f"error: {printable(message)}", err=True)
    return code


def command() -> None:
    """Run `artana` as a process."""
    sys.exit(main())


if __name__ == "__main__":
    command()
