"""What one run came to: which events say so, and how much of a hostile trace is believed."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.kernel.events.traces import trace

from gert.errors import TraceError
from gert.kernel.events.catalogue import catalogue
from gert.kernel.events.chain import GENESIS
from gert.kernel.events.envelope import Envelope, decode, encode
from gert.kernel.events.summary import LONGEST_TEXT, MOST_PER_RUN, RunSummary, is_irrelevant, without_item

START = {"runbook": "health", "actor": "alice", "mode": "real"}
NEEDED = {"run_start", "contract_violation", "break_glass", "outcome_resolved", "run_complete"}
RESOLVED = {"category": "resolved", "code": "done"}


def event(kind: str, data: dict[str, Any], second: int = 0, seq: int = 1) -> Envelope:
    stamp = f"2026-02-28T14:30:{second:02d}.000000Z"
    return Envelope(seq=seq, run_id="r-1", type=kind, timestamp=stamp, prev_hash=GENESIS, data=data)


def run_of(*events: Envelope, start: dict[str, Any] | None = None) -> RunSummary:
    run = RunSummary.begin(event("run_start", START if start is None else start), "here.jsonl")
    for each in events:
        run.take(each)
    return run


def completed(**data: Any) -> Envelope:
    return event("run_complete", {"status": "completed", "mode": "real", "duration": "4.2s", **data}, second=9)


def failed(**data: Any) -> Envelope:
    return completed(status="failed", **data)


class TestWhichLinesMatter:
    @pytest.mark.parametrize("kind", sorted(catalogue()))
    def test_every_event_of_the_catalogue_is_told_by_its_first_bytes(self, kind: str) -> None:
        assert bool(is_irrelevant(encode(event(kind, {})))) is (kind not in NEEDED)

    @pytest.mark.parametrize(
        "line",
        [
            pytest.param(b'{"run_id":"r","seq":1,"type":"step_start"}', id="keys in another order"),
            pytest.param(b'{ "seq":1,"run_id":"r","type":"step_start"}', id="a space"),
            pytest.param(b'{"seq":1,"run_id":"a\\"b","type":"step_start"}', id="an escape in the run"),
            pytest.param(b'{"seq":1,"run_id":"r","type":"step\\u005fstart"}', id="an escape in the type"),
            pytest.param(b'{"seq":1,"run_id":"r","type":"run_complete"}', id="one that matters"),
            pytest.param(b'{"seq":1,"run_id":"r","type":"step_st', id="a torn type"),
            pytest.param(b'{"seq":1,"run_id":"r"', id="a torn line"),
            pytest.param(b' {"seq":1,"run_id":"r","type":"step_start"}', id="an indented line"),
            pytest.param(b"", id="nothing"),
            pytest.param(b"\x00" * 20, id="zeros"),
        ],
    )
    def test_any_other_line_has_to_be_read(self, line: bytes) -> None:
        assert not is_irrelevant(line)

    def test_a_type_that_begins_like_one_that_matters_does_not_matter(self) -> None:
        assert is_irrelevant(b'{"seq":1,"run_id":"r","type":"run_complete_maybe","timestamp":""}')


class TestBegin:
    def test_a_run_is_known_by_its_start(self) -> None:
        run = run_of()
        assert (run.run_id, run.runbook, run.actor, run.mode, run.trace) == (
            "r-1", "health", "alice", "real", "here.jsonl"
        )  # fmt: skip
        assert run.started == datetime(2026, 2, 28, 14, 30, tzinfo=UTC)
        assert run.status is None

    @pytest.mark.parametrize(
        ("start", "runbook", "mode"),
        [
            pytest.param({}, "(unnamed)", "real", id="nothing is said"),
            pytest.param({"runbook": 7, "mode": ["x"]}, "(unnamed)", "real", id="nonsense is said"),
            pytest.param({"runbook": "x" * 10_000}, "x" * LONGEST_TEXT, "real", id="a name without end"),
            pytest.param({"runbook": "a", "mode": "replay"}, "a", "replay", id="a mode"),
        ],
    )
    def test_a_start_by_others_is_tolerated(self, start: dict[str, Any], runbook: str, mode: str) -> None:
        run = run_of(start=start)
        assert (run.runbook, run.mode) == (runbook, mode)

    @pytest.mark.parametrize(
        ("first", "why"),
        [
            pytest.param(event("step_start", {}), "begins with `step_start`", id="another event"),
            pytest.param(
                Envelope(run_id="r", type="run_start", timestamp="soon", prev_hash=GENESIS, data=START),
                "not a timestamp",
                id="no timestamp",
            ),
            pytest.param(
                Envelope(run_id="r", type="run_start", timestamp="2026-02-28T14:30:00", prev_hash=GENESIS, data=START),
                "no time zone",
                id="a time that may be anywhere",
            ),
        ],
    )
    def test_what_does_not_begin_a_run_is_refused(self, first: Envelope, why: str) -> None:
        with pytest.raises(TraceError, match=why):
            RunSummary.begin(first)


class TestTheEnd:
    def test_a_trace_of_ours(self) -> None:
        first, *rest = map(decode, trace())
        run = RunSummary.begin(first)
        for each in rest:
            run.take(each)
        assert (run.status, run.category, run.code) == ("completed", "resolved", "service_restarted")
        assert (run.seconds, run.failure_kind) == (4.3, None)

    @pytest.mark.parametrize(
        ("events", "expected"),
        [
            pytest.param([completed(outcome=RESOLVED)], ("completed", "resolved", "done"), id="an outcome"),
            pytest.param(
                [event("outcome_resolved", {"structured_outcome": RESOLVED}), completed()],
                ("completed", "resolved", "done"),
                id="an outcome only the `end` step names",
            ),
            pytest.param(
                [
                    event("outcome_resolved", {"structured_outcome": {"category": "escalated", "code": "lane"}}),
                    completed(outcome=RESOLVED),
                ],
                ("completed", "resolved", "done"),
                id="the run has the last word over its lanes",
            ),
            pytest.param(
                [event("outcome_resolved", {"structured_outcome": RESOLVED})],
                (None, None, None),
                id="without `run_complete` nothing is settled",
            ),
            pytest.param(
                [event("outcome_resolved", {"structured_outcome": RESOLVED}), failed()],
                ("failed", None, None),
                id="a failed run has no outcome, whatever a lane reached",
            ),
            pytest.param([completed()], ("completed", None, None), id="completed without an outcome"),
            pytest.param(
                [completed(outcome={"category": "fantastic", "code": "x"})],
                ("completed", None, None),
                id="there are no other categories",
            ),
            pytest.param([completed(outcome="resolved")], ("completed", None, None), id="an outcome that is none"),
            pytest.param(
                [completed(outcome={"category": ["resolved"]})], ("completed", None, None), id="a list as a category"
            ),
            pytest.param([completed(status="odd")], ("error", None, None), id="an unknown status is an error"),
            pytest.param(
                [completed(status=None, outcome=RESOLVED)],
                ("completed", "resolved", "done"),
                id="unless there is an outcome",
            ),
            pytest.param(
                [completed(outcome={"category": "no_action", "code": 3})],
                ("completed", "no_action", None),
                id="a code that is no text",
            ),
            pytest.param(
                [failed(), completed(outcome=RESOLVED)], ("failed", None, None), id="a run ends once"
            ),
        ],
    )  # fmt: skip
    def test_how_a_run_ended(self, events: list[Envelope], expected: tuple[str | None, ...]) -> None:
        run = run_of(*events)
        assert (run.status, run.category, run.code) == expected

    def test_a_dry_run_claims_no_outcome(self) -> None:
        run = run_of(completed(outcome=RESOLVED), start={**START, "mode": "dry-run"})
        assert (run.status, run.category, run.code) == ("completed", None, None)

    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            pytest.param(
                {"failure": {"kind": "exit_code", "message": "m"}, "failed_step": "a[2]"},
                ("exit_code", "a[2]"),
                id="said",
            ),
            pytest.param({}, (None, None), id="not said"),
            pytest.param({"failure": "bad", "failed_step": 3}, (None, None), id="nonsense"),
            pytest.param({"failure": {"kind": None}}, (None, None), id="no kind"),
        ],
    )
    def test_why_it_failed(self, data: dict[str, Any], expected: tuple[str | None, str | None]) -> None:
        run = run_of(failed(**data))
        assert (run.failure_kind, run.failed_step) == expected

    @pytest.mark.parametrize(
        ("duration", "seconds"),
        [
            pytest.param("1h30m", 5400.0, id="as it says"),
            pytest.param("4.123456789s", 9.0, id="too exact, so by the clock"),
            pytest.param(None, 9.0, id="not said, so by the clock"),
            pytest.param("-3s", 9.0, id="negative, so by the clock"),
            pytest.param("9" * 5000 + "d", 9.0, id="endless, so by the clock"),
        ],
    )
    def test_how_long_it_took(self, duration: str | None, seconds: float) -> None:
        assert run_of(completed(duration=duration)).seconds == seconds

    def test_a_clock_that_went_back_takes_no_time_and_one_that_cannot_be_read_is_not_guessed(self) -> None:
        early = msgspec.structs.replace(completed(duration=""), timestamp="2020-01-01T00:00Z")
        assert run_of(early).seconds == 0.0
        odd = Envelope(run_id="r-1", type="run_complete", timestamp="?", prev_hash=GENESIS, data={"status": "failed"})
        assert run_of(odd).seconds is None


class TestWhatHappenedOnTheWay:
    def test_violations_are_counted_by_kind_and_step_whatever_the_item(self) -> None:
        run = run_of(
            *(
                event("contract_violation", {"kind": kind, "step_id": step})
                for kind, step in [("missing_output", "a[0]"), ("missing_output", "a[x y]"), ("wrong_type", "a")]
            )
        )
        assert run.violations.top() == [(("missing_output", "a"), 2), (("wrong_type", "a"), 1)]

    def test_a_run_without_end_of_violations_stays_small(self) -> None:
        run = run_of(*(event("contract_violation", {"kind": "k", "step_id": f"s{n}"}) for n in range(500)))
        assert len(run.violations) == MOST_PER_RUN
        assert run.violations.total == 500

    def test_break_glass_is_counted_by_actor_and_step(self) -> None:
        run = run_of(event("break_glass", {"actor": "bob", "step_id": "restart", "reason": "fire"}))
        assert run.break_glass.top() == [(("bob", "restart"), 1)]

    def test_other_events_change_nothing(self) -> None:
        run = run_of(event("step_complete", {"status": "failed"}), event("from_the_future", {"x": 1}))
        assert (run.status, run.seconds, run.violations.total) == (None, None, 0)


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("restart", "restart"),
        ("each[3]", "each"),
        ("triage/ill/each[web-1]/look", "triage/ill/each/look"),
        ("odd]name[", "odd]name["),
        ("", ""),
    ],
)
def test_a_step_without_its_item(path: str, step: str) -> None:
    assert without_item(path) == step
