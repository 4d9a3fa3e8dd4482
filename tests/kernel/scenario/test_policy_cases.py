"""Cases of policy tests: what counts as a difference and why, and that a policy more never loosens a decision."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.governance.test_laws import PEOPLE, contracts, policies

from gert.kernel.governance.contract import Contract
from gert.kernel.governance.decide import decide
from gert.kernel.governance.risk import Risk
from gert.kernel.governance.rules import Limits, Policy, Rule
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runbook.documents.policy_test import ExpectedDecisionBlock, PolicyCaseBlock
from gert.kernel.scenario.expect import Difference
from gert.kernel.scenario.policy_cases import CaseDecision, RuleCoverage, case_differences, decide_case

WRITES = Contract(effects=frozenset({"kubernetes"}), writes=frozenset({"pods"}))
READS = Contract(effects=frozenset({"kubernetes"}), deterministic=True, idempotent=True)
ASK = Rule(
    name="two people",
    writes=frozenset({"pods"}),
    action=Verdict.REQUIRE_APPROVAL,
    min_approvers=2,
    approvers=frozenset({"group:sre", "dave"}),
    separation_of_duties=True,
    notify=frozenset({"ops"}),
    on_timeout="escalate",
    escalate_to=frozenset({"boss"}),
    limits=Limits(max_targets=5, max_per_hour=9),
    break_glass=True,
)
FLOOR = Policy(
    name="floor",
    rules=(
        Rule(contract_violations="deny"),
        Rule(name="no databases", effects=frozenset({"database"}), action=Verdict.DENY),
        ASK,
        Rule(name="never", writes=frozenset({"pods"}), action=Verdict.DENY),
    ),
    approval_timeout=600.0,
    require_signed_approvals=True,
)
STRICT = Policy(name="strict", rules=(Rule(default=Verdict.DENY),))
GROUPS = {"sre": ("alice", "bob")}


def case(expect: dict[str, Any] | None = None, **more: Any) -> PolicyCaseBlock:
    block = ExpectedDecisionBlock(**expect) if expect is not None else None
    return PolicyCaseBlock(name="x", expect=block, **more)


def found(
    expect: dict[str, Any] | None,
    *under: Policy,
    contract: Contract = WRITES,
    within: Contract | None = None,
    **more: Any,
) -> list[Difference]:
    each = case(expect, **more)
    under = under or (FLOOR,)
    return list(
        case_differences(each, decide_case(contract, under, within=within, targets=each.targets), under, GROUPS)
    )


MET: dict[str, Any] = {
    "decision": "require-approval",
    "risk": "critical",
    "rule": "two people",
    "policy": "floor",
    "min_approvers": 2,
    "approvers": ("group:sre", "dave"),
    "separation_of_duties": True,
    "require_signed_approvals": True,
    "approval_timeout": "10m",
    "on_timeout": "escalate",
    "escalate_to": ("boss",),
    "notify": ("ops",),
    "break_glass": True,
    "violations_deny": True,
    "max_targets": 5,
    "max_per_hour": 9,
    "reasons": ("two people", "neither idempotent"),
}


def test_a_case_that_expects_what_is_decided_passes() -> None:
    assert found(MET) == []


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("decision", "allow"),
        ("decision", "deny"),
        ("risk", "high"),
        ("rule", "no databases"),
        ("rule", "4"),
        ("rule", "none"),
        ("policy", "strict"),
        ("min_approvers", 1),
        ("min_approvers", 3),
        ("approvers", ("group:sre",)),
        ("approvers", ()),
        ("approvers", ("group:sre", "dave", "eve")),
        ("separation_of_duties", False),
        ("require_signed_approvals", False),
        ("approval_timeout", "30m"),
        ("on_timeout", "reject"),
        ("escalate_to", ()),
        ("notify", ("somebody",)),
        ("break_glass", False),
        ("violations_deny", False),
        ("max_targets", 6),
        ("max_per_hour", 8),
        ("reasons", ("because",)),
    ],
)
def test_each_expectation_that_is_not_met_is_one_difference(name: str, wanted: Any) -> None:
    changed = {key: value for key, value in MET.items() if not (name == "policy" and key == "rule")}
    (difference,) = found({**changed, name: wanted})
    assert difference.name in {name, "rule"}
    assert difference.expected != difference.found


def test_an_expectation_of_nothing_is_always_met() -> None:
    assert found(None) == []
    assert found({}) == []


# --- hints: which rule decided, and why another did not


@pytest.mark.parametrize(
    ("expect", "contract", "hint"),
    [
        pytest.param({"decision": "allow"}, WRITES, "decided by floor rule 3 `two people`", id="which rule decided"),
        pytest.param({"decision": "deny"}, READS, "no rule matches", id="that none did"),
        pytest.param({"risk": "low"}, WRITES, "neither idempotent nor deterministic", id="where the risk comes from"),
        pytest.param(
            {"rule": "no databases"}, WRITES, "its `effects: [database]` does not hold", id="why not that one"
        ),
        pytest.param(
            {"rule": "never"}, WRITES, "floor rule 3 `two people` (writes: [pods]) matches before it", id="1st"
        ),
        pytest.param({"rule": "two peopel"}, WRITES, "did you mean `two people`?", id="a rule that is misspelt"),
        pytest.param({"rule": "9"}, WRITES, "there is no such rule", id="a rule that is not there"),
        pytest.param({"rule": "1"}, READS, "does not end matching", id="a rule that is never matched"),
        pytest.param({"policy": "flor"}, WRITES, "did you mean `floor`?", id="a policy that is misspelt"),
    ],
)
def test_the_hint_says(expect: dict[str, Any], contract: Contract, hint: str) -> None:
    (difference,) = found(expect, contract=contract)
    assert hint in (difference.hint or "")


def test_a_rule_whose_verdict_was_not_strict_enough_did_not_decide() -> None:
    (difference,) = found({"rule": "two people"}, FLOOR, STRICT)
    assert "a stricter verdict won" in (difference.hint or "")


def test_a_rule_is_meant_by_its_number_or_its_name_in_any_policy_unless_one_is_named() -> None:
    assert found({"rule": "3"}) == found({"rule": "1"}, FLOOR, STRICT) == []
    assert found({"rule": "1", "policy": "strict"}, FLOOR, STRICT) == []
    assert [each.name for each in found({"rule": "1", "policy": "floor"}, FLOOR, STRICT)] == ["rule"]


# --- limits


@pytest.mark.parametrize(("targets", "verdict"), [(1, "require-approval"), (5, "require-approval"), (6, "deny")])
def test_the_limit_on_targets_denies_above_it(targets: int, verdict: str) -> None:
    assert found({"decision": verdict}, targets=targets) == []


def test_a_breach_is_the_reason_that_is_given() -> None:
    (difference,) = found({"decision": "require-approval"}, targets=6)
    assert difference.hint is not None
    assert difference.hint.startswith("expected at most 5 targets, found 6 items of the loops")
    assert found({"reasons": ("at most 5 targets",)}, targets=6) == []


# --- who may approve


@pytest.mark.parametrize(
    ("person", "started_by", "may"),
    [
        pytest.param("alice", "bob", True, id="a member of a group of the configuration"),
        pytest.param("dave", "bob", True, id="a person who is listed"),
        pytest.param("DAVE", "bob", True, id="another spelling of a person"),
        pytest.param("bob", "bob", False, id="the person who started the run"),
        pytest.param("Bob ", "bob", False, id="another spelling of the person who started the run"),
        pytest.param("eve", "bob", False, id="a person who is not listed"),
        pytest.param("sre", "bob", False, id="the name of a group"),
        pytest.param("alice", None, False, id="any person, where it is not known who started the run"),
    ],
)
def test_who_may_approve(person: str, started_by: str | None, may: bool) -> None:
    assert found(None, requested_by=started_by, may_approve={person: may}) == []
    (difference,) = found(None, requested_by=started_by, may_approve={person: not may})
    assert difference.name == f"may_approve.{person}"


@pytest.mark.parametrize(("contract", "under"), [(READS, FLOOR), (WRITES, STRICT)], ids=["allowed", "denied"])
def test_no_person_may_approve_if_no_approval_is_required(contract: Contract, under: Policy) -> None:
    (difference,) = found(None, under, contract=contract, may_approve={"alice": True})
    assert "no approval is requested" in (difference.hint or "")


# --- a step with its tool


def test_a_step_is_judged_with_its_tool() -> None:
    kind = Policy(
        name="kind",
        rules=(
            Rule(effects=frozenset({"network"}), action=Verdict.ALLOW),
            Rule(effects=frozenset({"database"}), action=Verdict.DENY),
        ),
    )
    tool = Contract(effects=frozenset({"database"}))
    claimed = Contract(effects=frozenset({"database", "network"}))
    assert found({"decision": "deny", "rule": "2"}, kind, contract=claimed, within=tool) == []


def test_the_higher_risk_of_step_and_tool_counts() -> None:
    assert decide_case(READS, [], within=WRITES).risk.risk is Risk.CRITICAL
    assert decide_case(WRITES, [], within=READS).risk.risk is Risk.CRITICAL


# --- coverage


def test_coverage_counts_rules_that_can_match_and_names_those_no_case_reached() -> None:
    coverage = RuleCoverage(FLOOR)
    for contract in (WRITES, READS):
        for match in decide_case(contract, [FLOOR]).explanation.policies:
            coverage.add(match.rule)
    part = coverage.report()
    assert (part.reached, part.total) == (1, 3)
    assert part.missed == ("2 `no databases` (effects: [database])", "4 `never` (writes: [pods])")


# --- laws


def admitted(judged: CaseDecision, started_by: str | None) -> set[str]:
    asked = judged.decision.verdict is Verdict.REQUIRE_APPROVAL
    people = {"alice", "bob", "carol", *PEOPLE}
    return {each for each in people if asked and judged.decision.objection(each, started_by=started_by) is None}


@given(
    contracts,
    st.none() | contracts,
    st.lists(policies, max_size=3),
    policies,
    st.integers(1, 10),
    st.none() | st.sampled_from(PEOPLE),
)
def test_adding_a_policy_never_loosens_any_decision_of_any_case(
    contract: Contract,
    within: Contract | None,
    under: list[Policy],
    another: Policy,
    targets: int,
    started_by: str | None,
) -> None:
    before = decide_case(contract, under, within=within, targets=targets)
    for after in (
        decide_case(contract, [*under, another], within=within, targets=targets),
        decide_case(contract, [another, *under], within=within, targets=targets),
    ):
        was, now = before.decision, after.decision
        assert now.verdict >= was.verdict
        assert after.risk.risk == before.risk.risk
        assert now.min_approvers >= was.min_approvers
        assert now.approvers >= was.approvers
        assert now.approval_timeout <= was.approval_timeout or was.timeout is None
        assert now.limits == was.limits | now.limits
        for name in ("separation_of_duties", "require_signed_approvals", "violations_deny", "bars_break_glass"):
            assert getattr(now, name) >= getattr(was, name)
        if was.verdict is not Verdict.ALLOW:
            assert now.break_glass <= was.break_glass
        if was.verdict is Verdict.REQUIRE_APPROVAL:
            assert admitted(after, started_by) <= admitted(before, started_by)
        assert before.breach is None or after.breach is not None


@given(contracts, st.none() | contracts, st.lists(policies, max_size=3))
def test_a_case_is_decided_as_a_run_decides(contract: Contract, within: Contract | None, under: list[Policy]) -> None:
    assert decide_case(contract, under, within=within).explanation.decision == decide(contract, under, within=within)


@given(contracts, st.lists(policies, max_size=3), st.integers(1, 10))
def test_what_was_found_is_what_can_be_expected(contract: Contract, under: list[Policy], targets: int) -> None:
    judged = decide_case(contract, under, targets=targets)
    said = judged.decision.summary()
    expect: dict[str, Any] = {
        name: said[name]
        for name in ("decision", "separation_of_duties", "break_glass", "violations_deny", "max_targets", "notify")
        if name in said
    }
    assert list(case_differences(case(expect), judged, under, {})) == []
