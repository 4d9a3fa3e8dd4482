"""OpenAI's models, by the Responses API where it is there and by chat completions where it is not."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self

from gert.ecosystem.models import openai_chat as chat
from gert.ecosystem.models import openai_responses as responses
from gert.ecosystem.models.answers import Answer, result_of
from gert.ecosystem.models.conversation import StructuredOutput, needs_responses
from gert.ecosystem.models.keys import Key
from gert.ecosystem.models.limits import Limits
from gert.ecosystem.models.prices import Price, Pricing
from gert.ecosystem.models.wire import Wire
from gert.errors import ModelPermanentError
from gert.kernel.agent.ports.model import ModelRequest, ModelResult, OnToken, OutputT

BASE_URL = "https://api.openai.com/v1"
_MOST_REMEMBERED = 1000


class OpenAIAdapter:
    """A model port to OpenAI.

    With `api_mode="auto"`, a model for which there is no Responses API is asked by chat completions, and that is
    remembered for as long as the adapter lives. A key is only missed when a model is asked: a run that replays needs
    none.

    structured_output: `schema` holds the model to the output's schema; `json` and `text` are for servers that cannot
    extra_body: more fields for every request, such as `temperature`; they never replace the adapter's own
    """

    vendor = "OpenAI"
    key_variable: str | None = "OPENAI_API_KEY"
    _chat_limit = "max_completion_tokens"

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        limits: Limits | None = None,
        prices: Mapping[str, Price] | None = None,
        fail_on_unknown_cost: bool = False,
        structured_output: StructuredOutput = "schema",
        max_output_tokens: int | None = None,
        extra_body: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        variable = self.key_variable
        environ = os.environ if environ is None else environ
        self._key = Key(api_key if api_key is not None else environ.get(variable, "") if variable else "")
        self._wire = Wire(base_url or environ.get("OPENAI_BASE_URL") or BASE_URL, self._key, limits or Limits(), sleep)
        self._pricing = Pricing(dict(prices or {}), fail_on_unknown_cost)
        self._structured: StructuredOutput = structured_output
        self._max_output_tokens = max_output_tokens
        self._extra = dict(extra_body or {})
        self._only_chat: dict[tuple[str, str], None] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._wire.base_url})"

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
        mode = request.model_options.api_mode
        option = needs_responses(request.model_options)
        if mode == "chat" and option is not None:
            raise ModelPermanentError(
                f"`{option}` needs the Responses API, and `chat` was asked for", category="request"
            )
        here = (self._wire.base_url, request.model)
        if mode == "chat" or (mode == "auto" and option is None and here in self._only_chat):
            return await self._by_chat(request, on_token)
        try:
            return await self._by_responses(request, on_token)
        except ModelPermanentError as failure:
            if mode == "responses" or option is not None or failure.category not in ("unsupported", "not_found"):
                raise
        result = await self._by_chat(request, on_token)
        # Only now is it known that it was the API that was missing, and not the model.
        if len(self._only_chat) < _MOST_REMEMBERED:
            self._only_chat[here] = None
        return result

    async def _by_responses(self, request: ModelRequest[OutputT], on_token: OnToken | None) -> ModelResult[OutputT]:
        body = responses.body_of(request, request.model, self._structured)
        if self._max_output_tokens is not None:
            body["max_output_tokens"] = self._max_output_tokens

        def read(said: dict[str, Any]) -> Answer:
            return responses.answer_of(said, redactor)

        redactor, headers, body = self._wire.redactor, self._headers(), self._extra | body
        if on_token is None:
            answer = await self._wire.ask(responses.PATH, headers, body, read)
        else:
            answer = await self._wire.ask_streaming(
                responses.PATH,
                headers,
                body | {"stream": True},
                read,
                lambda: responses.ResponsesFold(redactor),
                on_token,
            )
        return result_of(request, answer, "responses", self._pricing, redactor)

    async def _by_chat(self, request: ModelRequest[OutputT], on_token: OnToken | None) -> ModelResult[OutputT]:
        body = chat.body_of(request, request.model, self._structured)
        if self._max_output_tokens is not None:
            body[self._chat_limit] = self._max_output_tokens
        redactor, headers, body = self._wire.redactor, self._headers(), self._extra | body
        if on_token is None:
            answer = await self._wire.ask(chat.PATH, headers, body, chat.answer_of)
        else:
            answer = await self._wire.ask_streaming(
                chat.PATH,
                headers,
                body | {"stream": True, "stream_options": {"include_usage": True}},
                chat.answer_of,
                lambda: chat.ChatFold(redactor),
                on_token,
            )
        return result_of(request, answer, "chat", self._pricing, redactor)

    def _headers(self) -> dict[str, Any]:
        if self._key:
            return {"Authorization": f"Bearer {self._key.reveal()}"}
        if self.key_variable is None:
            return {}
        raise ModelPermanentError(
            f"there is no API key for {self.vendor}",
            category="auth",
            hint=f"set {self.key_variable}, or pass `api_key`",
        )
