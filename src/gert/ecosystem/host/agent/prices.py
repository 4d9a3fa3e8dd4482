"""The prices that gert ships, for surfaces."""

import msgspec

from gert.ecosystem.models.price_table import PriceTable, price_table
from gert.ecosystem.models.prices import find_price
from gert.errors import InputError
from gert.kernel.foundation.names import suggestion

__all__ = ["PriceTable", "chosen_prices"]


def chosen_prices(names: tuple[str, ...]) -> PriceTable:
    """The table with the prices of these models, or of all; InputError for a model that it does not have."""
    table = price_table()
    if not names:
        return table
    found = {name: find_price(table.models, name) for name in names}
    for name, price in found.items():
        if price is None:
            hint = suggestion(name, table.models) or "pass its price with `prices=` to the kernel or the adapter"
            raise InputError(f"the price of the model `{name}` is unknown", hint=hint)
    return msgspec.structs.replace(table, models={name: price for name, price in found.items() if price is not None})
