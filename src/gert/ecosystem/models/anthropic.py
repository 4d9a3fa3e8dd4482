"""Anthropic's models, by the Messages API."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Literal, Self

from gert.ecosystem.models import anthropic_messages as messages
from gert.ecosystem.models.answers import Answer, result_of
from gert.ecosystem.models.conversation import needs_responses
from gert.ecosystem.models.keys import Key
from gert.ecosystem.models.limits import Limits
from gert.ecosystem.models.prices import Price, Pricing
from gert.ecosystem.models.schemas import output_format
from gert.ecosystem.models.wire import Wire
from gert.errors import InputError, ModelPermanentError
from gert.kernel.agent.ports.model import ModelRequest, ModelResult, OnToken, OutputT

BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"


class AnthropicAdapter:
    """A model port to Anthropic.

    There is no Responses API here: `api_mode="responses"` and what only that knows are refused, and results say
    `chat`. There is nothing like `verbosity` either; it is not sent.

    structured_output: `auto` holds the model to the schema where that has a strict form, and offers a tool that takes
        the output otherwise; `tool` is for models from before the former
    extra_body: more fields for every request, such as `thinking`; they never replace the adapter's own
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        limits: Limits | None = None,
        prices: Mapping[str, Price] | None = None,
        fail_on_unknown_cost: bool = False,
        structured_output: Literal["auto", "tool"] = "auto",
        max_output_tokens: int = 8192,
        extra_body: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        if max_output_tokens <= 0:
            raise InputError("a model must be allowed at least 1 output token")
        environ = os.environ if environ is None else environ
        self._key = Key(api_key if api_key is not None else environ.get("ANTHROPIC_API_KEY", ""))
        address = base_url or environ.get("ANTHROPIC_BASE_URL") or BASE_URL
        self._wire = Wire(address, self._key, limits or Limits(), sleep)
        self._pricing = Pricing(dict(prices or {}), fail_on_unknown_cost)
        self._structured = structured_output
        self._max_output_tokens = max_output_tokens
        self._extra = dict(extra_body or {})

    def __repr__(self) -> str:
        return f"AnthropicAdapter({self._wire.base_url})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._wire.close()

    async def complete(self, request: ModelRequest[OutputT]) -> ModelResult[OutputT]:
        """Ask a model and wait for all of its answer."""
        return await self._complete(request, None)

    async def complete_streaming(self, request: ModelRequest[OutputT], on_token: OnToken) -> ModelResult[OutputT]:
        """Ask a model, telling each piece of text as it arrives."""
        return await self._complete(request, on_token)

    async def _complete(self, request: ModelRequest[OutputT], on_token: OnToken | None) -> ModelResult[OutputT]:
        self._pricing.require(request.model)
        option = needs_responses(request.model_options)
        if option is not None or request.model_options.api_mode == "responses":
            wanted = "api_mode" if option is None else option
            raise ModelPermanentError(
                f"`{wanted}` asks for a Responses API, and Anthropic has none", category="unsupported"
            )
        way, name = self._way(request), messages.answer_tool(request)

        def read(said: dict[str, Any]) -> Answer:
            return messages.answer_of(said, way, name)

        redactor, headers = self._wire.redactor, self._headers()
        body = self._extra | messages.body_of(request, way, self._max_output_tokens)
        if on_token is None:
            answer = await self._wire.ask(messages.PATH, headers, body, read)
        else:
            answer = await self._wire.ask_streaming(
                messages.PATH,
                headers,
                body | {"stream": True},
                read,
                lambda: messages.MessagesFold(redactor, name),
                on_token,
            )
        return result_of(request, answer, "chat", self._pricing, redactor)

    def _way(self, request: ModelRequest[OutputT]) -> messages.Way:
        asked = output_format(request.output_schema)
        # A type that contains itself has a strict form with other vendors only.
        return "format" if self._structured == "auto" and asked.strict and not asked.recursive else "tool"

    def _headers(self) -> dict[str, str]:
        if not self._key:
            raise ModelPermanentError(
                "there is no API key for Anthropic",
                category="auth",
                hint="set ANTHROPIC_API_KEY, or pass `api_key`",
            )
        return {"x-api-key": self._key.reveal(), "anthropic-version": VERSION}
