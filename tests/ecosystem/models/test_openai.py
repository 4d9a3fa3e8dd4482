"""OpenAI's two APIs: what is sent, what is read, and what becomes of answers that are none."""

import asyncio
import json
from typing import Any

import pytest
from pydantic import RootModel
from tests.ecosystem.models.vendors import (
    FREE,
    GOOD,
    HISTORY,
    KEY,
    QUICK,
    REASONING,
    SLUGGISH,
    VERDICT,
    WEATHER,
    Defaults,
    Verdict,
    asked,
    chunk,
    chunks,
    completion,
    event_bytes,
    function_call,
    http,
    openai_error,
    output_refusal,
    output_text,
    patience,
    request,
    response,
    response_events,
    streamed,
    tool_call,
)
from tests.ecosystem.notify.servers import Answer, Server, closed_port, drip, flood, raw, serving, silence

from gert.ecosystem.models.anthropic.adapter import AnthropicAdapter
from gert.ecosystem.models.compatible import OpenAICompatibleAdapter
from gert.ecosystem.models.limits import Limits
from gert.ecosystem.models.openai.adapter import OpenAIAdapter
from gert.ecosystem.models.prices import Price
from gert.errors import InputError, ModelError, ModelPermanentError, ModelTimeoutError, ModelTransientError
from gert.kernel.agent.ports.model import ModelUsage, ToolCall
from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.agent.steps.outputs import output_json_of, output_of_json

GOOD_RESPONSE = http(200, response(REASONING, output_text(GOOD)))
GOOD_COMPLETION = http(200, completion(GOOD))
NO_RESPONSES = http(404, {"detail": "Not Found"})


def openai(url: str, **more: Any) -> OpenAIAdapter:
    return OpenAIAdapter(api_key=KEY, base_url=url, **{"limits": QUICK, "prices": FREE, **more})


def test_a_response() -> None:
    with serving(GOOD_RESPONSE) as server:
        result = asked(openai(server.url("/v1")), request())
    assert result.output == VERDICT
    assert result.raw_output == GOOD
    assert result.usage == ModelUsage(36, 87, 0.0)
    assert (result.api_mode_used, result.response_id, result.tool_calls) == ("responses", "resp_1", ())
    assert [item["type"] for item in result.response_output_items] == ["reasoning", "message"]
    (sent,) = server.requests
    assert sent.target == "/v1/responses"
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert sent.said["input"] == [{"role": "user", "content": "Is it healthy?"}]
    form = sent.said["text"]["format"]
    assert (form["type"], form["name"], form["strict"]) == ("json_schema", "Verdict", True)
    assert form["schema"]["required"] == ["healthy", "reason"]
    assert sent.said["stream"] is False, "there are servers that stream where nothing is said"


def test_a_completion() -> None:
    with serving(GOOD_COMPLETION) as server:
        result = asked(openai(server.url("/v1")), request(api_mode="chat"))
    assert result.output == VERDICT
    assert result.usage == ModelUsage(19, 10, 0.0)
    assert (result.api_mode_used, result.response_id) == ("chat", "chatcmpl-1")
    assert result.response_output_items == (
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": GOOD}]},
    )
    (sent,) = server.requests
    assert sent.target == "/v1/chat/completions"
    assert sent.said["messages"] == [{"role": "user", "content": "Is it healthy?"}]
    assert sent.said["response_format"]["json_schema"]["strict"] is True


def test_options_of_a_response() -> None:
    options: dict[str, Any] = {"reasoning_effort": "xhigh", "verbosity": "low", "previous_response_id": "resp_0"}
    with serving(GOOD_RESPONSE) as server:
        asked(
            openai(server.url(), max_output_tokens=99, extra_body={"store": False, "model": "not this"}),
            request(**options, responses_input_items=({"type": "item_reference", "id": "x"},)),
        )
    said = server.requests[0].said
    assert said["reasoning"] == {"effort": "xhigh"}
    assert said["text"]["verbosity"] == "low"
    assert said["previous_response_id"] == "resp_0"
    assert said["input"] == [{"type": "item_reference", "id": "x"}]
    assert (said["max_output_tokens"], said["store"], said["model"]) == (99, False, "gpt-5")


def test_options_of_a_completion() -> None:
    with serving(GOOD_COMPLETION) as server:
        options: dict[str, Any] = {"reasoning_effort": "low", "verbosity": "high", "api_mode": "chat"}
        asked(openai(server.url(), max_output_tokens=99), request(**options))
    said = server.requests[0].said
    assert (said["reasoning_effort"], said["verbosity"], said["max_completion_tokens"]) == ("low", "high", 99)


