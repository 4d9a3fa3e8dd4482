"""Rules: when one matches, how it is named, and when it can never decide."""

import pytest

from gert.kernel.governance.contract import Contract
from gert.kernel.governance.risk import Risk, risk_of
from gert.kernel.governance.rules import (
    ContractMatch,
    Limits,
    Policy,
    Rule,
    Subject,
    condition_text,
    ends_matching,
    first_failing,
    is_unconditional,
    label,
    shadowed,
)
from gert.kernel.governance.verdict import Verdict

ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.REQUIRE_APPROVAL, Verdict.DENY
NONE: frozenset[str] = frozenset()


def tags(*words: str) -> frozenset[str]:
    return frozenset(words)


CRITICAL, HIGH = frozenset((Risk.CRITICAL,)), frozenset((Risk.HIGH,))
DELETE = Contract(effects=tags("kubernetes"), writes=tags("pods"), reads=tags("cluster"))
READ = Contract(effects=tags("kubernetes"), idempotent=True, deterministic=True)
PURE = Contract(effects=NONE, idempotent=True, deterministic=True)
SILENT = Contract()


@pytest.mark.parametrize(
    ("rule", "contract", "failing"),
    [
        pytest.param(Rule(default=ALLOW), DELETE, None, id="a default matches everything"),
        pytest.param(Rule(action=DENY), DELETE, None, id="so does a rule without matchers"),
        pytest.param(Rule(risk=CRITICAL), DELETE, None, id="the risk named"),
        pytest.param(Rule(risk=CRITICAL | HIGH), DELETE, None, id="one of several risks"),
        pytest.param(Rule(risk=HIGH), DELETE, "risk: high", id="another risk"),
        pytest.param(Rule(risk=frozenset()), DELETE, "risk: []", id="no risk at all never matches"),
        pytest.param(Rule(effects=tags("kubernetes")), DELETE, None, id="an effect it has"),
        pytest.param(Rule(effects=tags("azure", "kubernetes")), DELETE, None, id="any of the effects listed"),
        pytest.param(Rule(effects=tags("azure")), DELETE, "effects: [azure]", id="an effect it lacks"),
        pytest.param(Rule(effects=tags("unknown")), SILENT, None, id="undeclared effects match unknown"),
        pytest.param(Rule(effects=tags("azure")), SILENT, "effects: [azure]", id="and no other"),
        pytest.param(Rule(effects=NONE), PURE, None, id="an empty list of effects asks for none"),
        pytest.param(Rule(effects=NONE), READ, "effects: []", id="which a read has"),
        pytest.param(Rule(effects=NONE), SILENT, "effects: []", id="and a silent contract may have"),
        pytest.param(Rule(writes=tags("pods")), DELETE, None, id="a resource it writes"),
        pytest.param(Rule(writes=tags("pods", "nodes")), DELETE, None, id="any of the writes listed"),
        pytest.param(Rule(writes=tags("nodes")), DELETE, "writes: [nodes]", id="a resource it does not write"),
        pytest.param(Rule(writes=NONE), READ, None, id="an empty list of writes asks for read-only"),
        pytest.param(Rule(writes=NONE), DELETE, "writes: []", id="which a delete is not"),
        pytest.param(Rule(writes=NONE), SILENT, "writes: []", id="and a silent contract may not be"),
        pytest.param(Rule(reads=tags("cluster")), DELETE, None, id="a resource it reads"),
        pytest.param(Rule(reads=tags("nodes")), DELETE, "reads: [nodes]", id="a resource it does not read"),
        pytest.param(Rule(reads=NONE), READ, None, id="an empty list of reads asks for none"),
        pytest.param(Rule(deterministic=True), READ, None, id="deterministic as asked"),
        pytest.param(Rule(deterministic=True), DELETE, "deterministic: true", id="not deterministic"),
        pytest.param(Rule(deterministic=False), DELETE, None, id="false asks for not deterministic"),
        pytest.param(Rule(idempotent=False), DELETE, None, id="not idempotent as asked"),
        pytest.param(Rule(idempotent=False), READ, "idempotent: false", id="idempotent after all"),
        pytest.param(Rule(contract=ContractMatch(writes=tags("pods"))), DELETE, None, id="writes inside contract"),
        pytest.param(
            Rule(contract=ContractMatch(idempotent=True)),
            DELETE,
            "idempotent: true",
            id="a promise inside contract that does not hold",
        ),
        pytest.param(
            Rule(
                risk=CRITICAL,
                effects=tags("kubernetes"),
                writes=tags("pods"),
                reads=tags("cluster"),
                deterministic=False,
                idempotent=False,
                contract=ContractMatch(writes=tags("pods")),
            ),
            DELETE,
            None,
            id="all matchers hold",
        ),
        pytest.param(
            Rule(effects=tags("kubernetes"), writes=tags("production")),
            DELETE,
            "writes: [production]",
            id="one of two matchers does not hold",
        ),
        pytest.param(
            Rule(writes=tags("pods"), contract=ContractMatch(writes=tags("nodes"))),
            DELETE,
            "writes: [nodes]",
            id="matchers inside contract add to those outside",
        ),
    ],
)
def test_when_a_rule_matches(rule: Rule, contract: Contract, failing: str | None) -> None:
    found = first_failing(rule, Subject(contract, risk_of(contract)))
    assert (None if found is None else condition_text(found)) == failing


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        pytest.param(Rule(default=ALLOW), "default", id="a default"),
        pytest.param(Rule(action=DENY), "any step", id="an action without matchers"),
        pytest.param(Rule(contract_violations="deny"), "contract_violations: deny", id="violations"),
        pytest.param(Rule(risk=CRITICAL, action=ASK), "risk: critical", id="one risk"),
        pytest.param(Rule(risk=CRITICAL | HIGH, action=ASK), "risk: [high, critical]", id="risks in order"),
        pytest.param(
            Rule(effects=tags("b", "a"), idempotent=False, action=ASK),
            "effects: [a, b], idempotent: false",
            id="several matchers",
        ),
        pytest.param(
            Rule(contract=ContractMatch(writes=tags("pods")), action=ASK),
            "writes: [pods]",
            id="inside contract",
        ),
    ],
)
def test_how_a_rule_is_labelled(rule: Rule, expected: str) -> None:
    assert label(rule) == expected


