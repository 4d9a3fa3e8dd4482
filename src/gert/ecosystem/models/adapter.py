"""What the adapters to vendors share: a key, one address, limits, prices, and fields for every request."""

import asyncio
import os
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final, TypedDict

import msgspec

from gert.ecosystem.models.answers import Answer, masked, result_of, text_of
from gert.ecosystem.models.closable import Closing
from gert.ecosystem.models.keys import Key
from gert.ecosystem.models.limits import Limits
from gert.ecosystem.models.prices import Price, Pricing, together
from gert.ecosystem.models.text_stream import Listener
from gert.ecosystem.models.wire import Exchange, Wire
from gert.errors import InputError, ModelError, ModelPermanentError
from gert.kernel.agent.ports.model import ModelAPIModeUsed, ModelRequest, ModelResult, ModelUsage, OnToken, OutputT

# With these an answer would be another one than is read: in pieces, several at once, or later.
_OWN_FIELDS: Final = ("stream", "stream_options", "n", "background")


class Settings(TypedDict, total=False):
    """What every adapter takes.

    prices: by a model's name; a model without one costs nothing, or is refused with `fail_on_unknown_cost`
    extra_body: more fields for every request, such as `temperature`; they never replace the adapter's own
    """

    api_key: str | None
    limits: Limits | None
    prices: Mapping[str, Price] | None
    fail_on_unknown_cost: bool
    extra_body: Mapping[str, object] | None
    sleep: Callable[[float], Awaitable[object]]


class VendorSettings(Settings, total=False):
    """What an adapter takes that finds its key and its address in the environment where they are not given."""

    base_url: str | None
    environ: Mapping[str, str] | None


class VendorAdapter(Closing):
    """A model port over HTTP.

    A key is only missed when a model is asked: a run that replays needs none.
    """

    vendor: ClassVar[str]
    ways: ClassVar[tuple[str, ...]]
    default_url: ClassVar[str] = ""
    key_variable: ClassVar[str | None] = None
    url_variable: ClassVar[str | None] = None

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
        if structured_output not in self.ways:
            known = ", ".join(f"`{way}`" for way in self.ways)
            raise InputError(f"expected `structured_output` to be one of {known}, found `{structured_output}`")
        if max_output_tokens is not None and max_output_tokens <= 0:
            raise InputError("a model must be allowed at least 1 output token")
        self._extra = dict(extra_body or {})
        if own := [name for name in _OWN_FIELDS if name in self._extra]:
            raise InputError(f"`{own[0]}` is not for `extra_body`: it changes how an answer is read")
        environ = os.environ if environ is None else environ
        self._key = Key(api_key if api_key is not None else environ.get(self.key_variable or "", ""))
        address = base_url or environ.get(self.url_variable or "") or self.default_url
        self._secrets = self._key.answer_redactor()
        self._wire = Wire(address, self._key, limits or Limits(), sleep)
        self._pricing = Pricing(dict(prices or {}), fail_on_unknown_cost)
        self._max_output_tokens = max_output_tokens

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._wire.base_url})"

    async def close(self) -> None:
        """Close the connections; another question opens new ones."""
        await self._wire.close()

    async def complete(self, request: ModelRequest[OutputT]) -> ModelResult[OutputT]:
        """Ask a model and wait for all of its answer."""
        self._pricing.require(request.model)
        return await self._complete(request, None)

    async def complete_streaming(self, request: ModelRequest[OutputT], on_token: OnToken) -> ModelResult[OutputT]:
        """Ask a model, telling each piece of text as it arrives."""
        self._pricing.require(request.model)
        return await self._complete(request, Listener(on_token, self._secrets))

    @abstractmethod
    async def _complete(self, request: ModelRequest[OutputT], listener: Listener | None) -> ModelResult[OutputT]:
        """Ask in the vendor's words."""

    async def _result(
        self,
        request: ModelRequest[OutputT],
        exchange: Exchange[Answer],
        mode: ModelAPIModeUsed,
        listener: Listener | None,
    ) -> ModelResult[OutputT]:
        if not self._key and self.key_variable is not None:
            raise ModelPermanentError(
                f"there is no API key for {self.vendor}",
                category="auth",
                hint=f"set {self.key_variable}, or pass `api_key`",
            )
        spent: list[ModelUsage | None] = []  # on answers nobody could read, and which were asked for again

        def read(said: dict[str, Any]) -> Answer:
            try:
                return exchange.read(said)
            except ModelError:
                model = text_of(said.get("model")) or None
                spent.append(self._pricing.told(request.model, model, exchange.tokens(said.get("usage"))))
                raise

        try:
            asked = msgspec.structs.replace(exchange, read=read)
            answer = await self._wire.ask(asked, self._headers(), self._extra, listener)
            result = result_of(request, masked(answer, self._secrets), mode, self._pricing, self._wire.redactor)
        except ModelError as error:
            if any(spent):
                error.usage = together(*spent, error.usage if isinstance(error.usage, ModelUsage) else None)
            raise
        return replace(result, usage=together(*spent, result.usage) or result.usage)

    @abstractmethod
    def _headers(self) -> Mapping[str, str]:
        """The headers that hold the key."""
