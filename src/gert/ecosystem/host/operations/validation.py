"""The result of validation as machines read it: the same for `gert validate --json`, agents and editors."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from gert.kernel.runbook.finding import Severity

if TYPE_CHECKING:
    from gert.ecosystem.host.config.workspace import Checked
    from gert.ecosystem.host.shapes.documents import CheckedFile, Finding, Validation


def passes(counted: Counter[Severity], *, strict: bool = False) -> bool:
    """Whether findings let a document pass: no errors, and with `strict` no warnings."""
    return not counted[Severity.ERROR] and not (strict and counted[Severity.WARNING])


def is_valid(checked: "Checked", *, strict: bool = False) -> bool:
    """Whether one document passes."""
    return checked.document.is_sound and passes(Counter(each.severity for each in checked.findings), strict=strict)


def validation_of(
    checked: "Sequence[Checked]",
    counted: Counter[Severity],
    *,
    valid: bool,
    strict: bool = False,
    shown: Callable[[str], str] = str,
    most: int | None = None,
    skipped: int = 0,
) -> "Validation":
    """The findings of files; with `most`, only so many files, and so many findings of each.

    skipped: how many other YAML files the folders hold
    """
    return {
        "valid": valid,
        "files": [_file(each, shown, most, strict=strict) for each in checked[:most]],
        "summary": {
            "errors": counted[Severity.ERROR],
            "warnings": counted[Severity.WARNING],
            "notes": counted[Severity.NOTE],
            "skipped": skipped,
            "unfinished": sum(not each.document.is_checked for each in checked),
        },
    }


def _file(checked: "Checked", shown: Callable[[str], str], most: int | None, *, strict: bool) -> "CheckedFile":
    return {
        "file": shown(checked.file),
        "kind": checked.document.kind,
        "valid": is_valid(checked, strict=strict),
        "findings": [cast("Finding", each.as_json()) for each in checked.findings[:most]],
        "secrets": [{"env": each.env, "required": each.required, "present": each.present} for each in checked.secrets],
    }
