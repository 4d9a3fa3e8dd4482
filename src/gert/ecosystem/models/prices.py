"""What a call costs, where somebody has said what a model costs."""

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from gert.errors import InputError, ModelPermanentError
from gert.kernel.agent.ports.model import ModelUsage

_MILLION: Final = 1_000_000
_MOST_TOKENS: Final = 10**12


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """What a model costs, in US dollars for a million tokens.

    cached: of a prompt, what the vendor still had; as the rest where it is not given
    cache_write: of a prompt, what the vendor was asked to keep; as the rest where it is not given
    """

    prompt: float
    completion: float
    cached: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        given = (self.prompt, self.completion, self.cached or 0.0, self.cache_write or 0.0)
        if not all(math.isfinite(price) and price >= 0 for price in given):
            raise InputError("a price is a number of dollars, and cannot be negative")


class Tokens(msgspec.Struct, frozen=True):
    """How many tokens a call used; cached and kept ones are part of the prompt's."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cache_write: int = 0


class Pricing(msgspec.Struct, frozen=True):
    """Prices by a model's name, and whether a call without a known price is refused."""

    prices: Mapping[str, Price] = {}
    fail_on_unknown_cost: bool = False

    def require(self, model: str) -> None:
        """Refuse a model without a price before anything is spent, where that was asked for."""
        if self.fail_on_unknown_cost and model not in self.prices:
            raise ModelPermanentError(
                f"the price of the model `{model}` is not known", category="unknown_cost", hint="add it to `prices`"
            )

    def usage(
        self, model: str, answered_by: str | None, tokens: Tokens | None, cost: float | None = None
    ) -> ModelUsage:
        """What a call used and cost.

        cost: where the answer itself tells it
        """
        if self.fail_on_unknown_cost and self._cost(model, answered_by, tokens, cost) is None:
            raise ModelPermanentError(
                f"what the call of the model `{model}` cost is not known", category="unknown_cost"
            )
        return self.told(model, answered_by, tokens, cost) or ModelUsage(0, 0, 0.0)

    def told(
        self, model: str, answered_by: str | None, tokens: Tokens | None, cost: float | None = None
    ) -> ModelUsage | None:
        """What a call used and cost as far as that is known; None where the vendor told nothing."""
        if tokens is None and cost is None:
            return None
        counted = Tokens() if tokens is None else tokens
        return ModelUsage(counted.prompt, counted.completion, self._cost(model, answered_by, tokens, cost) or 0.0)

    def _cost(self, model: str, answered_by: str | None, tokens: Tokens | None, cost: float | None) -> float | None:
        price = self._price(model, answered_by)
        return cost if cost is not None or tokens is None or price is None else cost_of(tokens, price)

    def _price(self, model: str, answered_by: str | None) -> Price | None:
        return self.prices.get(model) or self.prices.get(answered_by or "")


def together(*used: ModelUsage | None) -> ModelUsage | None:
    """What several calls used; None where nothing is known of any."""
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
    """The cost of tokens at a price, in US dollars."""
    plain = max(0, tokens.prompt - tokens.cached - tokens.cache_write)
    spent = (
        plain * price.prompt
        + tokens.cached * (price.prompt if price.cached is None else price.cached)
        + tokens.cache_write * (price.prompt if price.cache_write is None else price.cache_write)
        + tokens.completion * price.completion
    )
    return round(spent / _MILLION, 12)


def tokens_of(usage: object, prompt: str, completion: str) -> Tokens | None:
    """The tokens in a usage, under the names OpenAI's two APIs have for them; None where it does not tell both."""
    if not isinstance(usage, dict):
        return None
    sent, said = count(usage.get(prompt)), count(usage.get(completion))
    if sent is None or said is None:
        return None
    # Some count what a model has thought apart, in the total alone; it is paid for like what it has said.
    said = max(said, (count(usage.get("total_tokens")) or 0) - sent)
    details = usage.get(f"{prompt}_details")
    cached = count(details.get("cached_tokens")) if isinstance(details, dict) else None
    return Tokens(sent, said, min(cached or 0, sent))


def count(value: object) -> int | None:
    """A number of tokens as a vendor gives it; None for what can be no such number."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= _MOST_TOKENS else None
