"""Findings as SARIF 2.1.0, for code-scanning services."""

import os
from typing import Any, Final

from gert._version import __version__
from gert.ecosystem.host.config.workspace import Checked
from gert.kernel.runbook.finding import Finding, Severity
from gert.kernel.runbook.validate.catalogue import RULES

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}


def sarif(checked: list[Checked]) -> dict[str, Any]:
    """One run with every finding and the rules behind them."""
    used = sorted({finding.rule for each in checked for finding in each.findings})
    index = {rule: number for number, rule in enumerate(used)}
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "gert",
                        "version": __version__,
                        "rules": [_rule(rule) for rule in used],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(each.file, finding, index) for each in checked for finding in each.findings],
            }
        ],
    }


def _rule(rule: str) -> dict[str, Any]:
    text = RULES[rule]
    return {
        "id": rule,
        "shortDescription": {"text": text.title},
        "help": {"text": text.help},
        "properties": {"phase": text.phase},
    }


def _result(file: str, finding: Finding, index: dict[str, int]) -> dict[str, Any]:
    hint = f"\nhint: {finding.hint}" if finding.hint else ""
    return {
        "ruleId": finding.rule,
        "ruleIndex": index[finding.rule],
        "level": LEVELS[finding.severity],
        "message": {"text": f"{finding.message}{hint}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(file)},
                    "region": {"startLine": max(1, finding.line), "startColumn": max(1, finding.column)},
                },
                "logicalLocations": [{"fullyQualifiedName": finding.where}],
            }
        ],
    }


def _uri(file: str) -> str:
    from urllib.parse import quote

    return quote(file.replace(os.sep, "/"), safe="/:")
