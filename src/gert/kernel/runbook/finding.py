"""Findings: what validation has to say about a document, in one shape for every phase and surface."""

from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec

from gert.kernel.foundation.ranked import Ranked

Path: TypeAlias = tuple[str | int, ...]


class Severity(Ranked):
    """Ordered, so that the worst finding is simply the max."""

    NOTE = 0
    WARNING = 1
    ERROR = 2


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to say about one place in one document.

    Rules give the path; the place in the text is filled in once, by `Tree.place`. `on_key` points at the
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
        """The path as people write it: `steps[2].inputs.url`."""
        return path_text(self.path)

    def as_json(self) -> dict[str, Any]:
        """The finding as machines read it."""
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
    """A finding that makes the document invalid."""
    return Finding(rule=rule, severity=Severity.ERROR, path=path, message=message, hint=hint, on_key=on_key)


def warning(rule: str, path: Path, message: str, hint: str | None = None, *, on_key: bool = False) -> Finding:
    """A finding that fails only a strict check."""
    return Finding(rule=rule, severity=Severity.WARNING, path=path, message=message, hint=hint, on_key=on_key)


def note(rule: str, path: Path, message: str, hint: str | None = None) -> Finding:
    """Something worth knowing that never fails a check."""
    return Finding(rule=rule, severity=Severity.NOTE, path=path, message=message, hint=hint)


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
    """Sort by place, then worst first, then rule, and drop exact repetitions."""
    unique = {(f.rule, f.path, f.message, f.line, f.column): f for f in findings}
    return sorted(unique.values(), key=lambda f: (f.line, f.column, -f.severity, f.rule, f.where, f.message))
