"""A model port for tests that returns a fixed answer at no cost."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from gert.ecosystem.models.text_stream import send_words
from gert.errors import InputError, ModelPermanentError
from gert.kernel.agent.ports.model import (
    ModelAPIModeUsed,
    ModelRequest,
    ModelResult,
    ModelUsage,
    OnToken,
    OutputT,
    ToolCall,
)
from gert.kernel.agent.steps.outputs import blank_output, output_json_of
from gert.kernel.foundation.arguments import checks_arguments


@checks_arguments
class MockModelPort:
    """A model port with one answer, or one computed from each request.

    Without an output it returns the schema's defaults, like a model that only calls tools.
    """

    def __init__(
        self,
        *,
        output: Mapping[str, object] | None = None,
        output_factory: Callable[[ModelRequest[BaseModel]], Mapping[str, object]] | None = None,
        usage: ModelUsage | None = None,
        tool_calls: tuple[ToolCall, ...] = (),
        api_mode_used: ModelAPIModeUsed = "chat",
        response_id: str | None = None,
        response_output_items: tuple[dict[str, object], ...] = (),
    ) -> None:
        if output is not None and output_factory is not None:
            raise InputError("expected either `output` or `output_factory`, found both")
        self._output = output
        self._output_factory = output_factory
        self._usage = usage or ModelUsage(prompt_tokens=0, completion_tokens=0, cost_usd=0.0)
        self._tool_calls = tool_calls
        self._api_mode_used: ModelAPIModeUsed = api_mode_used
        self._response_id = response_id
        self._response_output_items = response_output_items
        self.calls = 0

    def max_cost_usd(self, model: str, prompt_tokens: int) -> float:
        """Return what a call costs in advance: nothing. Its usage is counted when it has ended."""
        return 0.0

    async def complete(self, request: ModelRequest[OutputT]) -> ModelResult[OutputT]:
        """Return the answer."""
        self.calls += 1
        output, raw = self._answer(request)
        return ModelResult(
            output,
            self._usage,
            self._tool_calls,
            raw,
            self._api_mode_used,
            self._response_id,
            self._response_output_items,
        )

    async def complete_streaming(self, request: ModelRequest[OutputT], on_token: OnToken) -> ModelResult[OutputT]:
        """Return the answer and stream it word by word."""
        result = await self.complete(request)
        await send_words(on_token, result.raw_output)
        return result

    def _answer(self, request: ModelRequest[OutputT]) -> tuple[OutputT, str]:
        given: Mapping[str, Any] | None = self._output
        if self._output_factory is not None:
            given = self._output_factory(cast("ModelRequest[BaseModel]", request))
        try:
            if given is None:
                return (blank_output if self._tool_calls else _defaults)(request.output_schema), ""
            output = request.output_schema.model_validate(given)
        except ValidationError as error:
            raise ModelPermanentError(
                f"the mock model's answer is not a `{request.output_schema.__name__}`: {error.error_count()} problems",
                category="invalid_output",
            ) from error
        return output, output_json_of(output)


def _defaults(output_schema: type[OutputT]) -> OutputT:
    return output_schema()
