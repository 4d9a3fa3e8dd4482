"""Regular expressions in Go's syntax, compiled for Python only if they cannot run away."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from gert.errors import TemplateSyntaxError
from gert.kernel.template.wording import shown

if TYPE_CHECKING:
    from gert.kernel.template.backtracking import Cost

MAX_PATTERN = 1000
MAX_TEXT = 1_000_000
_STEPS_AT_ONCE = 10_000  # steps of Python's matcher that count as one of a template


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern, or say why it is none or could take too long."""
    return _judged(str(pattern))[0]


def search(pattern: str, text: str, spend: Callable[[int], None] | None = None) -> re.Match[str] | None:
    """Search a text, after spending what that may take; ValueError says that the text is too long."""
    compiled, cost = _judged(str(pattern))
    longest = len(text)
    lines = 1
    if cost.per_line and cost.chain > 1 and longest <= MAX_TEXT:
        lines = text.count("\n") + 1
        longest = max(map(len, text.split("\n")))
    if longest > cost.longest:
        where = "a line" if cost.per_line else "the text"
        raise ValueError(f"{where} is longer than {cost.longest} characters, the limit for this pattern")
    if spend:
        spend(int(cost.steps(longest) * lines / _STEPS_AT_ONCE))
    return compiled.search(text)


@lru_cache(maxsize=1024)
def _judged(pattern: str) -> "tuple[re.Pattern[str], Cost]":
    # Few templates hold patterns; those that hold none need not load what judges them.
    from gert.kernel.template.backtracking import cost_of
    from gert.kernel.template.pattern_syntax import pattern_of, python_of

    if len(pattern) > MAX_PATTERN:
        raise TemplateSyntaxError(f"the pattern is longer than {MAX_PATTERN} characters")
    part = pattern_of(pattern)
    try:
        cost = cost_of(part)
        return re.compile(python_of(part)), cost
    except TemplateSyntaxError as error:
        raise TemplateSyntaxError(f"bad pattern {shown(pattern)}: {error.message}", hint=error.hint) from None
    except (re.error, OverflowError, RecursionError):
        raise TemplateSyntaxError(f"bad pattern {shown(pattern)}") from None
