"""What every command has without declaring it: exit codes in its help, and completion of files, runs and tickets."""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

import click

from gert.errors import EXIT_MEANINGS, GertError
from gert.kernel.foundation.text import printable

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from gert.ecosystem.host.runs.listing import Runs

EXIT_CODES: Final = "Exit codes: " + "; ".join(f"{code:d} {meaning}" for code, meaning in EXIT_MEANINGS.items()) + "."
MOST_RUNS: Final = 100

Completion: TypeAlias = "Callable[[click.Context, click.Parameter, str], list[CompletionItem]]"
_Named: TypeAlias = "Callable[[str, int], list[tuple[str, str]]]"


def with_exit_codes(command: click.Command) -> click.Command:
    """Add the exit codes to the help of a command and its subcommands, after its example."""
    if EXIT_CODES not in (command.epilog or ""):
        command.epilog = f"{command.epilog}\n\n{EXIT_CODES}" if command.epilog else EXIT_CODES
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        with_exit_codes(each)
    return command


def with_completion(command: click.Command) -> click.Command:
    """Let the shell complete files, folders, runs and tickets, as the metavar of each parameter says."""
    for param in command.params:
        found = [_COMPLETIONS[word] for word in re.findall("[A-Z]+", param.metavar or "") if word in _COMPLETIONS]
        if found and param._custom_shell_complete is None:
            param._custom_shell_complete = _any_of(found)
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        with_completion(each)
    return command


def _any_of(completions: list[Completion]) -> Completion:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        return [item for each in completions for item in each(ctx, param, incomplete)]

    return complete


def _files(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def _folders(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


def _runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """The newest runs."""
    return _of_ledger(ctx, incomplete, "the run that was written to last", lambda runs: runs.recent)


def _tickets(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """The open tickets; the runs where `--all` takes one."""
    if ctx.params.get("everything"):
        return _runs(ctx, param, incomplete)
    return _of_ledger(ctx, incomplete, "what the last run waits for", lambda runs: runs.open_tickets)


def _of_ledger(
    ctx: click.Context, incomplete: str, last: str, choose: "Callable[[Runs], _Named]"
) -> "list[CompletionItem]":
    """Names in the ledger that the command line names; a ledger that cannot be read completes nothing."""
    from click.shell_completion import CompletionItem  # only completion needs these

    from gert.ecosystem.surfaces.cli.options import open_runs

    said = ctx.params
    try:
        with open_runs(said.get("state_dir"), said.get("db"), said.get("dsn")) as runs:
            found = choose(runs)(incomplete, MOST_RUNS)
    except (GertError, OSError):
        return []
    first = [CompletionItem("last", help=last)] if "last".startswith(incomplete) else []
    return [*first, *(CompletionItem(name, help=printable(about)) for name, about in found)]


_COMPLETIONS: Final[Mapping[str, Completion]] = {
    "FILE": _files,
    "FILES": _files,
    "RUNBOOK": _files,
    "PATH": _files,
    "RUN": _runs,
    "TICKET": _tickets,
    "DIR": _folders,
    "DIRS": _folders,
}
"""By a word of the metavar: `FILE|RUN` completes both."""
