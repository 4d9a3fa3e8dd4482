"""Anthropic's Messages API: what is sent, what is read, and what becomes of answers that are none."""

import json
from typing import Any

import pytest
from pydantic import BaseModel
from tests.ecosystem.models.test_schemas import Node, OpenMap
from tests.ecosystem.models.vendors import (
    FREE,
    GOOD,
    HISTORY,
    KEY,
    QUICK,
    VERDICT,
    WEATHER,
    Verdict,
    anthropic_error,
    asked,
    http,
    message,
    message_events,
    patience,
    request,
    streamed,
    text_block,
    tool_use,
)
from tests.ecosystem.notify.servers import Answer, flood, raw, serving, silence

from gert.ecosystem.models.anthropic.adapter import AnthropicAdapter
from gert.ecosystem.models.limits import Limits
from gert.ecosystem.models.prices import Price
from gert.errors import InputError, ModelError, ModelPermanentError, ModelTimeoutError, ModelTransientError
from gert.kernel.agent.ports.model import ModelUsage, ToolCall, ToolDefinition
from gert.kernel.agent.steps.messages import ChatMessage, ToolCallMessage, ToolFunctionCall

GOOD_MESSAGE = http(200, message(text_block(GOOD)))
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}


def claude(url: str, **more: Any) -> AnthropicAdapter:
    return AnthropicAdapter(api_key=KEY, base_url=url, **{"limits": QUICK, "prices": FREE, **more})


def ask(**more: Any) -> Any:
    return request(**{"model": "claude-sonnet-4-5", **more})


def test_a_message() -> None:
    with serving(http(200, message(THINKING, text_block(GOOD)))) as server:
        result = asked(claude(server.url("")), ask())
    assert (result.output, result.raw_output) == (VERDICT, GOOD)
    assert result.usage == ModelUsage(12 + 3 + 5, 6, 0.0)
    assert (result.api_mode_used, result.response_id) == ("chat", "msg_01")
    assert [item["type"] for item in result.response_output_items] == ["thinking", "message"]
    (sent,) = server.requests
    assert sent.target == "/v1/messages"
    assert sent.headers["x-api-key"] == KEY
    assert sent.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in sent.headers
    said = sent.said
    assert said["max_tokens"] == 8192
    assert said["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Is it healthy?"}]}]
    assert said["output_config"]["format"]["schema"]["additionalProperties"] is False
    assert not {"tools", "tool_choice", "system"} & said.keys()
    assert said["stream"] is False


def test_a_history_with_tools() -> None:
    with serving(GOOD_MESSAGE) as server:
        asked(claude(server.url("")), ask(messages=HISTORY, tools=[WEATHER], reasoning_effort="xhigh", verbosity="low"))
    said = server.requests[0].said
    assert said["system"] == "Be brief."
    assert said["output_config"]["effort"] == "xhigh"
    assert said["tools"] == [
        {
            "name": "weather",
            "description": "Tells the weather.",
            "input_schema": json.loads(WEATHER.arguments_schema_json),
        }
    ]
    assert said["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Weather in Bern and Oslo?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Bern"}},
                {"type": "tool_use", "id": "call_2", "name": "weather", "input": {"arguments": '{"city":'}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_1", "content": '{"c":21}'},
                {"type": "tool_result", "tool_use_id": "call_2", "content": "bad arguments"},
                {"type": "text", "text": "And so?"},
            ],
        },
    ]


def test_instructions_alone_are_followed_by_the_prompt() -> None:
    with serving(GOOD_MESSAGE) as server:
        asked(claude(server.url("")), ask(messages=[ChatMessage(role="system", content="Be brief.")]))
    assert server.requests[0].said["messages"][0]["content"][0]["text"] == "Is it healthy?"


def test_parallel_tool_calls() -> None:
    answer = message(
        text_block("I look."),
        tool_use("weather", {"days": 2, "city": "Bern"}),
        tool_use("weather", {}, "toolu_2"),
        stop="tool_use",
    )
    with serving(http(200, answer)) as server:
        result = asked(claude(server.url("")), ask(tools=[WEATHER]))
    assert result.tool_calls == (
        ToolCall("weather", '{"city":"Bern","days":2}', "toolu_1"),
        ToolCall("weather", "{}", "toolu_2"),
    )
    assert (result.raw_output, isinstance(result.output, Verdict)) == ("", True)
    assert [item["type"] for item in result.response_output_items] == ["message", "function_call", "function_call"]