def test_a_history_with_tools_as_input_items() -> None:
    with serving(GOOD_RESPONSE) as server:
        asked(openai(server.url()), request(messages=HISTORY, tools=[WEATHER]))
    said = server.requests[0].said
    assert said["input"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather in Bern and Oslo?"},
        {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city":"Bern"}'},
        {"type": "function_call", "call_id": "call_2", "name": "weather", "arguments": '{"city":'},
        {"type": "function_call_output", "call_id": "call_1", "output": '{"c":21}'},
        {"type": "function_call_output", "call_id": "call_2", "output": "bad arguments"},
        {"role": "user", "content": "And so?"},
    ]
    (tool,) = said["tools"]
    assert (tool["type"], tool["name"], tool["strict"]) == ("function", "weather", False)
    assert tool["parameters"]["required"] == ["city"]


def test_a_history_with_tools_as_messages() -> None:
    with serving(GOOD_COMPLETION) as server:
        asked(openai(server.url()), request(messages=HISTORY, tools=[WEATHER], api_mode="chat"))
    said = server.requests[0].said
    assert said["messages"][2]["content"] is None
    assert said["messages"][2]["tool_calls"][0] == tool_call("weather", '{"city":"Bern"}')
    assert said["messages"][3] == {"role": "tool", "tool_call_id": "call_1", "content": '{"c":21}'}
    assert said["tools"][0]["function"]["name"] == "weather"


CALLS = (ToolCall("weather", '{"city":"Bern","days":2}', "call_1"), ToolCall("weather", "{}", "call_2"))


@pytest.mark.parametrize(
    ("mode", "answer"),
    [
        (
            "responses",
            http(
                200,
                response(
                    REASONING,
                    function_call("weather", '{"days": 2, "city": "Bern"}'),
                    function_call("weather", "", "call_2"),
                ),
            ),
        ),
        (
            "chat",
            http(
                200,
                completion(
                    finish="tool_calls",
                    tool_calls=[
                        tool_call("weather", '{"days": 2, "city": "Bern"}'),
                        tool_call("weather", "", "call_2"),
                    ],
                ),
            ),
        ),
    ],
)
def test_parallel_tool_calls_without_an_output(mode: str, answer: Answer) -> None:
    with serving(answer) as server:
        result = asked(openai(server.url()), request(tools=[WEATHER], api_mode=mode))
    assert result.tool_calls == CALLS
    assert result.raw_output == ""
    assert isinstance(result.output, Verdict)
    recorded = output_json_of(result.output)
    assert output_of_json(Verdict, recorded, asked_for_tools=True) == result.output


def test_tool_calls_give_the_schemas_defaults_as_output() -> None:
    with serving(http(200, response(function_call("weather", "{}")))) as server:
        result = asked(openai(server.url()), request(Defaults, tools=[WEATHER]))
    assert result.output == Defaults()


def test_a_remark_beside_tool_calls_is_kept_as_an_item_only() -> None:
    calls = [tool_call("weather", "{}")]
    with serving(http(200, completion("Let me look.", finish="tool_calls", tool_calls=calls))) as server:
        result = asked(openai(server.url()), request(tools=[WEATHER], api_mode="chat"))
    assert result.raw_output == ""
    assert [item["type"] for item in result.response_output_items] == ["message", "function_call"]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('{"b": 1, "a": {"d": 1.5, "c": "ä"}}', '{"a":{"c":"\\u00e4","d":1.5},"b":1}'),
        ('{"city": "Ber', '{"city": "Ber'),
        ("[1, 2]", "[1, 2]"),
        ('{"x": NaN}', '{"x": NaN}'),
        ("[" * 100_000, "[" * 100_000),
        ("  ", "{}"),
    ],
    ids=["an object is sorted", "half an object", "a list", "no number", "a deep one", "nothing is no arguments"],
)
def test_arguments_that_are_no_object_are_left_to_the_validator(written: str, read: str) -> None:
    with serving(http(200, response(function_call("no_such_tool", written)))) as server:
        result = asked(openai(server.url()), request(tools=[WEATHER]))
    assert result.tool_calls == (ToolCall("no_such_tool", read, "call_1"),)


def test_a_fence_around_an_answer_is_taken_away() -> None:
    with serving(http(200, response(output_text(f"```json\n{GOOD}\n```")))) as server:
        assert asked(openai(server.url()), request()).output == VERDICT


def test_an_output_that_is_no_object() -> None:
    numbers = RootModel[list[int]]
    with serving(http(200, response(output_text('{"value": [1, 2]}')))) as server:
        assert asked(openai(server.url()), request(numbers)).output == numbers([1, 2])
    assert server.requests[0].said["text"]["format"]["schema"]["required"] == ["value"]


# --- auto


def test_auto_falls_back_and_asks_the_probe_only_once() -> None:
    async def run(url: str) -> list[str]:
        async with openai(url) as adapter:
            return [(await adapter.complete(request())).api_mode_used for _ in range(3)]

    with serving(NO_RESPONSES, GOOD_COMPLETION) as server:
        assert asyncio.run(run(server.url("/v1"))) == ["chat"] * 3
    paths = [sent.target for sent in server.requests]
    assert paths == ["/v1/responses", *["/v1/chat/completions"] * 3]


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(http(405, b""), id="405"),
        pytest.param(http(501, b""), id="501"),
        pytest.param(http(404, b"404 page not found", kind="text/plain"), id="a page that is not there"),
        pytest.param(
            http(400, openai_error("Only supported in v1/chat/completions and not in v1/responses.")), id="in words"
        ),
        pytest.param(http(400, openai_error("no", code="unsupported_api")), id="by its code"),
    ],
)
def test_auto_falls_back_where_there_is_no_responses_api(refusal: Answer) -> None:
    with serving(refusal, GOOD_COMPLETION) as server:
        assert asked(openai(server.url()), request()).api_mode_used == "chat"


