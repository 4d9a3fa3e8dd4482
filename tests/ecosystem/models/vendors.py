"""Answers as the vendors write them, down to the fields nobody reads, and requests to be answered."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from pydantic import BaseModel
from tests.ecosystem.notify.servers import Answer, raw

from gert.ecosystem.models.anthropic.adapter import AnthropicAdapter
from gert.ecosystem.models.limits import Limits
from gert.ecosystem.models.openai.adapter import OpenAIAdapter
from gert.ecosystem.models.prices import Price
from gert.errors import ModelTimeoutError
from gert.kernel.agent.ports.model import ModelCallOptions, ModelRequest, ModelResult, ToolDefinition
from gert.kernel.agent.steps.messages import ChatMessage, ToolCallMessage, ToolFunctionCall

KEY = "sk-c4nary-0123456789abcdef"
QUICK = Limits(timeout_seconds=15, max_retries=0)
SLUGGISH = Limits(timeout_seconds=0.2, stream_seconds=1, max_retries=0)


def patience(kind: type[Exception]) -> Limits:
    """Little of it only where it is what is tested: a busy machine is slow, too."""
    return SLUGGISH if kind is ModelTimeoutError else QUICK


class Verdict(BaseModel):
    healthy: bool
    reason: str = "none"


class Defaults(BaseModel):
    note: str = "nothing yet"


GOOD = '{"healthy": true, "reason": "all green"}'
VERDICT = Verdict(healthy=True, reason="all green")
WEATHER = ToolDefinition(
    "weather",
    "Tells the weather.",
    '{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","default":1}},"required":["city"]}',
)


def request(
    schema: type[BaseModel] = Verdict,
    *,
    model: str = "gpt-5",
    prompt: str = "Is it healthy?",
    messages: Iterable[ChatMessage] = (),
    tools: Iterable[ToolDefinition] = (),
    **options: Any,
) -> ModelRequest[Any]:
    return ModelRequest("run-1", model, prompt, tuple(messages), schema, tuple(tools), ModelCallOptions(**options))


HISTORY = (
    ChatMessage(role="system", content="Be brief."),
    ChatMessage(role="user", content="Weather in Bern and Oslo?"),
    ChatMessage(
        role="assistant",
        content="",
        tool_calls=[
            ToolCallMessage(id="call_1", function=ToolFunctionCall(name="weather", arguments='{"city":"Bern"}')),
            ToolCallMessage(id="call_2", function=ToolFunctionCall(name="weather", arguments='{"city":')),
        ],
    ),
    ChatMessage(role="tool", content='{"c":21}', tool_call_id="call_1", name="weather"),
    ChatMessage(role="tool", content="bad arguments", tool_call_id="call_2", name="weather"),
    ChatMessage(role="user", content="And so?"),
)


def asked(
    adapter: Any, request: ModelRequest[Any], on_token: Callable[[str], Awaitable[None] | None] | None = None
) -> ModelResult[Any]:
    """Ask once, and close."""

    async def run() -> ModelResult[Any]:
        async with adapter:
            if on_token is None:
                return await adapter.complete(request)  # type: ignore[no-any-return]
            return await adapter.complete_streaming(request, on_token)  # type: ignore[no-any-return]

    return asyncio.run(run())


FREE = {name: Price(prompt=0, completion=0) for name in ("gpt-5", "claude-sonnet-4-5")}
"""Prices in place of those that gert ships: what is counted does not change with a list of prices."""


def adapter_for(mode: str, url: str, **more: Any) -> Any:
    """The adapter that speaks an API: `messages` is Anthropic's, `chat`, `responses` and `auto` are OpenAI's."""
    kind = AnthropicAdapter if mode == "messages" else OpenAIAdapter
    return kind(api_key=KEY, base_url=url, **{"limits": QUICK, "prices": FREE, **more})


def ask(mode: str, **more: Any) -> ModelRequest[Any]:
    """A request for that API."""
    wanted: dict[str, Any] = {"model": "claude-sonnet-4-5"} if mode == "messages" else {"api_mode": mode}
    return request(**wanted, **more)


def http(status: int, body: object, *headers: str, kind: str = "application/json") -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", *headers, f"Content-Length: {len(data)}"]
    return raw("\r\n".join([*lines, "Connection: close", "", ""]).encode() + data)


def event_bytes(*events: str | tuple[str, object], end: str = "\n") -> bytes:
    """Server-sent events, as they are before they are cut."""
    text = "".join(
        f"{each}{end}{end}" if isinstance(each, str) else f"event: {each[0]}{end}data: {json.dumps(each[1])}{end}{end}"
        for each in events
    )
    return text.encode()


def streamed(*events: str | tuple[str, object], cut: int | None = None, end: str = "\n") -> Answer:
    """Server-sent events in HTTP chunks of odd sizes; `cut` ends the connection after that many bytes."""
    data = event_bytes(*events, end=end)
    pieces = [data[at : at + 37] for at in range(0, len(data) if cut is None else cut, 37)]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n"
    head += b"Connection: close\r\n\r\n"  # the server hangs up, and a client that does not know might ask it again
    chunks = b"".join(f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in pieces)
    return raw(head + chunks + (b"" if cut is not None else b"0\r\n\r\n"))


# --- OpenAI Responses


def output_text(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [part]}


def output_refusal(text: str) -> dict[str, Any]:
    part = {"type": "refusal", "refusal": text}
    return {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [part]}


def function_call(name: str, arguments: str, call_id: str = "call_1") -> dict[str, Any]:
    return {
        "id": f"fc_{call_id}", "type": "function_call", "status": "completed", "call_id": call_id, "name": name,
        "arguments": arguments,
    }  # fmt: skip


REASONING: dict[str, Any] = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": None}


def response(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_1", "object": "response", "created_at": 1741476542, "status": "completed", "background": False,
        "error": None, "incomplete_details": None, "instructions": None, "max_output_tokens": None,
        "model": "gpt-5-2025-08-07", "output": list(output), "parallel_tool_calls": True,
        "previous_response_id": None, "reasoning": {"effort": "medium", "summary": None}, "store": True,
        "temperature": 1.0, "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_p": 1.0,
        "truncation": "disabled",
        "usage": {
            "input_tokens": 36, "input_tokens_details": {"cached_tokens": 6}, "output_tokens": 87,
            "output_tokens_details": {"reasoning_tokens": 64}, "total_tokens": 123,
        },
        "user": None, "metadata": {}, "something_new": {"nobody": "knows"},
        **more,
    }  # fmt: skip


def response_events(*pieces: str, last: tuple[str, dict[str, Any]] | None = None) -> list[tuple[str, object]]:
    """The events of a streamed text; `last` in place of the completed response."""
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    kind, whole = last or ("response.completed", response(output_text("".join(pieces))))
    said: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": response(status="in_progress", usage=None)}),
        ("response.in_progress", {"response": response(status="in_progress", usage=None)}),
        ("response.output_item.added", {"output_index": 0, "item": {"id": "msg_1", "type": "message", "content": []}}),
        ("response.content_part.added", {**place, "part": {"type": "output_text", "text": "", "annotations": []}}),
        *[("response.output_text.delta", {**place, "delta": piece, "logprobs": []}) for piece in pieces],
        ("response.output_text.done", {**place, "text": "".join(pieces)}),
        ("response.output_item.done", {"output_index": 0, "item": output_text("".join(pieces))}),
        ("response.something_new", {"x": 1}),
        (kind, {"response": whole}),
    ]
    return [(name, {"type": name, "sequence_number": n, **body}) for n, (name, body) in enumerate(said)]


# --- OpenAI chat completions


def tool_call(name: str, arguments: str, call_id: str = "call_1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def completion(content: str | None = None, *, finish: str = "stop", **message: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": content, "refusal": None, "annotations": [], **message}
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1741570283, "model": "gpt-5-2025-08-07",
        "choices": [{"index": 0, "message": said, "logprobs": None, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29,
            "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
        "service_tier": "default", "system_fingerprint": "fp_1", "something_new": [],
    }  # fmt: skip


def chunk(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> str:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5", "choices": choices}
    return f"data: {json.dumps(body | {'usage': None} | more)}"


def chunks(*pieces: str, finish: str = "stop") -> list[str]:
    usage = {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29}
    return [
        ": a comment, to keep the connection",
        chunk({"role": "assistant", "content": "", "refusal": None}),
        *[chunk({"content": piece}) for piece in pieces],
        chunk({}, finish),
        chunk(None, usage=usage),
        "data: [DONE]",
    ]


def openai_error(message: str, kind: str = "invalid_request_error", code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


# --- Anthropic messages


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "citations": None}


def tool_use(name: str, arguments: dict[str, Any], call_id: str = "toolu_1") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def message(*content: dict[str, Any], stop: str | None = "end_turn", **more: Any) -> dict[str, Any]:
    return {
        "id": "msg_01", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5-20250929",
        "content": list(content), "stop_reason": stop, "stop_sequence": None,
        "usage": {
            "input_tokens": 12, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 5, "output_tokens": 6,
            "service_tier": "standard",
        },
        "container": None,
        **more,
    }  # fmt: skip


def message_events(
    blocks: Iterable[tuple[dict[str, Any], Iterable[dict[str, Any]]]], stop: str = "end_turn"
) -> list[tuple[str, object]]:
    """The events of a streamed message: each block as it starts, and its deltas."""
    said: list[tuple[str, dict[str, Any]]] = [("message_start", {"message": message(stop=None)}), ("ping", {})]
    for index, (block, deltas) in enumerate(blocks):
        said.append(("content_block_start", {"index": index, "content_block": block}))
        said += [("content_block_delta", {"index": index, "delta": delta}) for delta in deltas]
        said.append(("content_block_stop", {"index": index}))
    delta = {"stop_reason": stop, "stop_sequence": None}
    said += [("message_delta", {"delta": delta, "usage": {"output_tokens": 15}}), ("message_stop", {})]
    return [(name, {"type": name, **body}) for name, body in said]


def anthropic_error(kind: str, text: str, **more: Any) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": text, **more}, "request_id": "req_1"}
