"""Rewrites parts of a template that do not parse, for hints."""

import re

from gert.kernel.template import lexer
from gert.kernel.template.functions import FUNCTIONS

_LONGEST = 60  # of an operand; a hint is one line
_MOST_KEYS = 8
_KEYWORDS = frozenset({"if", "with", "range", "else"})
_CONSTANTS = frozenset({"true", "false", "nil"})
_SEPARATORS = frozenset({lexer.DECLARE, lexer.EQUALS, lexer.COMMA})
_ENDS = _SEPARATORS | {lexer.PIPE, lexer.RIGHT_PAREN}
_BRACKETS = re.compile(r"\[([^\[\]{}\n]{1,40})\]")
_SEGMENTS = re.compile(r"(?:\.[^\W\d]\w*)*")


def left(source: str, opening: int, at: int) -> str | None:
    """Return the operand or the call before a position."""
    start, count = _pipeline(source, opening, at)
    if not count:
        return None
    text = _short(source[start:at])
    return f"({text})" if text and count > 1 else text and _operand(text)


def begun(source: str, opening: int, at: int) -> bool:
    """Return whether something precedes a position, so that a call there needs parentheses."""
    return _pipeline(source, opening, at)[1] > 0


def _pipeline(source: str, opening: int, at: int) -> tuple[int, int]:
    """Return where the pipeline around a position begins, and its number of tokens before the position."""
    found = lexer.OPENING.match(source, opening)
    position = found.end() if found else at
    levels = [(at, 0)]
    while (token := lexer.TOKEN.match(source, position, at)) and token.end() <= at:
        kind = token.lastindex or 0
        position = token.end()
        if kind == lexer.RIGHT_PAREN:
            if len(levels) > 1:
                levels.pop()
        elif kind in _SEPARATORS or token[kind] in _KEYWORDS:
            levels[-1] = (at, 0)
        else:
            start, count = levels[-1]
            levels[-1] = (start if count else token.start(kind), count + 1)
            if kind == lexer.LEFT_PAREN:
                levels.append((at, 0))
    return levels[-1]


def right(source: str, at: int) -> str | None:
    """Return the operand or the call after a position."""
    start, position, depth, count = 0, at, 0, 0
    calls = False
    while token := lexer.TOKEN.match(source, position):
        kind = token.lastindex or 0
        if kind == lexer.CLOSE or (not depth and kind in _ENDS):
            break
        if not count:
            start, calls = token.start(kind), kind == lexer.WORD and token[kind] in FUNCTIONS
        elif not depth and not calls:
            break
        count += not depth
        depth += (kind == lexer.LEFT_PAREN) - (kind == lexer.RIGHT_PAREN)
        position = token.end()
        if position - start > _LONGEST:
            return None
    if not count or depth:
        return None
    text = _short(source[start:position])
    return f"({text})" if text and calls else text and _operand(text)


def _short(text: str) -> str | None:
    text = text.strip(lexer.SPACE)
    return text if len(text) <= _LONGEST and text.isprintable() else None


def _operand(text: str) -> str:
    if text[0] == "'":
        return in_double_quotes(text)
    return f'"{text}"' if text.isidentifier() and text not in _CONSTANTS else text


def in_double_quotes(text: str) -> str:
    """Return a text in single quotes in double quotes."""
    return '"' + text[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'


def path(written: str, inner: bool) -> str:
    """Rewrite a path with dashes in its names as `index`; `inner` if it is an argument."""
    first, *segments = written.replace("/", ".").split(".")
    dashed = [position for position, segment in enumerate(segments) if "-" in segment]
    if not dashed:
        return written
    before, keys, after = segments[: dashed[0]], segments[dashed[0] : dashed[-1] + 1], segments[dashed[-1] + 1 :]
    of = ".".join([first, *before]) or "."
    call = " ".join(["index", of, *(f'"{key}"' for key in keys)])
    return f"({call})" + "".join(f".{segment}" for segment in after) if after or inner else call


def subscript(source: str, of: str, at: int, inner: bool) -> str:
    """Rewrite `of[key]…` as `index`, `slice` or `last`."""
    if of[0] not in '.$("`':
        of = f".{of}"
    keys: list[str] = []
    while len(keys) < _MOST_KEYS and (found := _BRACKETS.match(source, at)) and found[1].strip():
        keys.append(found[1].strip())
        at = found.end()
    if len(keys) == 1 and ":" in keys[0] and keys[0][0] not in "\"'":
        low, _, high = keys[0].partition(":")
        call = " ".join(filter(None, ["slice", of, low.strip() or "0", high.strip()]))
    elif keys == ["-1"]:
        call = f"last {of}"
    else:
        call = " ".join(["index", of, *(map(_key, keys) if keys else ["0"])])
    after = _SEGMENTS.match(source, at)
    rest = after.group() if after else ""
    return f"({call}){rest}" if rest or inner else call


def _key(key: str) -> str:
    if key[0] == "'" and len(key) > 2:
        return in_double_quotes(key)
    return f".{key}" if key[0].isalpha() else key
