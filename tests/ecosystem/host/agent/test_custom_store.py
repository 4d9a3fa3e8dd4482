"""A store of the caller's own, with the documented methods and no others."""

import asyncio
from typing import Any

import pytest
from tests.ecosystem.host.agent.places import TENANT, Model, Place, ask, call, in_loop, kinds
from tests.ecosystem.host.agent.policies import Mailer

from gert.agent import (
    ArtanaKernel,
    EventType,
    GertError,
    KernelEvent,
    RunNotFound,
    RunSummaryPayload,
    TenantContext,
    ToolExecutionContext,
)
from gert.errors import PolicyViolationError, TraceError, UsageError
from gert.kernel.agent.types.payload_models import EventPayload


class ListStore:
    """Keeps events in a list: the documented protocol, and nothing else."""

    def __init__(self) -> None:
        self.events: list[KernelEvent] = []
        self.fails: list[BaseException] = []
        self.closed = False

    async def append_event(
        self,
        *,
        run_id: str,
        tenant_id: str,
        event_type: EventType,
        payload: EventPayload,
        parent_step_key: str | None = None,
    ) -> KernelEvent:
        """Append one event."""
        await asyncio.sleep(0)
        if self.fails:
            raise self.fails.pop()
        seq = 1 + sum(event.run_id == run_id for event in self.events)
        event = KernelEvent(
            event_id=f"mine-{len(self.events)}",
            run_id=run_id,
            tenant_id=tenant_id,
            seq=seq,
            event_type=event_type,
            event_hash=f"hash-{len(self.events)}",
            parent_step_key=parent_step_key,
            payload=payload,
        )
        self.events.append(event)
        return event

    async def get_events_for_run(self, run_id: str) -> list[KernelEvent]:
        """Return the events of a run."""
        return [event for event in self.events if event.run_id == run_id]

    async def get_latest_run_summary(self, run_id: str, summary_type: str) -> RunSummaryPayload | None:
        """Return the newest summary of a type."""
        found = [event.payload for event in self.events if event.run_id == run_id]
        of_type = [p for p in found if isinstance(p, RunSummaryPayload) and p.summary_type == summary_type]
        return of_type[-1] if of_type else None

    async def verify_run_chain(self, run_id: str) -> bool:
        """Believe it."""
        return True

    async def close(self) -> None:
        """Note it."""
        self.closed = True


class ListedStore(ListStore):
    """One that also lists its runs."""

    async def list_run_ids(self, *, tenant_id: str | None = None, since: Any = None) -> list[str]:
        """Return the ids of runs."""
        return list(dict.fromkeys(event.run_id for event in self.events))


class Own(Place):
    """A place over a store of the caller's own."""

    def __init__(self, store: ListStore) -> None:
        super().__init__("own", "")
        self.own = store

    def store(self, **_: Any) -> Any:
        """The store."""
        return self.own


def charging(kernel: ArtanaKernel) -> list[int]:
    charged: list[int] = []

    @kernel.tool(side_effect=True)
    async def charge(amount: int, artana_context: ToolExecutionContext) -> int:
        """Charge."""
        charged.append(amount)
        return amount

    return charged


@in_loop
async def test_runs_are_recorded_replayed_and_resumed_by_another_kernel() -> None:
    store, model = ListStore(), Model()
    async with Own(store).kernel(model) as kernel:
        charged = charging(kernel)
        async with kernel.run(tenant=TENANT, run_id="r") as run:
            await asyncio.gather(*(ask(kernel, "r", f"q{n}", f"s{n}") for n in range(5)))
            await run.tool("charge", {"amount": 1}, step_key="pay")
            await run.set_artifact("k", {"v": 1})
        recorded = len(store.events)
    assert store.closed
    async with Own(store).kernel(model) as heir:
        charging(heir)
        assert (await heir.get_run_status(run_id="r")).status == "completed"
        assert (await ask(heir, "r", "q3", "s3")).replayed
        assert (await call(heir, "r", "charge", {"amount": 1}, "pay")).replayed
        assert await heir.get_artifact(run_id="r", key="k") == {"v": 1}
        assert (len(store.events), len(model.asked), charged) == (recorded, 5, [1])
        await call(heir, "r", "charge", {"amount": 2}, "pay more")
        assert [event.event_type.value for event in store.events] == await kinds(heir, "r")
        with pytest.raises(RunNotFound):
            await heir.get_run_status(run_id="nobody")


def _lose(store: ListStore) -> None:
    kept = [
        each for each in store.events if each.event_type not in (EventType.TOOL_REQUESTED, EventType.TOOL_COMPLETED)
    ]
    assert len(kept) < len(store.events)
    store.events = kept


def _repeat(store: ListStore) -> None:
    store.events.append(store.events[-1])


def _swap(store: ListStore) -> None:
    store.events[-1], store.events[-2] = store.events[-2], store.events[-1]


@pytest.mark.parametrize("spoil", [_lose, _repeat, _swap], ids=["loses", "repeats", "swaps"])
@in_loop
async def test_a_store_that_loses_repeats_or_swaps_events_is_refused_and_no_call_is_repeated(spoil: Any) -> None:
    store = ListStore()
    async with Own(store).kernel() as kernel:
        charged = charging(kernel)
        await kernel.start_run(tenant=TENANT, run_id="r")
        await call(kernel, "r", "charge", {"amount": 5}, "one")
        await ask(kernel, "r", "q", "two")
    spoil(store)
    async with Own(store).kernel() as kernel:
        again = charging(kernel)
        with pytest.raises(TraceError, match="after event"):
            await call(kernel, "r", "charge", {"amount": 5}, "one")
    assert (charged, again) == ([5], [])


