"""The messages of an agent's conversation."""

from collections.abc import Sequence

from pydantic import BaseModel

from gert.kernel.agent.ports.model import ToolCall
from gert.kernel.agent.steps.messages import ChatMessage, ToolCallMessage, ToolFunctionCall
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps

LONGEST_RESULT = 64_000
"""Characters of one tool result that the model sees; the ledger has the whole result."""

LONGEST_TURN = 256_000
"""Characters of all tool results of one turn that the model sees."""


def answer_text(output: BaseModel) -> str:
    """Return the text of an answer; empty if the model only called tools."""
    return output.model_dump_json() if output.model_fields_set else ""


def with_ids(calls: Sequence[ToolCall], turn: int) -> tuple[ToolCall, ...]:
    """Give each call an id of its own; a model may leave ids out, or use one twice."""
    given: set[str] = set()
    found: list[ToolCall] = []
    for place, call in enumerate(calls, 1):
        name = call.tool_call_id
        if not name or name in given:
            name = f"call_{turn}_{place}"
        given.add(name)
        found.append(ToolCall(call.tool_name, call.arguments_json, name))
    return tuple(found)


def calling(content: str, calls: Sequence[ToolCall]) -> ChatMessage:
    """Return the message in which a model calls tools."""
    called = [
        ToolCallMessage(
            id=call.tool_call_id or "", function=ToolFunctionCall(name=call.tool_name, arguments=call.arguments_json)
        )
        for call in calls
    ]
    return ChatMessage(role="assistant", content=content, tool_calls=called)


def answering(calls: Sequence[ToolCall], results: Sequence[str]) -> tuple[ChatMessage, ...]:
    """Return the messages that answer the tool calls of a turn."""
    most = min(LONGEST_RESULT, LONGEST_TURN // len(calls))
    return tuple(
        ChatMessage(role="tool", content=_cut(text, most), tool_call_id=call.tool_call_id, name=call.tool_name)
        for call, text in zip(calls, results, strict=True)
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… (cut: {len(text)} characters)"


def error_json(message: str) -> str:
    """Return the message to a model that its call failed or was refused."""
    return canonical_json_dumps({"error": message})


def rejection(draft: str, reasons: Sequence[str]) -> tuple[ChatMessage, ChatMessage]:
    """Return the messages that show a model its rejected draft and the reasons."""
    listed = "\n".join(f"- {reason}" for reason in reasons)
    request = f"The draft was not accepted:\n{listed}\nCorrect it and answer again."
    return ChatMessage(role="assistant", content=draft), ChatMessage(role="user", content=request)
