"""The list prices that gert ships: dated data, which `prices=` overrides."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

from gert.ecosystem.models.prices import Price, find_price, max_cost_of

DEFAULT_OUTPUT_TOKENS: Final = 4096
"""How long an answer may be, where neither the call nor the adapter says."""


class PriceTable(msgspec.Struct, frozen=True):
    """Prices of models, and when they were collected."""

    date: str
    currency: str
    per: str
    source: str
    models: dict[str, Price]


@cache
def price_table() -> PriceTable:
    """Return the shipped table."""
    return msgspec.json.decode((files("gert.ecosystem.models") / "prices.json").read_bytes(), type=PriceTable)


def with_overrides(prices: Mapping[str, Price] | None) -> dict[str, Price]:
    """Return the shipped prices, replaced and completed by others."""
    return {**price_table().models, **(prices or {})}


def max_cost_usd(
    prices: Mapping[str, Price], model: str, prompt_tokens: int, output_tokens: int | None = None
) -> float | None:
    """Return the most a call may cost; None if the price of the model is unknown."""
    price = find_price(prices, model)
    return None if price is None else max_cost_of(price, prompt_tokens, output_tokens or DEFAULT_OUTPUT_TOKENS)
