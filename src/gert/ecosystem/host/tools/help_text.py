"""What the `--help` of a program says: its commands, its arguments and its options, as far as texts for people tell."""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from gert.kernel.foundation.text import CONTROL_SEQUENCE, one_line

MOST_COMMANDS: Final = 40
MOST_OPTIONS: Final = 60
_LONGEST: Final = 100
_USAGE: Final = re.compile(r"^\s*usage:?\s*(.*)$", re.IGNORECASE)
_COMMAND: Final = re.compile(r"^ {1,8}([a-z][a-z0-9_-]*)(?:, [a-z][a-z0-9-]*)?:?(?: {2,}|\t+| *- )(\S.*)$")
_OPTION: Final = re.compile(
    r"^\s{1,12}((?:-\w,?\s+)?--?[A-Za-z][\w-]*(?:[ =\[]{1,2}[<\[]?[\w|.-]+[>\]]?)?)\s{2,}(\S.*)$"
)
_OTHERS: Final = re.compile("example|option|flag|environment|argument")
_ARGUMENT: Final = re.compile(r"^(?:<([A-Za-z][\w-]*)>|([A-Z][A-Z0-9_]*))(?:\.\.\.)?$")


class HelpText(msgspec.Struct, frozen=True):
    """What was found.

    commands: the description of each subcommand
    arguments: what the usage line requires beside options
    options: each option and what it says of it
    """

    description: str | None
    commands: dict[str, str]
    arguments: list[str]
    options: dict[str, str]


def read_help(text: str, program: str) -> HelpText:
    """Find what a help text says; what is not found is left out."""
    lines = [CONTROL_SEQUENCE.sub("", line).rstrip() for line in text.splitlines()]
    commands: dict[str, str] = {}
    options: dict[str, str] = {}
    # Lines of other sections have the same form: formats, examples, values of an option.
    has_commands = any("command" in usage.lower() for usage in _usages(lines))
    heading = ""
    for line in lines:
        heading = line.lower() if _is_heading(line) else heading
        if (option := _OPTION.match(line)) is not None and len(options) < MOST_OPTIONS:
            options.setdefault(option[1].strip(), one_line(option[2], _LONGEST))
        elif ("command" not in heading and not has_commands) or _OTHERS.search(heading):
            continue
        elif (command := _COMMAND.match(line)) is not None and len(commands) < MOST_COMMANDS:
            commands.setdefault(command[1], one_line(command[2], _LONGEST))
    # A single line of this shape is prose; `help` only shows more of the same.
    commands.pop("help", None)
    commands = commands if len(commands) > 1 else {}
    arguments = [] if commands else list(dict.fromkeys(_arguments(lines, program)))
    return HelpText(_description(lines), commands, arguments, options)


def _is_heading(line: str) -> bool:
    return bool(line) and not line.startswith((" ", "\t"))


def _usages(lines: list[str]) -> Iterator[str]:
    """The usage line, which may begin after its heading."""
    for at, line in enumerate(lines):
        found = _USAGE.match(line)
        if found is not None:
            yield found[1] or next(iter(lines[at + 1 : at + 2]), "")
            # It may be continued: `git [-v] …` has its `<command>` three lines below.
            yield from (more for more in lines[at + 1 : at + 6] if more.startswith("    "))
            return


def _arguments(lines: list[str], program: str) -> Iterator[str]:
    """The words of the usage line that have to be given: `<file>` or `FILE`, not `[FILE]`."""
    usage = next(_usages(lines), "")
    words = re.sub(r"\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\](?:\.\.\.)?", " ", usage).split()
    for before, word in zip(["", *words], words, strict=False):
        argument = _ARGUMENT.match(word)
        is_option = before.startswith("-") or word.upper() in ("OPTION", "OPTIONS", "COMMAND", "ARGS")
        if argument is not None and not is_option and word != program:
            yield argument[1] or argument[2]


def _description(lines: list[str]) -> str | None:
    """The first line of prose."""
    for line in lines:
        text = line.strip()
        if text and not _USAGE.match(line) and not line.startswith((" ", "\t", "-", "[")) and " " in text:
            return one_line(text.rstrip(":"), _LONGEST)
    return None