def test_auto_falls_back_per_model() -> None:
    async def run(url: str) -> list[str]:
        async with openai(url) as adapter:
            return [(await adapter.complete(request(model=model))).api_mode_used for model in ("old", "new")]

    with serving(NO_RESPONSES, GOOD_COMPLETION, GOOD_RESPONSE) as server:
        assert asyncio.run(run(server.url())) == ["chat", "responses"]


@pytest.mark.parametrize(
    ("options", "refusal", "category"),
    [
        pytest.param({"api_mode": "responses"}, NO_RESPONSES, "not_found", id="responses only"),
        pytest.param({"previous_response_id": "resp_0"}, NO_RESPONSES, "not_found", id="an option chat has not"),
        pytest.param({}, http(400, openai_error("Bad schema")), "request", id="a bad request"),
        pytest.param({}, http(401, openai_error("No")), "auth", id="a bad key"),
        pytest.param({}, http(404, openai_error("No model", code="model_not_found")), "model_not_found", id="no model"),
        pytest.param({}, http(429, openai_error("No", code="insufficient_quota")), "quota", id="no money"),
    ],
)
def test_when_auto_does_not_fall_back(options: dict[str, Any], refusal: Answer, category: str) -> None:
    with serving(refusal, GOOD_COMPLETION) as server:
        with pytest.raises(ModelPermanentError) as caught:
            asked(openai(server.url()), request(**options))
        assert caught.value.category == category
        assert len(server.requests) == 1


def test_a_model_that_neither_api_knows_is_probed_again() -> None:
    async def run(url: str) -> None:
        async with openai(url) as adapter:
            for _ in range(2):
                with pytest.raises(ModelPermanentError):
                    await adapter.complete(request())

    with serving(NO_RESPONSES) as server:
        asyncio.run(run(server.url("/v1")))
    assert [sent.target for sent in server.requests] == ["/v1/responses", "/v1/chat/completions"] * 2


@pytest.mark.parametrize("option", [{"previous_response_id": "x"}, {"responses_input_items": ()}])
def test_chat_refuses_what_it_cannot_say(option: dict[str, Any]) -> None:
    with serving(GOOD_COMPLETION) as server:
        with pytest.raises(ModelPermanentError, match="requires the Responses API"):
            asked(openai(server.url()), request(api_mode="chat", **option))
        assert server.requests == []


def test_nothing_is_told_twice_by_falling_back() -> None:
    told: list[str] = []
    events = [*response_events(GOOD)[:5], ("error", {"type": "error", "code": "unsupported_api", "message": "x"})]
    with serving(streamed(*events), streamed(*chunks(GOOD))) as server:
        with pytest.raises(ModelPermanentError):
            asked(openai(server.url()), request(), told.append)
        assert len(server.requests) == 1
    assert told == [GOOD]


@pytest.mark.parametrize(
    "denial",
    [
        openai_error("no", code="unsupported_api"),
        openai_error("The Responses API is not supported here."),
        {"error": "Unexpected endpoint or method. (POST /v1/responses)"},
    ],
    ids=["by a code", "in words", "as LM Studio does"],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_an_api_that_is_denied_in_a_success_is_not_there(denial: object, streaming: bool) -> None:
    with serving(http(200, denial), GOOD_COMPLETION) as server:
        result = asked(openai(server.url()), request(), (lambda _: None) if streaming else None)
        assert result.api_mode_used == "chat"
        assert len(server.requests) == 2


# --- answers that are none

BOTH = [
    ("responses", lambda text: response(output_text(text))),
    ("chat", completion),
]


@pytest.mark.parametrize(("mode", "saying"), BOTH, ids=["responses", "chat"])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("It is healthy!", "JSON"),
        ('{"healthy": "perhaps"}', "`healthy`"),
        ("{}", "`healthy`"),
        ('{"healthy": true', "JSON"),
        ("", "it is empty"),
        ("null", "Verdict"),
        (f'{{"reason": "{KEY}"}}', "`healthy`"),
        ("x" * 100_000, "JSON"),
    ],
)
def test_an_answer_that_does_not_fit_is_an_error(mode: str, saying: Any, text: str, why: str) -> None:
    with serving(http(200, saying(text))) as server, pytest.raises(ModelPermanentError) as caught:
        asked(openai(server.url()), request(api_mode=mode))
    assert caught.value.category == "invalid_output"
    assert why in caught.value.message
    assert KEY not in caught.value.message
    assert len(caught.value.message) < 1200


PRICED = {"gpt-5": Price(prompt=1.0, completion=1.0)}


