"""Laws: what holds for every contract, rule and decision. Few tags are drawn, so that they meet."""

import json
from collections.abc import Iterable
from functools import reduce
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gert.kernel.governance.contract import (
    NOTHING,
    UNKNOWN,
    Contract,
    Declared,
    merge,
    migrate,
    resolve,
)
from gert.kernel.governance.decide import ALLOWED, Decision, decide
from gert.kernel.governance.explain import explain
from gert.kernel.governance.parameter import Parameter
from gert.kernel.governance.risk import Risk, risk_of
from gert.kernel.governance.rules import (
    ContractMatch,
    Limits,
    Policy,
    Rule,
    ends_matching,
    is_unconditional,
    shadowed,
)
from gert.kernel.governance.tighten import relaxations
from gert.kernel.governance.verdict import Verdict

TAG_WORDS = ("network", "pods", "service", UNKNOWN)
PEOPLE = ("alice", "bob", "group:sre", "group:managers")

tags = st.frozensets(st.sampled_from(TAG_WORDS), max_size=3)
maybe_tags = st.none() | tags
maybe_flag = st.none() | st.booleans()
bounds = st.none() | st.integers(0, 5).map(float)
people = st.frozensets(st.sampled_from(PEOPLE), max_size=2)

parameters = st.builds(
    Parameter,
    type=st.sampled_from(("string", "int", "any")),
    required=st.booleans(),
    enum=st.none() | st.lists(st.integers(0, 3), unique=True, max_size=3).map(tuple),
    pattern=st.none() | st.sampled_from(("^a", "^b")),
    min=bounds,
    max=bounds,
    secret=st.booleans(),
)
named_parameters = st.dictionaries(st.sampled_from(("host", "port")), parameters, max_size=2)

declared = st.builds(
    Declared,
    effects=maybe_tags,
    reads=maybe_tags,
    writes=maybe_tags,
    deterministic=maybe_flag,
    idempotent=maybe_flag,
    side_effects=maybe_flag,
    inputs=named_parameters,
    outputs=named_parameters,
)
contracts = st.builds(
    Contract,
    effects=maybe_tags,
    reads=tags,
    writes=tags,
    deterministic=st.booleans(),
    idempotent=st.booleans(),
    inputs=named_parameters,
    outputs=named_parameters,
)

_matchers: dict[str, st.SearchStrategy[Any]] = {
    "effects": maybe_tags,
    "writes": maybe_tags,
    "reads": maybe_tags,
    "deterministic": maybe_flag,
    "idempotent": maybe_flag,
}
rules = st.builds(
    Rule,
    **_matchers,
    risk=st.none() | st.frozensets(st.sampled_from(Risk), max_size=3),
    contract=st.none() | st.builds(ContractMatch, **_matchers),
    action=st.none() | st.sampled_from(Verdict),
    contract_violations=st.none() | st.just("deny"),
    min_approvers=st.none() | st.integers(1, 4),
    approvers=people,
    separation_of_duties=st.booleans(),
    notify=people,
    on_timeout=st.none() | st.sampled_from(("reject", "escalate")),
    escalate_to=people,
    limits=st.builds(
        Limits,
        max_targets=st.none() | st.integers(1, 9),
        max_per_hour=st.none() | st.integers(1, 9),
    ),
    break_glass=st.booleans(),
)
policies = st.builds(
    Policy,
    name=st.sampled_from(("floor", "runbook")),
    rules=st.lists(rules, max_size=4).map(tuple),
    approval_timeout=st.none() | st.integers(1, 9).map(float),
    require_signed_approvals=st.booleans(),
    groups=st.dictionaries(st.just("sre"), st.just(frozenset(("carol",))), max_size=1),
)
# A decision is only ever made by policies, so that is how they are drawn.
decisions = st.builds(decide, contracts, st.lists(policies, max_size=2))


def merged(layers: Iterable[Declared]) -> Declared:
    return reduce(merge, layers, NOTHING)


def at_least_as_strict(one: Decision, other: Decision) -> bool:
    """Whether `one` demands everything `other` does; in a semilattice, that they join to `one`."""
    return one | other == one


@given(decisions, decisions, decisions)
def test_decisions_join_like_a_semilattice(a: Decision, b: Decision, c: Decision) -> None:
    assert a | a == a
    assert a | b == b | a
    assert (a | b) | c == a | (b | c)
    assert a | ALLOWED == a


@given(decisions, decisions)
def test_joining_only_tightens(a: Decision, b: Decision) -> None:
    joined = a | b
    assert joined.verdict >= a.verdict
    assert joined.min_approvers >= a.min_approvers
    assert joined.approvers >= a.approvers
    if a.verdict is Verdict.REQUIRE_APPROVAL:
        assert joined.approval_timeout <= a.approval_timeout
    assert joined.escalations >= a.escalations
    assert joined.separation_of_duties >= a.separation_of_duties
    assert joined.require_signed_approvals >= a.require_signed_approvals
    assert joined.violations_deny >= a.violations_deny
    # An escape that one of them closes stays closed.
    if a.verdict is not Verdict.ALLOW:
        assert joined.break_glass <= a.break_glass
    if a.verdict is Verdict.REQUIRE_APPROVAL and a.on_timeout == "reject" and a.rejects_on_timeout:
        assert joined.on_timeout == "reject"


@given(decisions, decisions, st.sampled_from(("alice", "bob", "carol")))
def test_a_person_barred_by_one_decision_stays_barred(a: Decision, b: Decision, person: str) -> None:
    if a.objection(person, started_by="bob"):
        assert (a | b).objection(person, started_by="bob")


