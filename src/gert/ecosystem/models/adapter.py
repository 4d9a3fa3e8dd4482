"""What the vendor adapters share: key, base URL, limits, prices, and extra request fields."""

import asyncio
import os
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final, TypedDict

import msgspec

from gert.ecosystem.models.answers import Answer, masked, result_of, text_of
from gert.ecosystem.models.keys import Key
from gert.ecosystem.models.limits import Limits
from gert.ecosystem.models.price_table import max_cost_usd, with_overrides
from gert.ecosystem.models.prices import Price, Pricing, total_usage
from gert.ecosystem.models.text_stream import TokenStream
from gert.ecosystem.models.wire import Exchange, Wire
from gert.errors import InputError, ModelError, ModelPermanentError
from gert.kernel.agent.ports.model import ModelAPIModeUsed, ModelRequest, ModelResult, ModelUsage, OnToken, OutputT
from gert.kernel.foundation.closable import Closable
from gert.kernel.foundation.names import listing

# These fields change the shape of the answer: streamed, several choices, or in the background.
_OWN_FIELDS: Final = ("stream", "stream_options", "n", "background")


class Settings(TypedDict, total=False):
    """Settings of every adapter.

    prices: by model name, in place of those that gert ships; a model without a price costs 0, or is refused with
        `fail_on_unknown_cost`
    extra_body: extra fields of every request, such as `temperature`; they never replace the adapter's own
    """

    api_key: str | None
    limits: Limits | None
    prices: Mapping[str, Price] | None
    fail_on_unknown_cost: bool
    extra_body: Mapping[str, object] | None
    sleep: Callable[[float], Awaitable[object]]


class VendorSettings(Settings, total=False):
    """Settings of an adapter that reads its key and base URL from the environment if they are not passed."""

    base_url: str | None
    environ: Mapping[str, str] | None


class VendorAdapter(Closable):
    """A model port over HTTP.

    A missing key is an error only when a model is called: a replay needs none.
    """

    vendor: ClassVar[str]
    output_modes: ClassVar[tuple[str, ...]]
    default_url: ClassVar[str] = ""
    key_variable: ClassVar[str | None] = None
    url_variable: ClassVar[str | None] = None
    has_list_prices: ClassVar[bool] = True

    def __init__(
        self,
        *,
        structured_output: str,
        max_output_tokens: int | None,
        api_key: str | None = None,
        base_url: str | None = None,
        limits: Limits | None = None,
        prices: Mapping[str, Price] | None = None,
        fail_on_unknown_cost: bool = False,
        extra_body: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        if structured_output not in self.output_modes:
            known = listing(self.output_modes)
            raise InputError(f"expected `structured_output` to be one of {known}, found `{structured_output}`")
        if max_output_tokens is not None and max_output_tokens <= 0:
            raise InputError("`max_output_tokens` must be at least 1")
        self._extra = dict(extra_body or {})
        if own := [name for name in _OWN_FIELDS if name in self._extra]:
            raise InputError(f"`{own[0]}` is not allowed in `extra_body`: it changes the shape of the answer")
        environ = os.environ if environ is None else environ
        self._key = Key(api_key if api_key is not None else environ.get(self.key_variable or "", ""))
        address = base_url or environ.get(self.url_variable or "") or self.default_url
        self._secrets = self._key.answer_redactor()
        self._wire = Wire(address, self._key, limits or Limits(), sleep)
        priced = with_overrides(prices) if self.has_list_prices else dict(prices or {})
        self._pricing = Pricing(priced, fail_on_unknown_cost)
        self._max_output_tokens = max_output_tokens

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._wire.base_url})"

    async def close(self) -> None:
        """Close the connections; another call opens new ones."""
        await self._wire.close()

    def max_cost_usd(self, model: str, prompt_tokens: int) -> float | None:
        """Return the most a call may cost; None if the price of the model is unknown."""
        return max_cost_usd(self._pricing.prices, model, prompt_tokens, self._max_output_tokens)

    async def complete(self, request: ModelRequest[OutputT]) -> ModelResult[OutputT]:
        """Call a model and wait for its whole answer."""
        self._pricing.require(request.model)
        return await self._complete(request, None)

    async def complete_streaming(self, request: ModelRequest[OutputT], on_token: OnToken) -> ModelResult[OutputT]:
        """Call a model and stream the text of its answer."""
        self._pricing.require(request.model)
        return await self._complete(request, TokenStream(on_token, self._secrets))

    @abstractmethod
    async def _complete(self, request: ModelRequest[OutputT], stream: TokenStream | None) -> ModelResult[OutputT]:
        """Call the vendor's API."""

    async def _result(
        self,
        request: ModelRequest[OutputT],
        exchange: Exchange[Answer],
        mode: ModelAPIModeUsed,
        stream: TokenStream | None,
    ) -> ModelResult[OutputT]:
        if not self._key and self.key_variable is not None:
            raise ModelPermanentError(
                f"no API key for {self.vendor}",
                category="auth",
                hint=f"set {self.key_variable}, or pass `api_key`",
            )
        spent: list[ModelUsage | None] = []  # of unreadable answers that were retried

        def read(response: dict[str, Any]) -> Answer:
            try:
                return exchange.read(response)
            except ModelError:
                model = text_of(response.get("model")) or None
                spent.append(self._pricing.known_usage(request.model, model, exchange.tokens(response.get("usage"))))
                raise

        try:
            asked = msgspec.structs.replace(exchange, read=read)
            answer = await self._wire.post(asked, self._headers(), self._extra, stream)
            result = result_of(request, masked(answer, self._secrets), mode, self._pricing, self._wire.redactor)
        except ModelError as error:
            if any(spent):
                error.usage = total_usage(*spent, error.usage if isinstance(error.usage, ModelUsage) else None)
            raise
        return replace(result, usage=total_usage(*spent, result.usage) or result.usage)

    @abstractmethod
    def _headers(self) -> Mapping[str, str]:
        """Return the headers with the key."""
