"""A server that repeats the key it was given: nobody is told, and nothing of it is recorded."""

import json
from typing import Any

import pytest
from pydantic import RootModel
from tests.ecosystem.models.vendors import (
    KEY,
    WEATHER,
    Verdict,
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
    streamed,
    text_block,
    tool_call,
    tool_use,
)
from tests.ecosystem.notify.servers import Answer, serving

from gert.ecosystem.models.limits import Limits

ECHO = json.dumps({"healthy": True, "reason": f"got Bearer {KEY}!"})
MIDDLE = ECHO.index(KEY) + 9
PIECES = (ECHO[:MIDDLE], ECHO[MIDDLE:])
ARGUMENTS = json.dumps({"city": KEY})
DELTAS = [{"type": "text_delta", "text": piece} for piece in PIECES]

WHOLE: dict[str, Answer] = {
    "chat": http(200, completion(ECHO, tool_calls=[tool_call("weather", ARGUMENTS)]) | {"id": KEY}),
    "responses": http(200, response(output_text(ECHO), function_call("weather", ARGUMENTS), id=KEY)),
    "messages": http(200, message(text_block(ECHO), tool_use("weather", {"city": KEY}), id=KEY)),
}
IN_PIECES: dict[str, Answer] = {
    "chat": streamed(*chunks(*PIECES)),
    "responses": streamed(*response_events(*PIECES)),
    "messages": streamed(*message_events([({"type": "text", "text": ""}, DELTAS)])),
}


@pytest.mark.parametrize("mode", ["chat", "responses", "messages"])
def test_an_answer_that_repeats_the_key(mode: str) -> None:
    with serving(WHOLE[mode]) as server:
        result = asked(adapter_for(mode, server.url("")), ask(mode, tools=[WEATHER]))
    assert result.output == Verdict(healthy=True, reason="got Bearer [REDACTED]!")
    assert json.loads(result.tool_calls[0].arguments_json) == {"city": "[REDACTED]"}
    assert KEY not in repr(result)


@pytest.mark.parametrize("mode", ["chat", "responses", "messages"])
def test_a_stream_that_repeats_the_key_in_two_halves(mode: str) -> None:
    told: list[str] = []
    with serving(IN_PIECES[mode]) as server:
        result = asked(adapter_for(mode, server.url("")), ask(mode), told.append)
    assert result.output == Verdict(healthy=True, reason="got Bearer [REDACTED]!")
    assert "".join(told) == result.raw_output
    assert KEY not in repr(result)


def test_what_was_held_back_of_an_answer_that_broke_off_is_not_told_with_the_next() -> None:
    told: list[str] = []
    limits = Limits(timeout_seconds=15, max_retries=1, initial_backoff_seconds=0)
    half, whole = streamed(chunk({"content": "sk-c4"}), cut=200), streamed(*chunks("12"))
    with serving(half, whole) as server:
        adapter = adapter_for("chat", server.url(""), limits=limits)
        assert asked(adapter, ask("chat", schema=RootModel[int]), told.append).output.root == 12
        assert len(server.requests) == 2
    assert told == ["12"]


def test_an_answer_that_ends_like_the_beginning_of_the_key_is_told_to_its_end() -> None:
    told: list[str] = []
    text = json.dumps("sk-c4")[:-1]
    with serving(streamed(*chunks(text, '"'))) as server:
        result = asked(adapter_for("chat", server.url("")), ask("chat", schema=RootModel[str]), told.append)
    assert (result.output.root, "".join(told)) == ("sk-c4", '"sk-c4"')


@pytest.mark.parametrize("word", ["ollama", "EMPTY", "test", "healthy"])
def test_a_word_that_stands_for_no_key_is_no_secret(word: str) -> None:
    said: dict[str, Any] = {"healthy": True, "reason": f"the {word} server"}
    with serving(http(200, completion(json.dumps(said)))) as server:
        adapter = type(adapter_for("chat", server.url("")))(api_key=word, base_url=server.url(""))
        assert asked(adapter, ask("chat")).output == Verdict(**said)