@pytest.mark.parametrize(
    ("rule", "unconditional"),
    [
        pytest.param(Rule(default=ALLOW), True, id="a default"),
        pytest.param(Rule(action=DENY), True, id="an action without matchers"),
        pytest.param(Rule(risk=frozenset(Risk), action=DENY), True, id="every risk there is"),
        pytest.param(Rule(risk=CRITICAL, action=DENY), False, id="one risk"),
        pytest.param(Rule(idempotent=False, action=DENY), False, id="a promise that must be absent"),
        pytest.param(Rule(effects=NONE, action=ALLOW), False, id="an empty list"),
        pytest.param(Rule(contract_violations="deny"), False, id="violations alone"),
    ],
)
def test_which_rules_match_everything(rule: Rule, unconditional: bool) -> None:
    assert is_unconditional(rule) is unconditional


def test_violations_alone_take_no_part_in_matching() -> None:
    assert not ends_matching(Rule(contract_violations="deny"))
    assert ends_matching(Rule(contract_violations="deny", action=ALLOW))


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        pytest.param((), [], id="no rules"),
        pytest.param((Rule(risk=CRITICAL, action=ASK), Rule(default=ALLOW)), [], id="a default at the end"),
        pytest.param((Rule(default=ALLOW), Rule(risk=CRITICAL, action=ASK)), [(1, 0)], id="anything after a default"),
        pytest.param(
            (Rule(default=ALLOW), Rule(risk=CRITICAL, action=ASK), Rule(risk=HIGH, action=ASK)),
            [(1, 0), (2, 0)],
            id="everything after a default",
        ),
        pytest.param((Rule(default=ALLOW), Rule(contract_violations="deny")), [], id="violations are never shadowed"),
        pytest.param((Rule(contract_violations="deny"), Rule(risk=CRITICAL, action=ASK)), [], id="nor do they shadow"),
        pytest.param(
            (Rule(risk=CRITICAL | HIGH, action=ASK), Rule(risk=CRITICAL, action=DENY)),
            [(1, 0)],
            id="a risk again",
        ),
        pytest.param((Rule(risk=CRITICAL, action=ASK), Rule(risk=CRITICAL | HIGH, action=DENY)), [], id="a wider risk"),
        pytest.param(
            (
                Rule(effects=tags("a", "b"), action=ASK),
                Rule(effects=tags("a"), writes=tags("c"), action=DENY),
            ),
            [(1, 0)],
            id="one of several effects, and more",
        ),
        pytest.param(
            (Rule(effects=tags("a"), action=ASK), Rule(effects=tags("a", "b"), action=DENY)),
            [],
            id="more effects",
        ),
        pytest.param(
            (Rule(writes=tags("a"), action=ASK), Rule(contract=ContractMatch(writes=tags("a")), action=DENY)),
            [(1, 0)],
            id="the same matcher inside contract",
        ),
        pytest.param(
            (Rule(writes=NONE, action=ALLOW), Rule(writes=NONE, idempotent=True, action=DENY)),
            [(1, 0)],
            id="read-only again",
        ),
        pytest.param(
            (Rule(writes=tags("a"), action=ALLOW), Rule(writes=NONE, action=DENY)),
            [],
            id="read-only after writes",
        ),
        pytest.param(
            (Rule(idempotent=True, action=ALLOW), Rule(idempotent=False, action=ASK)),
            [],
            id="the opposite promise",
        ),
        pytest.param(
            (Rule(idempotent=True, action=ALLOW), Rule(deterministic=True, action=ASK)),
            [],
            id="another promise",
        ),
    ],
)
def test_which_rules_are_never_reached(rules: tuple[Rule, ...], expected: list[tuple[int, int]]) -> None:
    assert [(shadow.rule, shadow.by) for shadow in shadowed(rules)] == expected


