"""Decisions: first match within a policy, everything at once across policies, and the reasons given."""

from typing import Any

import pytest

from gert.kernel.governance.contract import Contract, Declared, resolve
from gert.kernel.governance.decide import (
    ALLOWED,
    Approvers,
    Decision,
    RuleRef,
    decide,
    decide_crossing,
    decide_outcome,
    person_key,
)
from gert.kernel.governance.explain import explain
from gert.kernel.governance.risk import Risk
from gert.kernel.governance.rules import ContractMatch, Limits, Policy, Rule
from gert.kernel.governance.verdict import Verdict

ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.REQUIRE_APPROVAL, Verdict.DENY
CRITICAL = frozenset((Risk.CRITICAL,))


def names(*words: str) -> frozenset[str]:
    return frozenset(words)


DELETE = Contract(effects=names("kubernetes"), writes=names("pods"))
READ = Contract(effects=names("network"), idempotent=True)


def policy(*rules: Rule, name: str = "runbook", **settings: Any) -> Policy:
    return Policy(name=name, rules=rules, **settings)


ASK_CRITICAL = Rule(risk=CRITICAL, action=ASK)
DEFAULT = Rule(default=ALLOW)


@pytest.mark.parametrize(
    ("contract", "policies", "verdict", "rule"),
    [
        pytest.param(DELETE, (), ALLOW, None, id="no policy allows"),
        pytest.param(DELETE, (policy(),), ALLOW, None, id="a policy without rules allows"),
        pytest.param(READ, (policy(ASK_CRITICAL),), ALLOW, None, id="no matching rule allows"),
        pytest.param(
            READ,
            (policy(ASK_CRITICAL, DEFAULT),),
            ALLOW,
            "runbook rule 2 (default)",
            id="a default allows by name",
        ),
        pytest.param(
            DELETE,
            (policy(ASK_CRITICAL, DEFAULT),),
            ASK,
            "runbook rule 1 (risk: critical)",
            id="the first matching rule decides",
        ),
        pytest.param(
            DELETE,
            (policy(Rule(effects=names("kubernetes"), action=ALLOW), Rule(risk=CRITICAL, action=DENY)),),
            ALLOW,
            "runbook rule 1 (effects: [kubernetes])",
            id="even where a later one is stricter",
        ),
        pytest.param(
            DELETE,
            (policy(ASK_CRITICAL, name="production"), policy(DEFAULT)),
            ASK,
            "production rule 1 (risk: critical)",
            id="a runbook cannot relax an external policy",
        ),
        pytest.param(
            DELETE,
            (policy(DEFAULT, name="production"), policy(Rule(writes=names("pods"), action=DENY))),
            DENY,
            "runbook rule 1 (writes: [pods])",
            id="a runbook can tighten it",
        ),
        pytest.param(
            DELETE,
            (policy(ASK_CRITICAL, name="production"), policy(ASK_CRITICAL)),
            ASK,
            "production rule 1 (risk: critical); runbook rule 1 (risk: critical)",
            id="equal verdicts name both rules",
        ),
        pytest.param(
            DELETE,
            (policy(Rule(contract_violations="deny"), ASK_CRITICAL),),
            ASK,
            "runbook rule 2 (risk: critical)",
            id="violations are counted but never match",
        ),
        pytest.param(
            DELETE,
            (policy(Rule(name="ask first", risk=CRITICAL, action=ASK)),),
            ASK,
            "runbook rule 1 `ask first` (risk: critical)",
            id="a named rule goes by its name",
        ),
    ],
)
def test_what_is_decided(contract: Contract, policies: tuple[Policy, ...], verdict: Verdict, rule: str | None) -> None:
    decision = decide(contract, policies)
    assert (decision.verdict, decision.rule) == (verdict, rule)


def asks(**demands: Any) -> Policy:
    return policy(Rule(risk=CRITICAL, action=ASK, **demands))


