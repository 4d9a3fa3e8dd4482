"""Functions of litellm's shape: both APIs, failures by their kind, and no litellm at all."""

import asyncio
import json
import math
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel
from tests.ecosystem.models.vendors import (
    GOOD,
    VERDICT,
    WEATHER,
    completion,
    function_call,
    output_text,
    request,
    response,
    tool_call,
)

from gert.ecosystem.models.litellm import LiteLLMAdapter
from gert.errors import ModelError, ModelPermanentError, ModelTimeoutError, ModelTransientError
from gert.kernel.agent.ports.model import ModelResult, ModelUsage
from gert.kernel.agent.steps.messages import ChatMessage


class Dumped(BaseModel):
    """An answer as litellm gives it: an object with a cost in a corner."""

    body: dict[str, Any]
    _hidden_params: dict[str, Any] = {"response_cost": 0.25}

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return self.body


class Corner(Dumped):
    """An answer with anything at all in that corner."""

    corner: dict[str, Any]

    def model_post_init(self, _: object) -> None:
        self._hidden_params = self.corner


class JSONOnly:
    """An answer that only gives itself as text."""

    def model_dump_json(self) -> str:
        return json.dumps(completion(GOOD))


class Told:
    """A function that says one thing after another, and keeps what it was asked."""

    def __init__(self, *says: object) -> None:
        self.says = says
        self.asked: list[dict[str, Any]] = []

    async def __call__(self, **arguments: Any) -> object:
        self.asked.append(arguments)
        said = self.says[min(len(self.asked), len(self.says)) - 1]
        if isinstance(said, Exception):
            raise said
        return said


def failure(name: str, status: int | None = None) -> Exception:
    error: Exception = type(name, (Exception,), {})("sk-c4nary")
    if status is not None:
        error.status_code = status  # type: ignore[attr-defined]
    return error


def complete(adapter: LiteLLMAdapter, **more: Any) -> ModelResult[Any]:
    return asyncio.run(adapter.complete(request(**more)))


def quick(*functions: Any, **more: Any) -> LiteLLMAdapter:
    return LiteLLMAdapter(*functions, **{"initial_backoff_seconds": 0.0, **more})


def test_a_completion() -> None:
    ask = Told(Dumped(body=completion(GOOD)))
    result = complete(quick(ask), tools=[WEATHER], reasoning_effort="low")
    assert (result.output, result.api_mode_used, result.usage) == (VERDICT, "chat", ModelUsage(19, 10, 0.25))
    (asked,) = ask.asked
    assert asked["model"] == "gpt-5"
    assert asked["messages"] == [{"role": "user", "content": "Is it healthy?"}]
    assert asked["response_format"]["type"] == "json_schema"
    assert asked["tools"][0]["function"]["name"] == "weather"
    assert asked["reasoning_effort"] == "low"


def test_a_response() -> None:
    ask = Told(response(output_text(GOOD)))
    result = complete(quick(None, ask), previous_response_id="resp_0")
    assert (result.output, result.api_mode_used, result.response_id) == (VERDICT, "responses", "resp_1")
    assert ask.asked[0]["previous_response_id"] == "resp_0"


def test_an_answer_as_text() -> None:
    assert complete(quick(Told(JSONOnly()))).output == VERDICT


def test_a_function_that_does_not_wait() -> None:
    assert complete(quick(lambda **_: completion(GOOD))).output == VERDICT


def test_tool_calls_both_ways() -> None:
    chat = quick(Told(completion(finish="tool_calls", tool_calls=[tool_call("weather", '{"b":1,"a":2}')])))
    responses = quick(None, Told(response(function_call("weather", '{"b":1,"a":2}'))))
    assert complete(chat).tool_calls == complete(responses).tool_calls
    assert complete(chat).tool_calls[0].arguments_json == '{"a":2,"b":1}'


def test_auto_falls_back_once() -> None:
    chat, responses = Told(completion(GOOD)), Told(failure("NotFoundError", 404))
    adapter = quick(chat, responses)
    assert [complete(adapter).api_mode_used for _ in range(2)] == ["chat", "chat"]
    assert (len(responses.asked), len(chat.asked)) == (1, 2)


@pytest.mark.parametrize("options", [{"api_mode": "responses"}, {"previous_response_id": "x"}])
def test_auto_does_not_fall_back_where_responses_is_needed(options: dict[str, Any]) -> None:
    chat = Told(completion(GOOD))
    with pytest.raises(ModelPermanentError):
        complete(quick(chat, Told(failure("NotFoundError", 404))), **options)
    assert chat.asked == []