@in_loop
async def test_events_of_another_run_are_refused() -> None:
    store = ListStore()
    async with Own(store).kernel() as kernel:
        await kernel.start_run(tenant=TENANT, run_id="q")

    async def lies(run_id: str) -> list[KernelEvent]:
        return store.events

    store.get_events_for_run = lies  # type: ignore[method-assign]
    async with Own(store).kernel() as kernel:
        with pytest.raises(TraceError, match="of run `q` for run `r`"):
            await kernel.get_run_status(run_id="r")


@in_loop
async def test_an_event_that_another_process_got_ahead_of_is_noticed_before_the_tool_is_called() -> None:
    store = ListStore()
    async with Own(store).kernel() as first, Own(store).kernel() as second:
        charged = charging(second)
        await first.start_run(tenant=TENANT, run_id="r")
        await second.get_run_status(run_id="r")
        await ask(first, "r", "q", "one")
        with pytest.raises(TraceError, match="does another process append"):
            await call(second, "r", "charge", {"amount": 5}, "two")
        assert charged == []


@in_loop
async def test_a_store_that_fails_is_read_again() -> None:
    store = ListStore()
    async with Own(store).kernel() as kernel:
        charged = charging(kernel)
        await kernel.start_run(tenant=TENANT, run_id="r")
        store.fails.append(OSError("disk full"))
        with pytest.raises(TraceError, match="disk full"):
            await call(kernel, "r", "charge", {"amount": 1}, "pay")
        assert charged == []
        await call(kernel, "r", "charge", {"amount": 1}, "pay")
        assert charged == [1]
        assert await kinds(kernel, "r") == ["run_started", "tool_requested", "tool_completed"]


SAME: dict[str, Any] = {"semantic_idempotency": {"template": "{to}"}}
RATE: dict[str, Any] = {"limits": {"max_calls_per_tenant_window": 1, "tenant_window_seconds": 60}}


@pytest.mark.parametrize(("policy", "named"), [(SAME, "a semantic idempotency key"), (RATE, "a rate limit")])
@in_loop
async def test_a_guard_over_runs_needs_a_store_that_lists_them(policy: dict[str, Any], named: str) -> None:
    async with Mailer(Own(ListStore()), **policy) as mailer:
        await mailer.begin()
        with pytest.raises(UsageError, match=f"`ListStore` has no `list_run_ids`, which {named}"):
            await mailer.send()
        assert mailer.sent == []
    store = ListedStore()
    async with Mailer(Own(store), **policy) as mailer:
        await mailer.begin("earlier")
        await mailer.send(run_id="earlier")
    async with Mailer(Own(store), **policy) as mailer:
        await mailer.begin()
        with pytest.raises(PolicyViolationError):
            await mailer.send()


LIMITED = TenantContext(tenant_id="acme", budget_usd_limit=1, tenant_budget_usd_limit=1)


@pytest.mark.parametrize(
    ("use", "named"),
    [
        pytest.param(
            lambda kernel: kernel.acquire_run_lease(run_id="r", worker_id="w", ttl_seconds=5), "acquire_run_lease",
            id="leases",
        ),
        pytest.param(lambda kernel: kernel.list_active_runs(tenant_id="acme"), "list_run_ids", id="a list of runs"),
        pytest.param(lambda kernel: kernel.list_pending_approvals(tenant=TENANT), "list_run_ids", id="tickets"),
        pytest.param(lambda kernel: ask(kernel, "r", "q", "s", tenant=LIMITED), "list_run_ids", id="a tenant's budget"),
    ],
)  # fmt: skip
@in_loop
async def test_what_the_store_cannot_give_is_refused_by_name(use: Any, named: str) -> None:
    stack = ArtanaKernel.default_middleware_stack()
    async with Own(ListStore()).kernel(middleware=stack) as kernel:
        await kernel.start_run(tenant=TENANT, run_id="r")
        with pytest.raises(UsageError, match=f"`ListStore` has no `{named}`"):
            await use(kernel)


def test_a_store_that_cannot_seal_is_refused_where_a_key_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GERT_TRACE_SIGNING_KEY", "a secret of enough length")
    with pytest.raises(UsageError, match="`ListStore` cannot seal runs"):
        Own(ListStore()).kernel()


@in_loop
async def test_people_and_limits_of_one_run_work() -> None:
    from tests.ecosystem.host.agent.test_agent_approvals import people

    policy: dict[str, Any] = {"approval": {"mode": "human"}, "limits": {"max_calls_per_run": 1}}
    async with Mailer(Own(ListStore()), approvals=people(), **policy) as mailer:
        await mailer.begin()
        with pytest.raises(GertError) as caught:
            await mailer.send()
        key = caught.value.approval_key  # type: ignore[attr-defined]
        await mailer.kernel.approve_tool_call(run_id="r", tenant=TENANT, approval_key=key, mode="human", reason="ok")
        await mailer.send()
        with pytest.raises(PolicyViolationError):
            await mailer.send("two")
        assert len(mailer.sent) == 1
