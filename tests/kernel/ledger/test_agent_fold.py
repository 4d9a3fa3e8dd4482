"""What the events of a run come to: one fold, whatever is asked of it."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.kernel.agent.api.status import explanation_of, percent_of, progress_of, resume_point_of, status_of
from gert.kernel.events.agent import (
    HarnessFailed,
    HarnessSleep,
    HarnessStage,
    HarnessWake,
    ModelCompleted,
    ModelRequested,
    PauseRequested,
    ReplayedWithDrift,
    ResumeRequested,
    RunStarted,
    RunSummary,
    ToolCompleted,
    ToolRequested,
)
from gert.kernel.events.payload import Payload
from gert.kernel.ledger.agent_fold import AgentSnapshot, Unit, fold, stage_of, units_of
from gert.kernel.ledger.build_batch import Entry, build_batch
from gert.kernel.ledger.record import Head

MOMENT = "2030-01-01T00:00:00.000000Z"


def tasks(*states: str) -> RunSummary:
    units = [{"id": f"t{n}", "state": state} for n, state in enumerate(states, start=1)]
    return RunSummary(summary_type="task_progress", summary_json=msgspec.json.encode({"units": units}).decode())


def unblocked(key: str | None) -> RunSummary:
    return RunSummary(summary_type="run_unblocked" if key is None else f"run_unblocked::{key}", summary_json="{}")


def blocked(key: str | None) -> PauseRequested:
    return PauseRequested(reason=f"b {key}", blocked=True, unblock_key=key)


def head_after(payloads: Sequence[Payload]) -> Head:
    return build_batch(Head("r"), MOMENT, "acme", [Entry(each) for each in payloads]).head


def after(*payloads: Payload) -> AgentSnapshot:
    found = AgentSnapshot()
    for seq, payload in enumerate(payloads, start=1):
        found = fold(found, payload, seq)
    return found


keys = st.sampled_from([None, "a", "b", "approval:x"])
states = st.sampled_from(["pending", "in_progress", "done"])
payloads = st.one_of(
    st.builds(tasks, states, states, states),
    st.builds(tasks),
    st.builds(blocked, keys),
    st.builds(unblocked, keys),
    st.just(PauseRequested(reason="p", step_key="s")),
    st.just(ResumeRequested()),
    st.builds(HarnessSleep, status=st.sampled_from(["completed", "failed"])),
    st.just(HarnessFailed(error_type="E", message="m")),
    st.just(HarnessWake(run_created=False)),
    st.builds(HarnessStage, stage=st.sampled_from(["x", "y"])),
    st.just(ModelRequested(model="m", prompt="p", step_key="k")),
    st.just(ModelCompleted(request_seq=1, model="m", output_json="{}", cost_usd=0.5)),
    st.just(ToolRequested(tool_name="t", arguments_json="{}", idempotency_key="")),
    st.just(ToolCompleted(request_seq=1, tool_name="t")),
    st.just(RunSummary(summary_type="task_progress", summary_json="not JSON")),
    st.just(RunSummary(summary_type="note", summary_json="{}")),
    st.just(ReplayedWithDrift(model="m", source_model_requested_event_id="r#1", replay_policy="allow_prompt_drift")),
)
runs = st.lists(payloads, max_size=12).map(lambda found: [RunStarted(), *found])


class TestLaws:
    @given(runs)
    def test_status_progress_and_explanation_never_disagree(self, events: list[Payload]) -> None:
        head = head_after(events)
        units: tuple[Unit, ...] = ()
        for payload in events:
            if isinstance(payload, RunSummary) and payload.summary_type == "task_progress":
                units = units_of(payload.summary_json)
        status, progress, said = status_of(head), progress_of(head, units), explanation_of(head)
        point = resume_point_of(head)
        assert said["status"] == status.status
        assert said["blocked_on"] == status.blocked_on == point.blocked_on
        assert said["percent"] == progress.percent
        assert said["current_stage"] == progress.current_stage
        assert said["failure_reason"] == status.failure_reason
        assert (status.status == "failed") == (progress.status == "failed")
        assert status.failure_reason is None or status.status == "failed"
        assert (status.status == "completed") == (progress.status == "completed")
        assert progress.status in ("running", "completed", "failed")
        assert 0 <= progress.percent <= 100
        assert progress.percent != 100 or not units or len(progress.completed_stages) == len(units)
        if status.status == "completed":
            assert progress.percent == 100
        if units:
            assert progress.percent == 100 * len(progress.completed_stages) // len(units)
        assert (status.blocked_on is None) or status.status in ("paused", "failed")

    @given(runs, st.integers(1, 12))
    def test_folding_in_batches_is_folding_one_by_one(self, events: list[Payload], size: int) -> None:
        head = Head("r")
        for start in range(0, len(events), size):
            batch = build_batch(head, MOMENT, "acme", [Entry(each) for each in events[start : start + size]])
            # As a ledger keeps it: written and read again.
            kept = msgspec.json.decode(msgspec.json.encode(batch.head.snapshot), type=AgentSnapshot)
            head = msgspec.structs.replace(batch.head, snapshot=kept)
        assert head == head_after(events)

    @given(st.lists(st.one_of(st.builds(blocked, keys), st.just(PauseRequested(reason="p"))), max_size=8))
    def test_stacked_blocks_clear_and_resuming_leaves_them(self, stack: list[PauseRequested]) -> None:
        found = after(RunStarted(), *stack)
        assert (found.status == "paused") == bool(stack)
        resumed = fold(found, ResumeRequested(), 90)
        assert [pause.unblock_key for pause in resumed.pauses] == [each.unblock_key for each in stack if each.blocked]
        for seq, key in enumerate((None, "a", "b", "approval:x"), start=91):
            resumed = fold(resumed, unblocked(key), seq)
            assert key not in [pause.unblock_key for pause in resumed.pauses]
        assert resumed.status == "active"


PERCENTS = [
    ((), 0),
    (("pending",), 0),
    (("done", "pending", "pending"), 33),
    (("done", "done", "in_progress"), 66),
    (("done",) * 3, 100),
    (("done",) * 199 + ("pending",), 99),
    (("pending",) * 199 + ("done",), 0),
]


@pytest.mark.parametrize(("given_states", "percent"), PERCENTS)
def test_percent_is_rounded_down_and_less_than_all_is_not_completed(
    given_states: tuple[str, ...], percent: int
) -> None:
    found = after(RunStarted(), tasks(*given_states), HarnessSleep(status="completed"))
    left = any(state != "done" for state in given_states)
    assert found.status == ("active" if left else "completed")
    assert percent_of(found) == (100 if not given_states else percent)


@pytest.mark.parametrize(
    ("given_states", "stage"),
    [
        ((), None),
        (("done", "pending", "in_progress", "in_progress"), "t3"),
        (("done", "pending", "pending"), "t2"),
        (("done", "done"), "t2"),
    ],
)
def test_the_stage_is_the_first_in_progress_else_pending_else_the_last_done(
    given_states: tuple[str, ...], stage: str | None
) -> None:
    assert stage_of(units_of(tasks(*given_states).summary_json)) == stage


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", '{"units": 3}', '{"units": [{"id": 1}]}', '{"units": [{"id": "a", "state": "odd"}]}', "{"],
)
def test_unreadable_tasks_are_none(text: str) -> None:
    assert units_of(text) == ()


STANDS: list[Any] = [
    pytest.param([], "active", None, id="it has begun"),
    pytest.param([PauseRequested(reason="p")], "paused", None, id="paused"),
    pytest.param([blocked(None)], "paused", None, id="blocked without a key"),
    pytest.param([blocked("a")], "paused", "unblock:a", id="blocked by a key"),
    pytest.param([blocked("approval:x")], "paused", "approval:x", id="waits for an approval"),
    pytest.param([blocked("a"), PauseRequested(reason="p")], "paused", "unblock:a", id="blocked, then paused"),
    pytest.param([blocked("a"), blocked("b")], "paused", "unblock:b", id="the newest block"),
    pytest.param([blocked("a"), blocked("b"), unblocked("b")], "paused", "unblock:a", id="the one below"),
    pytest.param([blocked("a"), unblocked(None)], "paused", "unblock:a", id="the wrong key clears nothing"),
    pytest.param([blocked("a"), ResumeRequested()], "paused", "unblock:a", id="resuming is no unblocking"),
    pytest.param([PauseRequested(reason="p"), unblocked(None)], "paused", None, id="unblocking is no resuming"),
    pytest.param([HarnessSleep(status="completed")], "completed", None, id="put down"),
    pytest.param([HarnessSleep(status="completed"), PauseRequested(reason="p")], "paused", None, id="paused after"),
    pytest.param([HarnessSleep(status="failed")], "failed", None, id="put down in a failure"),
    pytest.param([HarnessFailed(error_type="E", message="")], "failed", None, id="failed"),
    pytest.param(
        [HarnessFailed(error_type="E", message=""), HarnessWake(run_created=False)], "active", None, id="woken"
    ),
    pytest.param([HarnessSleep(status="completed"), ResumeRequested()], "active", None, id="resumed after its end"),
    pytest.param([HarnessSleep(status="completed"), tasks("pending")], "active", None, id="a new task after its end"),
]


@pytest.mark.parametrize(("events", "status", "blocked_on"), STANDS)
def test_how_a_run_stands(events: list[Payload], status: str, blocked_on: str | None) -> None:
    found = after(RunStarted(), *events)
    assert (found.status, found.blocked_on) == (status, blocked_on)


@pytest.mark.parametrize("between", [ResumeRequested(), HarnessWake(run_created=False)], ids=["resumed", "woken"])
def test_a_new_failure_is_not_told_as_the_old_one(between: Payload) -> None:
    old = HarnessFailed(error_type="Old", message="gone", last_step_key="k")
    found = after(RunStarted(), old, between, HarnessSleep(status="failed", execution_error_type="New"))
    assert (found.failure_reason, found.failure_step) == ("New", None)
    both = after(RunStarted(), old, HarnessSleep(status="failed", execution_error_type="Old"))
    assert (both.failure_reason, both.failure_step) == ("Old: gone", "k")