# --- a schema that has no strict form


@pytest.mark.parametrize("schema", [OpenMap, Node], ids=["an open map", "a type that contains itself"])
def test_a_schema_that_cannot_be_enforced_goes_through_a_tool(schema: type[BaseModel]) -> None:
    given: dict[str, Any] = {"labels": {"a": "b"}} if schema is OpenMap else {"children": [{"children": []}]}
    with serving(http(200, message(tool_use("give_answer", given), stop="tool_use"))) as server:
        result = asked(claude(server.url("")), ask(schema=schema))
    assert result.output == schema.model_validate(given)
    assert result.tool_calls == ()
    said = server.requests[0].said
    assert said["tool_choice"] == {"type": "tool", "name": "give_answer"}
    assert "output_config" not in said


def test_the_answers_tool_stands_beside_others_under_a_name_of_its_own() -> None:
    twin = ToolDefinition("give_answer", "A tool of the run.", "{}")
    answer = message(tool_use("give_answer", {}), tool_use("give_answer_", {"healthy": True}, "toolu_2"))
    with serving(http(200, answer)) as server:
        result = asked(claude(server.url(""), structured_output="tool"), ask(tools=[WEATHER, twin]))
    assert result.output == Verdict(healthy=True)
    assert result.tool_calls == (ToolCall("give_answer", "{}", "toolu_1"),)
    said = server.requests[0].said
    assert said["tool_choice"] == {"type": "any"}
    assert [tool["name"] for tool in said["tools"]] == ["weather", "give_answer", "give_answer_"]


# --- answers that are none


@pytest.mark.parametrize(
    ("body", "kind", "category"),
    [
        (message(text_block("Sure!")), ModelPermanentError, "invalid_output"),
        (message(), ModelPermanentError, "invalid_output"),
        (message(text_block(GOOD[:9]), stop="max_tokens"), ModelPermanentError, "length"),
        (message(text_block(GOOD[:9]), stop="model_context_window_exceeded"), ModelPermanentError, "length"),
        (message(tool_use("weather", {}), stop="max_tokens"), ModelPermanentError, "length"),
        (message(text_block("I can't help"), stop="refusal"), ModelPermanentError, "refusal"),
        (message(tool_use("", {})), ModelTransientError, "malformed"),
        ({"type": "message"}, ModelTransientError, "malformed"),
        ({"content": "text"}, ModelTransientError, "malformed"),
        (b"{", ModelTransientError, "malformed"),
        (b"null", ModelTransientError, "malformed"),
    ],
)
def test_answers_that_are_none(body: object, kind: type[ModelError], category: str) -> None:
    with serving(http(200, body)) as server, pytest.raises(kind) as caught:
        asked(claude(server.url("")), ask(tools=[WEATHER]))
    assert caught.value.category == category
    # Whatever was said, it was paid for, where it says what that was.
    assert (caught.value.usage is not None) is (isinstance(body, dict) and "usage" in body)


