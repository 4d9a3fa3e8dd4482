"""The `gert` command: its subcommands, and the one place where errors end the process."""

import gc
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import click

from gert.ecosystem.host.config.machine.version import version_line
from gert.ecosystem.surfaces.cli.render.output import (
    discard_output,
    escape_unencodable,
    print_error,
)
from gert.errors import Exit, GertError, UsageError, exit_of

# Name, module, and the line `gert --help` shows without loading it.
COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "init": (
        "gert.ecosystem.surfaces.cli.commands.authoring.init",
        "Create a project: a runbook, its tool, a policy and tests.",
    ),
    "exec": ("gert.ecosystem.surfaces.cli.commands.runs.exec", "Run a runbook."),
    "watch": (
        "gert.ecosystem.surfaces.cli.commands.runs.watch",
        "Run a runbook at an interval; print one line per run.",
    ),
    "resume": ("gert.ecosystem.surfaces.cli.commands.runs.resume", "Resume a waiting or interrupted run."),
    "rerun": ("gert.ecosystem.surfaces.cli.commands.runs.rerun", "Start a new run from a step of an earlier run."),
    "run": ("gert.ecosystem.surfaces.cli.commands.runs.run", "List, show, follow, verify and abandon runs."),
    "logs": ("gert.ecosystem.surfaces.cli.commands.runs.logs", "Show the output of a run's steps."),
    "approvals": ("gert.ecosystem.surfaces.cli.commands.approvals.approvals", "List, show and serve approval tickets."),
    "approve": ("gert.ecosystem.surfaces.cli.commands.approvals.approve", "Approve a ticket."),
    "reject": ("gert.ecosystem.surfaces.cli.commands.approvals.reject", "Reject a ticket."),
    "test": ("gert.ecosystem.surfaces.cli.commands.authoring.test", "Replay scenarios and check their expectations."),
    "diff": ("gert.ecosystem.surfaces.cli.commands.authoring.diff", "Show scenarios whose result changed."),
    "scenario": (
        "gert.ecosystem.surfaces.cli.commands.authoring.scenario",
        "Create, list, show, promote and demote scenarios.",
    ),
    "validate": (
        "gert.ecosystem.surfaces.cli.commands.authoring.validate",
        "Validate runbooks, tools, policies and scenarios.",
    ),
    "explain": (
        "gert.ecosystem.surfaces.cli.commands.authoring.explain",
        "Show the contract, risk and decision of each step.",
    ),
    "diagram": ("gert.ecosystem.surfaces.cli.commands.authoring.diagram", "Draw a runbook or a run."),
    "policy": ("gert.ecosystem.surfaces.cli.commands.authoring.policy", "Test and explain policies."),
    "input": ("gert.ecosystem.surfaces.cli.commands.tools.input", "List and try the providers of inputs."),
    "tool": ("gert.ecosystem.surfaces.cli.commands.tools.tool", "List, show, check and import tools."),
    "ext": ("gert.ecosystem.surfaces.cli.commands.tools.ext", "Check the runners of extensions."),
    "skill": ("gert.ecosystem.surfaces.cli.commands.tools.skill", "List, show and check the vendor calls of runners."),
    "plan": (
        "gert.ecosystem.surfaces.cli.commands.tools.plan",
        "Create, show, approve and verify plans of vendor calls.",
    ),
    "runner": (
        "gert.ecosystem.surfaces.cli.commands.tools.runner",
        "Execute, list and recover plans; check this machine.",
    ),
    "trace": ("gert.ecosystem.surfaces.cli.commands.runs.trace", "Verify, show and export the trace of a run."),
    "outcomes": ("gert.ecosystem.surfaces.cli.commands.runs.outcomes", "Show run outcomes by runbook."),
    "keys": ("gert.ecosystem.surfaces.cli.commands.approvals.keys", "Create, show and list signing keys."),
    "models": ("gert.ecosystem.surfaces.cli.commands.tools.models", "Show the prices of models."),
    "serve": ("gert.ecosystem.surfaces.cli.commands.serve", "Serve an editor over JSON-RPC."),
    "schema": ("gert.ecosystem.surfaces.cli.commands.authoring.schema", "Print the JSON Schema of a document kind."),
    "completion": ("gert.ecosystem.surfaces.cli.commands.completion", "Print the completion script for a shell."),
    "version": ("gert.ecosystem.surfaces.cli.commands.version", "Print the version and the commit."),
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
        command: click.Command = import_module(COMMANDS[cmd_name][0]).command
        gc.enable()
        return command

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
            from gert.kernel.foundation.names import did_you_mean

            guess = did_you_mean(args[0], COMMANDS)
            hint = f"did you mean `{guess}`?" if guess else "run `gert --help` to list the commands"
            raise UsageError(f"there is no command `{args[0]}`", hint=hint) from None


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(version_line())
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: gert validate runbooks/ --strict",
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
    try:
        escape_unencodable()
        if arguments is None and "_GERT_COMPLETE" in os.environ:
            return _complete()
        # Not `group.main`: it would exit the process itself when the reader of its output has exited.
        with group.make_context("gert", list(given)) as running:
            result: Any = group.invoke(running)
        _flush()
        return result if isinstance(result, int) else Exit.DONE
    except click.exceptions.Exit as end:
        return end.exit_code
    except GertError as problem:
        print_error(problem.message, problem.hint)
        return exit_of(problem)
    except click.exceptions.NoArgsIsHelpError as problem:
        click.echo(problem.format_message(), err=True)
        return Exit.USAGE
    except click.ClickException as problem:
        context = getattr(problem, "ctx", None)
        hint = f"run `{context.command_path} --help` for usage" if context is not None else None
        message = problem.format_message().rstrip(".").replace("'", "`")
        print_error(message[:1].lower() + message[1:], hint)
        return Exit.USAGE
    except (click.Abort, KeyboardInterrupt):
        print_error("interrupted")
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has exited (`gert schema | head`): not an error, but not a result either.
        discard_output()
        return Exit.READER_GONE
    except OSError as problem:
        print_error(*_system_error(problem))
        discard_output()
        return Exit.ENGINE
    except Exception as problem:
        if os.environ.get("GERT_DEBUG"):
            raise
        print_error(
            f"internal error: {type(problem).__name__}: {problem}",
            "this is a bug in gert: set GERT_DEBUG=1 for the traceback, and please report it",
        )
        return Exit.ENGINE


def _complete() -> int:
    """Answer the completion script of a shell."""
    from click.shell_completion import shell_complete

    gc.enable()
    return shell_complete(group, {}, "gert", "_GERT_COMPLETE", os.environ["_GERT_COMPLETE"])


def _system_error(problem: OSError) -> tuple[str, str | None]:
    try:
        os.getcwd()
    except OSError:
        return "the working directory no longer exists", "change to a directory that exists"
    return f"system error: {(problem.strerror or str(problem)).lower()}", None


def _flush() -> None:
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()
