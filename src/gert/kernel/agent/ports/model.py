"""The port to models: what is asked, what comes back, and the protocols an adapter fulfils."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from pydantic import BaseModel

from gert.errors import ModelError, ModelPermanentError, ModelTimeoutError, ModelTransientError
from gert.kernel.agent.steps.messages import ChatMessage

__all__ = [
    "LiteLLMCompletionFn",
    "LiteLLMResponsesFn",
    "ModelAPIMode",
    "ModelAPIModeUsed",
    "ModelCallOptions",
    "ModelError",
    "ModelPermanentError",
    "ModelPort",
    "ModelRequest",
    "ModelResult",
    "ModelTimeoutError",
    "ModelTransientError",
    "ModelUsage",
    "OnToken",
    "OutputT",
    "ReasoningEffort",
    "StreamingModelPort",
    "SupportsModelDump",
    "SupportsModelDumpJSON",
    "ToolCall",
    "ToolDefinition",
    "VerbosityLevel",
]

ModelAPIMode: TypeAlias = Literal["auto", "responses", "chat"]
ModelAPIModeUsed: TypeAlias = Literal["responses", "chat"]
ReasoningEffort: TypeAlias = Literal["low", "medium", "high", "xhigh"]
VerbosityLevel: TypeAlias = Literal["low", "medium", "high"]

OutputT = TypeVar("OutputT", bound=BaseModel)

OnToken: TypeAlias = Callable[[str], Awaitable[None] | None]
"""Told each piece of the answer's text as it arrives."""


@dataclass(frozen=True, slots=True)
class ModelCallOptions:
    """How a model is to be called; all of it is part of a request's identity.

    api_mode: `auto` takes the Responses API where there is one, and chat completions otherwise
    responses_input_items: input items of the Responses API, sent in place of the messages
    """

    api_mode: ModelAPIMode = "auto"
    reasoning_effort: ReasoningEffort | None = None
    verbosity: VerbosityLevel | None = None
    previous_response_id: str | None = None
    responses_input_items: tuple[dict[str, object], ...] | None = None


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as a model is told of it, with what identifies its version."""

    name: str
    description: str
    arguments_schema_json: str
    tool_version: str = "1.0.0"
    schema_version: str = "1"
    schema_hash: str = ""
    risk_level: str = "medium"
    sandbox_profile: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call a model asks for.

    arguments_json: a JSON object, sorted and compact; where the model wrote something else, exactly that
    """

    tool_name: str
    arguments_json: str
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """What a call used, and what that costs where the price is known (otherwise 0.0)."""

    prompt_tokens: int
    completion_tokens: int
    cost_usd: float


# The two below have no slots: a generic, frozen dataclass with slots cannot be made as `ModelRequest[X](…)`.
@dataclass(frozen=True)
class ModelRequest(Generic[OutputT]):
    """One question to a model. Where there are messages they are sent, and the prompt is not; it names the step."""

    run_id: str
    model: str
    prompt: str
    messages: Sequence[ChatMessage]
    output_schema: type[OutputT]
    allowed_tools: Sequence[ToolDefinition]
    model_options: ModelCallOptions = field(default_factory=ModelCallOptions)


@dataclass(frozen=True)
class ModelResult(Generic[OutputT]):
    """What a model answered.

    output: always an instance of the schema that was asked for. A model that asks for tools has often nothing else
        to say yet: then it is the schema's own defaults, or, where a field has none, an instance with the required
        fields left out. Read `tool_calls` first: with tool calls, `output` is the answer only if `raw_output` is not
        empty.
    raw_output: the text `output` was read from; empty where the model gave none
    response_output_items: every item of the answer, as plain data
    """

    output: OutputT
    usage: ModelUsage
    tool_calls: tuple[ToolCall, ...] = ()
    raw_output: str = ""
    api_mode_used: ModelAPIModeUsed = "chat"
    response_id: str | None = None
    response_output_items: tuple[dict[str, object], ...] = ()


class ModelPort(Protocol):
    """Whoever answers questions to models.

    It raises `ModelTimeoutError`, `ModelTransientError` or `ModelPermanentError`. An answer that is neither tool
    calls nor an instance of the output schema is a permanent error, never a result.
    """

    async def complete(self, request: ModelRequest[OutputT]) -> ModelResult[OutputT]:
        """Ask a model and wait for all of its answer."""
        ...


@runtime_checkable
class StreamingModelPort(Protocol):
    """A model port that also tells an answer's text piece by piece, while it arrives.

    The pieces are for showing. The result is what counts, and is the same as that of `complete`. When an attempt
    broke after pieces were told, it is not tried again: nothing told is ever taken back.
    """

    async def complete(self, request: ModelRequest[OutputT]) -> ModelResult[OutputT]:
        """Ask a model and wait for all of its answer."""
        ...

    async def complete_streaming(self, request: ModelRequest[OutputT], on_token: OnToken) -> ModelResult[OutputT]:
        """Ask a model, telling each piece of text as it arrives; what `on_token` raises ends the call."""
        ...


class SupportsModelDump(Protocol):
    """A vendor's object that gives itself as plain data."""

    def model_dump(self) -> dict[str, object]:
        """Give it as plain data."""
        ...


class SupportsModelDumpJSON(Protocol):
    """A vendor's object that gives itself as JSON text."""

    def model_dump_json(self) -> str:
        """Give it as JSON text."""
        ...


class LiteLLMCompletionFn(Protocol):
    """A function with the signature of `litellm.acompletion`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Ask by chat completions."""
        ...


class LiteLLMResponsesFn(Protocol):
    """A function with the signature of `litellm.aresponses`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Ask by the Responses API."""
        ...
