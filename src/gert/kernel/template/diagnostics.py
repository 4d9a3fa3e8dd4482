"""Syntax errors and hints for invalid tokens and unknown functions, above all from other template languages."""

import re
from collections.abc import Mapping

from gert.errors import TemplateSyntaxError
from gert.kernel.template import rewrite
from gert.kernel.template.functions import FUNCTIONS
from gert.kernel.template.lexer import SPACE
from gert.kernel.template.wording import shown

_NAME = re.compile(r"[.$]?\w*(?:[./]\w+)*")
_DASHED = re.compile(r"[.$]?\w*(?:[./-]\w+)*")

_ENDS = re.compile(r"\s*(-?\}\}|\||\)|$)")

_LONGEST_REWRITTEN = 200

# Longer operators first.
_OPERATORS: Mapping[str, str] = {
    "==": "eq",
    "!=": "ne",
    "&&": "and",
    "||": "or",
    ">=": "ge",
    "<=": "le",
    "??": "default",
    ">": "gt",
    "<": "lt",
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "%": "mod",
    "=": "eq",
    "in": "contains",
}

_WORDS: Mapping[str, str] = {
    **dict.fromkeys(["elif", "elseif", "elsif"], "write `{{ else if … }}`"),
    **dict.fromkeys(["endif", "endfor", "endwith", "endrange"], "write `{{ end }}`"),
    **dict.fromkeys(["for", "foreach", "while"], "write `{{ range $x := .xs }}`"),
    **dict.fromkeys(["set", "let", "var", "assign"], "write `{{ $x := … }}`"),
    **dict.fromkeys(["switch", "case"], "write `{{ if … }}` and `{{ else if … }}`"),
    **dict.fromkeys(["include", "import", "extends", "macro"], "a template cannot include another"),
    **dict.fromkeys(["null", "None", "undefined"], "`not .x` asks whether there is nothing"),
    **dict.fromkeys(["True", "TRUE"], "write `true`"),
    **dict.fromkeys(["False", "FALSE"], "write `false`"),
}

# Functions of other template languages that read the environment, which this language does not.
_WORLD: Mapping[str, str] = {
    **dict.fromkeys(["now", "date", "dateModify", "dateInZone", "ago", "time", "today", "unixEpoch"], "clock"),
    **dict.fromkeys(["env", "getenv", "expandenv", "environ"], "environment"),
    **dict.fromkeys(["readFile", "readDir", "file", "fileExists", "glob"], "files"),
    **dict.fromkeys(["random", "shuffle", "genPassword"], "randomness"),
    **dict.fromkeys(["getHostByName", "lookup", "httpGet"], "network"),
}

_SYNONYMS: Mapping[str, str] = {
    **dict.fromkeys(["concat", "cat"], "print"),
    **dict.fromkeys(["length", "size", "count"], "len"),
    **dict.fromkeys(["str", "string"], "toString"),
    "strip": "trim",
    "get": "index",
}


def no_token(source: str, position: int, opening: int) -> TemplateSyntaxError:
    """Return the error for an invalid token, in the action that opened at `opening`."""
    at = position
    while source[at : at + 1] and source[at] in SPACE:
        at += 1
    if at >= len(source):
        return TemplateSyntaxError("the action is not closed", offset=opening, hint="close it with `}}`")
    if source[at] in "\"'`":
        return _open_quotes(source[at], at)
    if source.startswith("/*", at):
        hint = "write it as `{{/* … */}}`, or `{{- /* … */ -}}`"
        return TemplateSyntaxError("a comment must fill its action", offset=at, hint=hint)
    found = _NAME.match(source, at)
    if found and found.end() > at:
        return _after_name(source, at, found.end(), opening)
    if source.startswith("-}}", at):
        return TemplateSyntaxError("a space must precede `-}}`", offset=at)
    return _no_operator(source, at, opening) or _odd_character(source, at, opening)


def _open_quotes(quote: str, at: int) -> TemplateSyntaxError:
    if quote == "`":
        return TemplateSyntaxError("the raw text is not closed", offset=at, hint="close it with a backtick")
    if quote == "'":
        hint = "text must be in double quotes"
        return TemplateSyntaxError("the quoted character is not closed", offset=at, hint=hint)
    return TemplateSyntaxError("the quoted text is not closed", offset=at)


def _after_name(source: str, start: int, end: int, opening: int) -> TemplateSyntaxError:
    """Return the error for an invalid character after a name."""
    if end >= len(source):
        return TemplateSyntaxError("the action is not closed", offset=start, hint="close it with `}}`")
    if source.startswith("-}}", end):
        return TemplateSyntaxError("a space must precede `-}}`", offset=end)
    name = source[start:end]
    if source[end] == "[":
        return _subscript(source, start, end, opening)
    dashed = _DASHED.match(source, start)
    whole = dashed.group() if dashed else name
    if len(whole) > _LONGEST_REWRITTEN:
        return TemplateSyntaxError(f"{shown(whole)} is not a path", offset=start)
    inner = rewrite.begun(source, opening, start)
    if name[0] not in ".$" and re.search("[./]", whole):
        hint = f"write `{rewrite.path('.' + whole, inner)}`"
        return TemplateSyntaxError(f"a path begins with a dot: {shown(whole)}", offset=start, hint=hint)
    if len(whole) > len(name):
        dotted = whole if name[0] in ".$" else f".{whole}"
        hint = f"write it as `{rewrite.path(dotted, inner)}`"
        if dotted == whole and whole[len(name) + 1 :].isdecimal():
            hint += f", or `sub {name} {whole[len(name) + 1 :]}` to subtract"
        return TemplateSyntaxError(f"a path may not contain `-`: {shown(whole)}", offset=end, hint=hint)
    wrong = _no_operator(source, end, opening)
    return wrong or TemplateSyntaxError(f"unexpected character {shown(source[end])} after {shown(name)}", offset=end)


