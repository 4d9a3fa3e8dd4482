"""Servers that say an error as a success, count wrongly, and repeat themselves."""

import json
from typing import Any

import pytest
from tests.ecosystem.models.vendors import (
    GOOD,
    VERDICT,
    WEATHER,
    adapter_for,
    anthropic_error,
    ask,
    asked,
    chunk,
    chunks,
    completion,
    event_bytes,
    function_call,
    http,
    message,
    message_events,
    openai_error,
    output_text,
    response,
    response_events,
    streamed,
    text_block,
)
from tests.ecosystem.notify.servers import serving

from gert.errors import ModelError, ModelPermanentError, ModelTransientError
from gert.kernel.agent.ports.model import ToolCall

# --- 200, and yet an error


@pytest.mark.parametrize(
    ("mode", "body", "kind", "category"),
    [
        ("chat", openai_error("Spent", "insufficient_quota", "insufficient_quota"), ModelPermanentError, "quota"),
        ("chat", {"error": {"code": 401, "message": "No user"}}, ModelPermanentError, "auth"),
        ("chat", {"error": {"code": 429, "message": "Slow down"}}, ModelTransientError, "rate_limit"),
        ("chat", {"error": {"code": 10**30, "message": "x"}}, ModelTransientError, "server"),
        (
            "chat",
            {"choices": [{"error": {"code": 403, "message": "No"}, "message": None}]},
            ModelPermanentError,
            "auth",
        ),
        ("chat", completion(GOOD, finish="error"), ModelTransientError, "server"),
        ("responses", {"error": "the model crashed"}, ModelTransientError, "server"),
        ("messages", anthropic_error("authentication_error", "bad key"), ModelPermanentError, "auth"),
        ("messages", anthropic_error("overloaded_error", "busy"), ModelTransientError, "overloaded"),
        (
            "chat",
            {"error": "Unexpected endpoint or method. (POST /chat/completions)"},
            ModelPermanentError,
            "not_found",
        ),
    ],
)
def test_an_error_that_comes_as_a_success(mode: str, body: object, kind: type[ModelError], category: str) -> None:
    with serving(http(200, body)) as server, pytest.raises(ModelError) as caught:
        asked(adapter_for(mode, server.url("")), ask(mode))
    assert (type(caught.value), caught.value.category) == (kind, category)


def test_the_words_of_an_error_that_comes_as_a_success_are_kept() -> None:
    with serving(http(200, {"error": "the model crashed"})) as server, pytest.raises(ModelError, match="crashed"):
        asked(adapter_for("responses", server.url("")), ask("responses"))


# --- 200, and yet not the whole answer


@pytest.mark.parametrize(
    ("mode", "body", "kind", "category"),
    [
        ("chat", completion(GOOD, finish="model_length"), ModelPermanentError, "length"),
        ("chat", completion(GOOD, finish="MAX_TOKENS"), ModelPermanentError, "length"),
        ("chat", completion(GOOD, finish="SAFETY"), ModelPermanentError, "refusal"),
        ("chat", completion(GOOD, finish="abort"), ModelTransientError, "server"),
        ("chat", completion(GOOD, finish="insufficient_system_resource"), ModelTransientError, "server"),
        ("responses", response(output_text(GOOD), status="in_progress"), ModelTransientError, "malformed"),
        ("responses", response(output_text(GOOD), status="queued"), ModelTransientError, "malformed"),
        ("responses", response(output_text(GOOD), status="cancelled"), ModelTransientError, "server"),
        ("messages", message(text_block(GOOD), stop="pause_turn"), ModelPermanentError, "incomplete"),
    ],
)
def test_a_part_of_an_answer_is_not_taken_for_all_of_it(
    mode: str, body: object, kind: type[ModelError], category: str
) -> None:
    with serving(http(200, body)) as server, pytest.raises(ModelError) as caught:
        asked(adapter_for(mode, server.url("")), ask(mode))
    assert (type(caught.value), caught.value.category) == (kind, category)


# --- tool calls in fragments


def part(**more: Any) -> dict[str, Any]:
    return {"tool_calls": [more]}


def call(name: str, arguments: str) -> dict[str, str]:
    return {"name": name, "arguments": arguments}


