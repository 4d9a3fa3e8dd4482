"""Risk: every row of the table, and the words for it."""

import pytest

from gert.kernel.governance.contract import ASSERT_CONTRACT, Contract, Declared, manual_contract, resolve
from gert.kernel.governance.risk import RISK_TABLE, Risk, assess, risk_of

NETWORK = frozenset(("network",))
PODS = frozenset(("pods",))
NONE: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("contract", "risk", "reason"),
    [
        pytest.param(Contract(), Risk.CRITICAL, "effects are not declared", id="nothing declared is critical"),
        pytest.param(
            Contract(writes=PODS, idempotent=True, deterministic=True),
            Risk.CRITICAL,
            "effects are not declared",
            id="writes do not stand in for declared effects",
        ),
        pytest.param(Contract(effects=NONE), Risk.LOW, "no effects, no writes", id="no effects, no writes"),
        pytest.param(Contract(effects=NETWORK), Risk.LOW, "effects but no writes", id="read-only effects"),
        pytest.param(Contract(effects=NETWORK, reads=PODS), Risk.LOW, "effects but no writes", id="reads add no risk"),
        pytest.param(
            Contract(effects=NETWORK, writes=PODS, idempotent=True),
            Risk.MEDIUM,
            "writes, idempotent",
            id="writes that can be repeated",
        ),
        pytest.param(
            Contract(effects=NETWORK, writes=PODS, deterministic=True),
            Risk.HIGH,
            "writes, not idempotent, deterministic",
            id="writes that cannot be repeated, but are predictable",
        ),
        pytest.param(
            Contract(effects=NETWORK, writes=PODS),
            Risk.CRITICAL,
            "writes, neither idempotent nor deterministic",
            id="writes that are neither",
        ),
        pytest.param(
            Contract(effects=NONE, writes=PODS, idempotent=True),
            Risk.MEDIUM,
            "writes, idempotent",
            id="writes without effects count as effects with writes",
        ),
        pytest.param(
            resolve(Declared(side_effects=False)),
            Risk.LOW,
            "no effects, no writes",
            id="side_effects false is low",
        ),
        pytest.param(
            resolve(Declared(side_effects=True, idempotent=True)),
            Risk.MEDIUM,
            "writes, idempotent",
            id="side_effects true and idempotent is medium",
        ),
        pytest.param(
            resolve(Declared(side_effects=True, deterministic=True)),
            Risk.HIGH,
            "writes, not idempotent, deterministic",
            id="side_effects true and only deterministic is high",
        ),
        pytest.param(
            resolve(Declared(side_effects=True)),
            Risk.CRITICAL,
            "writes, neither idempotent nor deterministic",
            id="side_effects true and neither is critical",
        ),
        pytest.param(
            manual_contract(),
            Risk.CRITICAL,
            "writes, neither idempotent nor deterministic",
            id="a manual step without a contract is critical",
        ),
        pytest.param(
            manual_contract(Declared(side_effects=False)),
            Risk.LOW,
            "no effects, no writes",
            id="a manual step that only looks is low",
        ),
        pytest.param(ASSERT_CONTRACT, Risk.LOW, "no effects, no writes", id="an assertion is low"),
    ],
)
def test_the_risk_of_a_contract(contract: Contract, risk: Risk, reason: str) -> None:
    row = assess(contract)
    assert (risk_of(contract), row.risk, row.reason) == (risk, risk, reason)


def test_the_last_row_always_holds() -> None:
    assert RISK_TABLE[-1].holds(Contract())
    assert RISK_TABLE[-1].risk is Risk.CRITICAL


@pytest.mark.parametrize("word", ["low", "medium", "high", "critical"])
def test_words_and_risks_correspond(word: str) -> None:
    assert Risk.from_word(word).word == word


@pytest.mark.parametrize("word", ["LOW", "severe", ""])
def test_other_words_are_refused(word: str) -> None:
    with pytest.raises(ValueError, match=f"expected one of low, medium, high, critical, found `{word}`"):
        Risk.from_word(word)