@pytest.mark.parametrize(
    ("mode", "body", "category"),
    [
        ("responses", response(output_refusal("I will not.")), "refusal"),
        ("chat", completion(refusal="I will not."), "refusal"),
        ("chat", completion(finish="content_filter"), "refusal"),
        ("chat", completion(GOOD[:9], finish="length"), "length"),
        ("chat", completion(finish="length", tool_calls=[tool_call("weather", '{"city":')]), "length"),
        (
            "responses",
            response(output_text(GOOD[:9]), status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
            "length",
        ),
        ("responses", response(status="incomplete", incomplete_details={"reason": "content_filter"}), "refusal"),
        ("responses", response(status="incomplete", incomplete_details=None), "length"),
    ],
)
def test_refusals_and_halves_are_errors(mode: str, body: object, category: str) -> None:
    with serving(http(200, body)) as server, pytest.raises(ModelPermanentError) as caught:
        asked(openai(server.url(), prices=PRICED), request(tools=[WEATHER], api_mode=mode))
    assert caught.value.category == category
    used = caught.value.usage
    assert isinstance(used, ModelUsage), "it was paid for all the same"
    assert used.cost_usd == pytest.approx((used.prompt_tokens + used.completion_tokens) / 1e6)
    assert used.cost_usd > 0


def test_what_an_answer_used_is_not_made_up_where_the_vendor_does_not_tell() -> None:
    body = {name: value for name, value in completion("nonsense").items() if name != "usage"}
    with serving(http(200, body)) as server, pytest.raises(ModelPermanentError) as caught:
        asked(openai(server.url()), request(api_mode="chat"))
    assert (caught.value.category, caught.value.usage) == ("invalid_output", None)


@pytest.mark.parametrize(
    ("mode", "body"),
    [
        ("responses", {}),
        ("responses", {"output": "text"}),
        ("responses", response(function_call("", "{}"))),
        ("responses", response(status="failed", error={"code": "server_error", "message": "x"})),
        ("chat", {}),
        ("chat", {"choices": []}),
        ("chat", {"choices": [{"message": None}]}),
        ("chat", completion(tool_calls=[{"id": "1", "function": None}])),
        ("chat", b"[1]"),
        ("chat", b'{"choices": [{"message": {"content"'),
        ("chat", b"\xff\xfe"),
        ("chat", b""),
        ("chat", b"[" * 100_000),
    ],
)
def test_malformed_answers_may_be_better_next_time(mode: str, body: object) -> None:
    good = GOOD_RESPONSE if mode == "responses" else GOOD_COMPLETION
    limits = Limits(timeout_seconds=5, max_retries=1, initial_backoff_seconds=0)
    with serving(http(200, body), good) as server:
        assert asked(openai(server.url(), limits=limits), request(api_mode=mode)).output == VERDICT
    with serving(http(200, body)) as server, pytest.raises(ModelTransientError):
        asked(openai(server.url()), request(api_mode=mode))


def test_a_web_page_is_a_wrong_address() -> None:
    page = http(200, b"<html>Welcome</html>", kind="text/html")
    with serving(page) as server, pytest.raises(ModelPermanentError) as caught:
        asked(openai(server.url()), request())
    assert caught.value.category == "malformed"


@pytest.mark.parametrize(
    ("answer", "kind", "category"),
    [
        pytest.param(raw(b""), ModelTransientError, "connection", id="a connection that is closed at once"),
        pytest.param(
            raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"),
            ModelTransientError,
            "connection",
            id="a body cut off",
        ),
        pytest.param(raw(b"garbage\r\n\r\n"), ModelTransientError, "connection", id="not HTTP at all"),
        pytest.param(silence, ModelTimeoutError, "timeout", id="no answer"),
        pytest.param(
            drip(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n", b" "),
            ModelTimeoutError,
            "timeout",
            id="an answer that never ends",
        ),
        pytest.param(
            http(301, b"", "Location: https://elsewhere.example/"), ModelPermanentError, "redirect", id="a redirect"
        ),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_connections_that_fail(answer: Answer, kind: type[ModelError], category: str, streaming: bool) -> None:
    with serving(answer) as server:
        with pytest.raises(kind) as caught:
            asked(openai(server.url(), limits=patience(kind)), request(), (lambda _: None) if streaming else None)
        assert caught.value.category == category
        assert len(server.requests) == 1
        error: BaseException | None = caught.value
        while error is not None:
            assert KEY not in f"{error} {error!r} {error.__cause__!r}"
            error = error.__cause__


def test_no_server_is_there() -> None:
    with pytest.raises(ModelTransientError, match="cannot connect"):
        asked(openai(f"http://127.0.0.1:{closed_port()}/v1"), request())


@pytest.mark.parametrize("streaming", [False, True])
def test_a_huge_answer_is_not_read_to_its_end(streaming: bool) -> None:
    limits = Limits(timeout_seconds=5, max_retries=0, max_response_bytes=100_000)
    with serving(flood) as server, pytest.raises(ModelPermanentError, match="larger than 100000 bytes"):
        asked(openai(server.url(), limits=limits), request(), (lambda _: None) if streaming else None)


LONG = chunks('{"healthy": true, "reason": "', *["x"] * 1000, '"}')


def test_what_is_around_the_pieces_of_an_answer_does_not_make_it_too_large() -> None:
    limits = Limits(timeout_seconds=15, max_retries=0, max_response_bytes=10_000)
    with serving(http(200, event_bytes(*LONG), kind="text/event-stream")) as server:
        result = asked(openai(server.url(), limits=limits), request(api_mode="chat"), lambda _: None)
    assert result.output.reason == "x" * 1000


@pytest.mark.parametrize(
    ("limits", "answer"),
    [
        pytest.param({"max_stream_bytes": 10_000}, event_bytes(*LONG), id="many events"),
        pytest.param({"max_response_bytes": 1000}, event_bytes(*chunks("x" * 200_000)), id="a large event"),
        pytest.param({"max_response_bytes": 1000}, event_bytes(*[": x"] * 50_000), id="no event at all"),
    ],
)
def test_a_stream_that_is_too_large(limits: dict[str, int], answer: bytes) -> None:
    bounds = Limits(timeout_seconds=15, max_retries=0, **limits)
    with serving(http(200, answer, kind="text/event-stream")) as server, pytest.raises(ModelPermanentError) as caught:
        asked(openai(server.url(), limits=bounds), request(api_mode="chat"), lambda _: None)
    assert caught.value.category == "too_large"


# --- retries


@pytest.mark.parametrize(
    ("refusal", "least"),
    [
        pytest.param(http(429, openai_error("Slow"), "Retry-After: 7"), 7, id="as long as it says"),
        pytest.param(http(429, openai_error("Slow"), "retry-after-ms: 1500"), 1.5, id="in milliseconds"),
        pytest.param(http(500, openai_error("Oops", "server_error")), 0.05, id="a server's trouble"),
        pytest.param(http(503, b"busy", kind="text/plain"), 0.05, id="busy"),
        pytest.param(raw(b""), 0.05, id="a broken connection"),
    ],
)
def test_it_is_tried_again(refusal: Answer, least: float) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    limits = Limits(timeout_seconds=5, max_retries=2, initial_backoff_seconds=0.1)
    with serving(refusal, refusal, GOOD_RESPONSE) as server:
        assert asked(openai(server.url(), limits=limits, sleep=sleep), request()).output == VERDICT
    assert len(waits) == 2
    assert all(wait >= least for wait in waits)


@pytest.mark.parametrize(
    ("refusal", "attempts"),
    [
        pytest.param(http(500, openai_error("Oops", "server_error")), 3, id="at most so often"),
        pytest.param(http(429, openai_error("Slow"), "Retry-After: 3600"), 1, id="not when it would take too long"),
        pytest.param(http(400, openai_error("Bad")), 1, id="not a bad request"),
        pytest.param(
            http(429, openai_error("No", code="insufficient_quota"), "Retry-After: 1"), 1, id="not without money"
        ),
        pytest.param(http(200, response(output_text("nonsense"))), 1, id="not a response that does not fit"),
    ],
)
def test_it_is_not_tried_for_ever(refusal: Answer, attempts: int) -> None:
    async def sleep(seconds: float) -> None:
        pass

    limits = Limits(timeout_seconds=5, max_retries=2)
    with serving(refusal) as server:
        with pytest.raises(ModelError):
            asked(openai(server.url(), limits=limits, sleep=sleep), request())
        assert len(server.requests) == attempts


# --- streaming


@pytest.mark.parametrize(
    ("mode", "answer"),
    [
        ("responses", streamed(*response_events(GOOD[:5], GOOD[5:]))),
        ("responses", streamed(*response_events(GOOD[:5], GOOD[5:]), end="\r\n")),
        ("chat", streamed(*chunks(GOOD[:5], GOOD[5:]))),
        ("chat", streamed(*chunks(GOOD[:5], GOOD[5:]), end="\r\n")),
    ],
)
@pytest.mark.parametrize("waits", [False, True], ids=["told at once", "told to one who waits"])
def test_tokens_are_told_as_they_come(mode: str, answer: Answer, waits: bool) -> None:
    told: list[str] = []

    async def slowly(token: str) -> None:
        await asyncio.sleep(0)
        told.append(token)

    with serving(answer) as server:
        result = asked(openai(server.url()), request(api_mode=mode), slowly if waits else told.append)
    assert told == [GOOD[:5], GOOD[5:]]
    assert (result.output, result.raw_output, result.api_mode_used) == (VERDICT, GOOD, mode)
    assert result.usage.prompt_tokens > 0
    assert server.requests[0].said["stream"] is True


def test_streamed_parallel_tool_calls() -> None:
    def part(index: int, **more: Any) -> dict[str, Any]:
        return {"tool_calls": [{"index": index, **more}]}

    answer = streamed(
        chunk({"role": "assistant", "content": None}),
        chunk(part(0, id="call_1", type="function", function={"name": "weather", "arguments": ""})),
        chunk(part(0, function={"arguments": '{"days": 2, '})),
        chunk(part(1, id="call_2", type="function", function={"name": "weather", "arguments": ""})),
        chunk(part(0, function={"arguments": '"city": "Bern"}'})),
        chunk({}, "tool_calls"),
        "data: [DONE]",
    )
    told: list[str] = []
    with serving(answer) as server:
        result = asked(openai(server.url()), request(tools=[WEATHER], api_mode="chat"), told.append)
    assert result.tool_calls == CALLS
    assert told == []


def test_a_response_that_leaves_its_output_out_at_the_end() -> None:
    events = response_events(GOOD, last=("response.completed", response()))
    with serving(streamed(*events)) as server:
        assert asked(openai(server.url()), request(), lambda _: None).output == VERDICT


def test_a_stream_that_does_not_say_that_it_is_done() -> None:
    told: list[str] = []
    with serving(streamed(*chunks(GOOD)[:-1])) as server:
        result = asked(openai(server.url()), request(api_mode="chat"), told.append)
    assert (result.output, "".join(told), result.usage.prompt_tokens) == (VERDICT, GOOD, 19)


@pytest.mark.parametrize("kind", [None, "application/json", "text/plain; charset=utf-8"])
def test_a_stream_under_a_wrong_name(kind: str | None) -> None:
    told: list[str] = []
    head = "HTTP/1.1 200 OK\r\nConnection: close\r\n" + (f"Content-Type: {kind}\r\n" if kind else "")
    answer = raw(head.encode() + b"\r\n" + event_bytes(*chunks(GOOD[:5], GOOD[5:])))
    with serving(answer) as server:
        assert asked(openai(server.url()), request(api_mode="chat"), told.append).output == VERDICT
    assert told == [GOOD[:5], GOOD[5:]]


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream", "text/plain"])
def test_a_whole_answer_to_one_who_asked_for_a_stream(kind: str) -> None:
    body = json.dumps(completion(GOOD), indent=1).encode()
    with serving(http(200, body, kind=kind)) as server:
        assert asked(openai(server.url()), request(api_mode="chat"), lambda _: None).output == VERDICT


@pytest.mark.parametrize(
    ("kind", "body", "error", "category"),
    [
        ("text/html", b"<html>Welcome</html>", ModelPermanentError, "malformed"),
        ("text/event-stream", b"nonsense", ModelTransientError, "malformed"),
        ("text/event-stream", b": nothing\n\n", ModelTransientError, "connection"),
        ("text/event-stream", b'data: {"choices"', ModelTransientError, "connection"),
        ("application/json", b"", ModelTransientError, "connection"),
    ],
)
def test_neither_a_stream_nor_an_answer(kind: str, body: bytes, error: type[ModelError], category: str) -> None:
    with serving(http(200, body, kind=kind)) as server, pytest.raises(error) as caught:
        asked(openai(server.url()), request(api_mode="chat"), lambda _: None)
    assert caught.value.category == category


def test_an_answer_that_is_whole_is_not_waited_on_for_long() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"

    def answer(connection: Any, server: Any) -> None:
        connection.sendall(head + event_bytes(*chunks(GOOD)[:-2]))
        silence(connection, server)

    limits = Limits(timeout_seconds=2, stream_seconds=20, max_retries=0)
    with serving(answer) as server:
        result = asked(openai(server.url(), limits=limits), request(api_mode="chat"), lambda _: None)
    assert result.output == VERDICT


def remark(text: str) -> dict[str, Any]:
    return output_text(text) | {"phase": "commentary"}


@pytest.mark.parametrize("streaming", [False, True])
def test_what_a_model_remarks_on_the_way_is_no_part_of_its_answer(streaming: bool) -> None:
    said = response(remark("Let me see."), output_text(GOOD) | {"phase": "final_answer"})
    place = {"item_id": "msg_0", "output_index": 0}
    added = {"type": "response.output_item.added", **place, "item": remark("") | {"content": []}}
    piece = {"type": "response.output_text.delta", **place, "delta": "Let me see."}
    final = {"type": "response.output_text.delta", "output_index": 1, "delta": GOOD}
    events = [("", added), ("", piece), ("", final), ("", {"type": "response.completed", "response": said})]
    told: list[str] = []
    with serving(streamed(*events) if streaming else http(200, said)) as server:
        result = asked(openai(server.url()), request(), told.append if streaming else None)
    assert (result.output, result.raw_output) == (VERDICT, GOOD)
    assert result.response_output_items == tuple(said["output"])
    assert told == ([GOOD] if streaming else [])


def test_a_remark_alone_is_no_answer() -> None:
    with serving(http(200, response(remark(GOOD)))) as server, pytest.raises(ModelPermanentError) as caught:
        asked(openai(server.url()), request())
    assert caught.value.category == "invalid_output"


def test_a_server_that_does_not_stream() -> None:
    told: list[str] = []
    with serving(GOOD_RESPONSE) as server:
        assert asked(openai(server.url()), request(), told.append).output == VERDICT
    assert told == []


def test_streaming_falls_back_too() -> None:
    told: list[str] = []
    with serving(NO_RESPONSES, streamed(*chunks(GOOD))) as server:
        assert asked(openai(server.url()), request(), told.append).api_mode_used == "chat"
    assert told == [GOOD]


EVENTS = response_events(GOOD)
BEFORE_TEXT = EVENTS[:4]


@pytest.mark.parametrize(
    ("mode", "answer", "kind", "category"),
    [
        ("responses", streamed(*EVENTS[:-1]), ModelTransientError, "connection"),
        ("responses", streamed(*EVENTS, cut=600), ModelTransientError, "connection"),
        (
            "responses",
            streamed(*BEFORE_TEXT, ("error", {"type": "error", "code": "server_error", "message": "x", "param": None})),
            ModelTransientError,
            "server",
        ),
        (
            "responses",
            streamed(
                *response_events(
                    GOOD,
                    last=(
                        "response.failed",
                        response(status="failed", error={"code": "rate_limit_exceeded", "message": "x"}),
                    ),
                )
            ),
            ModelTransientError,
            "rate_limit",
        ),
        (
            "responses",
            streamed(
                *response_events(
                    GOOD,
                    last=(
                        "response.incomplete",
                        response(status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
                    ),
                )
            ),
            ModelPermanentError,
            "length",
        ),
        ("responses", streamed("data: nonsense"), ModelTransientError, "malformed"),
        ("responses", streamed("data: [1]"), ModelTransientError, "malformed"),
        ("responses", streamed('data: {"type":"response.completed"}'), ModelTransientError, "malformed"),
        ("chat", streamed(chunk({"content": GOOD})), ModelTransientError, "connection"),
        ("chat", streamed(chunk({"content": GOOD}), "data: [DONE]"), ModelTransientError, "malformed"),
        ("chat", streamed('data: {"error":{"message":"x","type":"server_error"}}'), ModelTransientError, "server"),
        ("chat", streamed(*chunks(GOOD[:9], finish="length")), ModelPermanentError, "length"),
        ("chat", streamed(*chunks("nonsense")), ModelPermanentError, "invalid_output"),
        ("chat", streamed(), ModelTransientError, "connection"),
        ("chat", streamed(*chunks(GOOD)[:-1], cut=880), ModelTransientError, "connection"),
        (
            "chat",
            streamed(chunk({"content": GOOD[:9]}, "stop"), chunk({"content": GOOD[9:]}, "stop")),
            ModelTransientError,
            "connection",
        ),
        ("chat", streamed(*chunks(GOOD, finish="abort")), ModelTransientError, "server"),
        ("chat", streamed(("error", {"message": "x", "code": 429})), ModelTransientError, "rate_limit"),
        ("chat", streamed(("error", {"message": "x", "code": 401})), ModelPermanentError, "auth"),
    ],
)
def test_streams_that_fail(mode: str, answer: Answer, kind: type[ModelError], category: str) -> None:
    with serving(answer) as server, pytest.raises(kind) as caught:
        asked(openai(server.url()), request(api_mode=mode), lambda _: None)
    assert caught.value.category == category


def test_a_stream_is_begun_again_before_anything_was_told() -> None:
    limits = Limits(timeout_seconds=5, max_retries=1, initial_backoff_seconds=0)
    told: list[str] = []
    with serving(streamed(*BEFORE_TEXT), streamed(*EVENTS)) as server:
        assert asked(openai(server.url(), limits=limits), request(), told.append).output == VERDICT
    assert told == [GOOD]


def test_a_stream_is_not_begun_again_once_something_was_told() -> None:
    limits = Limits(timeout_seconds=5, max_retries=5, initial_backoff_seconds=0)
    told: list[str] = []
    with serving(streamed(*EVENTS[:-1]), streamed(*EVENTS)) as server:
        with pytest.raises(ModelTransientError):
            asked(openai(server.url(), limits=limits), request(), told.append)
        assert len(server.requests) == 1
    assert told == [GOOD]


def test_a_stream_that_falls_silent() -> None:
    data = json.dumps(EVENTS[4][1]).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"

    def answer(connection: Any, server: Any) -> None:
        connection.sendall(head + b"data: " + data + b"\n\n")
        silence(connection, server)

    with serving(answer) as server, pytest.raises(ModelTimeoutError):
        asked(openai(server.url(), limits=SLUGGISH), request(), lambda _: None)


def test_a_stream_of_nothing_but_comments_ends() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    limits = Limits(timeout_seconds=5, stream_seconds=0.5, max_retries=0)
    with serving(drip(head, b": ping\n\n")) as server, pytest.raises(ModelTimeoutError, match=r"within 0\.5s"):
        asked(openai(server.url(), limits=limits), request(), lambda _: None)


@pytest.mark.parametrize("error", [TimeoutError("mine"), ValueError("mine")])
def test_what_the_listener_raises_ends_the_call_as_it_is(error: Exception) -> None:
    def listener(token: str) -> None:
        raise error

    with serving(streamed(*EVENTS)) as server, pytest.raises(type(error), match="mine"):
        asked(openai(server.url()), request(), listener)


def test_a_call_that_is_cancelled_leaves_the_adapter_usable() -> None:
    async def run(server: Server) -> object:
        async with openai(server.url()) as adapter:
            call = asyncio.create_task(adapter.complete(request()))
            while not server.requests:
                await asyncio.sleep(0.01)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            return (await adapter.complete(request())).output

    with serving(silence, GOOD_RESPONSE) as server:
        assert asyncio.run(run(server)) == VERDICT


def test_many_calls_at_once() -> None:
    async def run(url: str) -> list[object]:
        async with openai(url) as adapter:
            results = await asyncio.gather(*(adapter.complete(request(prompt=str(n))) for n in range(20)))
            return [result.output for result in results]

    with serving(GOOD_RESPONSE) as server:
        assert asyncio.run(run(server.url())) == [VERDICT] * 20
    assert {sent.said["input"][0]["content"] for sent in server.requests} == {str(n) for n in range(20)}


def test_an_adapter_outlives_its_loop() -> None:
    with serving(GOOD_RESPONSE) as server:
        adapter = openai(server.url())
        for _ in range(2):
            assert asked(adapter, request()).output == VERDICT


# --- keys, costs, bad requests


def test_a_key_is_only_missed_when_a_model_is_asked() -> None:
    adapter = OpenAIAdapter(environ={}, limits=QUICK)
    with pytest.raises(ModelPermanentError, match="no API key for OpenAI"):
        asked(adapter, request())


def test_key_and_address_from_the_environment() -> None:
    with serving(GOOD_RESPONSE) as server:
        adapter = OpenAIAdapter(environ={"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url("/v1/")}, limits=QUICK)
        asked(adapter, request())
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.requests[0].target == "/v1/responses"
    assert KEY not in f"{adapter!r} {vars(adapter)!r}"


def test_an_address_that_could_be_read_by_others_is_refused() -> None:
    with pytest.raises(InputError):
        OpenAIAdapter(api_key=KEY, base_url="http://models.example.com/v1")


def test_a_compatible_server_needs_no_key_and_gets_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "https://other.example.com")
    with serving(NO_RESPONSES, GOOD_COMPLETION) as server:
        adapter = OpenAICompatibleAdapter(server.url("/v1"), limits=QUICK, max_output_tokens=5)
        assert asked(adapter, request(model="llama3.2")).output == VERDICT
    assert all("authorization" not in sent.headers for sent in server.requests)
    assert server.requests[1].said["max_tokens"] == 5
    with pytest.raises(InputError):
        OpenAICompatibleAdapter("")


@pytest.mark.parametrize(("structured", "form"), [("json", {"type": "json_object"}), ("text", None)])
@pytest.mark.parametrize("mode", ["chat", "responses"])
def test_a_server_that_takes_no_schema_is_told_in_words(structured: Any, form: object, mode: str) -> None:
    with serving(GOOD_COMPLETION if mode == "chat" else GOOD_RESPONSE) as server:
        adapter = OpenAICompatibleAdapter(server.url(), limits=QUICK, structured_output=structured)
        assert asked(adapter, request(api_mode=mode)).output == VERDICT
    said = server.requests[0].said
    told = said["messages"][0]["content"] if mode == "chat" else said["input"][0]["content"]
    assert '"healthy"' in told
    assert "JSON" in told, "a server that is asked for JSON wants to read of it among the messages"
    assert (said.get("response_format") if mode == "chat" else said.get("text", {}).get("format")) == form


def test_costs_come_from_the_prices_given() -> None:
    prices = {"gpt-5": Price(prompt=1.0, completion=10.0, cached=0.1)}
    with serving(GOOD_RESPONSE) as server:
        result = asked(openai(server.url(), prices=prices), request())
    assert result.usage.cost_usd == pytest.approx((30 * 1.0 + 6 * 0.1 + 87 * 10.0) / 1e6)


def test_a_model_without_a_price_is_refused_before_it_costs_anything() -> None:
    with serving(GOOD_RESPONSE) as server:
        with pytest.raises(ModelPermanentError) as caught:
            asked(openai(server.url(), fail_on_unknown_cost=True), request(model="gpt-of-tomorrow"))
        assert caught.value.category == "unknown_cost"
        assert server.requests == []


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(request(prompt=" "), id="nothing to ask"),
        pytest.param(request(messages=[ChatMessage(role="tool", content="x")]), id="a result of no call"),
        pytest.param(request(prompt="\ud800"), id="half a character"),
        pytest.param(request(responses_input_items=({"x": object()},)), id="an item that is no JSON"),
        pytest.param(
            request(tools=[WEATHER.__class__("t", "d", "{nonsense")]), id="a tool whose arguments have no schema"
        ),
    ],
)
def test_requests_that_cannot_be_sent(bad: Any) -> None:
    with serving(GOOD_RESPONSE) as server:
        with pytest.raises(ModelPermanentError) as caught:
            asked(openai(server.url()), bad)
        assert caught.value.category == "request"
        assert server.requests == []


@pytest.mark.parametrize("field", ["stream", "stream_options", "n", "background"])
@pytest.mark.parametrize("kind", [OpenAIAdapter, AnthropicAdapter, OpenAICompatibleAdapter])
def test_fields_that_would_change_how_an_answer_is_read_are_refused(kind: Any, field: str) -> None:
    with pytest.raises(InputError, match=f"`{field}`"):
        kind(base_url="http://127.0.0.1:1", extra_body={field: 2})


@pytest.mark.parametrize("kind", [OpenAIAdapter, AnthropicAdapter, OpenAICompatibleAdapter])
@pytest.mark.parametrize("most", [0, -1])
def test_no_output_tokens_are_no_output(kind: Any, most: int) -> None:
    with pytest.raises(InputError):
        kind(base_url="http://127.0.0.1:1", max_output_tokens=most)


@pytest.mark.parametrize(
    ("kind", "way"), [(OpenAIAdapter, "auto"), (OpenAICompatibleAdapter, "tool"), (AnthropicAdapter, "json")]
)
def test_an_unknown_structured_output_is_refused(kind: Any, way: str) -> None:
    with pytest.raises(InputError, match=f"found `{way}`"):
        kind(base_url="http://127.0.0.1:1", structured_output=way)
