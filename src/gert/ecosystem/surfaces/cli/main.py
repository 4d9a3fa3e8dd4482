"""The `gert` command: its subcommands, and the one place where errors end the process."""

import errno
import gc
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from gert.ecosystem.host.config.machine.version import version_line
from gert.ecosystem.surfaces.cli.help import EXIT_CODES, with_completion, with_exit_codes
from gert.ecosystem.surfaces.cli.render.output import (
    JsonOutput,
    closed_output,
    discard_output,
    error_document,
    escape_unencodable,
    has_colours,
    print_error,
    print_json_line,
)
from gert.errors import Exit, GertError, UsageError, code_of, exit_of
from gert.kernel.foundation.text import os_reason

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMPLETE: Final = "_GERT_COMPLETE"
"""Set by the completion script of a shell."""

# Name, module under `commands`, and the line `gert --help` shows without loading it.
COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "init": ("authoring.init", "Create a project: a runbook, its tool, a policy and tests."),
    "exec": ("runs.exec", "Run a runbook."),
    "watch": ("runs.watch", "Run a runbook at an interval; print one line per run."),
    "resume": ("runs.resume", "Resume a waiting or interrupted run."),
    "rerun": ("runs.rerun", "Start a new run from a step of an earlier run."),
    "run": ("runs.run", "List, show, follow, verify and abandon runs."),
    "logs": ("runs.logs", "Show the output of a run's steps."),
    "approvals": ("approvals.approvals", "List, show and serve approval tickets."),
    "approve": ("approvals.approve", "Approve a ticket."),
    "reject": ("approvals.reject", "Reject a ticket."),
    "test": ("authoring.test", "Replay scenarios and check their expectations."),
    "diff": ("authoring.diff", "Show scenarios whose result changed."),
    "scenario": ("authoring.scenario", "Create, list, show, promote and demote scenarios."),
    "validate": ("authoring.validate", "Validate runbooks, tools, policies and scenarios."),
    "explain": ("authoring.explain", "Show the contract, risk and decision of each step."),
    "diagram": ("authoring.diagram", "Draw a runbook or a run."),
    "policy": ("authoring.policy", "Test and explain policies."),
    "input": ("tools.input", "List and try the providers of inputs."),
    "tool": ("tools.tool", "Write, try, list, show, check and import tools."),
    "ext": ("tools.ext", "Check the runners of extensions."),
    "skill": ("tools.skill", "List, show and check the vendor calls of runners."),
    "plan": ("tools.plan", "Create, show, approve and verify plans of vendor calls."),
    "runner": ("tools.runner", "Execute, list and recover plans; check this machine."),
    "trace": ("runs.trace", "Verify, show and export the trace of a run."),
    "outcomes": ("runs.outcomes", "Show run outcomes by runbook."),
    "keys": ("approvals.keys", "Create, show and list signing keys."),
    "models": ("tools.models", "Show the prices of models."),
    "serve": ("serve", "Serve an editor over JSON-RPC."),
    "schema": ("authoring.schema", "Print the JSON Schema of a document kind."),
    "completion": ("completion", "Print the completion script for a shell."),
    "version": ("version", "Print the version and the commit."),
}