@given(contracts, st.lists(policies, max_size=3), policies)
def test_adding_a_policy_never_relaxes(contract: Contract, given_: list[Policy], more: Policy) -> None:
    assert at_least_as_strict(decide(contract, [*given_, more]), decide(contract, given_))


@given(contracts, st.permutations(range(3)), st.lists(policies, min_size=3, max_size=3))
def test_the_order_of_policies_does_not_matter(contract: Contract, order: list[int], many: list[Policy]) -> None:
    assert decide(contract, many) == decide(contract, [many[at] for at in order])


@given(contracts, policies)
def test_an_explanation_agrees_with_the_decision(contract: Contract, policy: Policy) -> None:
    explanation = explain(contract, [policy])
    (match,) = explanation.policies
    assert explanation.decision == decide(contract, [policy])
    assert match.verdict == explanation.decision.verdict
    assert explanation.decision.rules == (frozenset() if match.rule is None else frozenset((match.rule,)))


@given(contracts, st.lists(rules, max_size=5))
def test_a_shadowed_rule_never_decides(contract: Contract, many: list[Rule]) -> None:
    decision = decide(contract, [Policy(name="p", rules=tuple(many))])
    assert {ref.number - 1 for ref in decision.rules}.isdisjoint(shadow.rule for shadow in shadowed(many))


@given(contracts, st.lists(rules, max_size=5))
def test_rules_after_an_unconditional_one_are_shadowed(contract: Contract, many: list[Rule]) -> None:
    first = next((at for at, rule in enumerate(many) if is_unconditional(rule)), len(many))
    after = {at for at in range(first + 1, len(many)) if ends_matching(many[at])}
    assert after <= {shadow.rule for shadow in shadowed(many)}


@given(contracts, declared)
def test_tightening_a_contract_never_lowers_its_risk(contract: Contract, layer: Declared) -> None:
    assert risk_of(contract.tightened(layer)) >= risk_of(contract)


@given(st.lists(declared, max_size=3), declared)
def test_another_layer_only_adds_tags_and_withdraws_promises(layers: list[Declared], more: Declared) -> None:
    before, after = merged(layers), merged([*layers, more])
    for name in ("effects", "reads", "writes"):
        assert (getattr(before, name) or frozenset()) <= (getattr(after, name) or frozenset())
    for name in ("deterministic", "idempotent"):
        assert not (getattr(before, name) is False and getattr(after, name) is not False)


@given(declared, declared, declared)
def test_layers_merge_in_any_grouping(a: Declared, b: Declared, c: Declared) -> None:
    assert merge(merge(a, b), c) == merge(a, merge(b, c))


@given(st.lists(declared, max_size=3))
def test_repeating_a_layer_changes_nothing(layers: list[Declared]) -> None:
    assert resolve(*layers, *layers) == resolve(*layers)
    assert resolve(*(layer for layer in layers for _ in range(2))) == resolve(*layers)


def as_declared(contract: Contract) -> Declared:
    """The same contract as a fully declared block."""
    return Declared(
        effects=contract.effects,
        reads=contract.reads,
        writes=None if contract.omits_writes else contract.writes,
        deterministic=contract.deterministic,
        idempotent=contract.idempotent,
        inputs=contract.inputs,
        outputs=contract.outputs,
    )


@given(st.lists(declared, max_size=3))
def test_resolving_what_was_resolved_changes_nothing(layers: list[Declared]) -> None:
    contract = resolve(*layers)
    assert resolve(as_declared(contract)) == contract
    assert contract.tightened(as_declared(contract)) == contract
    assert contract.tightened(NOTHING) == contract


@given(declared, declared)
def test_what_was_resolved_relaxes_nothing(parent: Declared, child: Declared) -> None:
    assert not list(relaxations(parent, as_declared(resolve(parent, child))))
    settled = resolve(parent)
    assert not list(relaxations(settled, as_declared(settled.tightened(child))))


@given(declared, declared)
def test_a_layer_without_relaxations_means_what_it_says(parent: Declared, child: Declared) -> None:
    settled = resolve(parent)
    if list(relaxations(settled, child)):
        return
    tightened = settled.tightened(child)
    for name in ("reads", "writes", "deterministic", "idempotent"):
        said = getattr(child, name)
        assert said is None or getattr(tightened, name) == said


@given(declared)
def test_migrating_twice_changes_nothing(written: Declared) -> None:
    assert migrate(migrate(written)) == migrate(written)
    assert migrate(written).side_effects is None


@given(contracts)
def test_summaries_are_json(contract: Contract) -> None:
    assert json.loads(json.dumps(contract.full())) == contract.full()


@given(contracts, declared, st.lists(policies, max_size=3))
def test_a_step_never_reaches_a_kinder_rule_by_claiming_more(
    tool: Contract, step: Declared, judges: list[Policy]
) -> None:
    """Rules match any of their tags and the first match decides, so a longer list of tags could match an `allow`."""
    tightened = tool.tightened(step)
    assert at_least_as_strict(decide(tightened, judges, within=tool), decide(tool, judges))


@given(contracts, policies, policies)
def test_a_runbook_opens_no_override_that_a_policy_keeps_shut(contract: Contract, outer: Policy, own: Policy) -> None:
    alone, both = decide(contract, [outer]), decide(contract, [outer, own])
    if alone.bars_break_glass:
        assert not both.break_glass
