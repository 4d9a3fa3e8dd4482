"""Keeps a tenant within its budget, over a run and everything that was begun from it."""

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from gert.errors import BudgetExceededError, UsageError
from gert.kernel.agent.middleware.pass_through import PassingMiddleware
from gert.kernel.agent.ports.store import EventStore, ledger_of
from gert.kernel.agent.types.api import TenantContext
from gert.kernel.events.envelope import parse_timestamp
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Head, RunFilter

BRANCHES: Final = ("::sub_agent::", "::fork::")
"""What stands in the id of a run between that of the run it was begun from and what is its own."""

_BRANCH: Final = re.compile("|".join(BRANCHES))

LOOK_AGAIN: Final = timedelta(seconds=1)
"""How long a run another process begins from this one may stay unseen."""

_OVERLAP: Final = timedelta(seconds=30)
"""How far the clocks of those who write to a ledger may be apart."""

_MOST_TENANTS: Final = 1000
_MOST_BRANCHES: Final = 100_000
_EVER: Final = datetime(1, 1, 2, tzinfo=UTC)


def root_of(run_id: str) -> str:
    """The run a tree of runs grew from."""
    return min((run_id.partition(branch)[0] for branch in BRANCHES), key=len)


def _lineage(run_id: str) -> list[str]:
    """The runs a run was begun from, as its id has them, and itself."""
    return [*(run_id[: found.start()] for found in _BRANCH.finditer(run_id)), run_id]


class QuotaMiddleware(PassingMiddleware):
    """Refuses a model call once the run has spent its tenant's budget, with its sub-agents and forks.

    A call that is under way is not cut short, and an answer that was paid for is kept, also where it is the one that
    exceeds the budget: the next call is refused. `after_model` therefore never raises. What was spent is read from the
    ledger, so it counts whichever process spent it; a run that another process has just begun from this one counts
    after a second.
    """

    def __init__(self, store: EventStore | None = None) -> None:
        self._ledger: Ledger | None = None
        # Only which runs there are is remembered, never what they cost; what is forgotten is looked up again.
        self._families: OrderedDict[str, _Families] = OrderedDict()
        if store is not None:
            self.bind_store(store)

    def bind_store(self, store: EventStore) -> None:
        """Learn where spending is recorded."""
        self._ledger = ledger_of(store)
        self._families.clear()

    async def before_model(self, *, run_id: str, tenant: TenantContext) -> None:
        """Refuse a call where the budget is spent."""
        spent = await self.spent(run_id, tenant.tenant_id)
        # Asked this way round, a budget that is no number is spent.
        if not spent < tenant.budget_usd_limit:
            raise BudgetExceededError(
                f"tenant `{tenant.tenant_id}` has spent {spent:.6f} of {tenant.budget_usd_limit:.6f} USD"
                f" in run `{root_of(run_id)}` and what was begun from it",
                hint="raise `budget_usd_limit`, and call the step again: what is on record is not paid twice",
            )

    async def spent(self, run_id: str, tenant_id: str) -> float:
        """What a tenant has spent in the tree of a run."""
        if self._ledger is None:
            raise UsageError("the quota has no store to read from", hint="hand it to a kernel, or call `bind_store`")
        ledger, root = self._ledger, root_of(run_id)
        families = self._families.setdefault(tenant_id, _Families(tenant_id))
        self._families.move_to_end(tenant_id)
        while len(self._families) > _MOST_TENANTS:
            self._families.popitem(last=False)
        families.add(_lineage(run_id))
        first = await ledger.head(root)
        await families.look(ledger, first)
        spent = _cost(first, tenant_id)
        for relative in families.of(root):
            spent += _cost(await ledger.head(relative), tenant_id)
        return spent


class _Families:
    """Which runs of a tenant were begun from which.

    The tenant's runs are listed once, from when the oldest tree in use began, and then only those written since the
    last look: a step costs as much as its tree is large, however many other runs there are.
    """

    def __init__(self, tenant_id: str) -> None:
        self._tenant = tenant_id
        self._branches: dict[str, dict[str, None]] = {}
        self._count = 0
        self._from: datetime | None = None
        self._looked: datetime | None = None

    def of(self, root: str) -> Iterator[str]:
        """What was begun from a run, and from that, and so on."""
        return iter(tuple(self._branches.get(root, ())))

    def add(self, run_ids: Iterable[str]) -> None:
        """Remember the runs that were begun from others."""
        for run_id in run_ids:
            root = root_of(run_id)
            if root != run_id and run_id not in (family := self._branches.setdefault(root, {})):
                family[run_id] = None
                self._count += 1

    async def look(self, ledger: Ledger, root: Head | None) -> None:
        """See which runs there are of the tree of a root, and of all younger trees."""
        moment = ledger.now()
        # Nothing of a tree is older than its root; where that is not in this ledger, all of the tenant's runs are read.
        needed = parse_timestamp(root.started_at) - _OVERLAP if root is not None and root.started_at else _EVER
        if self._looked is None or self._from is None or needed < self._from:
            since = needed
        elif moment - self._looked >= LOOK_AGAIN or moment < self._looked:
            since = min(moment, self._looked) - _OVERLAP
        else:
            return
        if self._count > _MOST_BRANCHES:
            self._branches, self._count, since = {}, 0, needed
            self._from = None
        found = await ledger.runs(RunFilter(self._tenant, "agent", since=None if since == _EVER else since))
        self.add(head.run_id for head in found)
        self._from = since if self._from is None else min(self._from, since)
        self._looked = moment if self._looked is None else max(self._looked, moment)


def _cost(head: Head | None, tenant_id: str) -> float:
    if head is None or head.agent is None or head.tenant != tenant_id:
        return 0.0
    return head.agent.model_cost