class LazyGroup(click.Group):
    """A group that imports a command only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"gert.ecosystem.surfaces.cli.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = with_exit_codes(module.command)
        _collect_again()
        return with_completion(command) if COMPLETE in os.environ else command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Complete a name from the table alone."""
        from click.shell_completion import CompletionItem

        named = [
            CompletionItem(name, help=about) for name, (_, about) in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; suggest one for a misspelt name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from gert.ecosystem.surfaces.cli.habits import command_hint

            hint = command_hint("gert", args[0], COMMANDS) or "run `gert --help` to list the commands"
            raise UsageError(f"there is no command `{args[0]}`", hint=hint) from None


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(version_line())
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"Example: gert validate runbooks/ --strict\n\n{EXIT_CODES}",
)
@click.option(
    "--version",
    "-V",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Print the version.",
)
def group() -> None:
    """Governed execution for people and agents."""


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return the exit code of the process."""
    given = sys.argv[1:] if arguments is None else arguments
    JsonOutput.has_result = False
    if sys.stdout is not None:
        return _main(given, completes=arguments is None)
    with closed_output() as lost:
        code = _main(given, completes=arguments is None)
    if code == Exit.DONE and lost():
        print_error("system error: standard output is closed", "redirect it to a file, or to /dev/null")
        return Exit.ENGINE
    return code


def _main(given: list[str], *, completes: bool) -> int:
    try:
        escape_unencodable()
        if completes and COMPLETE in os.environ:
            return _complete()
        # Not `group.main`: it would exit the process itself when the reader of its output has exited.
        with group.make_context("gert", list(given), color=None if has_colours() else False) as running:
            result: Any = group.invoke(running)
        _flush()
        return result if isinstance(result, int) else Exit.DONE
    except click.exceptions.Exit as end:
        return end.exit_code
    except GertError as problem:
        return _fail(given, code_of(problem), problem.message, problem.hint, exit_of(problem), problem)
    except click.exceptions.NoArgsIsHelpError as problem:
        click.echo(problem.format_message(), err=True)
        return Exit.USAGE
    except click.ClickException as problem:
        return _fail(given, "usage", *_usage_error(problem), Exit.USAGE)
    except (click.Abort, KeyboardInterrupt):
        return _fail(given, "interrupted", "interrupted", None, Exit.INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has exited (`gert schema | head`): not an error, but not a result either.
        discard_output()
        return Exit.READER_GONE
    except OSError as problem:
        code = _fail(given, "system", *_system_error(problem), Exit.ENGINE)
        discard_output()
        return code
    except Exception as problem:
        if os.environ.get("GERT_DEBUG"):
            raise
        return _fail(
            given,
            "internal",
            f"internal error: {type(problem).__name__}: {problem}",
            "this is a bug in gert: set GERT_DEBUG=1 for the traceback, and please report it",
            Exit.ENGINE,
        )


def _fail(
    given: list[str], code: str, message: str, hint: str | None, exit_code: Exit, problem: GertError | None = None
) -> int:
    """Report an error: to people on standard error, and with --json to programs on standard output."""
    options = given[: given.index("--")] if "--" in given else given
    if any(each.partition("=")[0] == "--json" for each in options) and not JsonOutput.has_result:
        with suppress(OSError):
            print_json_line({"error": error_document(code, message, hint, exit_code, problem)})
            _flush()
    print_error(message, hint)
    return exit_code


def _complete() -> int:
    """Answer the completion script of a shell."""
    from click.shell_completion import shell_complete

    _collect_again()
    return shell_complete(group, {}, "gert", COMPLETE, os.environ[COMPLETE])


def _collect_again() -> None:
    """Enable garbage collection where `run` disabled it; what is imported by now stays, so it is not looked through."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _usage_error(problem: click.ClickException) -> tuple[str, str | None]:
    from gert.ecosystem.surfaces.cli.habits import usage_hint

    # What click suggests is left out: the hint says what is meant.
    said = problem.message if hasattr(problem, "possibilities") else problem.format_message()
    message = said.rstrip(".").replace("'", "`")
    hint = usage_hint(problem) if isinstance(problem, click.UsageError) else None
    context = getattr(problem, "ctx", None)
    if hint is None and context is not None:
        hint = f"run `{context.command_path} --help` for usage"
    return message[:1].lower() + message[1:], hint


def _system_error(problem: OSError) -> tuple[str, str | None]:
    try:
        os.getcwd()
    except OSError:
        return "the working directory no longer exists", "change to a directory that exists"
    full = problem.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = "free space, then run the command again; `gert run list` shows runs to resume" if full else None
    return f"system error: {os_reason(problem)}", hint


def _flush() -> None:
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()
