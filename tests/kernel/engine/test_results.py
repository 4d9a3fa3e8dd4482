"""How steps end: every kind of failure has its status, and from the result alone follows whether the run goes on."""

from typing import get_args

import pytest

from gert.kernel.engine.kinds.parallel import join_lanes
from gert.kernel.engine.results import DONE, FAILED, NEVER_CONTINUED, Result, block_result, failed, status_of
from gert.kernel.events.runbook import Failure, Outcome
from gert.kernel.events.vocabulary import FailureKind
from gert.kernel.template.unknown import Unknown

KINDS: tuple[FailureKind, ...] = get_args(FailureKind)
OUTCOME = Outcome("resolved", "fine")
OTHER = Outcome("escalated", "not fine")


@pytest.mark.parametrize("kind", KINDS)
def test_the_status_of(kind: FailureKind) -> None:
    said_no = {"exit_code", "tool_error", "assertion", "rejected", "reported", "lane_failed"}
    expected = "skipped" if kind == "denied" else "failed" if kind in said_no else "error"
    assert status_of(Failure(kind, "m")) == expected
    assert failed(kind, "m").status == expected


def test_without_a_failure_a_step_succeeded() -> None:
    assert status_of(None) == "success"


def test_denials_and_cancellations_are_never_continued() -> None:
    expected = {"denied", "approval_outdated", "cancelled", "contract_violation", "unknown_outcome", "internal"}
    assert set(NEVER_CONTINUED) == expected
    assert NEVER_CONTINUED.isdisjoint(FAILED)


@pytest.mark.parametrize(
    ("result", "stops"),
    [
        pytest.param(DONE, False, id="a list that is done"),
        pytest.param(Result(status="skipped", reason="when_false"), False, id="a guard that did not hold"),
        pytest.param(Result(ended=True, outcome=OUTCOME), True, id="an end"),
        pytest.param(Result(ended=True), True, id="an unknown end"),
        pytest.param(failed("exit_code", "m"), True, id="a failure"),
        pytest.param(failed("denied", "m"), True, id="a denial, though the step is only skipped"),
        pytest.param(failed("exit_code", "m", continued=True), False, id="a failure that is continued"),
        pytest.param(failed("lane_failed", "m", continued=True, ended=True), True, id="one with an end beside it"),
    ],
)
def test_whether_the_run_stops_after(result: Result, stops: bool) -> None:
    assert result.stops is stops


@pytest.mark.parametrize("kind", KINDS)
def test_only_a_cancellation_is_one(kind: FailureKind) -> None:
    assert failed(kind, "m").is_cancelled is (kind == "cancelled")
    assert block_result(failed(kind, "m")).is_cancelled is (kind == "cancelled")
    assert not DONE.is_cancelled


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_carries_the_failure_inside_and_stops_like_it(kind: FailureKind) -> None:
    inner = failed(kind, "m", failed_step="a/b", outputs={"x": 1})
    outer = block_result(inner)
    assert outer.failure == inner.failure
    assert outer.failed_step == "a/b"
    assert outer.stops
    # A block that holds a denied step has begun, so it is not skipped.
    assert outer.status == ("failed" if kind == "denied" else inner.status)
    assert outer.outputs == {}


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        pytest.param(DONE, DONE, id="done"),
        pytest.param(failed("exit_code", "m", continued=True), DONE, id="a failure that was continued inside"),
        pytest.param(Result(outputs={"x": 1}), DONE, id="outputs, which are not the block's"),
        pytest.param(
            Result(ended=True, outcome=OUTCOME), Result(ended=True, outcome=OUTCOME), id="an end, which ends all around"
        ),
        pytest.param(Result(status="skipped", reason="when_false"), DONE, id="a step that was skipped"),
    ],
)
def test_what_a_block_makes_of(inner: Result, outer: Result) -> None:
    assert block_result(inner) == outer


@pytest.mark.parametrize(
    ("result", "facts"),
    [
        pytest.param(Result(), {"status": "success"}, id="a status"),
        pytest.param(Result(exit_code=0), {"status": "success", "exit_code": 0}, id="an exit code of 0"),
        pytest.param(failed("exit_code", "m", exit_code=3), {"status": "failed", "exit_code": 3}, id="another one"),
    ],
)
def test_what_gert_says_of_a_step(result: Result, facts: dict[str, object]) -> None:
    assert result.facts == facts


def test_the_result_of_a_step_that_was_not_executed_is_unknown() -> None:
    facts = Result(status="skipped", assumed=True).facts
    assert set(facts) == {"status", "exit_code"}
    assert all(isinstance(each, Unknown) for each in facts.values())


# --- lanes together


def test_lanes_that_are_all_done_are_done() -> None:
    assert join_lanes([DONE, DONE], ["a", "b"]) == DONE
    assert join_lanes([], []) == DONE


def test_the_outcome_of_the_lowest_lane_stands() -> None:
    lanes = [DONE, Result(ended=True, outcome=OTHER), Result(ended=True, outcome=OUTCOME)]
    assert join_lanes(lanes, ["a", "b", "c"]) == Result(ended=True, outcome=OTHER)


def test_a_failure_anywhere_wins_over_an_end() -> None:
    result = join_lanes(
        [Result(ended=True, outcome=OUTCOME), failed("exit_code", "m", failed_step="p/b/x")], ["a", "b"]
    )
    assert result.failure == Failure("lane_failed", "`b` failed: m")
    assert result.status == "failed"
    assert result.failed_step == "p/b/x"
    assert not result.ended
    # Kept in case the block is continued: then the end another lane reached stands.
    assert result.outcome == OUTCOME


def test_every_lane_that_failed_is_named() -> None:
    result = join_lanes([failed("timeout", "late"), DONE, failed("exit_code", "m")], ["a", "b", "c"])
    assert result.failure == Failure("lane_failed", "`a`, `c` failed: late")


def test_a_failure_that_was_continued_in_its_lane_is_none_of_the_block() -> None:
    assert join_lanes([failed("exit_code", "m", continued=True), DONE], ["a", "b"]) == DONE


@pytest.mark.parametrize("kind", sorted(NEVER_CONTINUED))
def test_what_is_never_continued_stays_what_it_is(kind: FailureKind) -> None:
    result = join_lanes([failed("exit_code", "m"), failed(kind, "the last word", failed_step="p/b/x")], ["a", "b"])
    assert result.failure == Failure(kind, "the last word")
    assert result.failed_step == "p/b/x"
    assert result.stops
