"""The result of validation as machines read it: the same for `gert validate --json`, agents and editors."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gert.ecosystem.host.shapes import CheckedFile, Validation
from gert.kernel.runbook.finding import Severity

if TYPE_CHECKING:
    from gert.ecosystem.host.config.workspace import Checked


def validation_of(
    checked: "Sequence[Checked]",
    counted: Counter[Severity],
    *,
    valid: bool,
    shown: Callable[[str], str] = str,
    most: int | None = None,
) -> Validation:
    """The findings of files; with `most`, only so many files, and so many findings of each."""
    return {
        "valid": valid,
        "files": [_file(each, shown, most) for each in checked[:most]],
        "summary": {
            "errors": counted[Severity.ERROR],
            "warnings": counted[Severity.WARNING],
            "notes": counted[Severity.NOTE],
        },
    }


def _file(checked: "Checked", shown: Callable[[str], str], most: int | None) -> CheckedFile:
    return {
        "file": shown(checked.file),
        "kind": checked.document.kind,
        "valid": checked.document.is_sound,
        "findings": [
            {
                "rule": each.rule,
                "severity": each.severity.word,
                "path": each.where,
                "line": each.line,
                "column": each.column,
                "message": each.message,
                "hint": each.hint,
            }
            for each in checked.findings[:most]
        ],
        "secrets": [{"env": each.env, "required": each.required, "present": each.present} for each in checked.secrets],
    }
