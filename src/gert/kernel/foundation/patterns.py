"""Patterns: regular expressions as Go knows them, matched in time linear in the text.

RE2 is Go's own engine. Python's engine backtracks, and a runbook's pattern is matched against any tool output.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, Protocol

from gert.errors import PatternError

MAX_PATTERN: Final = 1000

# RE2 names what it does not support; these hints say what to do.
_HINTS: Final = {
    "invalid perl operator": "lookahead and lookbehind are not supported",
    "invalid escape sequence": "backreferences are not supported; escape a backslash as `\\\\`",
    "no argument for repetition operator": "escape `*`, `+` and `?` to match them as they are",
    "missing ": "escape brackets to match them as they are",
}


class Match(Protocol):
    """One match of a pattern."""

    def group(self, group: int | str = 0, /) -> str | None:
        """Return the text of a group; 0 is the whole match."""

    def groups(self) -> tuple[str | None, ...]:
        """Return the texts of all groups."""


class Pattern:
    """A compiled pattern."""

    __slots__ = ("_compiled", "source")

    def __init__(self, source: str, compiled: Any) -> None:
        self.source = source
        self._compiled = compiled

    def search(self, text: str) -> Match | None:
        """Return the first match in a text; `$` matches only its very end."""
        try:
            found: Match | None = self._compiled.search(text)
        except UnicodeEncodeError:
            # A lone surrogate, as in a tool's broken output, is replaced so that RE2 accepts the text.
            found = self._compiled.search(text.encode("utf-8", "replace").decode("utf-8"))
        return found

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of every match; matches do not overlap."""
        try:
            found = list(self._compiled.finditer(text))
        except UnicodeEncodeError:
            # As in `search`; a replaced surrogate is also one character, so that positions stay the same.
            found = list(self._compiled.finditer(text.encode("utf-8", "replace").decode("utf-8")))
        return (match.span() for match in found)


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Pattern:
    """Compile a pattern; PatternError says why it is invalid."""
    if len(pattern) > MAX_PATTERN:
        raise PatternError(f"the pattern is longer than {MAX_PATTERN} characters")
    import re2  # loads a shared library, and most commands meet no pattern

    options = re2.Options()
    options.log_errors = False
    try:
        return Pattern(pattern, re2.compile(pattern, options))
    except (re2.error, UnicodeEncodeError) as problem:
        detail = _words(problem)
        hint = next((hint for start, hint in _HINTS.items() if detail.startswith(start)), None)
        shown = pattern if len(pattern) <= 60 else pattern[:59] + "…"
        raise PatternError(f"`{shown}` is not a regular expression: {detail}", hint=hint) from None


def _words(problem: Exception) -> str:
    [first, *_] = problem.args or ("it does not compile",)
    if isinstance(problem, UnicodeEncodeError):
        return "it contains a lone surrogate"
    return first.decode("utf-8", "replace") if isinstance(first, bytes) else str(first)
