"""Contracts: how layers become one, what may run side by side, and what events say about it."""

import pytest

from gert.kernel.governance.contract import (
    ASSERT_CONTRACT,
    NOTHING,
    Contract,
    Declared,
    manual_contract,
    migrate,
    resolve,
)
from gert.kernel.governance.parameter import Parameter

NETWORK = frozenset(("network",))
PODS = frozenset(("pods",))
NONE: frozenset[str] = frozenset()
UNKNOWN = frozenset(("unknown",))


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        pytest.param((), Contract(omits_writes=True), id="nothing declared is the strictest contract"),
        pytest.param((NOTHING, NOTHING), Contract(omits_writes=True), id="empty layers change nothing"),
        pytest.param(
            (Declared(effects=NETWORK, deterministic=True), NOTHING, NOTHING),
            Contract(effects=NETWORK, deterministic=True, omits_writes=True),
            id="what inner layers omit is inherited",
        ),
        pytest.param(
            (Declared(effects=NETWORK), Declared(effects=PODS)),
            Contract(effects=NETWORK | PODS, omits_writes=True),
            id="effects of all layers add up",
        ),
        pytest.param(
            (Declared(writes=PODS), Declared(writes=NONE)),
            Contract(writes=PODS),
            id="an empty list takes nothing away",
        ),
        pytest.param(
            (Declared(idempotent=True), Declared(idempotent=False)),
            Contract(idempotent=False, omits_writes=True),
            id="a promise can be withdrawn",
        ),
        pytest.param(
            (Declared(idempotent=False), Declared(idempotent=True)),
            Contract(idempotent=False, omits_writes=True),
            id="a promise cannot be given back",
        ),
        pytest.param(
            (Declared(effects=NETWORK), Declared(idempotent=True)),
            Contract(effects=NETWORK, idempotent=True, omits_writes=True),
            id="an action may promise what its tool leaves open",
        ),
        pytest.param(
            (Declared(side_effects=False), Declared(side_effects=True, writes=NETWORK)),
            Contract(effects=UNKNOWN, writes=NETWORK),
            id="side_effects of two layers migrate and add up",
        ),
    ],
)
def test_how_layers_resolve(layers: tuple[Declared, ...], expected: Contract) -> None:
    assert resolve(*layers) == expected


@pytest.mark.parametrize(
    ("written", "effects"),
    [
        pytest.param(Declared(), None, id="nothing written stays undeclared"),
        pytest.param(Declared(side_effects=True), UNKNOWN, id="side_effects true becomes unknown"),
        pytest.param(Declared(side_effects=False), NONE, id="side_effects false becomes none"),
        pytest.param(Declared(side_effects=True, effects=NETWORK), NETWORK, id="effects win over side_effects true"),
        pytest.param(Declared(side_effects=False, effects=NETWORK), NETWORK, id="effects win over side_effects false"),
    ],
)
def test_how_side_effects_migrate(written: Declared, effects: frozenset[str] | None) -> None:
    migrated = migrate(written)
    assert (migrated.effects, migrated.side_effects) == (effects, None)


@pytest.mark.parametrize(
    ("settled", "layer", "expected"),
    [
        pytest.param(
            Contract(),
            Declared(effects=NETWORK),
            Contract(),
            id="a step cannot name the effects its tool hides",
        ),
        pytest.param(
            Contract(effects=NONE),
            Declared(idempotent=True, deterministic=True),
            Contract(effects=NONE),
            id="a step cannot promise for its tool",
        ),
        pytest.param(
            Contract(effects=NETWORK, idempotent=True),
            Declared(writes=PODS, idempotent=False),
            Contract(effects=NETWORK, writes=PODS),
            id="a step may add tags and withdraw promises",
        ),
    ],
)
def test_how_a_settled_contract_tightens(settled: Contract, layer: Declared, expected: Contract) -> None:
    assert settled.tightened(layer) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param(NOTHING, Contract(effects=UNKNOWN), id="a manual step may change anything"),
        pytest.param(Declared(side_effects=False), Contract(effects=NONE), id="its author may say it only looks"),
        pytest.param(
            Declared(effects=NONE, deterministic=True, idempotent=True),
            Contract(effects=NONE, deterministic=True, idempotent=True),
            id="its author may promise anything",
        ),
        pytest.param(
            Declared(writes=PODS),
            Contract(effects=UNKNOWN, writes=PODS),
            id="what is left out keeps its default",
        ),
    ],
)
def test_the_contract_of_a_manual_step(written: Declared, expected: Contract) -> None:
    assert manual_contract(written) == expected


def test_an_assertion_touches_nothing() -> None:
    assert not ASSERT_CONTRACT.has_effects
    assert not ASSERT_CONTRACT.may_write
    assert ASSERT_CONTRACT.deterministic
    assert ASSERT_CONTRACT.idempotent


READS = Contract(effects=NETWORK, reads=PODS)
WRITES = Contract(effects=NETWORK, writes=PODS)


def test_a_summary_is_json_with_sorted_tags() -> None:
    contract = Contract(effects=frozenset("ba"), writes=frozenset("dc"), idempotent=True)
    assert contract.summary() == {
        "effects": ["a", "b"],
        "reads": [],
        "writes": ["c", "d"],
        "deterministic": False,
        "idempotent": True,
    }
    assert Contract().summary()["effects"] is None


def test_a_full_contract_lists_its_parameters() -> None:
    contract = Contract(
        inputs={
            "host": Parameter(type="string", required=True, pattern="^h", description="where"),
            "token": Parameter(type="string", default="hunter2", has_default=True, secret=True),
            "size": Parameter(type="int", default=None, has_default=True, enum=(1, 2), min=1, max=2),
        }
    )
    assert contract.full()["inputs"] == {
        "host": {"type": "string", "required": True, "pattern": "^h", "description": "where"},
        "size": {"type": "int", "default": None, "enum": [1, 2], "min": 1, "max": 2},
        "token": {"type": "string", "secret": True},
    }
    assert contract.full()["outputs"] == {}


@pytest.mark.parametrize(
    ("contract", "has_effects", "may_write"),
    [
        pytest.param(Contract(), True, True, id="undeclared effects may be anything"),
        pytest.param(Contract(effects=NONE), False, False, id="no effects"),
        pytest.param(Contract(effects=NETWORK), True, False, id="effects without writes only read"),
        pytest.param(Contract(effects=NONE, writes=PODS), True, True, id="writes imply effects"),
        pytest.param(Contract(effects=UNKNOWN), True, True, id="an unknown effect may write"),
    ],
)
def test_what_a_contract_touches(contract: Contract, has_effects: bool, may_write: bool) -> None:
    assert (contract.has_effects, contract.may_write) == (has_effects, may_write)


def test_a_default_stands_in_for_a_required_value() -> None:
    assert Parameter(required=True).must_be_given
    assert not Parameter(required=True, default=None, has_default=True).must_be_given
    assert not Parameter().must_be_given
