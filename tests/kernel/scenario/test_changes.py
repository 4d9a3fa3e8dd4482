"""Two runs of one scenario: what changed between them, and nothing else, is told."""

from collections.abc import Callable
from typing import Any

import pytest

from gert.kernel.events.runbook import Failure, Outcome
from gert.kernel.foundation.canonical import digest
from gert.kernel.foundation.secret_refs import secret_ref
from gert.kernel.governance.risk import Risk
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runbook.documents.expectations import Expectations
from gert.kernel.scenario.changes import Changed, Changes, changes, changes_since
from gert.kernel.scenario.observed import RunObservation


def seen(**more: Any) -> RunObservation:
    """A run that went from `check` to `restart`."""
    run = RunObservation()
    run.status, run.outcome = "completed", Outcome("resolved", "restarted", {"tries": 1})
    run.visited = dict.fromkeys(["check", "restart", "end#3"])
    run.paths = dict.fromkeys(["check", "restart", "end#3"])
    run.by_step = {"check": {"healthy": False, "load": 3}, "restart": {"said": "ok"}}
    run.outputs = {"healthy": False, "load": 3, "said": "ok"}
    run.decisions = {"check": Verdict.ALLOW, "restart": Verdict.REQUIRE_APPROVAL}
    run.risks = {"check": Risk.LOW, "restart": Risk.HIGH}
    for name, value in more.items():
        setattr(run, name, value)
    return run


def failed(message: str = "it broke", step: str = "check") -> dict[str, Any]:
    return {"status": "failed", "outcome": None, "failure": Failure("exit_code", message), "failed_step": step}


def test_equal_runs_have_no_changes() -> None:
    found = changes(seen(), seen())
    assert found.is_none
    assert str(found.before) == str(found.after) == "resolved (restarted)"


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param(seen(duration="PT5S", events=99, ends={}), {}, id="how long it took is no change"),
        pytest.param(seen(visited=dict.fromkeys(["restart", "check", "end#3"])), {}, id="nor is another order"),
        pytest.param(seen(visited=dict.fromkeys(["check", "restart", "end#4"])), {}, id="nor where steps have no name"),
        pytest.param(
            seen(outcome=Outcome("escalated", "restarted", {"tries": 1})), {"outcome_changed": True}, id="the category"
        ),
        pytest.param(
            seen(outcome=Outcome("resolved", "other", {"tries": 1})), {"outcome_changed": True}, id="the code"
        ),
        pytest.param(seen(status="cancelled"), {"outcome_changed": True}, id="the status"),
        pytest.param(
            seen(outcome=Outcome("resolved", "restarted", {"tries": 2, "by": "kim"})),
            {"meta": (Changed("tries", "`1`", "`2`"), Changed("by", "nothing", "`kim`"))},
            id="details of the outcome",
        ),
        pytest.param(
            seen(visited=dict.fromkeys(["check", "dns", "notify"]), by_step={"check": {"healthy": False, "load": 3}}),
            {"reached": ("dns", "notify"), "unreached": ("restart",)},
            id="steps, in their order",
        ),
        pytest.param(
            seen(decisions={"check": Verdict.DENY, "restart": Verdict.REQUIRE_APPROVAL, "new": Verdict.DENY}),
            {"decisions": (Changed("check", "allow", "deny"),)},
            id="a decision, of steps that were judged both times",
        ),
        pytest.param(
            seen(risks={"check": Risk.LOW, "restart": Risk.CRITICAL}),
            {"risks": (Changed("restart", "high", "critical"),)},
            id="a risk",
        ),
        pytest.param(
            seen(by_step={"check": {"healthy": False, "load": "3"}}),
            {"outputs": (Changed("check.load", "`3`", "`3`"), Changed("restart.said", "`ok`", "nothing"))},
            id="outputs, also of another type or not given any more",
        ),
        pytest.param(
            seen(by_step={"check": {"healthy": 0, "load": 3.0}, "restart": {"said": "ok"}}),
            {"outputs": (Changed("check.healthy", "`false`", "`0`"),)},
            id="false is not 0, and 3 is 3.0",
        ),
        pytest.param(
            seen(**failed()),
            {
                "outcome_changed": True,
                "failure": Changed("failure", "nothing", "exit_code at `check`: it broke"),
            },
            id="a failure",
        ),
    ],
)
def test_what_changed_is_told(after: RunObservation, expected: dict[str, Any]) -> None:
    found = changes(seen(), after)
    said = {name: getattr(found, name) for name in found.__struct_fields__ if name not in ("before", "after")}
    assert {name: value for name, value in said.items() if value not in (False, None, ())} == expected
    assert found.is_none == (not expected)


@pytest.mark.parametrize("message", ["it broke", "it burst"])
def test_a_failure_is_the_same_if_it_says_the_same(message: str) -> None:
    found = changes(seen(**failed()), seen(**failed(message)))
    assert found.is_none == (message == "it broke")
    assert str(found.after) == "failed at check (exit_code)"


