"""The stores callers know: events by run, with what a store may support beyond that."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Protocol, runtime_checkable

from gert.errors import UsageError
from gert.kernel.agent.types.payload_models import EventPayload, EventType, RunSummaryPayload
from gert.kernel.agent.types.payloads import KernelEvent
from gert.kernel.agent.types.store import (
    RunLeaseRecord,
    RunStateLifecycleStatus,
    RunStateSnapshotRecord,
    StoreSchemaInfo,
    ToolSemanticOutcomeRecord,
)
from gert.kernel.ledger.port import Ledger


class EventStore(Protocol):
    """Keeps the events of runs."""

    async def append_event(
        self,
        *,
        run_id: str,
        tenant_id: str,
        event_type: EventType,
        payload: EventPayload,
        parent_step_key: str | None = None,
    ) -> KernelEvent:
        """Append one event; durable when this returns."""
        ...

    async def get_events_for_run(self, run_id: str) -> list[KernelEvent]:
        """Every event of a run."""
        ...

    async def get_latest_run_summary(self, run_id: str, summary_type: str) -> RunSummaryPayload | None:
        """The newest summary of a type."""
        ...

    async def verify_run_chain(self, run_id: str) -> bool:
        """Whether the record of a run is whole and unchanged; an unknown run is an error."""
        ...

    async def close(self) -> None:
        """Let go of what the store holds."""
        ...


@runtime_checkable
class SupportsEventStreaming(Protocol):
    """A store that tells of events as they come."""

    def stream_events(
        self,
        run_id: str,
        *,
        since_seq: int = 0,
        follow: bool = False,
        poll_interval_seconds: float = 0.5,
        idle_timeout_seconds: float | None = None,
    ) -> AsyncIterator[KernelEvent]:
        """The events of a run, and those to come."""
        ...


@runtime_checkable
class SupportsModelCostAggregation(Protocol):
    """A store that knows what a run has cost."""

    async def get_model_cost_sum_for_run(self, run_id: str) -> float:
        """What the models of a run have cost."""
        ...


@runtime_checkable
class SupportsRunIndexing(Protocol):
    """A store that lists its runs."""

    async def list_run_ids(self, *, tenant_id: str | None = None, since: datetime | None = None) -> list[str]:
        """The ids of runs, the newest first."""
        ...


@runtime_checkable
class SupportsRunLeasing(Protocol):
    """A store that lets one worker at a time drive a run."""

    async def acquire_run_lease(self, *, run_id: str, worker_id: str, ttl_seconds: int) -> bool:
        """Take a run."""
        ...

    async def renew_run_lease(self, *, run_id: str, worker_id: str, ttl_seconds: int) -> bool:
        """Keep a run."""
        ...

    async def release_run_lease(self, *, run_id: str, worker_id: str) -> bool:
        """Give a run back."""
        ...

    async def get_run_lease(self, *, run_id: str) -> RunLeaseRecord | None:
        """Who has a run."""
        ...


@runtime_checkable
class SupportsRunStateSnapshots(Protocol):
    """A store that knows how its runs stand."""

    async def get_run_state_snapshot(self, *, run_id: str) -> RunStateSnapshotRecord | None:
        """How a run stands."""
        ...

    async def list_run_state_snapshots(
        self, *, tenant_id: str, since: datetime | None = None, status: RunStateLifecycleStatus | None = None
    ) -> list[RunStateSnapshotRecord]:
        """How the runs of a tenant stand."""
        ...


@runtime_checkable
class SupportsStoreSchemaInfo(Protocol):
    """A store that says what it is."""

    async def get_schema_info(self) -> StoreSchemaInfo:
        """What the database says of itself."""
        ...


@runtime_checkable
class SupportsToolPolicyAggregation(Protocol):
    """A store that counts tool calls, and knows what calls meant the same."""

    async def get_latest_tool_semantic_outcome(
        self, *, tenant_id: str, tool_name: str, semantic_idempotency_key: str
    ) -> ToolSemanticOutcomeRecord | None:
        """What came of the newest call by its semantic key."""
        ...

    async def get_tool_request_count_for_run(self, *, run_id: str, tool_name: str) -> int:
        """How often a run has called a tool."""
        ...

    async def get_tool_request_count_for_tenant_since(self, *, tenant_id: str, tool_name: str, since: datetime) -> int:
        """How often a tenant has called a tool lately."""
        ...


class HasLedger(Protocol):
    """A store over a ledger, which is what the kernel works with."""

    @property
    def ledger(self) -> Ledger:
        """The ledger itself."""
        ...


def ledger_of(store: EventStore | HasLedger) -> Ledger:
    """The ledger of a store; UsageError for one that has none."""
    ledger = getattr(store, "ledger", None)
    if ledger is None:
        raise UsageError(
            f"a kernel needs a store with a ledger, found `{type(store).__name__}`",
            hint="use SQLiteStore, PostgresStore or InMemoryStore",
        )
    return ledger  # type: ignore[no-any-return]
