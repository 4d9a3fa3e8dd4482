"""The port to models: requests, results, and the protocols an adapter implements."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from pydantic import BaseModel

from gert.kernel.agent.steps.messages import ChatMessage

ModelAPIMode: TypeAlias = Literal["auto", "responses", "chat"]
ModelAPIModeUsed: TypeAlias = Literal["responses", "chat"]
ReasoningEffort: TypeAlias = Literal["low", "medium", "high", "xhigh"]
VerbosityLevel: TypeAlias = Literal["low", "medium", "high"]

OutputT = TypeVar("OutputT", bound=BaseModel)

MaxCost: TypeAlias = Callable[[str, int], float | None]
"""The most a call of a model with so many prompt tokens may cost; None if unknown."""

OnToken: TypeAlias = Callable[[str], Awaitable[None] | None]
"""Called with each piece of the answer's text as it arrives."""


@dataclass(frozen=True, slots=True)
class ModelCallOptions:
    """How to call a model; all of it is part of a request's identity.

    api_mode: `auto` uses the Responses API if the vendor has it, and chat completions otherwise
    responses_input_items: input items of the Responses API, sent in place of the messages
    """

    api_mode: ModelAPIMode = "auto"
    reasoning_effort: ReasoningEffort | None = None
    verbosity: VerbosityLevel | None = None
    previous_response_id: str | None = None
    responses_input_items: tuple[dict[str, object], ...] | None = None


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as it is described to a model, with the identity of its version."""

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
    """A tool call of a model.

    arguments_json: a JSON object, sorted and compact; text that is not a JSON object is kept unchanged
    """

    tool_name: str
    arguments_json: str
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """The tokens a call used, and their cost (0.0 if the price is unknown)."""

    prompt_tokens: int
    completion_tokens: int
    cost_usd: float


# The two below have no slots: a generic, frozen dataclass with slots cannot be created as `ModelRequest[X](…)`.
@dataclass(frozen=True)
class ModelRequest(Generic[OutputT]):
    """One request to a model. If it has messages, they are sent, and the prompt only names the step."""

    run_id: str
    model: str
    prompt: str
    messages: Sequence[ChatMessage]
    output_schema: type[OutputT]
    allowed_tools: Sequence[ToolDefinition]
    model_options: ModelCallOptions = field(default_factory=ModelCallOptions)


@dataclass(frozen=True)
class ModelResult(Generic[OutputT]):
    """The answer of a model.

    output: always an instance of the requested schema. An answer that calls tools often has no output yet: then it
        holds the schema's defaults, or, where a field has none, it is an instance without the required fields. Read
        `tool_calls` first: with tool calls, `output` is the answer only if `raw_output` is not empty.
    raw_output: the text `output` was read from; empty if the model returned none
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
    """Calls models.

    It raises `ModelTimeoutError`, `ModelTransientError` or `ModelPermanentError`. An answer that neither calls tools
    nor fits the output schema is a permanent error, never a result.
    """

    async def complete(self, request: ModelRequest[OutputT]) -> ModelResult[OutputT]:
        """Call a model and wait for its whole answer."""


@runtime_checkable
class StreamingModelPort(Protocol):
    """A model port that also streams the answer's text.

    The pieces are for display; the result is the same as that of `complete`. An attempt that fails after it streamed a
    piece is not retried: a piece is never taken back.
    """

    async def complete(self, request: ModelRequest[OutputT]) -> ModelResult[OutputT]:
        """Call a model and wait for its whole answer."""

    async def complete_streaming(self, request: ModelRequest[OutputT], on_token: OnToken) -> ModelResult[OutputT]:
        """Call a model and pass each piece of text to `on_token`; an exception it raises ends the call."""


@runtime_checkable
class PricedModelPort(Protocol):
    """A model port that knows what its calls may cost."""

    async def complete(self, request: ModelRequest[OutputT]) -> ModelResult[OutputT]:
        """Call a model and wait for its whole answer."""

    def max_cost_usd(self, model: str, prompt_tokens: int) -> float | None:
        """Return the most a call may cost: its prompt, and an answer as long as it may be; None if unknown."""


class SupportsModelDump(Protocol):
    """A vendor's object that converts itself to plain data."""

    def model_dump(self) -> dict[str, object]:
        """Return it as plain data."""


class SupportsModelDumpJSON(Protocol):
    """A vendor's object that converts itself to JSON text."""

    def model_dump_json(self) -> str:
        """Return it as JSON text."""


class LiteLLMCompletionFn(Protocol):
    """A function with the signature of `litellm.acompletion`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the chat completions API."""


class LiteLLMResponsesFn(Protocol):
    """A function with the signature of `litellm.aresponses`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the Responses API."""
