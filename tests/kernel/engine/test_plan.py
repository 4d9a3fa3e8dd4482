"""Plans: what is known of a step before it runs, settings once and shared by steps that are alike."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gert.kernel.engine.plan import MAX_BACKOFF, NO_RETRY, SERVER_TIMEOUT, Plan, Planner, Retry
from gert.kernel.governance.rules import Limits, Policy, Rule
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runbook.document import load
from gert.kernel.runbook.program import Program, ToolLookup

END = {"type": "end", "outcome": {"category": "resolved", "code": "x"}}


def program(*steps: dict[str, Any], contract: dict[str, Any] | None = None, **action: Any) -> Program:
    """A program of these steps and one tool, `t`, with one action."""
    tool = {
        "apiVersion": "tool/v0",
        "meta": {"name": "t"},
        "contract": {"effects": ["network"], "writes": [], "idempotent": True, **(contract or {})},
        "secrets": [{"env": "TOKEN"}, {"env": "TOKEN"}],
        "actions": {"go": {"argv": ["t"], **action}},
    }
    book = {"apiVersion": "kernel/v0", "meta": {"name": "b"}, "tools": ["t"], "steps": [*steps, END]}
    lookup = ToolLookup("t", (), "t.tool.yaml", load(yaml.safe_dump(tool).encode(), kind="tool"))
    model = load(yaml.safe_dump(book).encode(), kind="runbook").model
    assert model is not None
    assert lookup.tool is not None
    return Program(model, {"t": lookup})


def call(step: str = "a", **more: Any) -> dict[str, Any]:
    return {"id": step, "type": "tool", "tool": "t", **more}


def planned(*steps: dict[str, Any], policies: tuple[Policy, ...] = (), **tool: Any) -> list[Plan | None]:
    made = program(*steps, **tool)
    planner = Planner(made, policies)
    return [planner.plan(step) for step in made.runbook.steps[:-1]]


def settings_of(step: dict[str, Any], policies: tuple[Policy, ...] = (), **tool: Any) -> Any:
    (plan,) = planned(step, policies=policies, **tool)
    assert plan is not None
    return plan.settings


def test_steps_that_only_direct_flow_have_no_plan() -> None:
    made = program({"id": "r", "type": "repeat", "repeat": {"max": 1}, "steps": [call()]})
    planner = Planner(made, ())
    assert [planner.plan(step) for step in made.runbook.steps] == [None, None]


def test_a_step_is_planned_once() -> None:
    made = program(call())
    planner = Planner(made, ())
    assert planner.plan(made.runbook.steps[0]) is planner.plan(made.runbook.steps[0])


def test_steps_that_are_alike_share_their_settings() -> None:
    one, other = planned(call("a", inputs={"x": 1}), call("b", inputs={"x": 2}))
    assert one is not None
    assert other is not None
    assert one.settings is other.settings
    assert (one.step_id, dict(one.inputs), dict(other.inputs)) == ("a", {"x": 1}, {"x": 2})


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"timeout": "5s"}, id="a timeout"),
        pytest.param({"retry": {"max": 2}}, id="a retry"),
        pytest.param({"visibility": {"deny": ["x"]}}, id="a visibility"),
        pytest.param({"contract": {"writes": ["db"]}}, id="a contract of its own"),
    ],
)
def test_steps_do_not_share_settings_if_one_has(more: dict[str, Any]) -> None:
    one, other = planned(call("a"), call("b", **more))
    assert one is not None
    assert other is not None
    assert one.settings != other.settings


def test_a_tool_step_is_named_after_its_action_and_its_secrets_are_listed_once() -> None:
    settings = settings_of(call())
    assert (settings.target, settings.action, settings.secrets) == ("t:go", "go", ("TOKEN",))


@pytest.mark.parametrize(
    ("step", "target"),
    [
        ({"id": "m", "type": "manual", "instructions": "do"}, "manual"),
        ({"id": "s", "type": "assert", "assert": [{"type": "exists", "value": "x"}]}, "assert"),
        ({"id": "e", "type": "extension", "extension": "acme/x", "contract": {"effects": []}}, "acme/x"),
    ],
)
def test_other_steps_are_named_after_what_they_are(step: dict[str, Any], target: str) -> None:
    settings = settings_of(step)
    assert (settings.target, settings.action, settings.secrets) == (target, None, ())


# --- the verdict


def test_a_call_that_no_rule_restricts_is_free() -> None:
    settings = settings_of(call())
    assert (settings.verdict, settings.rule, settings.min_approvers, settings.is_free) == ("allow", None, None, True)


@pytest.mark.parametrize(
    ("rule", "verdict", "approvers"),
    [
        pytest.param(Rule(default=Verdict.DENY), "deny", None, id="a denial"),
        pytest.param(Rule(default=Verdict.REQUIRE_APPROVAL), "require-approval", 1, id="an approval"),
        pytest.param(Rule(default=Verdict.REQUIRE_APPROVAL, min_approvers=3), "require-approval", 3, id="approvals"),
        pytest.param(Rule(default=Verdict.ALLOW, limits=Limits(max_targets=1)), "allow", None, id="a limit"),
    ],
)
def test_a_step_is_not_free_under(rule: Rule, verdict: str, approvers: int | None) -> None:
    settings = settings_of(call(), (Policy(name="p", rules=(rule,)),))
    assert (settings.verdict, settings.min_approvers, settings.is_free) == (verdict, approvers, False)
    assert settings.rule == "p rule 1 (default)"


def test_a_step_that_claims_more_is_judged_by_its_tool_as_well() -> None:
    deny = Rule(effects=frozenset({"network"}), writes=frozenset(), action=Verdict.DENY)
    kind = Rule(writes=frozenset({"log"}), action=Verdict.ALLOW)
    policy = Policy(name="p", rules=(kind, deny))
    assert settings_of(call(contract={"writes": ["log"]}), (policy,)).verdict == "deny"


# --- outputs that must be there


def test_outputs_that_are_required_or_extracted_are_expected() -> None:
    settings = settings_of(
        call(),
        contract={
            "outputs": {"need": {"type": "any", "required": True}, "got": {"type": "any"}, "may": {"type": "any"}}
        },
        extract={"got": {"from": "stdout"}},
    )
    assert settings.expected == {"need", "got"}


# --- time


@pytest.mark.parametrize(
    ("step", "action", "seconds"),
    [
        pytest.param({}, {}, None, id="none"),
        pytest.param({}, {"timeout": "7s"}, 7.0, id="the action's"),
        pytest.param({"timeout": "2m"}, {"timeout": "7s"}, 120.0, id="the step's, which is asked first"),
    ],
)
def test_the_timeout_is(step: dict[str, Any], action: dict[str, Any], seconds: float | None) -> None:
    assert settings_of(call(**step), **action).timeout == seconds


def test_an_extension_always_has_a_timeout() -> None:
    step = {"id": "e", "type": "extension", "extension": "acme/x", "contract": {"effects": []}}
    assert settings_of(step).timeout == SERVER_TIMEOUT
    assert settings_of({**step, "timeout": "1s"}).timeout == 1.0


# --- attempts


def test_a_step_is_retried_as_its_author_says() -> None:
    retry = {"max": 3, "backoff": "2s", "max_backoff": "5s", "on": ["failed", "timeout"]}
    assert settings_of(call(retry=retry)).retry == Retry(3, 2.0, 5.0, frozenset({"failed", "timeout"}))


def test_a_step_says_more_than_its_action() -> None:
    assert settings_of(call(retry={"max": 5}), retry={"max": 2}).retry.max == 5
    assert settings_of(call(), retry={"max": 2}).retry.max == 2


@pytest.mark.parametrize("idempotent", [False, None], ids=["says it is not", "says nothing"])
def test_what_is_not_idempotent_is_never_retried(idempotent: bool | None) -> None:
    contract = {"idempotent": idempotent} if idempotent is not None else {}
    assert settings_of(call(retry={"max": 3}, contract={"idempotent": False}), contract=contract).retry == NO_RETRY


def test_a_backoff_longer_than_the_usual_bound_is_its_own_bound() -> None:
    assert settings_of(call(retry={"max": 1, "backoff": "10m"})).retry.max_backoff == 600.0
    assert settings_of(call(retry={"max": 1, "backoff": "1s"})).retry.max_backoff == MAX_BACKOFF


@pytest.mark.parametrize(("attempt", "delay"), [(1, 2.0), (2, 4.0), (3, 8.0), (4, 10.0), (1000, 10.0), (10**9, 10.0)])
def test_the_delay_doubles_up_to_its_bound(attempt: int, delay: float) -> None:
    assert Retry(3, 2.0, 10.0, frozenset()).delay(attempt) == delay


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(1, 10**6))
def test_the_delay_never_shrinks_nor_exceeds_its_bound(backoff: float, bound: float, attempt: int) -> None:
    retry = Retry(3, backoff, bound, frozenset())
    assert 0 <= retry.delay(attempt) <= retry.delay(attempt + 1) <= bound


def test_without_a_backoff_there_is_no_wait() -> None:
    assert NO_RETRY.delay(1) == 0.0
