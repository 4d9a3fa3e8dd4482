"""What a call costs, where somebody has said what a model costs."""

from collections.abc import Mapping

import msgspec

from gert.errors import InputError, ModelPermanentError
from gert.kernel.agent.ports.model import ModelUsage

_MILLION = 1_000_000


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
        if min(self.prompt, self.completion, self.cached or 0, self.cache_write or 0) < 0:
            raise InputError("a price cannot be negative")


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

    def usage(self, model: str, answered_by: str | None, tokens: Tokens | None) -> ModelUsage:
        """What a call used and cost."""
        if self.fail_on_unknown_cost and (self._price(model, answered_by) is None or tokens is None):
            raise ModelPermanentError(
                f"what the call of the model `{model}` cost is not known", category="unknown_cost"
            )
        return self.told(model, answered_by, tokens) or ModelUsage(0, 0, 0.0)

    def told(self, model: str, answered_by: str | None, tokens: Tokens | None) -> ModelUsage | None:
        """What a call used and cost as far as that is known; None where the vendor told nothing."""
        if tokens is None:
            return None
        price = self._price(model, answered_by)
        return ModelUsage(tokens.prompt, tokens.completion, cost_of(tokens, price) if price else 0.0)

    def _price(self, model: str, answered_by: str | None) -> Price | None:
        return self.prices.get(model) or self.prices.get(answered_by or "")


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


def count(value: object) -> int:
    """A number of tokens as a vendor gives it; anything that is none counts as none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
