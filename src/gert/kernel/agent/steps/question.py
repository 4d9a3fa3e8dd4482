"""What replay compares of a model request, and how two requests differ."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from gert.errors import InputError
from gert.kernel.agent.ports.model import ModelCallOptions, ToolDefinition
from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.events.agent import ModelRequested
from gert.kernel.events.agent.parts import FunctionOf, Items, Message, MessageCall, ToolSignature
from gert.kernel.events.payload import said
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps

_ENCODER = msgspec.json.Encoder(order="deterministic")

COMPARED = (
    "prompt",
    "messages",
    "api_mode",
    "reasoning_effort",
    "verbosity",
    "previous_response_id",
    "responses_input_items",
)
"""Fields that may drift while model, step key and tools stay the same."""


class Question(msgspec.Struct, frozen=True):
    """The parts of a model request that must match for its recorded answer to be replayed."""

    model: str
    prompt: str
    messages: list[Message]
    api_mode: str
    reasoning_effort: str | None
    verbosity: str | None
    previous_response_id: str | None
    responses_input_items: Items | None
    tools: tuple[ToolSignature, ...]
    step_key: str | None

    @property
    def hash(self) -> str:
        """Return the hash of all fields; InputError if they have no JSON form."""
        try:
            return sha256_hex(_ENCODER.encode(self))
        except (TypeError, ValueError) as error:
            raise InputError(f"the model input has no JSON form: {said(error)}") from None

    @property
    def tools_hash(self) -> str:
        """Return the hash of the tools' signatures."""
        return tools_hash(self.tools)


def question_of(
    model: str,
    prompt: str,
    messages: Sequence[ChatMessage],
    options: ModelCallOptions,
    tools: Sequence[ToolDefinition],
    step_key: str | None,
) -> Question:
    """Build the question of a step."""
    return Question(
        model,
        prompt,
        [message_of(message) for message in messages],
        options.api_mode,
        options.reasoning_effort,
        options.verbosity,
        options.previous_response_id,
        _plain_items(options.responses_input_items),
        tuple(sorted(signature_of(tool) for tool in tools)),
        step_key,
    )


def recorded_question(request: ModelRequested) -> Question:
    """Rebuild the question of a recorded request."""
    return Question(
        request.model,
        request.prompt,
        request.messages,
        request.api_mode,
        request.reasoning_effort,
        request.verbosity,
        request.previous_response_id,
        request.responses_input_items,
        tuple(request.allowed_tool_signatures),
        request.step_key,
    )


def drift(then: Question, now: Question) -> tuple[str, ...]:
    """Return the names of the fields that differ, `model` first, then in the order of `COMPARED`."""
    model = () if then.model == now.model else ("model",)
    return (*model, *(name for name in COMPARED if getattr(then, name) != getattr(now, name)))


def changed_tools(then: Sequence[ToolSignature], now: Sequence[ToolSignature]) -> tuple[str, ...]:
    """Describe how the offered tools changed, one phrase per tool."""
    before, after = {tool.name: tool for tool in then}, {tool.name: tool for tool in now}
    gone = [f"`{name}` was removed" for name in sorted(before.keys() - after.keys())]
    new = [f"`{name}` was added" for name in sorted(after.keys() - before.keys())]
    other = [f"`{name}` changed" for name in sorted(before.keys() & after.keys()) if before[name] != after[name]]
    return (*gone, *new, *other)


def signature_of(tool: ToolDefinition) -> ToolSignature:
    """Return the signature of a tool."""
    return ToolSignature(tool.name, tool.tool_version, tool.schema_version, tool.schema_hash)


@lru_cache(maxsize=64)
def tools_hash(tools: tuple[ToolSignature, ...]) -> str:
    """Hash the signatures of tools."""
    return joined_hash("|".join(msgspec.structs.astuple(tool)) for tool in tools)


def joined_hash(signatures: Iterable[str]) -> str:
    """Hash sorted signatures joined by commas, as the contract defines."""
    return sha256_hex(",".join(sorted(signatures)).encode())


def message_of(message: ChatMessage) -> Message:
    """Convert a message to the form that is recorded."""
    calls = message.tool_calls
    return Message(
        message.role,
        message.content,
        message.tool_call_id,
        message.name,
        None
        if calls is None
        else [MessageCall(call.id, FunctionOf(call.function.name, call.function.arguments)) for call in calls],
    )


def _plain_items(items: Sequence[dict[str, object]] | None) -> Items | None:
    return None if items is None else plain_items(items)


def plain_items(items: Sequence[dict[str, object]]) -> Items:
    """Convert items to plain data; InputError if they have no JSON form."""
    try:
        found: Items = msgspec.json.decode(canonical_json_dumps(list(items)), type=Items)
    except msgspec.MsgspecError as error:
        raise InputError(f"expected every item to be an object: {error}") from None
    return found
