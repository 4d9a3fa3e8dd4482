"""What model calls cost, by tenant, by run with its sub-agents and forks, or by model."""

from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from gert.ecosystem.host.runs.listed_run import ListedRun
from gert.ecosystem.host.runs.listing import Runs
from gert.errors import TraceError
from gert.kernel.events.agent import ModelCompleted, ModelFailed
from gert.kernel.events.envelope import decode
from gert.kernel.ledger.spending import root_of

By = Literal["tenant", "run", "model"]
BY: Final = ("tenant", "run", "model")

_ENDS: Final = (b"model_completed", b"model_failed")


class CostRow(msgspec.Struct, kw_only=True):
    """One line of a cost report.

    runs: how many runs it covers
    unpriced: calls that used tokens and have no price; only known by model
    """

    name: str
    tenant: str | None = None
    runs: int = 0
    calls: int = 0
    cost_usd: float = 0.0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    unpriced: int | None = None


def cost_report(runs: Runs, entries: Iterable[ListedRun], by: By) -> list[CostRow]:
    """Return the cost of agent runs, the highest first."""
    agents = (entry for entry in entries if entry.kind == "agent")
    rows = _by_model(runs, agents) if by == "model" else _by_head(agents, by)
    return sorted(rows, key=lambda row: (-row.cost_usd, row.name, row.tenant or ""))


def _by_head(entries: Iterable[ListedRun], by: By) -> list[CostRow]:
    """Sum what each run knows about itself; no event is read."""
    rows: dict[tuple[str, str | None], CostRow] = {}
    for entry in entries:
        name = (entry.tenant or "") if by == "tenant" else root_of(entry.run_id)
        row = rows.setdefault((name, entry.tenant), CostRow(name=name, tenant=entry.tenant))
        row.runs += 1
        if entry.head.agent is not None:
            row.calls += entry.head.agent.model_calls
            row.cost_usd += entry.head.agent.model_cost
    return list(rows.values())


def _by_model(runs: Runs, entries: Iterable[ListedRun]) -> list[CostRow]:
    rows: dict[str, CostRow] = {}
    for entry in entries:
        seen: set[str] = set()
        for ended in _model_ends(runs, entry):
            row = rows.setdefault(
                ended.model, CostRow(name=ended.model, prompt_tokens=0, completion_tokens=0, unpriced=0)
            )
            row.calls += 1
            row.cost_usd += ended.cost_usd
            row.prompt_tokens = (row.prompt_tokens or 0) + ended.prompt_tokens
            row.completion_tokens = (row.completion_tokens or 0) + ended.completion_tokens
            free = not ended.cost_usd and bool(ended.prompt_tokens or ended.completion_tokens)
            row.unpriced = (row.unpriced or 0) + free
            seen.add(ended.model)
        for name in seen:
            rows[name].runs += 1
    return list(rows.values())


def _model_ends(runs: Runs, entry: ListedRun) -> Iterator[ModelCompleted | ModelFailed]:
    for line in runs.lines(entry):
        if any(mark in line for mark in _ENDS):
            try:
                payload = decode(line).payload
            except TraceError:
                continue  # `gert run verify` names lines that cannot be read
            if isinstance(payload, ModelCompleted | ModelFailed):
                yield payload
