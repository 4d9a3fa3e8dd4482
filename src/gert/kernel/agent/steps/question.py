"""What a model is asked, as far as replay compares it, and how two questions differ."""

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
"""What may drift while model, step key and tools stay."""


class Question(msgspec.Struct, frozen=True):
    """Everything a recorded answer must have been asked with to be replayed."""

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
        """One hash over all of it; InputError where it cannot be written down."""
        try:
            return sha256_hex(_ENCODER.encode(self))
        except (TypeError, ValueError) as error:
            raise InputError(f"what the model is asked cannot be written down: {said(error)}") from None

    @property
    def tools_hash(self) -> str:
        """The hash of the tools' signatures."""
        return tools_hash(self.tools)


def question_of(
    model: str,
    prompt: str,
    messages: Sequence[ChatMessage],
    options: ModelCallOptions,
    tools: Sequence[ToolDefinition],
    step_key: str | None,
) -> Question:
    """The question a step puts now."""
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


def recorded_question(said: ModelRequested) -> Question:
    """The question that was put then."""
    return Question(
        said.model,
        said.prompt,
        said.messages,
        said.api_mode,
        said.reasoning_effort,
        said.verbosity,
        said.previous_response_id,
        said.responses_input_items,
        tuple(said.allowed_tool_signatures),
        said.step_key,
    )


def drift(then: Question, now: Question) -> tuple[str, ...]:
    """The names of what differs, in the order of `COMPARED`; the model first, if it is another."""
    model = () if then.model == now.model else ("model",)
    return (*model, *(name for name in COMPARED if getattr(then, name) != getattr(now, name)))


def changed_tools(then: Sequence[ToolSignature], now: Sequence[ToolSignature]) -> tuple[str, ...]:
    """What became of the tools a model was offered, one phrase each."""
    before, after = {tool.name: tool for tool in then}, {tool.name: tool for tool in now}
    gone = [f"`{name}` is not offered any more" for name in sorted(before.keys() - after.keys())]
    new = [f"`{name}` is new" for name in sorted(after.keys() - before.keys())]
    other = [f"`{name}` has changed" for name in sorted(before.keys() & after.keys()) if before[name] != after[name]]
    return (*gone, *new, *other)


def signature_of(tool: ToolDefinition) -> ToolSignature:
    """What identifies a tool."""
    return ToolSignature(tool.name, tool.tool_version, tool.schema_version, tool.schema_hash)


@lru_cache(maxsize=64)
def tools_hash(tools: tuple[ToolSignature, ...]) -> str:
    """The hash of tools: of their signatures, not only of their names."""
    return joined_hash("|".join(msgspec.structs.astuple(tool)) for tool in tools)


def joined_hash(signatures: Iterable[str]) -> str:
    """The hash the contract defines: of the sorted signatures, joined by commas."""
    return sha256_hex(",".join(sorted(signatures)).encode())


def message_of(message: ChatMessage) -> Message:
    """A message as it is recorded."""
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
    """Items as plain data that is read back as it was written; InputError where JSON cannot hold them."""
    try:
        found: Items = msgspec.json.decode(canonical_json_dumps(list(items)), type=Items)
    except msgspec.MsgspecError as error:
        raise InputError(f"expected items to be objects: {error}") from None
    return found
