"""Enforces a tenant's budget over a run with its sub-agents and forks."""

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from gert.errors import BudgetExceededError, UsageError
from gert.kernel.agent.middleware.base import PassThroughMiddleware
from gert.kernel.agent.ports.store import EventStore, ledger_of
from gert.kernel.agent.types.api import TenantContext
from gert.kernel.events.envelope import parse_timestamp
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Head, RunFilter

BRANCHES: Final = ("::sub_agent::", "::fork::")
"""Separators in a run id between the id of the parent run and the run's own part."""

_BRANCH: Final = re.compile("|".join(BRANCHES))

RELIST_AFTER: Final = timedelta(seconds=1)
"""How long a child run that another process starts may stay unseen."""

_OVERLAP: Final = timedelta(seconds=30)
"""How far the clocks of processes that share a ledger may differ."""

_MAX_TENANTS: Final = 1000
_MAX_BRANCHES: Final = 100_000
_EARLIEST: Final = datetime(1, 1, 2, tzinfo=UTC)


def root_of(run_id: str) -> str:
    """Return the root run of a run's tree."""
    return min((run_id.partition(branch)[0] for branch in BRANCHES), key=len)


def _ancestors(run_id: str) -> list[str]:
    """Return the ancestors of a run, as its id names them, and the run itself."""
    return [*(run_id[: found.start()] for found in _BRANCH.finditer(run_id)), run_id]


class QuotaMiddleware(PassThroughMiddleware):
    """Refuses a model call once the run, with its sub-agents and forks, has spent its tenant's budget.

    A running call is not interrupted, and an answer that exceeds the budget is kept: the next call is refused.
    `after_model` therefore never raises. Spending is read from the ledger, so it counts across processes; a child run
    that another process has just started counts after a second.
    """

    def __init__(self, store: EventStore | None = None) -> None:
        self._ledger: Ledger | None = None
        # Only the ids of runs are cached, never their cost; an evicted entry is read again.
        self._trees: OrderedDict[str, _RunTrees] = OrderedDict()
        if store is not None:
            self.bind_store(store)

    def bind_store(self, store: EventStore) -> None:
        """Set the store whose ledger records the spending; the kernel calls this."""
        self._ledger = ledger_of(store)
        self._trees.clear()

    async def before_model(self, *, run_id: str, tenant: TenantContext) -> None:
        """Refuse a call if the budget is spent."""
        spent = await self.spent(run_id, tenant.tenant_id)
        # `not <` instead of `>=`: a budget of NaN counts as spent.
        if not spent < tenant.budget_usd_limit:
            raise BudgetExceededError(
                f"tenant `{tenant.tenant_id}` has spent {spent:.6f} of {tenant.budget_usd_limit:.6f} USD"
                f" in run `{root_of(run_id)}` with its sub-agents and forks",
                hint="raise `budget_usd_limit` and run the step again: recorded steps are not paid twice",
            )

    async def spent(self, run_id: str, tenant_id: str) -> float:
        """Return what a tenant has spent in the tree of a run."""
        if self._ledger is None:
            raise UsageError("the quota has no store to read from", hint="pass it to a kernel, or call `bind_store`")
        ledger, root = self._ledger, root_of(run_id)
        trees = self._trees.setdefault(tenant_id, _RunTrees(tenant_id))
        self._trees.move_to_end(tenant_id)
        while len(self._trees) > _MAX_TENANTS:
            self._trees.popitem(last=False)
        trees.add(_ancestors(run_id))
        first = await ledger.head(root)
        await trees.refresh(ledger, first)
        spent = _cost(first, tenant_id)
        for relative in trees.of(root):
            spent += _cost(await ledger.head(relative), tenant_id)
        return spent


class _RunTrees:
    """The descendants of the root runs of a tenant.

    The tenant's runs are listed once, from the start of the oldest tree in use, and then only those updated since: the
    cost of a step depends on the size of its tree, not on the number of other runs.
    """

    def __init__(self, tenant_id: str) -> None:
        self._tenant = tenant_id
        self._branches: dict[str, dict[str, None]] = {}
        self._count = 0
        self._from: datetime | None = None
        self._listed_at: datetime | None = None

    def of(self, root: str) -> Iterator[str]:
        """Return the descendants of a root run."""
        return iter(tuple(self._branches.get(root, ())))

    def add(self, run_ids: Iterable[str]) -> None:
        """Add the runs that have a parent."""
        for run_id in run_ids:
            root = root_of(run_id)
            if root != run_id and run_id not in (tree := self._branches.setdefault(root, {})):
                tree[run_id] = None
                self._count += 1

    async def refresh(self, ledger: Ledger, root: Head | None) -> None:
        """List the runs of the tree of a root, and of all younger trees."""
        moment = ledger.now()
        # No run is older than its root; if the root is not in this ledger, all runs of the tenant are read.
        needed = parse_timestamp(root.started_at) - _OVERLAP if root is not None and root.started_at else _EARLIEST
        if self._listed_at is None or self._from is None or needed < self._from:
            since = needed
        elif moment - self._listed_at >= RELIST_AFTER or moment < self._listed_at:
            since = min(moment, self._listed_at) - _OVERLAP
        else:
            return
        if self._count > _MAX_BRANCHES:
            self._branches, self._count, since = {}, 0, needed
            self._from = None
        found = await ledger.runs(RunFilter(self._tenant, "agent", since=None if since == _EARLIEST else since))
        self.add(head.run_id for head in found)
        self._from = since if self._from is None else min(self._from, since)
        self._listed_at = moment if self._listed_at is None else max(self._listed_at, moment)


def _cost(head: Head | None, tenant_id: str) -> float:
    if head is None or head.agent is None or head.tenant != tenant_id:
        return 0.0
    return head.agent.model_cost
