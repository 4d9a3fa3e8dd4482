"""The payloads callers read and write: generated from the ledger's events, and converted without loss."""

import types
import typing
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from tests.soak import examples

from gert.errors import TraceError
from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.agent.types.payload_models import (
    EventPayload,
    EventType,
    HarnessFailedPayload,
    ModelCompletedPayload,
    ModelRequestedPayload,
    PauseRequestedPayload,
    ResumeRequestedPayload,
    RunStartedPayload,
    RunSummaryPayload,
    ToolCompletedPayload,
    ToolRequestedPayload,
)
from gert.kernel.agent.types.payloads import (
    PAYLOADS,
    KernelEvent,
    compute_allowed_tools_hash,
    event_from_line,
    payload_to_canonical_json,
    to_entry_payload,
)
from gert.kernel.events import agent
from gert.kernel.events.chain import GENESIS
from gert.kernel.events.envelope import Envelope, encode
from gert.kernel.events.payload import Payload
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.values import MAX_INTEGER
from gert.kernel.ledger.build_batch import Entry, build_batch
from gert.kernel.ledger.record import Head

NOW = "2026-02-28T14:30:00.000001Z"
LEDGER = {kind.type: kind for kind in agent.EVENTS}

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
WHOLE = st.integers(-MAX_INTEGER, MAX_INTEGER)
FLOATS = st.floats(-1e9, 1e9)
JSON = st.recursive(
    st.none() | st.booleans() | WHOLE | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a declared type."""
    plain = {str: TEXTS, int: WHOLE, bool: st.booleans(), float: FLOATS, object: JSON, type(None): st.none()}
    if kind in plain:
        return plain[kind]
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return st.sampled_from(inner)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(values_of, inner))
    if origin is list:
        return st.lists(values_of(inner[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(TEXTS, values_of(inner[1]), max_size=2)
    assert issubclass(kind, BaseModel), kind
    return models_of(kind)


def models_of(kind: type[BaseModel]) -> st.SearchStrategy[Any]:
    """Models with any of their fields; a number of a request is always given."""
    needed: dict[str, st.SearchStrategy[Any]] = {}
    free: dict[str, st.SearchStrategy[Any]] = {}
    for name, field in kind.model_fields.items():
        if name == "kind":
            continue
        if name == "request_seq":
            needed[name] = st.integers(1, MAX_INTEGER)
        elif name == "source_model_requested_event_id":
            needed[name] = st.integers(1, 99).map(lambda seq: f"run#{seq}")
        else:
            (needed if field.is_required() else free)[name] = values_of(field.annotation)
    return st.fixed_dictionaries(needed, optional=free).map(lambda found: kind(**found))


def line_of(payload: Payload, path: str | None = None, tenant: str = "acme", run_id: str = "run") -> bytes:
    return build_batch(Head(run_id), NOW, tenant, [Entry(payload, path)]).events[0].line


def written(kind: str, data: dict[str, Any], **others: Any) -> bytes:
    """A line by another hand."""
    return encode(
        Envelope(
            **{
                "seq": 1,
                "run_id": "run",
                "type": kind,
                "timestamp": NOW,
                "tenant": "acme",
                "prev_hash": GENESIS,
                "data": data,
                **others,
            }
        )
    )


def test_every_event_of_the_ledger_has_a_payload_and_a_type() -> None:
    assert set(PAYLOADS) == set(LEDGER) == {each.value for each in EventType}
    assert set(typing.get_args(EventPayload)) == set(PAYLOADS.values())


@pytest.mark.parametrize("kind", sorted(LEDGER))
@settings(max_examples=examples(15))
@given(data=st.data())
def test_what_is_written_is_read_back_for(kind: str, data: st.DataObject) -> None:
    payload = data.draw(models_of(PAYLOADS[kind]))
    entry = to_entry_payload(payload)
    assert type(entry) is LEDGER[kind]
    event = event_from_line(line_of(entry))
    assert event.payload == payload
    assert to_entry_payload(event.payload) == entry


def test_an_event_knows_its_place() -> None:
    first = build_batch(Head("run"), NOW, "acme", [Entry(agent.RunStarted())])
    second = build_batch(first.head, NOW, "acme", [Entry(agent.RunSummary(summary_type="a", summary_json="1"), "step")])
    one, two = first.events[0].line, second.events[0].line
    opening, following = event_from_line(one), event_from_line(two + b"\n")
    assert opening.prev_event_hash is None
    assert opening.event_hash == following.prev_event_hash == sha256_hex(one)
    assert following.event_hash == sha256_hex(two)
    assert (following.event_id, following.run_id, following.seq) == ("run#2", "run", 2)
    assert (following.tenant_id, following.parent_step_key) == ("acme", "step")
    assert following.event_type is EventType.RUN_SUMMARY
    assert following.timestamp == datetime(2026, 2, 28, 14, 30, 0, 1, UTC)


def test_an_event_is_given_as_json_and_read_back() -> None:
    event = event_from_line(line_of(agent.ModelCompleted(request_seq=3, model="m", output_json="{}", cost_usd=0.5)))
    assert KernelEvent.model_validate_json(event.model_dump_json()) == event


def test_a_field_this_version_does_not_know_is_passed_over() -> None:
    event = event_from_line(written("resume_requested", {"human_input_json": "1", "mood": "good"}))
    assert event.payload == ResumeRequestedPayload(human_input_json="1")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        pytest.param(
            written("step_start", {}),
            "expected an event of an agent run, found `step_start`, an event of a runbook run",
            id="an event of a runbook",
        ),
        pytest.param(written("surprise", {}), "`surprise`, an event of an unknown type", id="an unknown event"),
        pytest.param(written("tool_completed", {"tool_name": 1}), "cannot be read", id="data that does not fit"),
        pytest.param(written("run_started", {}, tenant=None), "has no tenant", id="an event without a tenant"),
        pytest.param(
            written("model_requested", {"model": "m", "prompt": "p", "verbosity": "shouting"}),
            "`verbosity`: input should be",
            id="a word the documented payload does not have",
        ),
        pytest.param(b"", "the line is empty", id="an empty line"),
        pytest.param(b"{}", "the line is not an event", id="an object that is no event"),
        pytest.param(b"nonsense", "the line is not JSON", id="nonsense"),
    ],
)
def test_what_is_no_event_of_an_agent_is_refused(line: bytes, why: str) -> None:
    with pytest.raises(TraceError, match=why):
        event_from_line(line)


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        pytest.param(
            ToolCompletedPayload(tool_name="a", result_json="1"),
            "missing required field `request_seq`",
            id="no request",
        ),
        pytest.param(
            RunSummaryPayload(summary_type="a\ud800", summary_json="1"), "lone surrogate", id="half a character"
        ),
        pytest.param(
            ModelCompletedPayload(
                model="m",
                output_json="",
                prompt_tokens=0,
                completion_tokens=0,
                cost_usd=0,
                request_seq=1,
                responses_output_items=[{"at": datetime.now(UTC)}],
            ),
            "`datetime` has no JSON form",
            id="an item that is no plain data",
        ),
        pytest.param(
            ModelCompletedPayload(
                model="m",
                output_json="",
                prompt_tokens=2**60,
                completion_tokens=0,
                cost_usd=0,
                request_seq=1,
            ),
            "the integer is beyond",
            id="an integer JSON readers do not keep",
        ),
        pytest.param(
            RunSummaryPayload.model_construct(summary_type=1, summary_json="1"),
            "cannot be written: expected `str`, got `int`",
            id="a payload that was made without being checked",
        ),
        pytest.param(
            HarnessFailedPayload.model_construct(error_type="x"),
            "missing required field",
            id="a field left out unchecked",
        ),
        pytest.param({"kind": "run_started"}, "expected a payload of an agent event, found a `dict`", id="a mapping"),
        pytest.param(None, "found a `NoneType`", id="nothing"),
        pytest.param(ChatMessage(role="user", content="x"), "found a `ChatMessage`", id="another model"),
        pytest.param(type("Mine", (RunStartedPayload,), {})(), "found a `Mine`", id="a subclass that adds fields"),
    ],
)
def test_what_the_ledger_cannot_write_is_refused(payload: Any, why: str) -> None:
    with pytest.raises(TraceError, match=why):
        to_entry_payload(payload)


def test_a_list_that_contains_itself_is_refused() -> None:
    item: dict[str, object] = {}
    item["me"] = item
    payload = ModelRequestedPayload.model_construct(
        model="m", prompt="p", messages=[], responses_input_items=[item], allowed_tools=[], allowed_tool_signatures=[]
    )
    with pytest.raises(TraceError, match=r"cannot be written|contains itself"):
        to_entry_payload(payload)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        pytest.param(lambda: RunStartedPayload(mood="good"), "mood", id="a field it does not declare"),  # type: ignore[call-arg]
        pytest.param(lambda: RunSummaryPayload(summary_type="a"), "summary_json", id="a field left out"),  # type: ignore[call-arg]
        pytest.param(
            lambda: ToolCompletedPayload(tool_name="a", result_json="1", outcome="maybe"),  # type: ignore[arg-type]
            "outcome",
            id="an outcome there is not",
        ),
        pytest.param(
            lambda: ToolRequestedPayload(
                tool_name="a", arguments_json="{}", idempotency_key="k", amount_usd=float("nan")
            ),
            "amount_usd",
            id="an amount that is no number",
        ),
    ],
)
def test_a_payload_that_does_not_fit_is_not_made(make: Any, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        make()


def test_a_payload_does_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        RunSummaryPayload(summary_type="a", summary_json="1").summary_json = "2"


def event(**others: Any) -> KernelEvent:
    given = {
        "event_id": "run#1",
        "run_id": "run",
        "tenant_id": "acme",
        "seq": 1,
        "event_type": EventType.RUN_STARTED,
        "event_hash": "ab" * 32,
        "timestamp": datetime.now(UTC),
        "payload": RunStartedPayload(),
    }
    return KernelEvent(**{**given, **others})


def test_the_payload_matches_the_type() -> None:
    assert event().payload.kind == event().event_type
    with pytest.raises(ValidationError, match="expected a payload of `run_started`, found `pause_requested`"):
        event(payload=PauseRequestedPayload(reason="x"))


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValidationError, match="timezone"):
        event(timestamp=datetime(2026, 1, 1))


def test_the_canonical_json_of_a_payload_has_every_field() -> None:
    assert payload_to_canonical_json(PauseRequestedPayload(reason="ü")) == (
        '{"blocked":false,"context_json":null,"kind":"pause_requested","reason":"\\u00fc","step_key":null,'
        '"unblock_key":null}'
    )


def test_the_hash_of_tools_is_that_of_their_sorted_signatures() -> None:
    assert compute_allowed_tools_hash(["b|1|1|y", "a|1|1|x"]) == sha256_hex(b"a|1|1|x,b|1|1|y")
    assert compute_allowed_tools_hash([]) == sha256_hex(b"")
    assert compute_allowed_tools_hash(["a", "b"]) == compute_allowed_tools_hash(["b", "a"])
    assert compute_allowed_tools_hash(["a"]) != compute_allowed_tools_hash(["a", "b"])
