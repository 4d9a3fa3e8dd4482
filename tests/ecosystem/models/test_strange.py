"""Any field of an answer may be anything: what comes of it is a result, or an error of the port."""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, RootModel, field_validator
from tests.ecosystem.models.vendors import (
    GOOD,
    KEY,
    WEATHER,
    adapter_for,
    ask,
    asked,
    chunk,
    chunks,
    completion,
    function_call,
    http,
    message,
    message_events,
    output_text,
    response,
    response_events,
    text_block,
    tool_call,
    tool_use,
)
from tests.ecosystem.notify.servers import serving

from gert.ecosystem.models.answers import Answer, result_of
from gert.ecosystem.models.anthropic import messages
from gert.ecosystem.models.anthropic.fold import MessagesFold
from gert.ecosystem.models.fold import Fold
from gert.ecosystem.models.limits import Limits
from gert.ecosystem.models.openai import chat, responses
from gert.ecosystem.models.openai.chat_fold import ChatFold
from gert.ecosystem.models.openai.responses import ResponsesFold
from gert.ecosystem.models.prices import Price, Pricing
from gert.ecosystem.models.sse import Event
from gert.errors import ModelError, ModelPermanentError
from gert.kernel.agent.ports.model import ModelUsage
from gert.kernel.foundation.redaction import Redactor

NO_SECRETS = Redactor()
BERN = '{"city":"Bern"}'
CALL = {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "weather", "arguments": BERN}}]}
BLANK = {"tool_calls": [{"index": 0, "function": {"name": "weather", "arguments": " "}}]}
WHOLE: dict[str, dict[str, Any]] = {
    "chat": completion(GOOD, tool_calls=[tool_call("weather", BERN)]),
    "responses": response(output_text(GOOD), function_call("weather", BERN)),
    "messages": message(text_block(GOOD), tool_use("weather", {"city": "Bern"})),
}
STREAMED: dict[str, list[Any]] = {
    "chat": [json.loads(line[6:]) for line in [chunk(CALL), *chunks(GOOD)[1:-1]]],
    "responses": [body for _, body in response_events(GOOD)],
    "messages": [
        body for _, body in message_events([({"type": "text", "text": ""}, [{"type": "text_delta", "text": GOOD}])])
    ],
}
READ: dict[str, Callable[[dict[str, Any]], Answer]] = {
    "chat": lambda body: chat.answer_of(body, NO_SECRETS),
    "responses": lambda body: responses.answer_of(body, NO_SECRETS),
    "messages": lambda body: messages.answer_of(body, NO_SECRETS, "format", "give_answer"),
}
FOLDS: dict[str, Callable[[], Fold]] = {
    "chat": lambda: ChatFold(NO_SECRETS),
    "responses": lambda: ResponsesFold(NO_SECRETS),
    "messages": lambda: MessagesFold(NO_SECRETS, "give_answer"),
}
PRICING = Pricing({name: Price(prompt=1.0, completion=1.0, cached=0.5) for name in ("gpt-5", "claude-sonnet-4-5")})
STRANGE: list[Any] = [None, True, -1, 0, 10**40, 1.5, "", "x", [], [None], [[]], {}, {"a": []}, [{}]]


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*at, key))


def strangers(value: Any) -> Iterator[Any]:
    """The value, with each thing in it in turn replaced by each strange one."""
    for *path, last in places(value):
        for new in STRANGE:
            changed = inner = copy.deepcopy(value)
            for key in path:
                inner = inner[key]
            inner[last] = new
            yield changed


def folded(fold: Fold, events: list[Any]) -> dict[str, Any]:
    for event in events:
        fold.add(Event("message", json.dumps(event).encode()))
    if isinstance(fold, ChatFold):
        fold.add(Event("message", b"[DONE]"))
    return fold.answer()


