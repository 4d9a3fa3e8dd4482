"""Contracts and decisions for people: effects, promises, parameters and needs on one line each."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from gert.kernel.foundation.duration import format_duration
from gert.kernel.governance.contract import Contract
from gert.kernel.governance.decide import Decision
from gert.kernel.governance.parameter import Parameter

VERDICT_COLOURS: Final = {"allow": "green", "require-approval": "yellow", "deny": "red"}
RISK_COLOURS: Final = {"low": "green", "medium": "yellow", "high": "red", "critical": "bright_red"}


def effects_text(contract: Contract) -> str:
    """The effects, or that none are declared."""
    return "undeclared" if contract.effects is None else ", ".join(sorted(contract.effects)) or "none"


def promises_text(contract: Contract) -> str:
    """What the contract promises about repeated execution."""
    kept = [name for name in ("deterministic", "idempotent") if getattr(contract, name)]
    return ", ".join(kept) or "-"


def parameter_text(parameter: Parameter) -> str:
    """The type of a parameter, and what else its author declared."""
    words: list[str] = [parameter.type]
    if parameter.must_be_given:
        words.append("required")
    if parameter.has_default and not parameter.secret:
        words.append(f"default {parameter.default!r}")
    if parameter.secret:
        words.append("secret")
    return ", ".join(words) + (f" - {parameter.description}" if parameter.description else "")


def needs_text(decision: Decision) -> Iterator[str]:
    """What an approval asks for, and what holds beside the verdict."""
    for key, value in decision.summary().items():
        if key in {"decision", "rules"}:
            continue
        shown = format_duration(timedelta(seconds=value)) if key == "approval_timeout" else _value(value)
        yield f"{key.replace('_', ' ')}: {shown}"


def _value(value: object) -> str:
    if isinstance(value, list):
        return "; ".join(", ".join(each) if isinstance(each, list) else str(each) for each in value)
    return "yes" if value is True else str(value)
