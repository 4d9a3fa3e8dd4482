"""Anthropic's models, through the Messages API."""

from collections.abc import Mapping
from typing import Literal, Unpack

from gert.ecosystem.models.adapter import VendorAdapter, VendorSettings
from gert.ecosystem.models.anthropic import messages
from gert.ecosystem.models.anthropic.fold import MessagesFold
from gert.ecosystem.models.conversation import needs_responses
from gert.ecosystem.models.schemas import output_format
from gert.ecosystem.models.text_stream import TokenStream
from gert.ecosystem.models.wire import Exchange
from gert.errors import ModelPermanentError
from gert.kernel.agent.ports.model import ModelRequest, ModelResult, OutputT

VERSION = "2023-06-01"


class AnthropicAdapter(VendorAdapter):
    """A model port to Anthropic.

    Anthropic has no Responses API: `api_mode="responses"` and the options that require it are refused, and results
    have the mode `chat`. It has no `verbosity` either, which is not sent.

    structured_output: `auto` makes the server enforce the schema if it has a strict form, and otherwise offers a tool
        whose arguments are the output; `tool` is for older models
    """

    vendor = "Anthropic"
    output_modes = ("auto", "tool")
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
        self._max_tokens = max_output_tokens  # required by the Messages API

    async def _complete(self, request: ModelRequest[OutputT], stream: TokenStream | None) -> ModelResult[OutputT]:
        option = needs_responses(request.model_options)
        if option is not None or request.model_options.api_mode == "responses":
            wanted = "api_mode" if option is None else option
            raise ModelPermanentError(
                f"`{wanted}` requires the Responses API, which Anthropic does not have", category="unsupported"
            )
        redactor, mode, name = self._wire.redactor, self._mode(request), messages.answer_tool(request)
        exchange = Exchange(
            path=messages.PATH,
            body=messages.body_of(request, mode, self._max_tokens),
            read=lambda body: messages.answer_of(body, redactor, mode, name),
            tokens=messages.tokens_in,
            fold=lambda: MessagesFold(redactor, name),
        )
        return await self._result(request, exchange, "chat", stream)

    def _mode(self, request: ModelRequest[OutputT]) -> messages.OutputMode:
        asked = output_format(request.output_schema)
        # Anthropic does not enforce recursive schemas.
        return "format" if self._structured == "auto" and asked.strict and not asked.recursive else "tool"

    def _headers(self) -> Mapping[str, str]:
        return {"x-api-key": self._key.reveal(), "anthropic-version": VERSION}
