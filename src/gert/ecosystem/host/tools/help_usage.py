"""The usage lines of a help text: what a program has to be given, and options that only they name."""

import re
from collections.abc import Iterator
from typing import Final

_USAGE: Final = re.compile(r"^\s*usage:?\s*(.*)$", re.IGNORECASE)
_OPTION_LINE: Final = re.compile(r"^\s{1,12}-.*\S\s{2,}\S")
# `<file>`, `<jq filter>`, `FILE`, `NAME=VALUE`, each perhaps repeated.
_ARGUMENT: Final = re.compile(r"^(?:<([A-Za-z][\w -]*)>|([A-Z][A-Z0-9_]*(?:[|=:][A-Z0-9_]+)*))(?:\.\.\.)?$")
_PLAIN: Final = re.compile(r"^([a-z][a-z0-9_-]*)(?:\.\.\.)?$")
# `[-p port]`, with brackets of its own: `[-D [bind_address:]port]`.
_GROUP: Final = re.compile(r"\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\](?:\.\.\.)?")
_NOT_ARGUMENTS: Final = frozenset({"OPTION", "OPTIONS", "COMMAND", "ARGS", "FLAGS"})
_PART: Final = re.compile(r"[\[<{|]")
"""What every line of a usage has, and prose below it has not."""
_MOST_LINES: Final = 20
_MOST_PLAIN: Final = 3


def usages_in(lines: list[str], program: str) -> Iterator[str]:
    """The ways to call a program, each as one line; a usage may begin below its heading, and be continued."""
    headings = (at for at, line in enumerate(lines) if _USAGE.match(line))
    bare = (at for at, line in enumerate(lines) if re.match(r"\S+ \[", line) and _is_call(line, program))
    at = next(headings, next(bare, None))
    if at is None:
        return
    found = _USAGE.match(lines[at])
    usage = lines[at] if found is None else found[1]
    for more in lines[at + 1 : at + 1 + _MOST_LINES]:
        is_over = (not more and usage) or (more and not more.startswith(" ")) or _OPTION_LINE.match(more)
        if is_over or (usage and not _is_call(more, program) and not _PART.search(more)):
            break
        if usage and _is_call(more, program):
            yield usage
            usage = ""
        usage = f"{usage} {more.strip()}".strip()
    yield usage


def arguments_in(usage: str, program: str = "") -> Iterator[str]:
    """What has to be given: `<file>` or `FILE`, not `[FILE]`; plain words where it has no such words."""
    words = re.findall(r"<[^<>]*>\S*|\S+", _GROUP.sub(" ", usage))
    words = words[1:] if program and words and words[0].rpartition("/")[2] == program else words
    found: list[str] = []
    plain: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        if before.startswith("-") or word.strip(".").upper() in _NOT_ARGUMENTS:
            continue
        if (argument := _ARGUMENT.match(word)) is not None:
            found.append(argument[1] or argument[2])
        elif program and (argument := _PLAIN.match(word)) is not None:
            plain.append(argument[1])
    # More than a few plain words are prose.
    yield from found or (plain if len(plain) <= _MOST_PLAIN else ())


def options_in(usage: str) -> Iterator[str]:
    """The options that a usage names in brackets: `[-p port]`."""
    for group in _GROUP.findall(usage):
        option = re.sub(r"\.\.\.$", "", group)[1:-1].strip()
        if re.match(r"--?[A-Za-z0-9]", option) and "|" not in option:
            yield " ".join(option.split())


def _is_call(line: str, program: str) -> bool:
    first = line.split(maxsplit=1)[:1]
    return bool(first) and first[0].rpartition("/")[2] == program
