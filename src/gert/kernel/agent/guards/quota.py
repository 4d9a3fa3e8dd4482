"""Keeps a tenant within its budget, over a run and everything that was begun from it."""

from collections import OrderedDict
from datetime import datetime, timedelta
from typing import Final

import msgspec

from gert.errors import BudgetExceededError, UsageError
from gert.kernel.agent.guards.passing import PassingMiddleware
from gert.kernel.agent.ledger import Head, Ledger
from gert.kernel.agent.ports.store import EventStore, ledger_of
from gert.kernel.agent.shapes import TenantContext
from gert.kernel.events.envelope import parse_timestamp

BRANCHES: Final = ("::sub_agent::", "::fork::")
"""What stands in the id of a run between that of the run it was begun from and what is its own."""

_OVERLAP: Final = timedelta(seconds=30)
"""How far the clocks of those who write to a ledger may be apart."""

_MOST_TREES: Final = 1000


def root_of(run_id: str) -> str:
    """The run a tree of runs grew from."""
    return min((run_id.partition(branch)[0] for branch in BRANCHES), key=len)


class _Tree(msgspec.Struct):
    """What the runs of a tree have cost, and when the ledger was last looked at."""

    costs: dict[str, float] = msgspec.field(default_factory=dict)
    looked: datetime | None = None

    @property
    def spent(self) -> float:
        return sum(self.costs.values())


class QuotaMiddleware(PassingMiddleware):
    """Refuses a model call once the run has spent its tenant's budget, with its sub-agents and forks.

    A call that is under way is not cut short, and an answer that was paid for is kept, also where it is the one that
    exceeds the budget: the next call is refused. `after_model` therefore never raises. What was spent is read from the
    ledger, so it counts whichever process spent it.
    """

    def __init__(self, store: EventStore | None = None) -> None:
        self._ledger: Ledger | None = None
        # Only how far the ledger was read is remembered; what is forgotten is read again.
        self._trees: OrderedDict[tuple[str, str], _Tree] = OrderedDict()
        if store is not None:
            self.bind_store(store)

    def bind_store(self, store: EventStore) -> None:
        """Learn where spending is recorded."""
        self._ledger = ledger_of(store)
        self._trees.clear()

    async def before_model(self, *, run_id: str, tenant: TenantContext) -> None:
        """Refuse a call where the budget is spent."""
        spent = await self.spent(run_id, tenant.tenant_id)
        if spent >= tenant.budget_usd_limit:
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
        tree = self._trees.setdefault((tenant_id, root), _Tree())
        self._trees.move_to_end((tenant_id, root))
        while len(self._trees) > _MOST_TREES:
            self._trees.popitem(last=False)
        await _read_on(tree, ledger, root, tenant_id)
        return tree.spent


async def _read_on(tree: _Tree, ledger: Ledger, root: str, tenant_id: str) -> None:
    """Read what the runs of a tree have come to since it was last looked at: never those of all time."""
    since = tree.looked
    moment = ledger.now()
    if since is None:
        head = await ledger.head(root)
        # Nothing of a tree is older than its root; where that is not in this ledger, all of the tenant's runs are read.
        since = parse_timestamp(head.started_at) if head is not None and head.started_at else None
    for head in await ledger.runs(tenant=tenant_id, since=None if since is None else since - _OVERLAP):
        if head.run_id == root or root_of(head.run_id) == root:
            tree.costs[head.run_id] = _cost(head)
    tree.looked = moment


def _cost(head: Head) -> float:
    return head.snapshot.model_cost if head.snapshot is not None else 0.0