BERN, OSLO = '{"city":"Bern"}', '{"city":"Oslo"}'


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param(
            [part(id="c1", function=call("weather", BERN)), part(id="c2", function=call("weather", OSLO))],
            id="without an index",
        ),
        pytest.param(
            [
                part(index=0, id="c1", function=call("weather", BERN)),
                part(index=0, id="c2", function=call("weather", OSLO)),
            ],
            id="all with the same index",
        ),
        pytest.param(
            [
                part(id="c1", function=call("weather", BERN[:5])),
                part(function={"arguments": BERN[5:]}),
                part(id="c2", function=call("weather", OSLO[:5])),
                part(id="c2", function={"arguments": OSLO[5:]}),
            ],
            id="fragments without an index",
        ),
        pytest.param(
            [part(function=call("weather", BERN)), part(function=call("weather", OSLO))],
            id="without an index and an id",
        ),
        pytest.param(
            [
                part(index=0, id="c1", function={"name": "weather", "arguments": {"city": "Bern"}}),
                part(index=1, id="c2", function=call("weather", OSLO)),
            ],
            id="arguments that are no text",
        ),
        pytest.param(
            [
                part(index=1, id="c2", function=call("weather", OSLO)),
                part(index=0, id="c1", function=call("weather", BERN)),
            ],
            id="the second one first",
        ),
        pytest.param(
            [
                part(index=3, id="c1", function=call("weather", "")),
                part(index=7, id="c2", function=call("weather", OSLO)),
                part(index=3, id="c1", function=call("weather", BERN)),
            ],
            id="indexes with gaps, and an id told again",
        ),
        pytest.param(
            [
                part(index=0, id="", function=call("weather", BERN)),
                part(index=0, id="", function=call("weather", OSLO)),
            ],
            id="all with the same index and without an id",
        ),
        pytest.param(
            [
                part(index=0, function=call("weather", BERN[:5])),
                part(index=0, function=call("weather", BERN[5:])),
                part(index=0, function=call("weather", "")),
                part(index=1, function=call("weather", OSLO)),
                part(index=1, function=call("weather", " ")),
            ],
            id="a name told with every fragment",
        ),
    ],
)
def test_fragments_of_tool_calls_are_not_mixed_up(deltas: list[dict[str, Any]]) -> None:
    answer = streamed(*(chunk(delta) for delta in deltas), chunk({}, "tool_calls"), "data: [DONE]")
    with serving(answer) as server:
        result = asked(adapter_for("chat", server.url("")), ask("chat", tools=[WEATHER]), lambda _: None)
    assert [call.tool_name for call in result.tool_calls] == ["weather", "weather"]
    assert [call.arguments_json for call in result.tool_calls] == [BERN, OSLO]
    assert [call.tool_call_id for call in result.tool_calls] in (["c1", "c2"], [None, None])


def other_choice(text: str) -> str:
    choice = {"index": 1, "delta": {"content": text}, "finish_reason": None}
    return f"data: {json.dumps({'id': 'x', 'choices': [choice]})}"


def test_another_choice_is_no_part_of_the_first() -> None:
    told: list[str] = []
    answer = streamed(chunk({"content": GOOD[:9]}), other_choice("zzz"), *chunks(GOOD[9:]))
    with serving(answer) as server:
        assert asked(adapter_for("chat", server.url("")), ask("chat"), told.append).output == VERDICT
    assert "".join(told) == GOOD


def test_an_item_that_is_told_twice_is_called_once() -> None:
    item = function_call("weather", BERN)
    done = ("response.output_item.done", {"type": "response.output_item.done", "output_index": 0, "item": item})
    last = ("response.completed", {"type": "response.completed", "response": response()})
    with serving(streamed(done, done, last)) as server:
        result = asked(adapter_for("responses", server.url("")), ask("responses", tools=[WEATHER]), lambda _: None)
    assert result.tool_calls == (ToolCall("weather", BERN, "call_1"),)


@pytest.mark.parametrize(
    ("kind", "error", "category"),
    [
        ("response.incomplete", ModelPermanentError, "length"),
        ("response.failed", ModelTransientError, "server"),
    ],
)
def test_a_last_event_says_by_its_name_how_it_ended(kind: str, error: type[ModelError], category: str) -> None:
    body = {name: value for name, value in response(output_text(GOOD)).items() if name != "status"}
    with serving(streamed(*response_events(GOOD, last=(kind, body)))) as server, pytest.raises(ModelError) as caught:
        asked(adapter_for("responses", server.url("")), ask("responses"), lambda _: None)
    assert (type(caught.value), caught.value.category) == (error, category)


TEXT = message_events([({"type": "text", "text": ""}, [{"type": "text_delta", "text": GOOD}])])
START, PING, BLOCK, DELTA, STOP, TOTALS, END = TEXT


def without_index(event: tuple[str, Any]) -> tuple[str, Any]:
    return event[0], {name: value for name, value in event[1].items() if name != "index"}


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([BLOCK, DELTA, STOP, TOTALS, END], id="no start"),
        pytest.param([START, START, BLOCK, DELTA, STOP, TOTALS, END], id="two starts"),
        pytest.param([START, BLOCK, DELTA, BLOCK, DELTA, STOP, TOTALS, END], id="a block that starts twice"),
        pytest.param([START, without_index(BLOCK), without_index(DELTA), TOTALS, END], id="a block without a place"),
        pytest.param([START, BLOCK, without_index(DELTA), TOTALS, END], id="a piece without a place"),
        pytest.param([START, BLOCK, DELTA, STOP, END], id="an end without a reason"),
        pytest.param([START, ("x", {"type": ["message_stop"]}), END], id="a kind that is no text"),
    ],
)
def test_messages_in_disorder(events: list[Any]) -> None:
    with serving(streamed(*events)) as server, pytest.raises(ModelTransientError) as caught:
        asked(adapter_for("messages", server.url("")), ask("messages"), lambda _: None)
    assert caught.value.category == "malformed"


@pytest.mark.parametrize("mode", ["chat", "responses", "messages"])
def test_bytes_that_are_no_text_are_not_taken_for_some(mode: str) -> None:
    """A letter that is lost must not be made up: it may stand in what a tool is called with."""
    events: dict[str, Any] = {"chat": chunks(GOOD), "responses": response_events(GOOD), "messages": TEXT}
    spoilt = event_bytes(*events[mode]).replace(b"all green", b"all gr\xffen")
    with serving(http(200, spoilt, kind="text/event-stream")) as server, pytest.raises(ModelTransientError) as caught:
        asked(adapter_for(mode, server.url("")), ask(mode), lambda _: None)
    assert caught.value.category == "malformed"