def test_a_shadow_says_which_rule_comes_first() -> None:
    (shadow,) = shadowed((Rule(default=ALLOW), Rule(risk=CRITICAL, action=ASK)))
    assert shadow.message == "never reached: rule 1 (default) matches first"


@pytest.mark.parametrize(
    ("rules", "denies"),
    [
        pytest.param((), False, id="no rules"),
        pytest.param((Rule(default=ALLOW),), False, id="no word about violations"),
        pytest.param((Rule(default=ALLOW), Rule(contract_violations="deny")), True, id="wherever it stands"),
        pytest.param(
            (Rule(risk=CRITICAL, action=ASK, contract_violations="deny"),),
            True,
            id="even on a rule with matchers, where validation refuses it",
        ),
    ],
)
def test_when_a_policy_denies_violations(rules: tuple[Rule, ...], denies: bool) -> None:
    assert Policy(name="p", rules=rules).violations_deny is denies


def test_both_limits_hold() -> None:
    assert Limits(max_targets=5) | Limits(max_targets=3, max_per_hour=2) == Limits(max_targets=3, max_per_hour=2)
    assert Limits() | Limits() == Limits()


@pytest.mark.parametrize("word", ["allow", "require-approval", "deny"])
def test_words_and_verdicts_correspond(word: str) -> None:
    assert Verdict.from_word(word).word == word


def test_other_verdicts_are_refused() -> None:
    with pytest.raises(ValueError, match="expected one of allow, require-approval, deny, found `block`"):
        Verdict.from_word("block")
