"""The documented shapes: their fields, order and defaults, and what they refuse."""

import dataclasses
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from gert.errors import CanonicalError, InputError
from gert.kernel.agent.ports.model import ModelUsage
from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.agent.types import api
from gert.kernel.agent.types.api import (
    KernelPolicy,
    ModelInput,
    ReplayPolicy,
    RunHandle,
    RunLifecycleStatus,
    RunProgressStatus,
    RunRef,
    StepModelResult,
    StepSerde,
    StepToolResult,
    TenantContext,
    ToolDrift,
    WorkflowRunResult,
    json_step_serde,
    pydantic_step_serde,
)

REQUIRED = "required"

DOCUMENTED: dict[str, dict[str, Any]] = {
    "RunHandle": {"run_id": REQUIRED, "tenant_id": REQUIRED},
    "PauseTicket": {"run_id": REQUIRED, "ticket_id": REQUIRED, "seq": REQUIRED, "reason": REQUIRED},
    "ResumePoint": {
        "run_id": REQUIRED,
        "last_event_seq": REQUIRED,
        "last_step_key": REQUIRED,
        "blocked_on": REQUIRED,
    },
    "RunLease": {"run_id": REQUIRED, "worker_id": REQUIRED, "lease_expires_at": REQUIRED},
    "RunLeaseRecord": {"run_id": REQUIRED, "worker_id": REQUIRED, "lease_expires_at": REQUIRED},
    "RunStatus": {
        "run_id": REQUIRED,
        "tenant_id": REQUIRED,
        "status": REQUIRED,
        "last_event_seq": REQUIRED,
        "last_event_type": REQUIRED,
        "updated_at": REQUIRED,
        "blocked_on": None,
        "failure_reason": None,
    },
    "RunProgress": {
        "run_id": REQUIRED,
        "status": REQUIRED,
        "percent": REQUIRED,
        "current_stage": REQUIRED,
        "completed_stages": REQUIRED,
        "started_at": REQUIRED,
        "updated_at": REQUIRED,
        "eta_seconds": None,
    },
    "StepModelResult": {
        "run_id": REQUIRED,
        "seq": REQUIRED,
        "output": REQUIRED,
        "usage": REQUIRED,
        "tool_calls": REQUIRED,
        "replayed": REQUIRED,
        "api_mode_used": "chat",
        "response_id": None,
        "response_output_items": (),
        "replayed_with_drift": False,
        "forked_from_run_id": None,
        "drift_fields": (),
    },
    "StepToolResult": {
        "run_id": REQUIRED,
        "seq": REQUIRED,
        "tool_name": REQUIRED,
        "result_json": REQUIRED,
        "replayed": REQUIRED,
    },
    "ToolFingerprint": {
        "tool_name": REQUIRED,
        "tool_version": REQUIRED,
        "schema_version": REQUIRED,
        "schema_hash": REQUIRED,
        "risk_level": REQUIRED,
        "sandbox_profile": REQUIRED,
    },
    "ContextVersion": {"system_prompt_hash": None, "context_builder_version": None, "compaction_version": None},
    "ModelInput": {"kind": REQUIRED, "prompt": None, "messages": None},
    "StoreSchemaInfo": {"backend": REQUIRED, "schema_version": REQUIRED},
    "RunStateSnapshotRecord": {
        "run_id": REQUIRED,
        "tenant_id": REQUIRED,
        "last_event_seq": REQUIRED,
        "last_event_type": REQUIRED,
        "updated_at": REQUIRED,
        "status": REQUIRED,
        "blocked_on": REQUIRED,
        "failure_reason": REQUIRED,
        "last_step_key": REQUIRED,
        "drift_count": REQUIRED,
        "last_stage": REQUIRED,
        "last_tool": REQUIRED,
        "model_cost_total": REQUIRED,
        "open_pause_count": REQUIRED,
        "explain_status": "completed",
        "explain_failure_reason": None,
        "explain_failure_step": None,
    },
    "ToolSemanticOutcomeRecord": {
        "run_id": REQUIRED,
        "request_id": REQUIRED,
        "outcome": REQUIRED,
        "request_step_key": REQUIRED,
        "request_arguments_json": REQUIRED,
    },
    "ModelClientCapabilities": {"supports_replay_policy": REQUIRED, "supports_context_version": REQUIRED},
    "KernelPolicy": {"mode": "permissive"},
    "StepSerde": {"dump": REQUIRED, "load": REQUIRED},
    "WorkflowRunResult": {"run_id": REQUIRED, "status": REQUIRED, "output": REQUIRED, "pause_ticket": REQUIRED},
}


class Answer(BaseModel):
    text: str
    score: float = 0.0


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_fields_order_and_defaults_are_documented_for(name: str) -> None:
    fields = dataclasses.fields(getattr(api, name))
    found = {field.name: REQUIRED if field.default is dataclasses.MISSING else field.default for field in fields}
    assert list(found.items()) == list(DOCUMENTED[name].items())