def _no_operator(source: str, at: int, opening: int) -> TemplateSyntaxError | None:
    """Return the error for an operator of another language; here the function comes first."""
    if source.startswith("%}", at):
        return None
    symbol = next((each for each in _OPERATORS if source.startswith(each, at) and not each.isalpha()), None)
    if symbol:
        hint = operator_hint(source, at, opening, symbol)
    elif source[at] == "!":
        symbol, right = "!", rewrite.right(source, at + 1)
        hint = f"write `not {right or '.x'}`"
    elif source[at] == "?":
        symbol, hint = "?", _ternary(source, at, opening)
    else:
        return None
    return TemplateSyntaxError(f"`{symbol}` is not part of the template language", offset=at, hint=hint)


def operator_hint(source: str, at: int, opening: int, symbol: str) -> str | None:
    """Return a hint with the call to use instead of an operator, or None if it is not one."""
    name = _OPERATORS.get(symbol, symbol)
    if name not in FUNCTIONS:
        return None
    left, right = rewrite.left(source, opening, at), rewrite.right(source, at + len(symbol))
    if left is None or right is None:
        return f"the function comes first, as in `{name} .a .b`"
    if name == "add" and (left[0] in '"`' or right[0] in '"`'):
        name = "print"
    if name == "default":
        left, right = right, left
    return f"write `{name} {left} {right}`"


def _ternary(source: str, at: int, opening: int) -> str:
    judged, yes = rewrite.left(source, opening, at), rewrite.right(source, at + 1)
    colon = source.find(":", at)
    no = rewrite.right(source, colon + 1) if colon > 0 else None
    if judged and yes and no:
        return f"write `ternary {yes} {no} {judged}`"
    return 'use `ternary`, as in `ternary "yes" "no" .x`'


def _odd_character(source: str, at: int, opening: int) -> TemplateSyntaxError:
    if source[at] == "[" and source[at - 1] in ')"`':
        return _subscript(source, None, at, opening)
    hint = None
    if source.startswith(("{%", "%}"), at):
        hint = "actions are written between `{{` and `}}`, `{%` means nothing"
    elif source[at] == "{":
        hint = "an action begins with two braces"
    elif source[at] == "}":
        hint = "close it with `}}`"
    elif source[at] == ":":
        hint = _colon(source, at)
    return TemplateSyntaxError(f"unexpected character {shown(source[at])}", offset=at, hint=hint)


def _colon(source: str, at: int) -> str | None:
    word = re.search(r"\w+\Z", source[max(at - 40, 0) : at])
    if word is None or word.group() not in FUNCTIONS:
        return None
    return f"arguments follow a space: write `{word.group()} {rewrite.right(source, at + 1) or '…'}`"


def _subscript(source: str, start: int | None, at: int, opening: int) -> TemplateSyntaxError:
    of = rewrite.left(source, opening, at) if start is None else source[start:at]
    if of is None or len(of) > _LONGEST_REWRITTEN:
        of = ".x"
    inner = start is not None and rewrite.begun(source, opening, start)
    hint = f"write `{rewrite.subscript(source, of, at, inner)}`"
    return TemplateSyntaxError("`[` is not part of the template language", offset=at, hint=hint)


def unknown_function(name: str, source: str, at: int) -> TemplateSyntaxError:
    """Return the error for a word that is not a function."""
    known = word_hint(name, source, at)
    if known:
        return TemplateSyntaxError(f"`{name}` is not part of the template language", offset=at, hint=known)
    # A word without arguments is the name of data without its dot: no function is called that way.
    is_alone = _ENDS.match(source, at + len(name)) is not None
    return TemplateSyntaxError(f"unknown function {shown(name)}", offset=at, hint=_instead(name, is_alone=is_alone))


def word_hint(name: str, source: str, at: int) -> str | None:
    """Return a hint for a word of another language."""
    if name in ("for", "foreach"):
        loop = re.compile(r"\w+\s+\$?(\w+)(?:\s*,\s*\$?(\w+))?\s+in\s+([.$]?[\w.]+)").match(source, at)
        if loop:
            names = ", ".join(f"${each}" for each in loop.groups()[:2] if each)
            over = loop[3] if loop[3][0] in ".$" else f".{loop[3]}"
            return f"write `{{{{ range {names} := {over} }}}}`"
    return _WORDS.get(name)


def _instead(name: str, *, is_alone: bool) -> str:
    world = _WORLD.get(name) or ("randomness" if re.match("rand[A-Z]|uuid", name) else None)
    if world:
        return f"a template has no {world}; give it the value as data"
    if name in _SYNONYMS:
        return f"did you mean `{_SYNONYMS[name]}`?"
    from difflib import get_close_matches

    known = {word.lower(): word for word in FUNCTIONS}
    near = [] if is_alone else get_close_matches(name.lower(), known, n=1)
    if near:
        return f"did you mean `{known[near[0]]}`?"
    return f'write `.{name}` for data, or `"{name}"` for text'
