"""Hints for commands and options that do not exist: what people know from other programs, and what they misspell."""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Final

import click

from gert.kernel.foundation.names import did_you_mean, suggestion

_DRY_RUN: Final = "--mode dry-run"
_SETS: Final = dict.fromkeys(("-e", "--extra-vars", "--param", "--params", "--set", "-p"), "--var NAME=VALUE")

HABITS: Final[Mapping[str, Mapping[str, str]]] = {
    "gert": {
        **dict.fromkeys(("start", "execute", "play", "job", "apply", "do"), "gert exec RUNBOOK"),
        **dict.fromkeys(("dry-run", "preview"), f"gert exec RUNBOOK {_DRY_RUN}"),
        **dict.fromkeys(("list", "ls", "ps", "history", "runs", "jobs"), "gert run list"),
        **dict.fromkeys(("show", "info", "describe"), "gert run show RUN"),
        **dict.fromkeys(("stop", "cancel", "kill"), "gert run cancel RUN"),
        **{name: f"gert run {name} RUN" for name in ("status", "tail", "verify", "export", "abandon")},
        **dict.fromkeys(("lint", "check", "syntax-check"), "gert validate FILE"),
        **dict.fromkeys(("retry", "restart"), "gert rerun RUN --from STEP"),
        **dict.fromkeys(("new", "create"), "gert init DIR"),
        "continue": "gert resume RUN",
        "graph": "gert diagram RUNBOOK",
        "help": "gert --help",
    },
    "gert exec": {
        **dict.fromkeys(("--dry-run", "--dryrun", "--check", "--just-print", "-C", "-n"), _DRY_RUN),
        **_SETS,
    },
    "gert watch": _SETS,
    "gert tool try": {**dict.fromkeys(("--mode", "--check", "--just-print", "-n"), "--dry-run"), **_SETS},
}
"""What is meant, by the command that was called and the word that it does not know."""


def command_hint(group: str, word: str, commands: Iterable[str]) -> str | None:
    """Say which command is meant by a word that names none of a group."""
    if meant := HABITS.get(group, {}).get(word):
        return f"did you mean `{meant}`?"
    if word.endswith((".yaml", ".yml")) or os.path.isfile(word):
        return f"to run a runbook, write `gert exec {word}`"
    if group == "gert run":
        if word == "last" or re.match(r"\d{6}", word):
            return f"did you mean `gert run show {word}`?"
        return suggestion(word, commands) or f"to run a runbook, write `gert exec {word}`"
    return suggestion(word, commands)


def usage_hint(problem: click.UsageError) -> str | None:
    """Say what is meant by an option, an argument or a subcommand that does not exist."""
    context = problem.ctx
    if context is None:
        return None
    command, path = context.command, context.command_path
    options = [option for param in command.get_params(context) for option in param.opts if option.startswith("-")]
    if isinstance(problem, click.NoSuchOption):
        return _option_hint(path, problem.option_name, options, is_group=isinstance(command, click.Group))
    if isinstance(command, click.Group):
        unknown = re.match("No such command ['\"](.+)['\"]", problem.message)
        return command_hint(path, unknown[1], command.list_commands(context)) if unknown else None
    extra = re.match(r"Got unexpected extra arguments? \((\w[\w.-]*)=", problem.message)
    return _set_hint(extra[1]) if extra and "--var" in options else None


def _option_hint(path: str, name: str, options: list[str], *, is_group: bool) -> str | None:
    if meant := HABITS.get(path, {}).get(name):
        return f"did you mean `{meant}`?"
    if is_group:
        return f"options follow the command: `{path} COMMAND {name}`"
    bare = name.lstrip("-")
    if len(bare) < 2:
        return None
    # Compared without the dashes, which all of them have in common.
    near = did_you_mean(bare, [option[2:] for option in options if option.startswith("--")])
    takes_inputs = "--var" in options
    if near is None:
        return _set_hint(bare) if takes_inputs else None
    return f"did you mean `--{near}`" + (f", or for an input `--var {bare}=VALUE`?" if takes_inputs else "?")


def _set_hint(name: str) -> str:
    return f"to set an input, write `--var {name}=VALUE`"
