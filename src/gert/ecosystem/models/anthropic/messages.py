"""Anthropic's Messages API: requests and answers.

An output is requested in one of two modes: `format` makes the server enforce a schema on the text, and `tool` offers a
tool whose arguments are the output and requires a tool call. The second works with any schema.
"""

import json
from typing import Any, Literal, TypeAlias

from gert.ecosystem.models.answers import (
    Answer,
    call_item,
    canonical_arguments,
    message_item,
    objects,
    required_name,
    text_of,
)
from gert.ecosystem.models.conversation import call_id_of, messages_of, parameters_of
from gert.ecosystem.models.errors import malformed, of_event
from gert.ecosystem.models.prices import Tokens, count
from gert.ecosystem.models.schemas import output_format
from gert.errors import CanonicalError, ModelPermanentError
from gert.kernel.agent.ports.model import ModelRequest, OutputT, ToolCall
from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.foundation.canonical_v1 import canonicalize_json_object
from gert.kernel.foundation.redaction import Redactor

PATH = "/v1/messages"
OutputMode: TypeAlias = Literal["format", "tool"]
_STOPPED = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "pause_turn": "paused",
}


def answer_tool(request: ModelRequest[OutputT]) -> str:
    """Return a name for the tool that takes the output, different from every tool of the run."""
    name, taken = "give_answer", {tool.name for tool in request.allowed_tools}
    while name in taken:
        name += "_"
    return name


def body_of(request: ModelRequest[OutputT], mode: OutputMode, max_tokens: int) -> dict[str, Any]:
    """Build the body of a request."""
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
    if mode == "format":
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
    """Return the system prompt and the turns; consecutive messages of one role are one turn."""
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
        # The API requires tool results first in their turn.
        turn["content"].sort(key=lambda block: block["type"] != "tool_result")
    if not turns:
        if not request.prompt.strip():
            raise ModelPermanentError("the model request has only system messages", category="request")
        turns.append({"role": "user", "content": [{"type": "text", "text": request.prompt}]})
    return system, turns


def _blocks(message: ChatMessage) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": call_id_of(message), "content": message.content}]
    # The API refuses text that is only white space.
    blocks: list[dict[str, Any]] = [{"type": "text", "text": message.content}] if message.content.strip() else []
    calls = message.tool_calls or [] if message.role == "assistant" else []
    return blocks + [
        {"type": "tool_use", "id": call.id, "name": call.function.name, "input": _arguments(call.function.arguments)}
        for call in calls
    ]


def _arguments(text: str) -> dict[str, Any]:
    """Return a call's arguments as an object; invalid text is put under the key `arguments`.

    So is text that cannot be sent: otherwise one bad call would end the conversation.
    """
    try:
        value: dict[str, Any] = json.loads(canonicalize_json_object(text or "{}"))
    except CanonicalError:
        return {"arguments": text}
    return value


def answer_of(body: dict[str, Any], redactor: Redactor, mode: OutputMode, answer_name: str) -> Answer:
    """Read an answer: the call of the answer tool is the text, other calls are tool calls."""
    if body.get("error"):
        raise of_event(body, redactor)  # gateways send this with a status of success
    if not isinstance(body.get("content"), list):
        raise malformed("the model's server answered without content")
    blocks = objects(body["content"])
    text = "".join(text_of(block.get("text")) for block in blocks if block.get("type") == "text")
    calls = [_call(block) for block in blocks if block.get("type") == "tool_use"]
    given = next((call for call in calls if mode == "tool" and call.tool_name == answer_name), None)
    stop = text_of(body.get("stop_reason"))
    return Answer(
        text=text if given is None else given.arguments_json,
        tool_calls=tuple(call for call in calls if given is None or call.tool_name != answer_name),
        tokens=tokens_in(body.get("usage")),
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
    """Convert a block to an output item; a block without a counterpart stays unchanged."""
    if block.get("type") == "text":
        return message_item(text_of(block.get("text")))
    return call_item(_call(block)) if block.get("type") == "tool_use" else block


def tokens_in(usage: object) -> Tokens | None:
    """Return the tokens of a usage; None if it lacks one of the two counts."""
    if not isinstance(usage, dict):
        return None
    sent, received = count(usage.get("input_tokens")), count(usage.get("output_tokens"))
    if sent is None or received is None:
        return None
    cached, kept = (
        count(usage.get(f"cache_{what}_input_tokens")) or 0 for what in ("read", "creation")
    )  # not counted in `input_tokens`
    return Tokens(sent + cached + kept, received, cached, kept)
