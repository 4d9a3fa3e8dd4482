"""The prices that gert ships, for surfaces."""

from typing import Any

import msgspec

from gert.ecosystem.models.price_table import PriceTable, price_table
from gert.ecosystem.models.prices import Price, find_price
from gert.errors import InputError
from gert.kernel.foundation.names import did_you_mean

__all__ = ["PriceTable", "chosen_prices", "price_document"]


def chosen_prices(names: tuple[str, ...]) -> tuple[PriceTable, dict[str, Price]]:
    """The table, and the prices of these models, or of all; InputError for a model that it does not have."""
    table = price_table()
    if not names:
        return table, table.models
    found = {name: find_price(table.models, name) for name in names}
    for name, price in found.items():
        if price is None:
            meant = did_you_mean(name, table.models)
            hint = f"did you mean `{meant}`?" if meant else "pass its price with `prices=` to the kernel or the adapter"
            raise InputError(f"the price of the model `{name}` is unknown", hint=hint)
    return table, {name: price for name, price in found.items() if price is not None}


def price_document(table: PriceTable, prices: dict[str, Price]) -> dict[str, Any]:
    """Prices as data."""
    return {
        "date": table.date,
        "currency": table.currency,
        "per": table.per,
        "source": table.source,
        "models": {name: msgspec.to_builtins(price) for name, price in prices.items()},
    }