@pytest.mark.parametrize("mode", ["chat", "responses", "messages"])
def test_any_field_may_be_anything(mode: str) -> None:
    def outcome(body: Callable[[], dict[str, Any]]) -> str:
        try:
            result = result_of(ask(mode), READ[mode](body()), "chat", PRICING, NO_SECRETS)
        except ModelError:
            return "an error of the port"
        assert result.usage.prompt_tokens >= 0
        assert 0 <= result.usage.cost_usd < 1
        assert all(isinstance(call.arguments_json, str) for call in result.tool_calls)
        return "a result"

    seen = {outcome(lambda: body) for body in strangers(WHOLE[mode])}  # noqa: B023
    assert seen == {"a result", "an error of the port"}
    seen = {outcome(lambda: folded(FOLDS[mode](), events)) for events in strangers(STREAMED[mode])}  # noqa: B023
    assert seen == {"a result", "an error of the port"}


# --- usage


@pytest.mark.parametrize(
    "usage",
    [
        {},
        {"prompt_tokens": None, "completion_tokens": None},
        {"prompt_tokens": -1, "completion_tokens": -1},
        {"prompt_tokens": "19", "completion_tokens": "10"},
        {"prompt_tokens": 10**40, "completion_tokens": 10**40},
    ],
)
def test_a_usage_that_tells_nothing_is_no_known_cost(usage: dict[str, Any]) -> None:
    prices = {"gpt-5": Price(prompt=1.0, completion=1.0)}
    with serving(http(200, completion(GOOD) | {"usage": usage})) as server:
        adapter = adapter_for("chat", server.url(""), prices=prices, fail_on_unknown_cost=True)
        with pytest.raises(ModelPermanentError) as caught:
            asked(adapter, ask("chat"))
    assert (caught.value.category, caught.value.usage) == ("unknown_cost", None)


@pytest.mark.parametrize(
    ("total", "completion_tokens"), [(629, 610), (29, 10), (5, 10), (None, 10), (-7, 10), ("9", 10)]
)
def test_what_is_thought_is_paid_for_also_where_only_the_total_tells_of_it(
    total: object, completion_tokens: int
) -> None:
    usage = {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": total}
    with serving(http(200, completion(GOOD) | {"usage": usage})) as server:
        result = asked(adapter_for("chat", server.url("")), ask("chat"))
    assert result.usage == ModelUsage(19, completion_tokens, 0.0)


NAMELESS: dict[str, dict[str, Any]] = {
    "chat": completion(None, tool_calls=[tool_call("", BERN)]),
    "responses": response(function_call("", BERN)),
    "messages": message(tool_use("", {"city": "Bern"})),
}
USED = {"chat": (19, 10), "responses": (36, 87), "messages": (20, 6)}


@pytest.mark.parametrize("mode", ["chat", "responses", "messages"])
def test_an_unreadable_answer_is_paid_for_beside_the_next_one(mode: str) -> None:
    good = {"chat": completion(GOOD), "responses": response(output_text(GOOD)), "messages": message(text_block(GOOD))}
    limits = Limits(timeout_seconds=15, max_retries=1, initial_backoff_seconds=0)
    sent, said = USED[mode]
    with serving(http(200, NAMELESS[mode]), http(200, good[mode])) as server:
        adapter = adapter_for(mode, server.url(""), limits=limits, prices=PRICING.prices)
        result = asked(adapter, ask(mode, tools=[WEATHER]))
    assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (2 * sent, 2 * said)
    assert result.usage.cost_usd > 0


@pytest.mark.parametrize("mode", ["chat", "responses", "messages"])
def test_unreadable_answers_are_paid_for_even_without_a_next_one(mode: str) -> None:
    limits = Limits(timeout_seconds=15, max_retries=2, initial_backoff_seconds=0)
    sent, said = USED[mode]
    with serving(http(200, NAMELESS[mode])) as server, pytest.raises(ModelError) as caught:
        asked(adapter_for(mode, server.url(""), limits=limits), ask(mode))
    assert caught.value.usage == ModelUsage(3 * sent, 3 * said, 0.0)


def test_a_response_that_failed_is_paid_for() -> None:
    failed = response(status="failed", error={"code": "invalid_prompt", "message": "no"})
    with serving(http(200, failed)) as server, pytest.raises(ModelPermanentError) as caught:
        asked(adapter_for("responses", server.url("")), ask("responses"))
    assert caught.value.usage == ModelUsage(36, 87, 0.0)


def test_more_cannot_be_cached_than_was_sent() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 10**9}}
    prices = {"gpt-5": Price(prompt=2.0, completion=1.0, cached=1.0)}
    with serving(http(200, completion(GOOD) | {"usage": usage})) as server:
        result = asked(adapter_for("chat", server.url(""), prices=prices), ask("chat"))
    assert result.usage == ModelUsage(10, 0, 10 / 1e6)


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    healthy: bool

    @field_validator("healthy", mode="before")
    @classmethod
    def known(cls, value: object) -> object:
        if isinstance(value, str):
            raise ValueError(f"`{value}` is not known")
        return value