@pytest.mark.parametrize(
    ("answer", "kind", "category"),
    [
        (http(401, anthropic_error("authentication_error", f"invalid x-api-key {KEY}")), ModelPermanentError, "auth"),
        (http(400, anthropic_error("invalid_request_error", f"bad {KEY}")), ModelPermanentError, "request"),
        (http(404, anthropic_error("not_found_error", "model: claude-0")), ModelPermanentError, "not_found"),
        (http(413, anthropic_error("request_too_large", "big")), ModelPermanentError, "too_large"),
        (http(429, anthropic_error("rate_limit_error", "slow"), "retry-after: 2"), ModelTransientError, "rate_limit"),
        (http(529, anthropic_error("overloaded_error", "Overloaded")), ModelTransientError, "overloaded"),
        (http(500, anthropic_error("api_error", "oops")), ModelTransientError, "server"),
        (http(200, b"<html>", kind="text/html"), ModelPermanentError, "malformed"),
        (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"), ModelTransientError, "connection"),
        (silence, ModelTimeoutError, "timeout"),
        (http(307, b"", "Location: https://elsewhere.example"), ModelPermanentError, "redirect"),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_refusals(answer: Answer, kind: type[ModelError], category: str, streaming: bool) -> None:
    with serving(answer) as server, pytest.raises(kind) as caught:
        asked(claude(server.url(""), limits=patience(kind)), ask(), (lambda _: None) if streaming else None)
    assert caught.value.category == category
    assert KEY not in f"{caught.value} {caught.value!r} {caught.value.__cause__!r}"
    if category == "rate_limit":
        assert caught.value.retry_after == 2


def test_overload_is_waited_out() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    busy = http(529, anthropic_error("overloaded_error", "Overloaded"), "retry-after: 3")
    with serving(busy, GOOD_MESSAGE) as server:
        adapter = claude(server.url(""), limits=Limits(timeout_seconds=5), sleep=sleep)
        assert asked(adapter, ask()).output == VERDICT
    assert waits == [3.0]


def test_a_huge_answer_is_not_read_to_its_end() -> None:
    limits = Limits(timeout_seconds=5, max_retries=0, max_response_bytes=100_000)
    with serving(flood) as server, pytest.raises(ModelPermanentError, match="larger than"):
        asked(claude(server.url(""), limits=limits), ask())


# --- streaming


def delta(text: str) -> dict[str, Any]:
    return {"type": "text_delta", "text": text}


def arguments(text: str) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": text}


TEXT = message_events(
    [
        (
            {"type": "thinking", "thinking": "", "signature": ""},
            [{"type": "thinking_delta", "thinking": "Hm."}, {"type": "signature_delta", "signature": "c2ln"}],
        ),
        ({"type": "text", "text": ""}, [delta(GOOD[:7]), delta(GOOD[7:]), {"type": "something_new"}]),
    ]
)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_text_is_told_as_it_comes(end: str) -> None:
    told: list[str] = []
    with serving(streamed(*TEXT, end=end)) as server:
        result = asked(claude(server.url("")), ask(), told.append)
    assert told == [GOOD[:7], GOOD[7:]]
    assert result.output == VERDICT
    assert result.usage == ModelUsage(20, 15, 0.0)
    assert result.response_output_items[0] == {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    assert server.requests[0].said["stream"] is True


def test_streamed_tool_calls_reach_no_token_callback() -> None:
    block = {"type": "tool_use", "name": "weather", "input": {}}
    events = message_events(
        [
            (block | {"id": "toolu_1"}, [arguments('{"days":2,'), arguments('"city":"Bern"}')]),
            (block | {"id": "toolu_2"}, []),
        ],
        stop="tool_use",
    )
    told: list[str] = []
    with serving(streamed(*events)) as server:
        result = asked(claude(server.url("")), ask(tools=[WEATHER]), told.append)
    assert [call.arguments_json for call in result.tool_calls] == ['{"city":"Bern","days":2}', "{}"]
    assert told == []


def test_an_answer_through_a_tool_is_told_as_it_comes() -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": "give_answer", "input": {}}
    events = message_events([(block, [arguments('{"healthy"'), arguments(":true}")])], stop="tool_use")
    told: list[str] = []
    with serving(streamed(*events)) as server:
        result = asked(claude(server.url(""), structured_output="tool"), ask(), told.append)
    assert result.output == Verdict(healthy=True)
    assert told == ['{"healthy"', ":true}"]


@pytest.mark.parametrize(
    ("answer", "kind", "category"),
    [
        (streamed(*TEXT[:-1]), ModelTransientError, "connection"),
        (streamed(*TEXT, cut=500), ModelTransientError, "connection"),
        (streamed(*TEXT[:2], ("error", anthropic_error("overloaded_error", "x"))), ModelTransientError, "overloaded"),
        (streamed(*TEXT[:2], ("error", anthropic_error("invalid_request_error", KEY))), ModelPermanentError, "request"),
        (streamed("data: nonsense"), ModelTransientError, "malformed"),
        (streamed(("message_stop", {"type": "message_stop"})), ModelTransientError, "malformed"),
        (streamed(TEXT[0], *TEXT[4:]), ModelTransientError, "malformed"),
        (
            streamed(*message_events([({"type": "text", "text": ""}, [delta(GOOD[:5])])], "max_tokens")),
            ModelPermanentError,
            "length",
        ),
        (
            streamed(*message_events([({"type": "text", "text": ""}, [delta("No.")])], "refusal")),
            ModelPermanentError,
            "refusal",
        ),
        (streamed(*message_events([])), ModelPermanentError, "invalid_output"),
    ],
)
def test_streams_that_fail(answer: Answer, kind: type[ModelError], category: str) -> None:
    with serving(answer) as server, pytest.raises(kind) as caught:
        asked(claude(server.url("")), ask(), lambda _: None)
    assert caught.value.category == category
    assert KEY not in str(caught.value)


# --- what it cannot do


@pytest.mark.parametrize(
    "options",
    [{"api_mode": "responses"}, {"previous_response_id": "resp_0"}, {"responses_input_items": ({},)}],
)
def test_there_is_no_responses_api(options: dict[str, Any]) -> None:
    with serving(GOOD_MESSAGE) as server:
        with pytest.raises(ModelPermanentError) as caught:
            asked(claude(server.url("")), ask(**options))
        assert caught.value.category == "unsupported"
        assert server.requests == []


@pytest.mark.parametrize(
    "bad",
    [
        ask(prompt=""),
        ask(prompt="", messages=[ChatMessage(role="system", content="Be brief.")]),
        ask(messages=[ChatMessage(role="tool", content="x")]),
        ask(tools=[ToolDefinition("t", "d", "[]")]),
    ],
    ids=["nothing to ask", "only instructions", "a result of no call", "a tool without a schema"],
)
def test_requests_that_cannot_be_sent(bad: Any) -> None:
    with serving(GOOD_MESSAGE) as server:
        with pytest.raises(ModelPermanentError) as caught:
            asked(claude(server.url("")), bad)
        assert caught.value.category == "request"
        assert server.requests == []


def test_keys() -> None:
    with pytest.raises(ModelPermanentError, match="no API key for Anthropic"):
        asked(AnthropicAdapter(environ={}), ask())
    with serving(GOOD_MESSAGE) as server:
        adapter = AnthropicAdapter(environ={"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.url("")})
        asked(adapter, ask())
    assert server.requests[0].headers["x-api-key"] == KEY
    assert KEY not in f"{adapter!r} {vars(adapter)!r}"
    with pytest.raises(InputError):
        AnthropicAdapter(api_key=KEY, base_url="http://models.example.com")
    with pytest.raises(InputError):
        AnthropicAdapter(api_key=KEY, max_output_tokens=0)


def test_costs_tell_what_was_cached() -> None:
    prices = {"claude-sonnet-4-5": Price(prompt=3.0, completion=15.0, cached=0.3, cache_write=3.75)}
    with serving(GOOD_MESSAGE) as server:
        result = asked(claude(server.url(""), prices=prices), ask())
    assert result.usage.cost_usd == pytest.approx((12 * 3.0 + 3 * 3.75 + 5 * 0.3 + 6 * 15.0) / 1e6)


@pytest.mark.parametrize(
    "written",
    [
        pytest.param('{"a":' * 300 + "1" + "}" * 300, id="nested too deep"),
        pytest.param('{"a":"\\ud800"}', id="half a character"),
        pytest.param('{"a":NaN}', id="no number"),
        pytest.param('{"a":' + "9" * 5000 + "}", id="a number that is not read"),
    ],
)
def test_arguments_no_vendor_takes_do_not_end_a_conversation(written: str) -> None:
    made = ToolCallMessage(id="call_1", function=ToolFunctionCall(name="weather", arguments=written))
    history = [
        ChatMessage(role="user", content="Weather?"),
        ChatMessage(role="assistant", content="", tool_calls=[made]),
        ChatMessage(role="tool", content="bad arguments", tool_call_id="call_1"),
    ]
    with serving(GOOD_MESSAGE) as server:
        asked(claude(server.url("")), ask(messages=history, tools=[WEATHER]))
    (block,) = server.requests[0].said["messages"][1]["content"]
    assert block["input"] == {"arguments": written}
