"""Anthropic's Messages API: requests, answers, and streamed answers put together.

An output is asked for in one of two ways: `format` holds the text of the answer to a schema, and `tool` offers a tool
that takes the output as its arguments and makes the model call that or another. The second takes any schema.
"""

import json
from typing import Any, Literal, TypeAlias

from gert.ecosystem.models.answers import (
    Answer,
    call_item,
    canonical_arguments,
    event_object,
    message_item,
    objects,
    required_name,
    text_of,
)
from gert.ecosystem.models.conversation import answered_call, messages_of, parameters_of
from gert.ecosystem.models.failures import malformed, of_event
from gert.ecosystem.models.prices import Tokens, count
from gert.ecosystem.models.schemas import output_format
from gert.ecosystem.models.sse import Event
from gert.errors import ModelPermanentError
from gert.kernel.agent.messages import ChatMessage
from gert.kernel.agent.ports.model import ModelRequest, OutputT, ToolCall
from gert.kernel.foundation.redaction import Redactor

PATH = "/v1/messages"
Way: TypeAlias = Literal["format", "tool"]
_STOPPED = {"max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "refusal"}


def answer_tool(request: ModelRequest[OutputT]) -> str:
    """The name of the tool that takes the output; no tool of the run has it."""
    name, taken = "give_answer", {tool.name for tool in request.allowed_tools}
    while name in taken:
        name += "_"
    return name


def body_of(request: ModelRequest[OutputT], way: Way, max_tokens: int) -> dict[str, Any]:
    """The body of a request."""
    asked = output_format(request.output_schema)
    system, messages = _conversation(request)
    body: dict[str, Any] = {"model": request.model, "max_tokens": max_tokens, "messages": messages}
    if system:
        body["system"] = system
    config: dict[str, Any] = {}
    tools = [
        {"name": tool.name, "description": tool.description, "input_schema": parameters_of(tool)}
        for tool in request.allowed_tools
    ]
    if way == "format":
        config["format"] = {"type": "json_schema", "schema": asked.schema}
    else:
        name = answer_tool(request)
        body["tool_choice"] = {"type": "any"} if tools else {"type": "tool", "name": name}
        tools.append({"name": name, "description": "Give the final answer.", "input_schema": asked.schema})
    if tools:
        body["tools"] = tools
    if request.model_options.reasoning_effort is not None:
        config["effort"] = request.model_options.reasoning_effort
    if config:
        body["output_config"] = config
    return body


def _conversation(request: ModelRequest[OutputT]) -> tuple[str, list[dict[str, Any]]]:
    """What stands above the conversation, and its turns: one role's messages in a row are one turn."""
    messages = messages_of(request)
    system = "\n\n".join(message.content for message in messages if message.role == "system" and message.content)
    turns: list[dict[str, Any]] = []
    for message in messages:
        blocks = [] if message.role == "system" else _blocks(message)
        role = "assistant" if message.role == "assistant" else "user"
        if blocks and turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    for turn in turns:
        # Results stand before everything else in their turn, or they are refused.
        turn["content"].sort(key=lambda block: block["type"] != "tool_result")
    if not turns:
        if not request.prompt.strip():
            raise ModelPermanentError("there is nothing to ask the model: only instructions", category="request")
        turns.append({"role": "user", "content": [{"type": "text", "text": request.prompt}]})
    return system, turns


def _blocks(message: ChatMessage) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": answered_call(message), "content": message.content}]
    # A text of nothing but white space is refused.
    said: list[dict[str, Any]] = [{"type": "text", "text": message.content}] if message.content.strip() else []
    calls = message.tool_calls or [] if message.role == "assistant" else []
    return said + [
        {"type": "tool_use", "id": call.id, "name": call.function.name, "input": _arguments(call.function.arguments)}
        for call in calls
    ]


def _arguments(text: str) -> dict[str, Any]:
    """A call's arguments as an object; what the model wrote wrongly is shown to it under a name of its own."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"arguments": text}


def answer_of(body: dict[str, Any], way: Way, answer_name: str) -> Answer:
    """Read an answer: the call of the answer's own tool is the text, other calls are tool calls."""
    if not isinstance(body.get("content"), list):
        raise malformed("the model's server answered without content")
    blocks = objects(body["content"])
    text = "".join(text_of(block.get("text")) for block in blocks if block.get("type") == "text")
    calls = [_call(block) for block in blocks if block.get("type") == "tool_use"]
    given = next((call for call in calls if way == "tool" and call.tool_name == answer_name), None)
    stop = text_of(body.get("stop_reason"))
    return Answer(
        text=text if given is None else given.arguments_json,
        tool_calls=tuple(call for call in calls if given is None or call.tool_name != answer_name),
        tokens=_tokens(body.get("usage")),
        items=tuple(_item(block) for block in blocks),
        response_id=text_of(body.get("id")) or None,
        model=text_of(body.get("model")) or None,
        stopped=_STOPPED.get(stop),
        refusal=text if stop == "refusal" else "",
    )


def _call(block: dict[str, Any]) -> ToolCall:
    name = required_name(block.get("name"))
    return ToolCall(name, canonical_arguments(block.get("input")), text_of(block.get("id")) or None)


def _item(block: dict[str, Any]) -> dict[str, Any]:
    """A block in the shape other vendors' items have; one without a counterpart stays as it is."""
    if block.get("type") == "text":
        return message_item(text_of(block.get("text")))
    return call_item(_call(block)) if block.get("type") == "tool_use" else block


def _tokens(usage: object) -> Tokens | None:
    if not isinstance(usage, dict):
        return None
    cached, kept = count(usage.get("cache_read_input_tokens")), count(usage.get("cache_creation_input_tokens"))
    return Tokens(count(usage.get("input_tokens")) + cached + kept, count(usage.get("output_tokens")), cached, kept)


class MessagesFold:
    """Puts a message together block by block; counts in its deltas are totals."""

    def __init__(self, redactor: Redactor, answer_name: str) -> None:
        self.done = False
        self._redactor = redactor
        self._answer_name = answer_name
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[int, list[str]] = {}

    def take(self, event: Event) -> str:
        """Take an event and give its text; kinds of events that are not known yet are passed over."""
        said = event_object(event)
        kind = said.get("type", event.name)
        if kind == "error":
            raise of_event(said, self._redactor)
        if kind == "message_start" and isinstance(said.get("message"), dict):
            self._message = dict(said["message"])
        elif kind == "content_block_start" and isinstance(said.get("content_block"), dict):
            self._blocks[count(said.get("index"))] = dict(said["content_block"])
        elif kind == "content_block_delta" and isinstance(said.get("delta"), dict):
            return self._take_delta(count(said.get("index")), said["delta"])
        elif kind == "message_delta":
            self._take_totals(said)
        elif kind == "message_stop":
            if not self._message:
                raise malformed("the model's answer ended without having begun")
            self.done = True
        return ""

    def _take_delta(self, index: int, delta: dict[str, Any]) -> str:
        block = self._blocks.get(index)
        if block is None:
            raise malformed("the model's server streamed a piece of nothing")
        if delta.get("type") == "text_delta":
            return self._add(index, text_of(delta.get("text")))
        if delta.get("type") == "input_json_delta":
            text = self._add(index, text_of(delta.get("partial_json")))
            return text if block.get("name") == self._answer_name else ""
        if delta.get("type") == "thinking_delta":
            self._add(index, text_of(delta.get("thinking")))
        elif delta.get("type") == "signature_delta":
            block["signature"] = text_of(delta.get("signature"))
        return ""

    def _add(self, index: int, text: str) -> str:
        self._pieces.setdefault(index, []).append(text)
        return text

    def _take_totals(self, said: dict[str, Any]) -> None:
        delta, usage = said.get("delta"), said.get("usage")
        if isinstance(delta, dict) and delta.get("stop_reason"):
            self._message["stop_reason"] = delta["stop_reason"]
        if isinstance(usage, dict):
            before = self._message.get("usage")
            known = {name: value for name, value in usage.items() if value is not None}
            self._message["usage"] = (before if isinstance(before, dict) else {}) | known

    def answer(self) -> dict[str, Any]:
        """The message as it would have come whole."""
        content = [self._whole(index, block) for index, block in sorted(self._blocks.items())]
        return {**self._message, "content": content}

    def _whole(self, index: int, block: dict[str, Any]) -> dict[str, Any]:
        pieces = "".join(self._pieces.get(index, []))
        if block.get("type") == "tool_use":
            # Left as text: arguments that are not JSON are not this reader's business.
            return {**block, "input": pieces or block.get("input") or {}}
        name = {"text": "text", "thinking": "thinking"}.get(str(block.get("type")))
        return block if name is None else {**block, name: text_of(block.get(name)) + pieces}