@pytest.mark.parametrize(
    ("raised", "kind", "attempts"),
    [
        (failure("RateLimitError", 429), ModelTransientError, 3),
        (failure("APIConnectionError"), ModelTransientError, 3),
        (failure("Anything", 503), ModelTransientError, 3),
        (ConnectionResetError(), ModelTransientError, 3),
        (failure("Timeout", 408), ModelTimeoutError, 3),
        (TimeoutError(), ModelTimeoutError, 3),
        (failure("BadRequestError", 400), ModelPermanentError, 1),
        (failure("AuthenticationError", 401), ModelPermanentError, 1),
        (failure("Strange"), ModelPermanentError, 1),
        (ModelTransientError("mine"), ModelTransientError, 3),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_failures(raised: Exception, kind: type[ModelError], attempts: int) -> None:
    ask = Told(raised)
    with pytest.raises(kind) as caught:
        complete(quick(ask))
    assert len(ask.asked) == attempts
    assert "c4nary" not in str(caught.value)
    assert caught.value.__cause__ is not caught.value, "whoever follows causes comes to an end"


def test_a_failure_that_passes() -> None:
    ask = Told(failure("RateLimitError", 429), failure("InternalServerError", 500), completion(GOOD))
    assert complete(quick(ask)).output == VERDICT


@pytest.mark.parametrize("strange", [{}, {"choices": []}, {"error": {"code": 503, "message": "busy"}}, b"\xff"])
def test_an_answer_that_cannot_be_read_may_be_better_next_time(strange: object) -> None:
    ask = Told(strange, completion(GOOD))
    assert complete(quick(ask)).output == VERDICT
    assert len(ask.asked) == 2


def test_a_vendor_that_wants_to_be_left_alone_for_long_is_not_asked_again() -> None:
    busy = failure("RateLimitError", 429)
    busy.response = SimpleNamespace(headers={"retry-after": "3600"})  # type: ignore[attr-defined]
    ask = Told(busy, completion(GOOD))
    with pytest.raises(ModelTransientError) as caught:
        complete(quick(ask))
    assert (caught.value.retry_after, len(ask.asked)) == (3600, 1)


def test_a_function_that_never_answers() -> None:
    async def never(**_: Any) -> None:
        await asyncio.sleep(60)

    with pytest.raises(ModelTimeoutError, match=r"within 0\.05s"):
        complete(quick(never, timeout_seconds=0.05, max_retries=0))


@pytest.mark.parametrize("said", [None, 7, "text", [], {}, object(), {"choices": [{"x": object()}]}])
def test_answers_that_are_none(said: object) -> None:
    with pytest.raises(ModelError):
        complete(quick(Told(said)))


@pytest.mark.parametrize(
    ("said", "category"),
    [
        (completion("nonsense"), "invalid_output"),
        (completion(GOOD[:9], finish="length"), "length"),
        (completion(refusal="I will not."), "refusal"),
    ],
)
def test_an_unusable_answer_is_still_paid_for(said: dict[str, Any], category: str) -> None:
    with pytest.raises(ModelPermanentError) as caught:
        complete(quick(Told(Dumped(body=said))))
    assert caught.value.category == category
    assert isinstance(caught.value.usage, ModelUsage)
    assert caught.value.usage.cost_usd == 0.25
    assert caught.value.usage.prompt_tokens > 0


def test_a_lone_surrogate_is_reported_without_a_call() -> None:
    told = Told(completion(GOOD))
    with pytest.raises(ModelPermanentError, match="a lone surrogate"):
        complete(quick(told), prompt="a\ud800b")
    assert told.asked == []


@pytest.mark.parametrize(
    "corner",
    [{}, *({"response_cost": cost} for cost in (None, "0.1", -1, True, math.nan, math.inf, 10**400))],
    ids=str,
)
def test_an_unknown_cost(corner: dict[str, Any]) -> None:
    assert complete(quick(Told(Corner(body=completion(GOOD), corner=corner)))).usage.cost_usd == 0.0
    with pytest.raises(ModelPermanentError) as caught:
        complete(quick(Told(Corner(body=completion(GOOD), corner=corner)), fail_on_unknown_cost=True))
    assert caught.value.category == "unknown_cost"


@pytest.mark.parametrize("mode", ["auto", "chat", "responses"])
def test_without_litellm(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(ModelPermanentError, match="litellm is not installed"):
        complete(LiteLLMAdapter(), api_mode=mode)


def test_a_litellm_without_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        acompletion = staticmethod(Told(completion(GOOD)))

    monkeypatch.setitem(sys.modules, "litellm", Old)
    assert complete(LiteLLMAdapter()).api_mode_used == "chat"
    with pytest.raises(ModelPermanentError):
        complete(LiteLLMAdapter(), api_mode="responses")


class Given:
    """A response with properties that its data does not have."""

    def __init__(self, data: dict[str, Any], **properties: Any) -> None:
        self._data = data
        vars(self).update(properties)

    def model_dump(self) -> dict[str, Any]:
        return self._data


USED = {"usage": {"input_tokens": 3, "output_tokens": 2}}


@pytest.mark.parametrize(
    ("mode", "said", "cost"),
    [
        pytest.param("responses", Given(USED, output_text=GOOD), 0.0, id="output_text as a property"),
        pytest.param("responses", {**USED, "output": [], "output_text": GOOD}, 0.0, id="output_text as data"),
        pytest.param("chat", Given(completion(GOOD), _response_cost=0.25), 0.25, id="_response_cost as a property"),
        pytest.param("chat", {**completion(GOOD), "_response_cost": 0.25}, 0.25, id="_response_cost as data"),
        pytest.param("chat", Given(completion(GOOD), _response_cost="much"), 0.0, id="_response_cost that is none"),
    ],
)
def test_what_stands_beside_the_data_is_read(mode: str, said: object, cost: float) -> None:
    functions = (None, Told(said)) if mode == "responses" else (Told(said), None)
    result = complete(quick(*functions), api_mode=mode)
    assert (result.output, result.usage.cost_usd) == (VERDICT, cost)


def test_tool_messages_both_ways() -> None:
    older = {"choices": [{"message": {"content": None, "function_call": {"name": "get_weather", "arguments": "{}"}}}]}
    ask = Told(older)
    messages = [
        ChatMessage(role="user", content="and now?"),
        ChatMessage(role="tool", content="3", tool_call_id="c1", name="get_weather"),
    ]
    result = complete(quick(ask), api_mode="chat", messages=messages, tools=[WEATHER])
    assert [(call.tool_name, call.arguments_json) for call in result.tool_calls] == [("get_weather", "{}")]
    assert ask.asked[0]["messages"][-1] == {"role": "tool", "tool_call_id": "c1", "content": "3", "name": "get_weather"}
