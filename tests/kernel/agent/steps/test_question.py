"""What a model is asked: identity, drift, changed tools and the documented hashes."""

from dataclasses import replace
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.errors import InputError, TraceError
from gert.kernel.agent.ports.model import ModelCallOptions, ToolDefinition
from gert.kernel.agent.steps.messages import ChatMessage, ToolCallMessage, ToolFunctionCall
from gert.kernel.agent.steps.question import (
    COMPARED,
    changed_tools,
    drift,
    plain_items,
    question_of,
    recorded_question,
    tools_hash,
)
from gert.kernel.agent.types.payloads import compute_allowed_tools_hash
from gert.kernel.events.agent import ModelRequested
from gert.kernel.events.agent.parts import ToolSignature
from gert.kernel.ledger.projection import event_id, idempotency_key, key_of, seq_of, tool_hash

A, B = ToolDefinition("a", "", "{}", schema_hash="1"), ToolDefinition("b", "", "{}", "2.0", "3", "4")
SAYS = ChatMessage(role="user", content="q")


def asked(**changes: Any) -> Any:
    given: dict[str, Any] = {
        "model": "m",
        "prompt": "q",
        "messages": (SAYS,),
        "options": ModelCallOptions(),
        "tools": (A, B),
        "step_key": "k",
    }
    given.update(changes)
    return question_of(**given)


CHANGES = [
    pytest.param({"model": "n"}, ("model",), id="model"),
    pytest.param({"prompt": "p"}, ("prompt",), id="prompt"),
    pytest.param({"messages": (SAYS, SAYS)}, ("messages",), id="one message more"),
    pytest.param({"messages": (ChatMessage(role="system", content="q"),)}, ("messages",), id="another role"),
    pytest.param({"messages": (ChatMessage(role="user", content="q", name="x"),)}, ("messages",), id="a name"),
    pytest.param(
        {
            "messages": (
                SAYS.model_copy(
                    update={"tool_calls": [ToolCallMessage(id="1", function=ToolFunctionCall(name="a", arguments=""))]}
                ),
            )
        },
        ("messages",),
        id="a tool call in a message",
    ),
    pytest.param({"options": ModelCallOptions(api_mode="chat")}, ("api_mode",), id="mode"),
    pytest.param({"options": ModelCallOptions(reasoning_effort="low")}, ("reasoning_effort",), id="effort"),
    pytest.param({"options": ModelCallOptions(verbosity="low")}, ("verbosity",), id="verbosity"),
    pytest.param({"options": ModelCallOptions(previous_response_id="x")}, ("previous_response_id",), id="response"),
    pytest.param({"options": ModelCallOptions(responses_input_items=({},))}, ("responses_input_items",), id="items"),
    pytest.param({"model": "n", "prompt": "p"}, ("model", "prompt"), id="several, in order"),
]


@pytest.mark.parametrize(("change", "fields"), CHANGES)
def test_what_differs_is_named_and_changes_the_hash(change: dict[str, Any], fields: tuple[str, ...]) -> None:
    assert drift(asked(), asked(**change)) == fields
    assert asked().hash != asked(**change).hash
    assert set(fields) <= {"model", *COMPARED}


@pytest.mark.parametrize("change", [{"tools": (A,)}, {"step_key": None}, {"step_key": "other"}])
def test_tools_and_keys_are_part_of_the_hash_and_no_drift(change: dict[str, Any]) -> None:
    assert drift(asked(), asked(**change)) == ()
    assert asked().hash != asked(**change).hash


def test_the_order_of_tools_and_of_keys_in_items_is_irrelevant() -> None:
    assert asked(tools=(B, A)).hash == asked().hash
    one = asked(options=ModelCallOptions(responses_input_items=({"a": 1, "b": {"c": 1, "d": 2}},)))
    two = asked(options=ModelCallOptions(responses_input_items=({"b": {"d": 2, "c": 1}, "a": 1},)))
    assert one.hash == two.hash


