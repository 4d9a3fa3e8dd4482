"""The cost of a call, from the prices of models."""

import math
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from gert.errors import InputError, ModelPermanentError
from gert.kernel.agent.ports.model import ModelUsage

_MILLION: Final = 1_000_000
_VENDOR: Final = re.compile(r"\A(?:openai|anthropic)/")
_DATE: Final = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8})\Z")
_MAX_TOKENS: Final = 10**12


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """The price of a model, in US dollars per million tokens.

    cached: for prompt tokens read from the vendor's cache (default: the price of a prompt)
    cache_write: for prompt tokens written to the vendor's cache (default: the price of a prompt)
    """

    prompt: float
    completion: float
    cached: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        given = (self.prompt, self.completion, self.cached or 0.0, self.cache_write or 0.0)
        if not all(math.isfinite(price) and price >= 0 for price in given):
            raise InputError("a price must be a finite number of dollars that is not negative")


class Tokens(msgspec.Struct, frozen=True):
    """The tokens a call used; cached and cache-written ones are part of the prompt's."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cache_write: int = 0


class Pricing(msgspec.Struct, frozen=True):
    """Prices by model name, and whether a call without a known price is refused."""

    prices: Mapping[str, Price] = {}
    fail_on_unknown_cost: bool = False

    def require(self, model: str) -> None:
        """Refuse a model without a price before it is called, if `fail_on_unknown_cost` is set."""
        if self.fail_on_unknown_cost and find_price(self.prices, model) is None:
            raise ModelPermanentError(
                f"the price of the model `{model}` is unknown", category="unknown_cost", hint="add it to `prices`"
            )

    def usage(
        self, model: str, answered_by: str | None, tokens: Tokens | None, cost: float | None = None
    ) -> ModelUsage:
        """Return the usage and cost of a call.

        cost: in US dollars, if the answer reports it
        """
        if self.fail_on_unknown_cost and self._cost(model, answered_by, tokens, cost) is None:
            raise ModelPermanentError(
                f"the cost of the call of the model `{model}` is unknown", category="unknown_cost"
            )
        return self.known_usage(model, answered_by, tokens, cost) or ModelUsage(0, 0, 0.0)

    def known_usage(
        self, model: str, answered_by: str | None, tokens: Tokens | None, cost: float | None = None
    ) -> ModelUsage | None:
        """Return the usage and cost of a call as far as known; None if the vendor reported neither."""
        if tokens is None and cost is None:
            return None
        counted = Tokens() if tokens is None else tokens
        return ModelUsage(counted.prompt, counted.completion, self._cost(model, answered_by, tokens, cost) or 0.0)

    def _cost(self, model: str, answered_by: str | None, tokens: Tokens | None, cost: float | None) -> float | None:
        price = self._price(model, answered_by)
        return cost if cost is not None or tokens is None or price is None else cost_of(tokens, price)

    def _price(self, model: str, answered_by: str | None) -> Price | None:
        return find_price(self.prices, model) or find_price(self.prices, answered_by or "")


def find_price(prices: Mapping[str, Price], model: str) -> Price | None:
    """Return the price of a model: under its name, or that of the model it is a dated version of."""
    name = _VENDOR.sub("", model)
    return prices.get(model) or prices.get(name) or prices.get(_DATE.sub("", name))


def total_usage(*used: ModelUsage | None) -> ModelUsage | None:
    """Add up the usage of several calls; None if none is known."""
    known = [each for each in used if each is not None]
    return (
        ModelUsage(
            sum(each.prompt_tokens for each in known),
            sum(each.completion_tokens for each in known),
            round(sum(each.cost_usd for each in known), 12),
        )
        if known
        else None
    )


def cost_of(tokens: Tokens, price: Price) -> float:
    """Return the cost of tokens at a price, in US dollars."""
    plain = max(0, tokens.prompt - tokens.cached - tokens.cache_write)
    spent = (
        plain * price.prompt
        + tokens.cached * (price.prompt if price.cached is None else price.cached)
        + tokens.cache_write * (price.prompt if price.cache_write is None else price.cache_write)
        + tokens.completion * price.completion
    )
    return round(spent / _MILLION, 12)


def max_cost_of(price: Price, prompt_tokens: int, output_tokens: int) -> float:
    """Return the most that so many tokens cost: a prompt that is written to the vendor's cache may cost more."""
    dearest = max(price.prompt, price.cache_write or 0.0)
    return round((prompt_tokens * dearest + output_tokens * price.completion) / _MILLION, 12)


def tokens_of(usage: object, prompt: str, completion: str) -> Tokens | None:
    """Return the tokens of a usage under these names of OpenAI's APIs; None if it lacks one of the two counts."""
    if not isinstance(usage, dict):
        return None
    sent, received = count(usage.get(prompt)), count(usage.get(completion))
    if sent is None or received is None:
        return None
    # Some vendors count reasoning tokens only in the total; they cost as much as completion tokens.
    received = max(received, (count(usage.get("total_tokens")) or 0) - sent)
    details = usage.get(f"{prompt}_details")
    cached = count(details.get("cached_tokens")) if isinstance(details, dict) else None
    return Tokens(sent, received, min(cached or 0, sent))


def count(value: object) -> int | None:
    """Return a vendor's token count; None if it is not a plausible number."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= _MAX_TOKENS else None
