"""Anthropic's models, by the Messages API."""

from collections.abc import Mapping
from typing import Literal, Unpack

from gert.ecosystem.models.adapter import VendorAdapter, VendorSettings
from gert.ecosystem.models.anthropic import messages
from gert.ecosystem.models.anthropic.fold import MessagesFold
from gert.ecosystem.models.conversation import needs_responses
from gert.ecosystem.models.schemas import output_format
from gert.ecosystem.models.text_stream import Listener
from gert.ecosystem.models.wire import Exchange
from gert.errors import ModelPermanentError
from gert.kernel.agent.ports.model import ModelRequest, ModelResult, OutputT

VERSION = "2023-06-01"


class AnthropicAdapter(VendorAdapter):
    """A model port to Anthropic.

    There is no Responses API here: `api_mode="responses"` and what only that knows are refused, and results say
    `chat`. There is nothing like `verbosity` either; it is not sent.

    structured_output: `auto` holds the model to the schema where that has a strict form, and offers a tool that takes
        the output otherwise; `tool` is for models from before the former
    """

    vendor = "Anthropic"
    ways = ("auto", "tool")
    default_url = "https://api.anthropic.com"
    key_variable = "ANTHROPIC_API_KEY"
    url_variable = "ANTHROPIC_BASE_URL"

    def __init__(
        self,
        *,
        structured_output: Literal["auto", "tool"] = "auto",
        max_output_tokens: int = 8192,
        **settings: Unpack[VendorSettings],
    ) -> None:
        super().__init__(structured_output=structured_output, max_output_tokens=max_output_tokens, **settings)
        self._structured = structured_output
        self._max_tokens = max_output_tokens  # which the Messages API cannot do without

    async def _complete(self, request: ModelRequest[OutputT], listener: Listener | None) -> ModelResult[OutputT]:
        option = needs_responses(request.model_options)
        if option is not None or request.model_options.api_mode == "responses":
            wanted = "api_mode" if option is None else option
            raise ModelPermanentError(
                f"`{wanted}` asks for a Responses API, and Anthropic has none", category="unsupported"
            )
        redactor, way, name = self._wire.redactor, self._way(request), messages.answer_tool(request)
        exchange = Exchange(
            path=messages.PATH,
            body=messages.body_of(request, way, self._max_tokens),
            read=lambda said: messages.answer_of(said, redactor, way, name),
            tokens=messages.tokens_in,
            fold=lambda: MessagesFold(redactor, name),
        )
        return await self._result(request, exchange, "chat", listener)

    def _way(self, request: ModelRequest[OutputT]) -> messages.Way:
        asked = output_format(request.output_schema)
        # A type that contains itself has a strict form with other vendors only.
        return "format" if self._structured == "auto" and asked.strict and not asked.recursive else "tool"

    def _headers(self) -> Mapping[str, str]:
        return {"x-api-key": self._key.reveal(), "anthropic-version": VERSION}
