"""OpenAI's models, through the Responses API or chat completions."""

from collections.abc import Mapping
from typing import ClassVar, Unpack, get_args

from gert.ecosystem.models.adapter import VendorAdapter, VendorSettings
from gert.ecosystem.models.answers import Answer
from gert.ecosystem.models.conversation import StructuredOutput
from gert.ecosystem.models.openai import chat, responses
from gert.ecosystem.models.openai.api_choice import ApiChoice
from gert.ecosystem.models.openai.chat_fold import ChatFold
from gert.ecosystem.models.text_stream import TokenStream
from gert.ecosystem.models.wire import Exchange
from gert.kernel.agent.ports.model import ModelAPIModeUsed, ModelRequest, ModelResult, OutputT


class OpenAIAdapter(VendorAdapter):
    """A model port to OpenAI.

    With `api_mode="auto"`, a model without the Responses API is called through chat completions; the adapter remembers
    which models those are.

    structured_output: `schema` makes the server enforce the output's schema; `json` and `text` are for servers that
        cannot
    """

    vendor = "OpenAI"
    output_modes = get_args(StructuredOutput)
    default_url = "https://api.openai.com/v1"
    key_variable: ClassVar[str | None] = "OPENAI_API_KEY"
    url_variable: ClassVar[str | None] = "OPENAI_BASE_URL"
    _chat_limit: ClassVar[str] = "max_completion_tokens"

    def __init__(
        self,
        *,
        structured_output: StructuredOutput = "schema",
        max_output_tokens: int | None = None,
        **settings: Unpack[VendorSettings],
    ) -> None:
        super().__init__(structured_output=structured_output, max_output_tokens=max_output_tokens, **settings)
        self._structured: StructuredOutput = structured_output
        self._api = ApiChoice()

    async def _complete(self, request: ModelRequest[OutputT], stream: TokenStream | None) -> ModelResult[OutputT]:
        async def by(mode: ModelAPIModeUsed) -> ModelResult[OutputT]:
            exchange = self._chat(request) if mode == "chat" else self._responses(request)
            return await self._result(request, exchange, mode, stream)

        return await self._api.call(request, by, may_fall_back=lambda: stream is None or not stream.started)

    def _responses(self, request: ModelRequest[OutputT]) -> Exchange[Answer]:
        redactor, body = self._wire.redactor, responses.body_of(request, self._structured)
        if self._max_output_tokens is not None:
            body["max_output_tokens"] = self._max_output_tokens
        return Exchange(
            path=responses.PATH,
            body=body,
            read=lambda body: responses.answer_of(body, redactor),
            tokens=responses.tokens_in,
            fold=lambda: responses.ResponsesFold(redactor),
        )

    def _chat(self, request: ModelRequest[OutputT]) -> Exchange[Answer]:
        redactor, body = self._wire.redactor, chat.body_of(request, self._structured)
        if self._max_output_tokens is not None:
            body[self._chat_limit] = self._max_output_tokens
        return Exchange(
            path=chat.PATH,
            body=body,
            read=lambda body: chat.answer_of(body, redactor),
            tokens=chat.tokens_in,
            fold=lambda: ChatFold(redactor),
            streamed={"stream_options": {"include_usage": True}},
        )

    def _headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self._key.reveal()}"} if self._key else {}