@pytest.mark.parametrize("text", [json.dumps({"healthy": True, KEY: 1}), json.dumps({"healthy": KEY})])
def test_what_does_not_fit_is_told_without_the_key(text: str) -> None:
    with serving(http(200, completion(text))) as server, pytest.raises(ModelPermanentError) as caught:
        asked(adapter_for("chat", server.url("")), ask("chat", schema=Closed))
    assert KEY not in caught.value.message


# --- deep and large


DEEP: Any = {}
for _ in range(300):
    DEEP = {"a": DEEP}


def test_arguments_too_deep_to_be_sorted_are_left_to_the_validator() -> None:
    with serving(http(200, message(tool_use("weather", DEEP)))) as server:
        result = asked(adapter_for("messages", server.url("")), ask("messages", tools=[WEATHER]))
    assert json.loads(result.tool_calls[0].arguments_json) == DEEP


def test_an_output_that_is_no_object_may_be_too_deep() -> None:
    with serving(http(200, completion("[" * 100_000))) as server, pytest.raises(ModelPermanentError) as caught:
        asked(adapter_for("chat", server.url("")), ask("chat", schema=RootModel[list[int]]))
    assert caught.value.category == "invalid_output"


def test_a_million_problems_are_counted_and_not_listed() -> None:
    text = json.dumps({"value": ["x"] * 200_000})
    with serving(http(200, completion(text))) as server, pytest.raises(ModelPermanentError, match="200000 problems"):
        asked(adapter_for("chat", server.url("")), ask("chat", schema=RootModel[list[int]]))


def test_many_fragments_are_put_together_in_time_that_grows_with_them() -> None:
    """As many as fit into an answer; if each one looked at all that came before, this would not end."""
    told = Event("message", json.dumps({"choices": [{"delta": BLANK}]}).encode())
    fold = ChatFold(NO_SECRETS)
    for _ in range(20_000):
        fold.add(told)
    assert len(fold.answer()["choices"][0]["message"]["tool_calls"]) == 1
    added, said = (
        [{"type": f"response.{kind}", "output_index": n, "item": {"phase": "commentary"}} for n in range(20_000)]
        for kind in ("output_item.added", "output_text.delta")
    )
    remarks = ResponsesFold(NO_SECRETS)
    assert not any(remarks.add(Event("message", json.dumps(each).encode())) for each in [*added, *said])


class Unready(BaseModel):
    later: "NobodyDefinesThis"  # type: ignore[name-defined]  # noqa: F821


def test_a_schema_that_is_not_ready() -> None:
    with serving(http(200, completion(GOOD))) as server, pytest.raises(ModelPermanentError) as caught:
        asked(adapter_for("chat", server.url("")), ask("chat", schema=Unready))
    assert caught.value.category == "request"