@pytest.mark.parametrize(
    ("policies", "field", "expected"),
    [
        pytest.param((asks(),), "min_approvers", 1, id="one approver unless told otherwise"),
        pytest.param((asks(min_approvers=0),), "min_approvers", 1, id="never fewer than one"),
        pytest.param((asks(min_approvers=3), asks(min_approvers=2)), "min_approvers", 3, id="the higher number"),
        pytest.param(
            (policy(Rule(default=ALLOW, min_approvers=4)),),
            "min_approvers",
            0,
            id="an allowing rule asks for no approver",
        ),
        pytest.param(
            (asks(), asks(separation_of_duties=True)),
            "separation_of_duties",
            True,
            id="duties are kept apart",
        ),
        pytest.param((asks(notify=names("a")), asks(notify=names("b"))), "notify", names("a", "b"), id="all are told"),
        pytest.param((asks(),), "on_timeout", "reject", id="silence rejects"),
        pytest.param(
            (asks(on_timeout="escalate", escalate_to=names("boss")),),
            "on_timeout",
            "escalate",
            id="or escalates",
        ),
        pytest.param(
            (asks(on_timeout="escalate"),), "on_timeout", "reject", id="without anyone to escalate to it rejects"
        ),
        pytest.param(
            (asks(on_timeout="escalate", escalate_to=names("boss")), asks()),
            "on_timeout",
            "reject",
            id="one rule that rejects is enough",
        ),
        pytest.param(
            (asks(on_timeout="escalate", escalate_to=names("boss")), policy(DEFAULT)),
            "on_timeout",
            "escalate",
            id="a policy that asks for nothing does not interfere",
        ),
        pytest.param((asks(break_glass=True),), "break_glass", True, id="an override where the rule permits it"),
        pytest.param((asks(break_glass=True), asks()), "break_glass", False, id="every rule must permit it"),
        pytest.param(
            (asks(break_glass=True), policy(DEFAULT)),
            "break_glass",
            True,
            id="an allowing rule has no say in it",
        ),
        pytest.param((policy(Rule(default=ALLOW, break_glass=True)),), "break_glass", False, id="nothing to override"),
        pytest.param(
            (policy(Rule(default=DENY, break_glass=True)), asks()),
            "break_glass",
            False,
            id="an override of a denial does not skip another policy's approval",
        ),
        pytest.param(
            (policy(Rule(default=ALLOW, limits=Limits(max_targets=2))), asks(limits=Limits(max_targets=5))),
            "limits",
            Limits(max_targets=2),
            id="limits of an allowing rule survive a stricter verdict",
        ),
        pytest.param((asks(),), "violations_deny", False, id="violations are warnings"),
        pytest.param(
            (policy(Rule(contract_violations="deny")), asks()),
            "violations_deny",
            True,
            id="unless a policy denies them",
        ),
        pytest.param((asks(contract_violations="deny"),), "violations_deny", True, id="and it is never lost"),
        pytest.param((asks(),), "approval_timeout", 1800.0, id="thirty minutes unless told otherwise"),
        pytest.param(
            (policy(approval_timeout=60.0), policy(ASK_CRITICAL, approval_timeout=90.0)),
            "approval_timeout",
            60.0,
            id="the shorter timeout",
        ),
        pytest.param(
            (policy(DEFAULT, require_signed_approvals=True), asks()),
            "require_signed_approvals",
            True,
            id="signatures are required by any policy",
        ),
    ],
)
def test_what_a_decision_asks_for(policies: tuple[Policy, ...], field: str, expected: object) -> None:
    assert getattr(decide(DELETE, policies), field) == expected


SRE = {"sre": names("alice", "bob")}


@pytest.mark.parametrize(
    ("policies", "approver", "objection"),
    [
        pytest.param((asks(),), "mallory", None, id="any person where no approver is listed"),
        pytest.param((asks(approvers=names("alice")),), "alice", None, id="a person listed"),
        pytest.param(
            (asks(approvers=names("alice")),),
            "bob",
            "`bob` is not among the approvers `alice`",
            id="a person not listed",
        ),
        pytest.param(
            (policy(Rule(default=ASK, approvers=names("group:sre")), groups=SRE),),
            "bob",
            None,
            id="a member of a group",
        ),
        pytest.param(
            (policy(Rule(default=ASK, approvers=names("group:sre")), groups=SRE),),
            "carol",
            "`carol` is not among the approvers `group:sre`",
            id="no member of the group",
        ),
        pytest.param(
            (policy(Rule(default=ASK, approvers=names("group:managers")), groups=SRE),),
            "erin",
            None,
            id="a member of a group the configuration knows",
        ),
        pytest.param(
            (asks(approvers=names("group:nobody")),),
            "alice",
            "`alice` is not among the approvers `group:nobody`",
            id="an unknown group admits no person",
        ),
        pytest.param(
            (
                policy(Rule(default=ASK, approvers=names("group:sre")), groups=SRE),
                policy(Rule(default=ASK, approvers=names("group:sre")), groups={"sre": names("mallory")}),
            ),
            "mallory",
            "`mallory` is not among the approvers `group:sre`",
            id="a runbook cannot redefine a group",
        ),
        pytest.param(
            (asks(approvers=names("alice", "bob")), asks(approvers=names("bob", "carol"))),
            "alice",
            "`alice` is not among the approvers `bob`, `carol`",
            id="every restriction must hold",
        ),
        pytest.param(
            (asks(separation_of_duties=True),),
            "starter",
            "`starter` started the run and may not approve it",
            id="not the person who started the run",
        ),
        pytest.param((asks(),), "starter", None, id="unless duties need not be kept apart"),
    ],
)
def test_who_may_approve(policies: tuple[Policy, ...], approver: str, objection: str | None) -> None:
    decision = decide(DELETE, policies)
    assert decision.objection(approver, started_by="starter", groups={"managers": ["erin"]}) == objection


