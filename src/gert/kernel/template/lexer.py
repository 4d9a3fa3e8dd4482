"""Where actions begin, which tokens they hold, and what to say where there is no token."""

import re

from gert.errors import TemplateSyntaxError
from gert.kernel.template.wording import shown

SPACE = " \t\r\n"

# The groups of TOKEN, in its order.
CLOSE, PATH, VARIABLE, WORD, QUOTED, RAW, NUMBER, CHARACTER = range(1, 9)
LEFT_PAREN, RIGHT_PAREN, PIPE, DECLARE, EQUALS, COMMA, DOT = range(9, 16)

# `{{`, a trim marker, and the start of a comment.
OPENING = re.compile(r"\{\{(-[ \t\r\n])?(/\*)?")
COMMENT_END = re.compile(r"\*/(?:[ \t\r\n](-)\}\}|\}\})")

# Possessive groups are left out: before Python 3.11.3 they match too much. Nothing here can backtrack far.
_ENDS = r"(?=[ \t\r\n,|:()]|\}\}|\Z)"
TOKEN = re.compile(
    rf"""[ \t\r\n]*+(?:
    ((?<=[ \t\r\n])-\}}\}}|\}}\}})
    |(\.[^\W\d]\w*+(?:[./]\w++)*){_ENDS}
    |(\$\w*+(?:\.\w++(?:[./]\w++)*)?){_ENDS}
    |([^\W\d]\w*+){_ENDS}
    |("[^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*")
    |(`[^`]*+`)
    |([+-]?\.?[0-9](?:[eEpP][+-](?=[0-9])|[\w.])*)
    |('(?!')[^'\\\n]*+(?:\\[^\n][^'\\\n]*+)*')
    |(\()
    |(\)(?:\.\w++(?:[./]\w++)*)?)
    |(\|)
    |(:=)
    |(=)
    |(,)
    |(\.){_ENDS}
    )""",
    re.VERBOSE,
)


def no_token(source: str, position: int, opening: int) -> TemplateSyntaxError:
    """Say why no token starts here, in the action that opened at `opening`."""
    at = position
    while source[at : at + 1] and source[at] in SPACE:
        at += 1
    if at >= len(source):
        return TemplateSyntaxError("the action is not closed", offset=opening, hint="close it with `}}`")
    character = source[at]
    if character in "\"'":
        what = "text" if character == '"' else "character"
        return TemplateSyntaxError(f"the quoted {what} is not closed", offset=at)
    if character == "`":
        return TemplateSyntaxError("the raw text is not closed", offset=at, hint="close it with a backtick")
    if source.startswith("/*", at):
        hint = "write it as `{{/* … */}}`, or `{{- /* … */ -}}`"
        return TemplateSyntaxError("a comment must fill its action", offset=at, hint=hint)
    found = re.compile(r"[.$]?\w*(?:[./]\w+)*").match(source, at)
    if found and found.end() > at:
        return _after_name(source, at, found.end())
    if source.startswith("-}}", at):
        return TemplateSyntaxError("a space must stand before `-}}`", offset=at)
    return TemplateSyntaxError(f"unexpected character {shown(character)}", offset=at)


def _after_name(source: str, start: int, end: int) -> TemplateSyntaxError:
    """A name, and then something that may not follow a name."""
    if end >= len(source):
        return TemplateSyntaxError("the action is not closed", offset=start, hint="close it with `}}`")
    if source.startswith("-}}", end):
        return TemplateSyntaxError("a space must stand before `-}}`", offset=end)
    if source[end] == "-" and source[start] in ".$":
        whole = re.compile(r"[\w./$-]*").match(source, start)
        name = whole.group() if whole else ""
        key = name.rpartition(".")[2]
        of = name[: -len(key) - 1] or "."
        hint = f'write it as `index {of} "{key}"`'
        return TemplateSyntaxError(f"a path may not contain `-`: {shown(name)}", offset=end, hint=hint)
    name = shown(source[start:end])
    return TemplateSyntaxError(f"unexpected character {shown(source[end])} after {name}", offset=end)