def test_every_promised_name_is_there() -> None:
    assert all(hasattr(api, name) for name in api.__all__)
    assert set(DOCUMENTED) <= set(api.__all__)


def test_words_are_those_of_the_contract() -> None:
    assert get_args(ReplayPolicy) == ("strict", "allow_prompt_drift", "fork_on_drift")
    assert get_args(ToolDrift) == ("refuse", "pin")
    assert get_args(RunLifecycleStatus) == ("active", "paused", "failed", "completed")
    assert get_args(RunProgressStatus) == ("queued", "running", "completed", "failed", "cancelled")


def test_shapes_do_not_change() -> None:
    handle = RunHandle("run", "acme")
    assert handle == RunRef("run", "acme")
    with pytest.raises(dataclasses.FrozenInstanceError):
        handle.run_id = "other"  # type: ignore[misc]


def test_generic_shapes_can_be_made_with_their_type() -> None:
    usage = ModelUsage(1, 2, 0.5)
    result = StepModelResult[Answer]("run", 3, Answer(text="x"), usage, (), replayed=False)
    assert (result.output.text, result.drift_fields) == ("x", ())
    assert WorkflowRunResult[int]("run", "complete", 3, None).output == 3
    assert StepToolResult("run", 3, "tool", "{}", replayed=True).replayed


def test_a_tenant_has_capabilities_and_a_budget() -> None:
    tenant = TenantContext(tenant_id="acme", capabilities={"read"}, budget_usd_limit=1)  # type: ignore[arg-type]
    assert tenant.capabilities == frozenset({"read"})
    assert TenantContext(tenant_id="acme", budget_usd_limit=0.0).capabilities == frozenset()
    with pytest.raises(ValidationError, match="frozen"):
        tenant.tenant_id = "other"


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"tenant_id": "", "budget_usd_limit": 1}, id="a tenant without a name"),
        pytest.param({"tenant_id": "acme"}, id="a tenant without a budget"),
        pytest.param({"tenant_id": "acme", "budget_usd_limit": -0.01}, id="a budget below nothing"),
        pytest.param({"tenant_id": "acme", "budget_usd_limit": float("nan")}, id="a budget that is no number"),
        pytest.param({"tenant_id": "acme", "budget_usd_limit": 1, "capabilities": "read"}, id="capabilities as text"),
    ],
)
def test_a_tenant_is_refused_that_is(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TenantContext(**given)


def test_a_model_is_asked_by_prompt_or_messages() -> None:
    message = ChatMessage(role="user", content="hello")
    assert ModelInput.from_prompt("hi") == ModelInput("prompt", prompt="hi")
    assert ModelInput.from_messages([message], prompt="greet") == ModelInput("messages", "greet", (message,))
    assert ModelInput.from_messages([message]).prompt == "hello"


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: ModelInput("prompt"), id="a prompt that is missing"),
        pytest.param(lambda: ModelInput("messages"), id="messages that are missing"),
        pytest.param(lambda: ModelInput.from_messages([]), id="no messages"),
        pytest.param(lambda: ModelInput("shout", prompt="x"), id="a kind there is not"),  # type: ignore[arg-type]
    ],
)
def test_a_model_is_not_asked_with(make: Any) -> None:
    with pytest.raises(InputError):
        make()


def test_policies() -> None:
    assert KernelPolicy().mode == "permissive"
    assert KernelPolicy.enforced().mode == "enforced"
    assert KernelPolicy.enforced_v2().mode == "enforced_v2"


@pytest.mark.parametrize("mode", ["enforce", "", "ENFORCED", None])
def test_a_misspelled_policy_is_not_permissive(mode: Any) -> None:
    with pytest.raises(InputError, match=r"expected a policy mode permissive \| enforced \| enforced_v2"):
        KernelPolicy(mode)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text("aé😀"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_plain_data_is_kept_by_its_serde(value: Any) -> None:
    serde = json_step_serde()
    assert serde.load(serde.dump(value)) == value


def test_a_model_is_kept_by_its_serde() -> None:
    serde = pydantic_step_serde(Answer)
    assert serde.load(serde.dump(Answer(text="é", score=0.1))) == Answer(text="é", score=0.1)
    with pytest.raises(InputError):
        serde.load('{"score": 1}')


@pytest.mark.parametrize("value", [float("nan"), {1: 2}, object(), "\ud800"])
def test_what_is_no_plain_data_is_refused(value: Any) -> None:
    with pytest.raises(CanonicalError):
        json_step_serde().dump(value)


@pytest.mark.parametrize("text", ["", "{", "NaN", '{"a":1,"a":2}'])
def test_a_text_that_was_not_written_by_the_serde_is_refused(text: str) -> None:
    with pytest.raises(CanonicalError):
        json_step_serde().load(text)


def test_a_serde_is_two_functions() -> None:
    serde = StepSerde[int](dump=str, load=int)
    assert serde.load(serde.dump(3)) == 3