def test_joining_with_allowed_changes_nothing() -> None:
    decision = decide(DELETE, [asks(min_approvers=2, approvers=names("alice"))])
    assert decision | ALLOWED == ALLOWED | decision == decision


def test_a_summary_says_what_applies() -> None:
    strict = asks(
        min_approvers=2,
        approvers=names("group:sre", "alice"),
        separation_of_duties=True,
        on_timeout="escalate",
        escalate_to=names("boss"),
        notify=names("#ops"),
        limits=Limits(max_targets=5, max_per_hour=20),
        break_glass=True,
    )
    assert decide(DELETE, [strict]).summary() == {
        "decision": "require-approval",
        "rules": ["runbook rule 1 (risk: critical)"],
        "min_approvers": 2,
        "approvers": [["alice", "group:sre"]],
        "approval_timeout": 1800.0,
        "on_timeout": "escalate",
        "escalate_to": [["boss"]],
        "separation_of_duties": True,
        "break_glass": True,
        "notify": ["#ops"],
        "max_targets": 5,
        "max_per_hour": 20,
    }


def test_a_summary_leaves_out_what_does_not_apply() -> None:
    assert ALLOWED.summary() == {"decision": "allow"}


def test_rules_are_printed_as_people_count_them() -> None:
    assert str(RuleRef("runbook", 2, "risk: critical")) == "runbook rule 2 (risk: critical)"


def test_approvers_look_up_only_groups_they_list() -> None:
    allowed = Approvers(names("group:sre"), names(), names("sre"))
    assert allowed.admits("alice", {"sre": ["alice"]})
    assert not allowed.admits("alice", {"managers": ["alice"]})


def test_an_explanation_goes_through_every_policy() -> None:
    production = policy(Rule(effects=names("azure"), action=DENY), ASK_CRITICAL, DEFAULT, name="production")
    runbook = policy(Rule(contract_violations="deny"), Rule(writes=names("nodes"), action=DENY))
    explanation = explain(DELETE, [production, runbook])
    assert explanation.risk is Risk.CRITICAL
    assert explanation.reason == "writes, neither idempotent nor deterministic"
    assert explanation.decision == decide(DELETE, [production, runbook])
    assert [match.why for match in explanation.policies] == [
        "production rule 2 (risk: critical) says require-approval",
        "no rule matches",
    ]
    assert [[(each.rule.number, each.failed) for each in match.considered] for match in explanation.policies] == [
        [(1, "effects: [azure]"), (2, None)],
        [(2, "writes: [nodes]")],
    ]


def test_an_explanation_of_no_rules() -> None:
    (match,) = explain(READ, [policy()]).policies
    assert (match.rule, match.verdict, match.why) == (None, ALLOW, "no rule matches")


def test_a_decision_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        ALLOWED.verdict = DENY  # type: ignore[misc]


def test_decisions_are_values() -> None:
    assert len({Decision(), ALLOWED, decide(READ, [])}) == 1


def test_a_step_that_adds_a_tag_is_still_judged_as_its_tool() -> None:
    policy_of_the_house = policy(Rule(effects=names("network"), action=ALLOW), Rule(default=Verdict.DENY))
    tool = resolve(Declared(effects=names("database"), writes=names("tables")))
    sneaky = tool.tightened(Declared(effects=names("network")))
    assert decide(sneaky, [policy_of_the_house]).verdict is ALLOW
    assert decide(sneaky, [policy_of_the_house], within=tool).verdict is Verdict.DENY


def test_a_circuit_breaker_is_not_overridden_by_a_runbook_that_allows_overrides() -> None:
    breaker = policy(Rule(default=ALLOW, limits=Limits(max_per_hour=5)))
    runbook = policy(Rule(default=Verdict.REQUIRE_APPROVAL, break_glass=True))
    assert decide(resolve(Declared()), [runbook]).break_glass
    assert not decide(resolve(Declared()), [breaker, runbook]).break_glass


@pytest.mark.parametrize(
    ("floor", "runbook", "expected"),
    [
        pytest.param(None, 7 * 86400.0, 7 * 86400.0, id="a floor without a timeout leaves the runbook's as it is"),
        pytest.param(None, 60.0, 60.0, id="a runbook sets a shorter one than the default"),
        pytest.param(600.0, 7 * 86400.0, 600.0, id="a floor with a timeout shortens the runbook's"),
        pytest.param(7 * 86400.0, 600.0, 600.0, id="a runbook shortens the timeout of the floor"),
        pytest.param(7 * 86400.0, None, 7 * 86400.0, id="a floor sets a longer one than the default"),
        pytest.param(None, None, 1800.0, id="where no policy sets one, the default holds"),
    ],
)
def test_how_long_a_request_stays_open(floor: float | None, runbook: float | None, expected: float) -> None:
    asking = policy(Rule(default=Verdict.REQUIRE_APPROVAL), approval_timeout=floor)
    own = policy(Rule(default=Verdict.REQUIRE_APPROVAL), approval_timeout=runbook)
    assert decide(resolve(Declared()), [asking, own]).approval_timeout == expected


