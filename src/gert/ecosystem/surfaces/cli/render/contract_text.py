"""Contracts for people: effects, promises and parameters on one line each."""

from typing import Final

from gert.kernel.governance.contract import Contract
from gert.kernel.governance.parameter import Parameter

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
