import math
import re
from typing import Any, get_args

import pytest

from gert.errors import TraceError
from gert.kernel.events import runbook as says
from gert.kernel.events import vocabulary
from gert.kernel.events.catalogue import catalogue, decode_payload
from gert.kernel.events.payload import Payload, UnknownEvent, to_data

# kernel-v0 §11, ecosystem-v0 §4-§6, §12-§15: each event with the fields the documents name.
SPECIFIED = {
    "step_start": "step_id type contract_summary",
    "step_complete": "step_id status outputs duration failure",
    "branch_enter": "branch_label condition",
    "branch_exit": "branch_label",
    "parallel_fork": "branch_count forked_state_hash",
    "parallel_merge": "merged_outputs branch_outcomes",
    "outcome_resolved": "structured_outcome",
    "contract_evaluated": "step_id resolved_contract",
    "governance_decision": "step_id risk_level decision approval_result",
    "redaction_applied": "step_id pattern_count",
    "for_each_start": "over item_count parallel",
    "for_each_item": "index value",
    "repeat_start": "step_id max",
    "repeat_iteration": "step_id index until_result",
    "visibility_applied": "step_id allow deny",
    "scope_export": "step_id scope exported_vars",
    "run_start": "runbook runbook_hash actor host gert_version tool_hashes inputs input_sources constants",
    "input_resolved": "name source",
    "approval_submitted": "ticket_id step_id risk_level",
    "approval_resolved": "ticket_id approved approver_id method signature",
    "contract_violation": "step_id kind message severity",
    "run_complete": "status chain_hash signature signing_key_id signature_alg body_signature",
    "run_forked": "source_run_id from_step",
    "step_retry": "step_id attempt failure",
    "break_glass": "step_id reason",
    "webhook_sent": "url attempts",
}


@pytest.mark.parametrize("type_name", SPECIFIED)
def test_specified_events_have_the_specified_fields(type_name: str) -> None:
    assert set(SPECIFIED[type_name].split()) <= set(catalogue()[type_name].__struct_encode_fields__)


@pytest.mark.parametrize("kind", catalogue().values(), ids=catalogue().keys())
def test_every_event_is_named_frozen_and_explained(kind: type[Payload]) -> None:
    assert re.fullmatch(r"[a-z][a-z_]*", kind.type)
    assert kind.__name__.lower() == kind.type.replace("_", "")
    assert kind.__struct_config__.frozen
    assert kind.__struct_config__.omit_defaults
    assert kind.__doc__ is not None
    assert kind.__doc__.split("\n")[0].endswith(".")


def test_the_categories_of_outcomes_are_fixed() -> None:
    assert vocabulary.OUTCOME_CATEGORIES == ("resolved", "escalated", "no_action", "needs_rca")
    assert get_args(vocabulary.StepStatus) == ("success", "failed", "skipped", "error")
    assert vocabulary.RUN_STATUSES == ("completed", "failed", "error", "cancelled")


def test_an_event_is_written_with_the_names_of_the_spec_and_without_defaults() -> None:
    start = says.StepStart(step_id="check", step_type="tool", tool="health-check")
    assert to_data(start) == {"step_id": "check", "type": "tool", "tool": "health-check"}


def test_what_is_written_is_read_back() -> None:
    merge = says.ParallelMerge(
        step_id="p",
        branch_outcomes=(
            says.BranchOutcome(index=0, status="success", label="a"),
            says.BranchOutcome(index=1, status="failed", failure=says.Failure("exit_code", "exited with 1")),
        ),
        merged_outputs={"z": [1, {"a": None}], "a": 2},
    )
    data = to_data(merge)
    assert list(data["merged_outputs"]) == ["z", "a"]
    assert decode_payload("parallel_merge", data) == merge


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        pytest.param(
            says.StepComplete(step_id="a", status="done", duration="1s"),  # type: ignore[arg-type]
            "`$.status`",
            id="a status that does not exist",
        ),
        pytest.param(
            says.StepComplete(step_id=1, status="success", duration="1s"),  # type: ignore[arg-type]
            "`$.step_id`",
            id="a step id that is a number",
        ),
        pytest.param(
            says.OutcomeResolved(step_id="a", structured_outcome=says.Outcome("solved", "x")),  # type: ignore[arg-type]
            "`$.structured_outcome.category`",
            id="an invented category",
        ),
        pytest.param(
            says.StepRetry(step_id="a", attempt=2, max=3, delay="1s", failure=None),  # type: ignore[arg-type]
            "`$.failure`",
            id="a required part left out",
        ),
        pytest.param(UnknownEvent(name="x", data={}), "a class of the catalogue", id="an unknown event"),
    ],
)
def test_writers_are_strict(payload: Payload, why: str) -> None:
    with pytest.raises(TraceError) as caught:
        to_data(payload)
    assert why in caught.value.message


@pytest.mark.parametrize(
    ("value", "where"),
    [
        pytest.param(math.nan, "outputs.x", id="not a number"),
        pytest.param({1, 2}, "outputs.x", id="a set has no order"),
        pytest.param(2**60, "outputs.x", id="an integer beyond what JSON keeps"),
        pytest.param([{"y": b"bytes"}], "outputs.x[0].y", id="bytes"),
        pytest.param("\ud800", "outputs.x", id="a lone surrogate"),
    ],
)
def test_what_is_not_json_is_not_written(value: Any, where: str) -> None:
    with pytest.raises(TraceError) as caught:
        to_data(says.StepComplete(step_id="a", status="success", duration="1s", outputs={"x": value}))
    assert f"at `{where}`" in caught.value.message


def test_parts_are_checked_too() -> None:
    outcome = says.Outcome("resolved", "x", {"when": {1}})
    with pytest.raises(TraceError, match="reachable_outcomes"):
        to_data(says.RunComplete(status="completed", mode="dry-run", duration="0s", reachable_outcomes=(outcome,)))


class Text(str):
    pass


class Whole(int):
    pass


def test_values_of_other_classes_are_written_as_what_they_are() -> None:
    data = to_data(says.ForEachItem(step_id=Text("a"), index=Whole(1), value={"x": (Text("y"), Whole(2))}))
    assert data == {"step_id": "a", "index": 1, "value": {"x": ("y", 2)}}
    assert type(data["step_id"]) is str
    assert type(data["index"]) is int
    assert [type(item) for item in data["value"]["x"]] == [str, int]


def test_what_is_nested_without_end_is_not_written() -> None:
    value: tuple[Any, ...] = ()
    for _ in range(20_000):
        value = (value,)
    with pytest.raises(TraceError, match="nested"):
        to_data(says.ForEachItem(step_id="a", index=0, value=value))


def test_unknown_events_keep_their_data() -> None:
    event = decode_payload("from_the_future", {"a": [1]})
    assert event == UnknownEvent(name="from_the_future", data={"a": [1]})


def test_unknown_fields_are_passed_over() -> None:
    data = {"step_id": "a", "status": "success", "duration": "1s", "from_the_future": {"x": 1}}
    assert decode_payload("step_complete", data) == says.StepComplete(step_id="a", status="success", duration="1s")


def test_known_events_with_other_data_are_not_lost() -> None:
    event = decode_payload("step_complete", {"step_id": "a", "status": "postponed", "duration": "1s"})
    assert isinstance(event, UnknownEvent)
    assert event.name == "step_complete"
    assert event.data["status"] == "postponed"
    assert event.objection == "invalid enum value 'postponed' - at `$.status`"
