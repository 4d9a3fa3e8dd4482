"""Writes plain data as readable YAML that `read` reads back as exactly the same data."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gert.errors import DocumentError
from gert.kernel.runbook.plain_scalars import resolve_plain
from gert.kernel.runbook.tree_builder import DEFAULT_LIMITS

_LONGEST_KEY: Final = 500
_DEEPEST: Final = DEFAULT_LIMITS.depth - 4
_PLAIN: Final = re.compile(r"[A-Za-z_/][\w./@+-]*(?: [\w./@+(-][\w./@+()-]*)*", re.ASCII)
# Characters that a block of text cannot contain: controls, other line breaks, and invisible spaces.
_UNFIT: Final = re.compile(
    "[^\t\n -~\u00a1-\u167f\u1681-\u1fff\u2010-\u2027\u2030-\u205e\u2070-\ud7ff]|[ \t]\n|[ \t]$|\n\t"
)
_ESCAPED: Final = re.compile('["\\\\\x00-\x1f\x7f-\xa0\xad\u2000-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufffe\uffff]')
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


class OneLine(list[Any]):
    """A list of scalars that is written on one line, such as the words of a command."""


def to_yaml(data: Mapping[str, Any]) -> str:
    """Write a map as a document in block style."""
    return "".join(f"{line}\n" for line in _map(data, 0)) if data else "{}\n"


def _map(data: Mapping[str, Any], depth: int) -> Iterator[str]:
    for key, value in data.items():
        text = _scalar(str(key))
        if len(text) <= _LONGEST_KEY:
            yield from _entry(f"{text}:", value, depth)
            continue
        # A longer key needs `?`, because parsers look only so far ahead for the colon.
        yield f"{'  ' * depth}? {text}"
        yield from _entry(":", value, depth)


def _entry(head: str, value: Any, depth: int) -> Iterator[str]:
    """Yield a key or a dash, and the value after or below it."""
    if depth > _DEEPEST:
        raise DocumentError("the data is nested too deeply to be written as YAML")
    indent = "  " * depth
    if isinstance(value, Mapping) and value:
        inner = _map(value, depth + 1)
    elif isinstance(value, OneLine) and value:
        yield f"{indent}{head} [{', '.join(map(_scalar, value))}]"
        return
    elif isinstance(value, list | tuple) and value:
        inner = (line for each in value for line in _entry("-", each, depth + 1))
    elif isinstance(value, str) and (block := _block(value, depth + 1)) is not None:
        yield f"{indent}{head} {block}"
        return
    else:
        yield f"{indent}{head} {_scalar(value)}"
        return
    if head == "-":
        # The first key of a map follows its dash.
        first = next(inner)
        yield f"{indent}- {first.lstrip(' ')}" if isinstance(value, Mapping) else f"{indent}-\n{first}"
    else:
        yield indent + head
    yield from inner


def _block(text: str, depth: int) -> str | None:
    """Write text of several lines as a block, if that is safe."""
    if "\n" not in text.rstrip("\n") or text[0] in " \t\n" or _UNFIT.search(text):
        return None
    body = text.rstrip("\n")
    breaks = len(text) - len(body)
    chomping = ("-", "", "+")[min(breaks, 2)]
    indent = "  " * depth
    lines = "\n".join(indent + line if line else "" for line in body.split("\n"))
    return f"|{chomping}\n{lines}" + "\n" * max(0, breaks - 1)


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        is_plain = _PLAIN.fullmatch(value) is not None and resolve_plain(value) == value
        return value if is_plain else f'"{_ESCAPED.sub(_escape, value)}"'
    return "{}" if isinstance(value, Mapping) else "[]"


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    return _SHORT.get(char) or f"\\u{ord(char):04x}"
