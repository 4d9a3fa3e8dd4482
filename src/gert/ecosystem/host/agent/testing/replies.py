"""The answers of a scripted model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, TypeAlias

from pydantic import BaseModel

from gert.ecosystem.host.agent.testing.trouble import Trouble
from gert.errors import InputError
from gert.kernel.agent.ports.model import ModelAPIModeUsed, ModelRequest, ModelUsage, ToolCall
from gert.kernel.foundation.arguments import checked
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps, canonicalize_json_object

Expectation: TypeAlias = str | Callable[[ModelRequest[Any]], bool]
"""What a request must match: text in the prompt or a message, or a function of the whole request."""

_NUMBERS = count(1)
NOTHING_USED: Final = ModelUsage(0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer.

    expect: what the request for this answer must match
    delay_seconds: how long the answer takes; a fake clock is advanced by it
    """

    output: Mapping[str, object] | BaseModel | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    usage: ModelUsage = NOTHING_USED
    expect: Expectation | None = None
    delay_seconds: float = 0.0
    trouble: Trouble | None = None
    api_mode_used: ModelAPIModeUsed = "chat"
    response_id: str | None = None
    response_output_items: tuple[dict[str, object], ...] = ()


Answer: TypeAlias = (
    Reply | Trouble | Mapping[str, object] | BaseModel | ToolCall | Sequence[ToolCall] | BaseException | None
)
"""Short forms of an answer: an output, tool calls, or a failure; None returns the defaults of the schema."""


@checked
def says(
    output: Mapping[str, object] | BaseModel | None = None,
    *,
    tool_calls: Sequence[ToolCall] = (),
    expect: Expectation | None = None,
    delay_seconds: float = 0.0,
    prompt_tokens: int = 0,
    completion_tokens: int = 0,
    cost_usd: float = 0.0,
) -> Reply:
    """Answer with an output, and optionally with tool calls."""
    usage = ModelUsage(prompt_tokens, completion_tokens, cost_usd)
    return Reply(output, tuple(tool_calls), usage, expect, delay_seconds)


@checked
def calls(tool_name: str, arguments: Mapping[str, object] | str = "{}", tool_call_id: str | None = None) -> ToolCall:
    """Answer with a tool call; without an id it gets a new one, as from a model."""
    text = canonicalize_json_object(arguments) if isinstance(arguments, str) else canonical_json_dumps(dict(arguments))
    return ToolCall(tool_name, text, f"call_{next(_NUMBERS)}" if tool_call_id is None else tool_call_id)


def as_reply(answer: Answer) -> Reply:
    """Convert the short form of an answer to a `Reply`."""
    if isinstance(answer, Reply):
        return answer
    if isinstance(answer, Trouble):
        return Reply(trouble=answer)
    if isinstance(answer, BaseException):
        return Reply(trouble=Trouble(error=answer))
    if isinstance(answer, ToolCall):
        return Reply(tool_calls=(answer,))
    if answer is None or isinstance(answer, BaseModel | Mapping):
        return Reply(output=answer)
    if isinstance(answer, list | tuple) and answer and all(isinstance(each, ToolCall) for each in answer):
        return Reply(tool_calls=tuple(answer))
    raise InputError(
        f"a scripted model cannot answer with a `{type(answer).__name__}`",
        hint="use an output, tool calls, an error, or the result of `says`, `fails` or `hangs`",
    )
