"""What `gert resume` and `gert rerun` have in common: whose answers are taken, who goes on, and how it is shown."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Final, Protocol

import click

from gert.ecosystem.host.config.variables import given_values
from gert.ecosystem.host.run.observer import Observer
from gert.ecosystem.host.run.options import Executed
from gert.ecosystem.surfaces.cli.commands.exec import approval_mode, named
from gert.ecosystem.surfaces.cli.live.view import make_view
from gert.ecosystem.surfaces.cli.render.result import show

_OPTIONS: Final = (
    click.option("--verbose", "-v", is_flag=True, help="Print what tools print."),
    click.option("--quiet", "-q", is_flag=True, help="Print nothing while it runs."),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; progress goes to standard error."),
    click.option("--dsn", metavar="DSN", help="The Postgres ledger of the run; env:NAME for a variable with it."),
    click.option("--db", metavar="FILE", help="The SQLite database of the run."),
    click.option("--state-dir", metavar="DIR", help="Where runs are kept; the project or your state folder otherwise."),
    click.option("--detach", is_flag=True, help="Set it aside while it waits for approvals; `gert resume` goes on."),
    click.option("--wait", "waits", is_flag=True, help="Wait for approvals given elsewhere, with `gert approve`."),
    click.option("--as", "actor", metavar="ACTOR", help="Who goes on; the user of this machine when left out."),
    click.option(
        "--adopt-unsealed",
        metavar="REASON",
        help="Continue a run that is not sealed although a signing key is set; the reason is recorded.",
    ),
    click.option("--witness", metavar="FILE|URL", help="Append sealed heads to this file or URL."),
    click.option("--allow-changed", is_flag=True, help="Although the runbook, a tool or a policy was changed since."),
)


class Going(Protocol):
    """A run that goes on as soon as somebody watches."""

    def __call__(self, *, observers: list[Observer]) -> Coroutine[Any, Any, Executed]:
        """Go on."""
        ...


def going_on(words: Callable[..., Going]) -> Callable[..., int]:
    """A command that goes on with what is on record; `words` is told what both share as options of the host."""

    @wraps(words)
    def command(
        inputs: tuple[str, ...],
        actor: str | None,
        waits: bool,
        detach: bool,
        as_json: bool,
        quiet: bool,
        verbose: bool,
        **own: Any,
    ) -> int:
        going = words(
            given=given_values((), inputs, ()),
            actor=named(actor),
            approvals=approval_mode(waits=waits, detach=detach),
            **own,
        )
        return show(_watched(going, as_json=as_json, quiet=quiet, verbose=verbose), as_json=as_json, quiet=quiet)

    for option in _OPTIONS:
        command = option(command)
    return command


def _watched(going: Going, *, as_json: bool, quiet: bool, verbose: bool) -> Executed:
    stream = sys.stderr if as_json else sys.stdout
    view = make_view(stream=stream, verbose=verbose, quiet=quiet) if stream is not None else None
    observers = [view] if view is not None else []
    try:
        return asyncio.run(going(observers=observers))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        for observer in observers:
            observer.close()
