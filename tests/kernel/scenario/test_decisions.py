"""What a recorded test expects of a decision."""

from typing import Any

import pytest

from gert.kernel.governance.decide import Decision
from gert.kernel.governance.rules import Limits
from gert.kernel.governance.verdict import Verdict
from gert.kernel.scenario.decisions import unmet_settings, written_decision

ASKS = Decision(verdict=Verdict.REQUIRE_APPROVAL, min_approvers=1, bars_break_glass=True)


@pytest.mark.parametrize(
    ("word", "decision", "written"),
    [
        pytest.param("require-approval", None, "require-approval", id="without policies, the verdict"),
        pytest.param("allow", Decision(), "allow", id="an allowed step has nothing to weaken"),
        pytest.param("deny", Decision(verdict=Verdict.DENY, min_approvers=2, bars_break_glass=True),
                     {"decision": "deny", "break_glass": False}, id="a denial has no approvers"),
        pytest.param("allow", Decision(limits=Limits(max_targets=3)), {"decision": "allow", "max_targets": 3},
                     id="a limit of an allowed step"),
        pytest.param("require-approval", ASKS, {"decision": "require-approval", "break_glass": False},
                     id="defaults are left out, except that there is no override"),
    ],
)  # fmt: skip
def test_a_recorded_decision_has_what_can_be_weakened(word: str, decision: Decision | None, written: Any) -> None:
    assert written_decision(word, decision) == written
    if decision is not None and isinstance(written, dict):
        assert list(unmet_settings(written, decision)) == []