def test_iterations_are_told_only_where_their_step_is_not() -> None:
    before = seen(visited=dict.fromkeys(["poll[0]", "poll"]), risks={"poll[0]": Risk.LOW, "poll": Risk.LOW})
    more = seen(
        visited=dict.fromkeys(["poll[0]", "poll", "poll[1]", "other[0]", "other"]),
        risks={"poll[0]": Risk.HIGH, "poll": Risk.HIGH},
    )
    found = changes(before, more)
    assert found.reached == ("poll[1]", "other")
    assert found.risks == (Changed("poll", "low", "high"),)


def test_outputs_of_steps_only_one_run_came_to_are_no_changes() -> None:
    before = seen(visited=dict.fromkeys(["check"]), by_step={"check": {"load": 1}})
    after = seen(visited=dict.fromkeys(["check", "dns"]), by_step={"check": {"load": 1}, "dns": {"ip": "::1"}})
    assert changes(before, after).outputs == ()


def test_secrets_are_never_shown_and_never_differ() -> None:
    before = seen(by_step={"check": {"token": "[REDACTED]", "load": 1}})
    after = seen(by_step={"check": {"token": secret_ref("token"), "load": secret_ref("token")}})
    found = changes(before, after)
    assert [each.name for each in found.outputs] == ["check.load"]
    assert found.outputs[0].after == "`[REDACTED]`"


def told(encoded: bytes) -> str:
    return f"[{len(encoded)} bytes, {digest(encoded)}]"


@pytest.mark.parametrize(
    ("recorded", "same"),
    [
        pytest.param(told(b'"aaaa"'), True, id="the digest of the same"),
        pytest.param(told(b'"aaab"'), False, id="the digest of something else"),
        pytest.param("[6 bytes, sha256:]", False, id="no digest"),
    ],
)
def test_a_value_that_a_trace_tells_by_its_digest_is_compared_by_it(recorded: str, same: bool) -> None:
    before, after = seen(by_step={"check": {"x": [recorded]}}), seen(by_step={"check": {"x": ["aaaa"]}})
    assert changes(before, after).is_none == same
    assert changes(after, before).is_none == same


def test_values_are_shortened_and_harmless() -> None:
    after = seen(by_step={"check": {"load": "x" * 10_000, "healthy": {"a": "\x1b[31m" + "y" * 10_000}}})
    found = {each.name: each.after for each in changes(seen(), after).outputs}
    assert all(len(each) < 300 and "\x1b" not in each for each in found.values())


def test_depth_is_no_danger() -> None:
    deep: Any = 1
    for _ in range(150_000):
        deep = [deep]
    found = changes(seen(by_step={"check": {"x": deep}}), seen(by_step={"check": {"x": [1]}}))
    assert [each.name for each in found.outputs] == ["check.x"]


# --- against a test


def expect(**said: Any) -> Expectations:
    return Expectations(**said)


@pytest.mark.parametrize(
    ("expected", "told"),
    [
        pytest.param(expect(), lambda found: found.is_none, id="what is not expected cannot have changed"),
        pytest.param(None, lambda found: found.is_none, id="without a test it has to complete"),
        pytest.param(
            expect(expected_status="completed", expected_outcome="resolved", expected_code="restarted"),
            lambda found: found.is_none,
            id="the outcome is the same",
        ),
        pytest.param(expect(expected_outcome="escalated"), lambda found: found.outcome_changed, id="the category"),
        pytest.param(expect(expected_code="x"), lambda found: str(found.before) == "? (x)", id="only the code"),
        pytest.param(
            expect(must_reach=("check", "dns")), lambda found: found.unreached == ("dns",), id="a step is not reached"
        ),
        pytest.param(
            expect(must_not_reach=("restart", "dns")),
            lambda found: found.reached == ("restart",),
            id="a step is reached",
        ),
        pytest.param(
            expect(expected_outputs={"load": 3, "check.load": "/^[0-9]$/", "said": "no", "none": 1}),
            lambda found: found.outputs == (Changed("said", "`no`", "`ok`"), Changed("none", "`1`", "nothing")),
            id="outputs",
        ),
        pytest.param(
            expect(expected_meta={"tries": 2}),
            lambda found: found.meta == (Changed("tries", "`2`", "`1`"),),
            id="details",
        ),
        pytest.param(
            expect(expected_risk={"check": "high", "gone": "low"}, expected_decisions={"restart": "deny"}),
            lambda found: (
                found.risks == (Changed("check", "high", "low"),)
                and found.decisions == (Changed("restart", "deny", "require-approval"),)
            ),
            id="judgements on steps that were reached",
        ),
    ],
)
def test_a_test_is_a_baseline(expected: Expectations | None, told: Callable[[Changes], bool]) -> None:
    found = changes_since(expected, seen())
    assert told(found), found


def test_without_a_test_a_run_that_fails_has_changed() -> None:
    found = changes_since(None, seen(**failed()))
    assert found.outcome_changed
    assert str(found.before) == "completed"
    assert found.failure == Changed("failure", "nothing", "exit_code at `check`: it broke")
