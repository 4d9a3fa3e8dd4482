"""Constant guards (`when`, `condition`, `until`): text outside a template makes them the same in every run."""

import re
from typing import Final

from gert.errors import TemplateSyntaxError
from gert.kernel.foundation.text import shorten
from gert.kernel.runbook.finding import Finding, Path, error, warning
from gert.kernel.template import Template, parse, truth
from gert.kernel.template.tree import Text

_COMPARISONS: Final = {"==": "eq", "=": "eq", "!=": "ne", "<=": "le", ">=": "ge", "<": "lt", ">": "gt"}
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*"
_COMPARISON: Final = re.compile(rf"\.?({_NAME})\s*(==|!=|<=|>=|=|<|>)\s*(\S.*)")
_NEGATION: Final = re.compile(rf"(?:!|not\s)\s*\.?({_NAME})")
_QUOTED: Final = re.compile(r"""(["'])([^"'\\`]*)\1""")
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?|true|false")
_TEMPLATE: Final = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}")
_EXAMPLE: Final = 'use a template such as `{{ eq .status "ok" }}`'
_WORDS: Final = {"yes": "true", "on": "true", "no": "false", "off": "false"}


def constant_guard(rule: str, path: Path, what: str, guard: Template) -> Finding | None:
    """Report a guard that is the same in every run, unless it is `true` or `false`."""
    text = guard.source.strip()
    if guard.is_text:
        always = "true" if truth(text) else "false"
        message = f"{what} `{shorten(text)}` is text without a template, so it is always {always}"
    elif _has_text_outside(guard):
        message = f"{what} `{shorten(text)}` has text outside its template, so it is always true"
    else:
        return None
    if text.lower() in {"true", "false"}:
        return warning(rule, path, message, _EXAMPLE)
    guess = guess_template(_TEMPLATE.sub(r"\1", text))
    return error(rule, path, message, f"use `{guess}`" if guess else _EXAMPLE)


def _has_text_outside(guard: Template) -> bool:
    """Return whether a guard renders text besides its value, so that it is never empty or `false`."""
    outside = [each.text.strip().lower() for each in guard.statements if isinstance(each, Text)]
    return any(text not in "false" for text in outside)


def guess_template(text: str) -> str | None:
    """Guess the template that the author of a text meant; None if it cannot be guessed."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if compared := _COMPARISON.fullmatch(text):
        return _parsed_template(f"{_COMPARISONS[compared[2]]} .{compared[1]} {_operand(compared[3].strip())}")
    if negated := _NEGATION.fullmatch(text):
        return _parsed_template(f"not .{negated[1]}")
    return _parsed_template(text) or (_parsed_template(f".{text}") if re.fullmatch(_NAME, text) else None)


def _operand(text: str) -> str:
    """Return the right-hand side of a comparison; a bare word was most likely meant as text."""
    if quoted := _QUOTED.fullmatch(text):
        return f'"{quoted[2]}"'
    if _NUMBER.fullmatch(text) or text.startswith("."):
        return text
    return f'"{text}"' if re.fullmatch(r"[\w-]+", text) else "?"


def _parsed_template(inside: str) -> str | None:
    """Return the text as a template, if it parses and reads a name."""
    try:
        template = parse(f"{{{{ {inside} }}}}")
    except TemplateSyntaxError:
        return None
    return template.source if template.references and template.source.isprintable() else None
