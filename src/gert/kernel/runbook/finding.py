"""Findings: what validation reports about a document, in one form for every phase and surface."""

import re
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import msgspec

from gert.kernel.foundation.ordered_word import OrderedWord

Path: TypeAlias = tuple[str | int, ...]

_LONG: Final = 300
_LONGEST_QUOTED: Final = 60
_QUOTED: Final = re.compile(f"`([^`]{{{_LONGEST_QUOTED - 1}}})[^`]+`")


class Severity(OrderedWord):
    """Ordered, so that the worst finding is the max."""

    NOTE = 0
    WARNING = 1
    ERROR = 2


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One report about one place in one document.

    Rules set the path; `Tree.place` fills in the line and column. `on_key` points at the
    key rather than its value. `offset` points into the text of a scalar, for templates.
    """

    rule: str
    severity: Severity
    path: Path
    message: str
    hint: str | None = None
    line: int = 0
    column: int = 0
    on_key: bool = False
    offset: int | None = None

    @property
    def where(self) -> str:
        """The path as text: `steps[2].inputs.url`."""
        return path_text(self.path)

    def as_json(self) -> dict[str, Any]:
        """Return the finding as JSON data."""
        return {
            "rule": self.rule,
            "severity": self.severity.word,
            "path": self.where,
            "line": self.line,
            "column": self.column,
            "message": self.message,
            "hint": self.hint,
        }


def error(rule: str, path: Path, message: str, hint: str | None = None, *, on_key: bool = False) -> Finding:
    """Return a finding that makes the document invalid."""
    return _finding(rule, Severity.ERROR, path, message, hint, on_key=on_key)


def warning(rule: str, path: Path, message: str, hint: str | None = None, *, on_key: bool = False) -> Finding:
    """Return a finding that fails only a strict check."""
    return _finding(rule, Severity.WARNING, path, message, hint, on_key=on_key)


def at_offset(offset: int, finding: Finding) -> Finding:
    """Return a finding that points into the text of its scalar."""
    return msgspec.structs.replace(finding, offset=offset)


def note(rule: str, path: Path, message: str, hint: str | None = None) -> Finding:
    """Return information that never fails a check."""
    return _finding(rule, Severity.NOTE, path, message, hint, on_key=False)


def _finding(rule: str, severity: Severity, path: Path, message: str, hint: str | None, *, on_key: bool) -> Finding:
    told = None if hint is None else _bounded(hint)
    return Finding(rule=rule, severity=severity, path=path, message=_bounded(message), hint=told, on_key=on_key)


def _bounded(words: str) -> str:
    """Shorten long quoted names in a message: a name may be as long as a document."""
    return words if len(words) <= _LONG else _QUOTED.sub(r"`\1…`", words)


def path_text(path: Path) -> str:
    """Render a path as `steps[2].inputs.url`."""
    parts: list[str] = []
    for segment in path:
        if isinstance(segment, int):
            parts.append(f"[{segment}]")
        else:
            parts.append(f".{segment}" if parts else segment)
    return "".join(parts)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Sort by position, then worst first, then rule, and drop exact duplicates."""
    unique = {(f.rule, f.path, f.message, f.line, f.column): f for f in findings}
    return sorted(unique.values(), key=lambda f: (f.line, f.column, -f.severity, f.rule, f.where, f.message))
