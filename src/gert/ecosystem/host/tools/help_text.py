"""What the `--help` of a program says: its commands, its arguments and its options, as far as texts for people tell."""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from gert.ecosystem.host.tools.help_usage import arguments_in, options_in, usages_in
from gert.kernel.foundation.text import CONTROL_SEQUENCE, one_line

_LONGEST: Final = 100
_LONGEST_USAGE: Final = 300
_LONGEST_LINE: Final = 1000
# `restart UNIT...   Restart units`, `list - list packages`; also with an alias: `remove, rm   …`.
_COMMAND: Final = re.compile(
    r"^ {1,8}([a-z][a-z0-9_-]*)((?: (?:[A-Z]|<[^<>]*>|\[[^\[\]]*\])\S*)*)(?:, [a-z][a-z0-9-]*)?:?(?: {2,}| *- )(\S.*)$"
)
# A table of names without descriptions.
_GRID: Final = re.compile(r"^ {0,8}[a-z][a-z0-9_-]*(?: {2,}[a-z][a-z0-9_-]*)+$")
_LAST_ROW: Final = re.compile(r"^ {0,8}[a-z][a-z0-9_-]*$")
_OPTION: Final = re.compile(
    r"^\s{1,12}((?:-\w,?\s+)?--?[A-Za-z][\w-]*(?:[ =\[]{1,2}[<\[]?[+\w|.-]+[>\]]?)?)\s{2,}(\S.*)$"
)
# With its description in the next line.
_OPTION_ALONE: Final = re.compile(r"^\s{1,12}(-[A-Za-z-][\w-]*(?:, +--?[A-Za-z][\w-]*)?(?:[ =]\S{1,40})?)$")
_OTHERS: Final = re.compile("example|option|flag|environment|argument")
_NOT_PROSE: Final = re.compile(
    r"usage\b|(?:for|report|see|try|use|copyright|written|license) |this is not the full help|.*:=|.*:$"
    r"|.*(?:unknown|invalid|illegal|unrecognized|bad) (?:option|argument|flag)|.*\bcommands\b(?!.*\.$)",
    re.IGNORECASE,
)
_CONTINUED: Final = " " * 9
"""How far the second line of a description is indented at least."""
# What stands for a number in the help of an option: `-days int`, `--retry <num>`, `-n, --lines=NUM`.
_NUMERIC: Final = frozenset(
    {"int", "uint", "intmax", "integer", "num", "number", "n", "nnn", "count", "bits", "days", "port"}
)
_COUNTS: Final = re.compile(r"(?:the )?(?:maximum |minimum )?number of\b|how many\b", re.IGNORECASE)


class HelpCommand(msgspec.Struct, frozen=True):
    """A subcommand: what the help says of it, and what it requires beside options."""

    about: str
    arguments: list[str] = []


class HelpText(msgspec.Struct, frozen=True):
    """What was found.

    commands: each subcommand
    arguments: what the usage line requires beside options
    options: each option and what it says of it
    usage: how the program is called
    """

    description: str | None
    commands: dict[str, HelpCommand]
    arguments: list[str]
    options: dict[str, str]
    usage: str = ""

    def takes_number(self, option: str) -> bool:
        """Whether the help says that the value of an option is a number."""
        for said, about in self.options.items():
            names = re.split(r"[\s,=\[<]+", said)
            if option in names:
                return names[-1].strip("+>].").lower() in _NUMERIC or _COUNTS.match(about) is not None
        return False


def read_help(text: str, program: str) -> HelpText:
    """Find what a help text says; what is not found is left out."""
    lines = [CONTROL_SEQUENCE.sub("", line)[:_LONGEST_LINE].expandtabs().rstrip() for line in text.splitlines()]
    usages = list(usages_in(lines, program))
    # Without such a section, lines of others have the same form: formats, examples, values of an option.
    found = _Found(has_commands=any("command" in usage.lower() for usage in usages))
    for line in lines:
        found.read(line)
    commands = found.all_commands()
    options = found.options or dict.fromkeys((option for usage in usages for option in options_in(usage)), "")
    return HelpText(
        _description(lines, program),
        commands,
        [] if commands or not usages else list(dict.fromkeys(arguments_in(usages[0], program))),
        {option: one_line(about, _LONGEST) for option, about in options.items()},
        one_line(usages[0], _LONGEST_USAGE) if usages else "",
    )


class _Found:
    """The commands and options of the lines that were read; a description may go on in the next line."""

    def __init__(self, *, has_commands: bool) -> None:
        self.options: dict[str, str] = {}
        self._commands: dict[str, str] = {}
        self._arguments: dict[str, list[str]] = {}
        self._has_commands = has_commands
        self._heading = ""
        self._was_grid = False
        self._last: tuple[dict[str, str], str] | None = None

    def read(self, line: str) -> None:
        is_grid = _GRID.match(line) is not None or (self._was_grid and _LAST_ROW.match(line) is not None)
        self._was_grid = is_grid
        if _is_heading(line) and not is_grid:
            self._heading = line.lower()
        if (option := _OPTION.match(line)) is not None:
            self._add(self.options, " ".join(option[1].split()), option[2])
        elif self._last is not None and line.startswith(_CONTINUED):
            about, name = self._last
            about[name] = f"{about[name]} {line.strip()}".strip()[:_LONGEST_LINE]
        elif (option := _OPTION_ALONE.match(line)) is not None:
            self._add(self.options, " ".join(option[1].split()), "")
        elif ("command" not in self._heading and not self._has_commands) or _OTHERS.search(self._heading):
            self._last = None
        elif is_grid and "command" in self._heading:
            for name in line.split():
                self._add(self._commands, name, "")
        elif (command := _COMMAND.match(line)) is not None and self._add(self._commands, command[1], command[3]):
            self._arguments[command[1]] = list(arguments_in(command[2]))

    def _add(self, to: dict[str, str], name: str, about: str) -> bool:
        is_new = name not in to
        if is_new:
            to[name] = about
        self._last = (to, name) if is_new and (about or to is self.options) else None
        return is_new

    def all_commands(self) -> dict[str, HelpCommand]:
        """The commands; a single line of this shape is prose, and `help` only shows more of the same."""
        self._commands.pop("help", None)
        found = self._commands.items() if len(self._commands) > 1 else ()
        return {name: HelpCommand(one_line(about, _LONGEST), self._arguments.get(name, [])) for name, about in found}


def _is_heading(line: str) -> bool:
    return bool(line) and not line.startswith(" ")


def _description(lines: Iterable[str], program: str) -> str | None:
    """The first sentence of prose: no usage, heading, version or complaint."""
    found: list[str] = []
    for line in lines:
        if found and (not line or line.startswith(" ")):
            break
        if found or _is_prose(line, program):
            found.append(line)
    first, end, _ = " ".join(found).partition(". ")
    return one_line(f"{first}{end}", _LONGEST) or None


def _is_prose(line: str, program: str) -> bool:
    first, _, rest = line.partition(" ")
    is_sentence = line[:1].isupper() or (first == program and (rest[:1].isalpha() or rest.startswith("- ")))
    return bool(rest) and is_sentence and not _NOT_PROSE.match(line)
