"""What many runs came to: every run counts once, under one ending, in one runbook."""

from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.kernel.events.outcomes import ENDINGS, OutcomeReport, RunbookOutcomes, Selection, distinct, ending
from gert.kernel.events.summary import RunSummary

NOON = datetime(2026, 2, 28, 12, tzinfo=UTC)


def run(run_id: str = "r-1", **said: Any) -> RunSummary:
    summary = RunSummary(run_id=run_id, runbook="health", started=NOON, mode="real", actor="alice")
    return msgspec.structs.replace(summary, **said)


def resolved(run_id: str = "r-1", code: str | None = "done", **said: Any) -> RunSummary:
    return run(run_id, **{"status": "completed", "category": "resolved", "code": code, "seconds": 4.2} | said)


def failed(kind: str | None, step: str | None, **said: Any) -> RunSummary:
    return run(status="failed", failure_kind=kind, failed_step=step, **said)


def violating(*places: tuple[str, str]) -> RunSummary:
    each = resolved()
    for place in places:
        each.violations.add(place)
    return each


def counted(*runs: RunSummary) -> RunbookOutcomes:
    outcomes = RunbookOutcomes("health")
    for each in runs:
        outcomes.add(each)
    return outcomes


class TestEndings:
    @pytest.mark.parametrize(
        ("each", "expected"),
        [
            pytest.param(resolved(), "resolved", id="an outcome counts by its category"),
            pytest.param(resolved(code=None), "resolved", id="with or without a code"),
            pytest.param(run(status="completed"), "no_outcome", id="completed, and nothing came of it"),
            pytest.param(run(status="failed"), "failed", id="failed"),
            pytest.param(run(status="error"), "error", id="an error is not a failure"),
            pytest.param(run(status="cancelled"), "cancelled", id="cancelled"),
            pytest.param(run(), "incomplete", id="no end"),
        ],
    )
    def test_how_a_run_is_counted(self, each: RunSummary, expected: str) -> None:
        assert ending(each) == expected
        assert counted(each).endings[expected] == 1

    @given(st.lists(st.sampled_from([None, "completed", "failed", "error", "cancelled"]), min_size=1))
    def test_each_run_counts_once(self, statuses: list[str | None]) -> None:
        outcomes = counted(*(run(status=status) for status in statuses))
        assert sum(outcomes.endings.values()) == outcomes.runs == len(statuses)
        assert sum(outcomes.percent(each) for each in ENDINGS) == pytest.approx(100)

    def test_no_runs_are_no_percent(self) -> None:
        assert RunbookOutcomes("none").percent("resolved") == 0.0


class TestOneRunbook:
    def test_codes_are_ranked_whatever_their_category(self) -> None:
        outcomes = counted(
            resolved(code="a"), resolved(code="b"), resolved(code="b"), resolved(code="a", category="escalated"),
            resolved(code="a"), resolved(code=None),
        )  # fmt: skip
        assert outcomes.top_codes() == [("a", 3), ("b", 2)]
        assert outcomes.as_data()["codes"][1:] == [
            {"code": "b", "category": "resolved", "count": 2},
            {"code": "a", "category": "escalated", "count": 1},
        ]

    def test_failures_stand_at_their_steps_without_items(self) -> None:
        outcomes = counted(
            failed("exit_code", "each[1]"), failed("exit_code", "each[7]"), failed("exit_code", "look"),
            failed("timeout", None), failed(None, "look"),
        )  # fmt: skip
        assert outcomes.failures_by_kind() == [("exit_code", 3, [("each", 2), ("look", 1)]), ("timeout", 1, [("", 1)])]

    def test_a_violation_counts_when_more_than_one_run_has_it(self) -> None:
        outcomes = counted(
            violating(("missing_output", "a"), ("missing_output", "a"), ("wrong_type", "b"), ("wrong_type", "b")),
            violating(("missing_output", "a")),
            violating(),
        )
        assert outcomes.repeated_violations() == [("missing_output", "a", 2, 3)]

    def test_break_glass_is_shown_by_actor(self) -> None:
        each = resolved()
        each.break_glass.add(("bob", "restart"), 2)
        assert counted(each, resolved()).as_data()["break_glass"] == {
            "uses": 2,
            "runs": 1,
            "by": [{"actor": "bob", "step": "restart", "uses": 2}],
        }

    def test_the_period_is_from_the_first_to_the_last_start_in_any_order(self) -> None:
        later = NOON + timedelta(hours=1)
        outcomes = counted(run(started=later), run(started=NOON), run(started=later))
        assert (outcomes.first, outcomes.last) == (NOON, later)

    def test_runs_that_have_not_ended_have_no_duration(self) -> None:
        durations = counted(run()).as_data()["durations"]
        assert durations == {"runs": 0, "median_seconds": None, "p95_seconds": None, "longest_seconds": None}

    def test_the_names_of_numbers_stay(self) -> None:
        assert list(counted(resolved()).as_data()) == [
            "runbook", "runs", "first", "last", "endings", "codes", "other_codes", "durations", "waited", "failures",
            "repeated_violations", "break_glass",
        ]  # fmt: skip


class TestReport:
    def test_the_runbook_that_ran_most_often_comes_first(self) -> None:
        report = OutcomeReport()
        for name in ["b", "a", "c", "c"]:
            report.add(resolved(runbook=name))
        assert [each.runbook for each in report.runbooks] == ["c", "a", "b"]
        assert report.runs == 4

    def test_a_run_found_twice_counts_once(self) -> None:
        assert [each.trace for each in distinct([resolved(trace="x"), resolved(trace="y")])] == ["x"]

    def test_a_copy_from_before_the_end_gives_way(self) -> None:
        copies = [run(trace="early"), resolved(trace="whole"), run(trace="also early")]
        for found in permutations(copies):
            assert [each.trace for each in distinct(found)] == ["whole"]

    def test_a_run_without_end_counts_once_after_the_others(self) -> None:
        found = [run("r-2"), run("r-2"), resolved("r-1")]
        assert [each.run_id for each in distinct(found)] == ["r-1", "r-2"]


@pytest.mark.parametrize(
    ("selection", "objection"),
    [
        pytest.param(Selection(), None, id="nothing is excluded by default"),
        pytest.param(Selection(mode="real"), None, id="the mode"),
        pytest.param(Selection(mode="probe"), "mode", id="another mode"),
        pytest.param(Selection(runbook="health"), None, id="the runbook"),
        pytest.param(Selection(runbook="heal"), "runbook", id="a name is not a prefix"),
        pytest.param(Selection(since=NOON), None, id="since includes the moment"),
        pytest.param(Selection(since=NOON + timedelta(microseconds=1)), "period", id="too early"),
        pytest.param(Selection(until=NOON), "period", id="until excludes the moment"),
        pytest.param(Selection(until=NOON + timedelta(microseconds=1)), None, id="just in time"),
        pytest.param(Selection(runbook="x", mode="probe", since=NOON), "runbook", id="the runbook speaks first"),
    ],
)
def test_which_runs_count(selection: Selection, objection: str | None) -> None:
    assert selection.objection(run()) == objection
