"""`gert models`: what gert knows about models."""

import click

from gert.ecosystem.host.agent.prices import chosen_prices
from gert.ecosystem.surfaces.cli.render.output import print_json, print_line
from gert.ecosystem.surfaces.cli.render.table import print_table


@click.group(epilog="Example: gert models prices gpt-5-mini")
def command() -> None:
    """Show what gert knows about models."""


@command.command(epilog="Example: gert models prices gpt-5-mini claude-haiku-4-5 --json")
@click.argument("names", nargs=-1, metavar="[MODEL]...")
@click.option("--json", "as_json", is_flag=True, help="Print the prices as JSON.")
def prices(names: tuple[str, ...], as_json: bool) -> int:
    """Show the list prices that budgets of agents are reckoned with.

    They are data of a date: pass `prices=` to a kernel or an adapter for models that are not listed, and for prices
    of your own contract.
    """
    table = chosen_prices(names)
    if as_json:
        print_json(table)
        return 0
    print_line(f"{table.currency} per {table.per}, of {table.date} ({table.source})")
    rows = [
        [name, *map(_amount, (price.prompt, price.cached, price.cache_write, price.completion))]
        for name, price in table.models.items()
    ]
    print_table(("model", "prompt", "cached", "cache write", "answer"), rows)
    return 0


def _amount(price: float | None) -> str:
    return "" if price is None else f"{price:g}"