@pytest.mark.parametrize(("change", "_fields"), CHANGES)
def test_a_question_is_read_back_as_it_was_put(change: dict[str, Any], _fields: tuple[str, ...]) -> None:
    now = asked(**change)
    said = ModelRequested(
        model=now.model,
        prompt=now.prompt,
        messages=now.messages,
        api_mode=now.api_mode,
        reasoning_effort=now.reasoning_effort,
        verbosity=now.verbosity,
        previous_response_id=now.previous_response_id,
        responses_input_items=now.responses_input_items,
        allowed_tool_signatures=list(now.tools),
        step_key=now.step_key,
    )
    line = msgspec.json.encode(said)
    assert recorded_question(msgspec.json.decode(line, type=ModelRequested)).hash == now.hash


@pytest.mark.parametrize("items", [(float("nan"),), ("text",), ({"a": object()},), ({1: 2},)])
def test_items_json_cannot_hold_are_refused(items: Any) -> None:
    with pytest.raises(Exception) as caught:
        plain_items(items)
    assert isinstance(caught.value, InputError) or type(caught.value).__name__ == "CanonicalError"


def signature(name: str, version: str = "1") -> ToolSignature:
    return ToolSignature(name, version, "1", "h")


@pytest.mark.parametrize(
    ("then", "now", "phrases"),
    [
        ([signature("a")], [signature("a")], ()),
        ([signature("a")], [], ("`a` was removed",)),
        ([], [signature("a")], ("`a` was added",)),
        ([signature("a")], [signature("a", "2")], ("`a` changed",)),
        (
            [signature("c"), signature("a"), signature("d")],
            [signature("d", "2"), signature("b"), signature("a")],
            ("`c` was removed", "`b` was added", "`d` changed"),
        ),
    ],
)
def test_what_became_of_tools(then: list[ToolSignature], now: list[ToolSignature], phrases: tuple[str, ...]) -> None:
    assert changed_tools(then, now) == phrases


class TestDocumentedHashes:
    def test_the_hash_of_tools_is_of_their_sorted_signatures_joined_by_commas(self) -> None:
        tools = asked().tools
        expected = sha256(b"a|1.0.0|1|1,b|2.0|3|4").hexdigest()
        assert tools_hash(tools) == tools_hash(tools[::-1]) == expected
        assert compute_allowed_tools_hash(["b|2.0|3|4", "a|1.0.0|1|1"]) == expected
        assert asked().tools_hash == expected

    @pytest.mark.parametrize("field", ["name", "tool_version", "schema_version", "schema_hash"])
    def test_every_part_of_a_signature_counts(self, field: str) -> None:
        assert asked(tools=(A, replace(B, **{field: "x"}))).tools_hash != asked().tools_hash

    def test_no_tools_have_a_hash_too(self) -> None:
        assert asked(tools=()).tools_hash == sha256(b"").hexdigest()

    def test_an_idempotency_key_is_of_run_tool_and_number(self) -> None:
        assert idempotency_key("run", "tool", 7) == sha256(b"run:tool:7").hexdigest()

    @given(st.text(max_size=8), st.text(max_size=8), st.text(max_size=8), st.text(max_size=8))
    def test_calls_that_differ_have_other_hashes(self, tool: str, text: str, other: str, more: str) -> None:
        assert (tool_hash(tool, text) == tool_hash(other, more)) == ((tool, text) == (other, more))

    def test_a_request_is_found_by_its_key_or_else_by_what_it_asks(self) -> None:
        assert key_of("model", "k", "hash") == "model:k"
        assert key_of("tool", None, "hash") == "tool#hash"
        assert key_of("model", "", "hash") == "model:"

    @pytest.mark.parametrize("run_id", ["r", "r::fork::0a", "a#b"])
    def test_the_id_of_an_event_leads_to_it(self, run_id: str) -> None:
        assert seq_of(event_id(run_id, 12)) == 12

    @pytest.mark.parametrize("text", ["", "r", "r#", "r#x", "r#-1", "r#1.5"])
    def test_what_is_no_id_is_refused(self, text: str) -> None:
        with pytest.raises(TraceError):
            seq_of(text)
