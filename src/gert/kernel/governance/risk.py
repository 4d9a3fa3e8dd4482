"""Derives the risk of a contract (ecosystem-v0 §3).

Derived risk is a heuristic. A rule on `effects` and `writes` is more precise than one on `risk: high`.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from gert.kernel.foundation.ordered_word import OrderedWord
from gert.kernel.governance.contract import Contract


class Risk(OrderedWord):
    """Ordered, so that a higher risk is greater."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2
    CRITICAL = 3


class RiskRow(msgspec.Struct, frozen=True):
    """One row of the risk table: the reason in words, its condition, and the risk."""

    reason: str
    holds: Callable[[Contract], bool]
    risk: Risk


# The first row that holds decides. Writing without effects counts as effects with writes, and so does the
# effect `unknown`: an undeclared change is not read-only. That keeps `side_effects: true`
# where kernel-v0 §9 put it.
RISK_TABLE: Final[tuple[RiskRow, ...]] = (
    RiskRow("effects are not declared", lambda c: c.effects is None, Risk.CRITICAL),
    RiskRow("no effects, no writes", lambda c: not c.has_effects, Risk.LOW),
    RiskRow("effects but no writes", lambda c: not c.may_write, Risk.LOW),
    RiskRow("writes, idempotent", lambda c: c.idempotent, Risk.MEDIUM),
    RiskRow("writes, not idempotent, deterministic", lambda c: c.deterministic, Risk.HIGH),
    RiskRow("writes, neither idempotent nor deterministic", lambda _: True, Risk.CRITICAL),
)


def assess(contract: Contract) -> RiskRow:
    """Return the row of the risk table for a contract."""
    return next(row for row in RISK_TABLE if row.holds(contract))


def risk_of(contract: Contract) -> Risk:
    """Return the risk of a contract."""
    return assess(contract).risk
