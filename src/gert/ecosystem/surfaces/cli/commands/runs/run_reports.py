"""`gert run cost|diff`: what model calls cost, and how two runs differ."""

from typing import Any, cast

import click
import msgspec

from gert.ecosystem.host.run.record.journal import now
from gert.ecosystem.host.runs.compare_runs import Difference, compare_runs
from gert.ecosystem.host.runs.cost import BY, By, CostRow, cost_report
from gert.ecosystem.surfaces.cli.options import LedgerChoice, ledger_options, open_runs, parse_since
from gert.ecosystem.surfaces.cli.render.output import plural, print_json, print_line
from gert.ecosystem.surfaces.cli.render.table import print_table
from gert.ecosystem.surfaces.cli.render.text import BAD, DOUBTFUL, GOOD, LONGEST_NAME, clip, value_text


@click.command(name="cost", epilog="Example: gert run cost --by model --since 7d --db agents.db")
@click.option("--by", type=click.Choice(BY), default="tenant", show_default=True, help="Group by this.")
@click.option("--tenant", metavar="ID", help="Only runs of this tenant.")
@click.option("--since", metavar="TIME", help="Only runs that started since a time, or within a duration such as 7d.")
@ledger_options
def cost(by: str, tenant: str | None, since: str | None, ledger: LedgerChoice, as_json: bool) -> int:
    """Sum the cost of model calls by tenant, by run, or by model, the highest first.

    The cost of a run includes its sub-agents and forks. Calls whose price is unknown cost 0; `--by model` counts them.
    """
    earliest = parse_since(since, now()) if since is not None else None
    with open_runs(*ledger) as runs:
        rows = cost_report(runs, runs.newest(earliest, tenant), cast("By", by))
    total = sum(row.cost_usd for row in rows)
    if as_json:
        print_json({"by": by, "rows": [_row(row) for row in rows], "cost_usd": total})
        return 0
    if not rows:
        print_line("there are no agent runs")
        return 0
    print_table((by, *_TITLES[by], "calls", "cost"), [_cells(row, by) for row in rows])
    print_line(f"total {total:.6f} USD")
    unpriced = sum(row.unpriced or 0 for row in rows)
    if unpriced:
        print_line(click.style(f"{plural(unpriced, 'call')} without a price", fg=DOUBTFUL))
    return 0


@click.command(name="diff", epilog="Example: gert run diff triage-1 triage-2 --db agents.db")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--exit-code", is_flag=True, help="Exit with 1 if the runs differ.")
@ledger_options
def diff(a: str, b: str, exit_code: bool, ledger: LedgerChoice, as_json: bool) -> int:
    """Compare two runs step by step: models, questions, answers, tool calls, results and outcomes.

    Steps are matched by their keys, in runbooks by their paths. Times, ids and costs are not compared.
    """
    with open_runs(*ledger) as runs:
        entries = [runs.entry(runs.find(name)) for name in (a, b)]
        found, same = compare_runs(*(runs.lines(entry) for entry in entries))
    if as_json:
        document: dict[str, Any] = {"a": entries[0].run_id, "b": entries[1].run_id, "same_steps": same}
        print_json(document | {"differences": found})
    else:
        for each in found:
            _print_difference(each)
        steps = f"{plural(same, 'step')} the same"
        print_line(f"{steps}, {plural(len(found), 'difference')}" if found else f"no differences: {steps}")
    return 1 if exit_code and found else 0


_TITLES = {"tenant": ("runs",), "run": ("tenant", "runs"), "model": ("runs", "tokens")}
_CHANGES = {"only_in_a": ("-", BAD), "only_in_b": ("+", GOOD), "changed": ("~", DOUBTFUL)}


def _row(row: CostRow) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(row).items() if value is not None}


def _cells(row: CostRow, by: str) -> list[str]:
    found = {
        "tenant": clip(row.tenant or "", LONGEST_NAME),
        "runs": str(row.runs),
        "tokens": f"{row.prompt_tokens}+{row.completion_tokens}",
    }
    middle = [found[title] for title in _TITLES[by]]
    return [clip(row.name, 2 * LONGEST_NAME), *middle, str(row.calls), f"{row.cost_usd:.6f} USD"]


def _print_difference(each: Difference) -> None:
    sign, colour = _CHANGES[each.change]
    print_line(click.style(f"{sign} {clip(each.step, LONGEST_NAME)}", fg=colour))
    for name, (before, after) in each.fields.items():
        print_line(f"    {clip(name, LONGEST_NAME)}: {value_text(before)} -> {value_text(after)}")