def test_a_person_called_like_a_group_is_not_the_group() -> None:
    decision = decide(resolve(Declared()), [asks(approvers=names("group:sre"))])
    assert decision.objection("group:sre", started_by="x") is not None
    assert decision.objection("sre", started_by="x", groups={"sre": ["ann"]}) is not None
    assert decision.objection("ann", started_by="x", groups={"sre": ["ann"]}) is None


@pytest.mark.parametrize(
    ("approver", "starter"),
    [
        pytest.param("alice@example.com", None, id="an unknown starter"),
        pytest.param("Alice@Example.com", "alice@example.com", id="another case"),
        pytest.param(" alice@example.com", "alice@example.com", id="a space"),
        pytest.param("jose\u0301", "jos\u00e9", id="another normal form"),
    ],
)
def test_separation_of_duties_fails_closed(approver: str, starter: str | None) -> None:
    decision = decide(resolve(Declared()), [asks(separation_of_duties=True)])
    assert decision.objection(approver, started_by=starter) is not None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param("Alice", "alice", True, id="case"),
        pytest.param("\uff41lice", "alice", True, id="a full-width letter"),
        pytest.param("strasse", "stra\u00dfe", True, id="case folding"),
        pytest.param("e\u0301lan", "\u00e9lan", True, id="composed and decomposed"),
        pytest.param("\ufb01nn", "finn", True, id="a ligature"),
        pytest.param("alice", "\u0430lice", False, id="another script is another letter"),
    ],
)
def test_two_spellings_of_a_name(one: str, other: str, same: bool) -> None:
    assert (person_key(one) == person_key(other)) is same


def test_tags_compare_as_people_read_them() -> None:
    policy = Policy(name="p", rules=(Rule(writes=frozenset({"PODS"}), action=Verdict.DENY),))
    assert decide(Contract(effects=frozenset({"k8s"}), writes=frozenset({"Pods"})), [policy]).verdict is Verdict.DENY


ORDER = Policy(
    name="order",
    rules=(
        Rule(effects=frozenset({"db"}), serialize=True),
        Rule(outcome=frozenset({"no_action"}), action=Verdict.REQUIRE_APPROVAL, notify=frozenset({"ann"})),
        Rule(writes=frozenset({"pods"}), action=Verdict.REQUIRE_APPROVAL, serialize=True),
        Rule(effects=frozenset({"network", "environment"}), action=Verdict.DENY),
        Rule(default=Verdict.ALLOW),
    ),
)


def test_a_rule_that_only_serializes_does_not_end_matching() -> None:
    decision = decide(Contract(effects=frozenset({"db", "network"})), [ORDER])
    assert decision.serialize
    assert decision.verdict is Verdict.DENY
    (match,) = explain(Contract(effects=frozenset({"db"})), [ORDER]).policies
    assert match.considered[0].goes_on
    assert match.rule is not None
    assert match.rule.number == 5


def test_that_steps_run_one_at_a_time_joins_by_or() -> None:
    pods = Contract(effects=frozenset({"k8s"}), writes=frozenset({"pods"}))
    assert decide(pods, [Policy(name="other"), ORDER]).serialize
    assert not decide(Contract(effects=frozenset({"k8s"})), [ORDER]).serialize
    assert (Decision(serialize=True) | ALLOWED).serialize


def test_only_rules_that_name_an_outcome_judge_one() -> None:
    assert decide_outcome("no_action", [ORDER]).verdict is Verdict.REQUIRE_APPROVAL
    assert decide_outcome("no_action", [ORDER]).notify == {"ann"}
    assert decide_outcome("resolved", [Policy(name="p", rules=(Rule(default=Verdict.DENY),))]) == ALLOWED


def test_only_rules_that_name_an_effect_judge_what_has_no_step() -> None:
    assert decide_crossing("environment", [ORDER]).verdict is Verdict.DENY
    assert decide_crossing("filesystem", [Policy(name="p", rules=(Rule(default=Verdict.DENY),))]) == ALLOWED
    by_risk = Rule(risk=frozenset(Risk), action=Verdict.DENY)
    assert decide_crossing("filesystem", [Policy(name="p", rules=(by_risk,))]) == ALLOWED
    grouped = Rule(contract=ContractMatch(effects=frozenset({"FILESYSTEM"})), action=Verdict.DENY)
    assert decide_crossing("filesystem", [Policy(name="p", rules=(grouped,))]).verdict is Verdict.DENY
