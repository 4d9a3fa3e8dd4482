"""The protocols of stores: events by run, and what a store may support beyond that."""

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

    async def get_events_for_run(self, run_id: str) -> list[KernelEvent]:
        """Return every event of a run."""

    async def get_latest_run_summary(self, run_id: str, summary_type: str) -> RunSummaryPayload | None:
        """Return the newest summary of a type."""

    async def verify_run_chain(self, run_id: str) -> bool:
        """Verify the chain of a run; an unknown run is an error."""

    async def close(self) -> None:
        """Release the resources of the store."""


@runtime_checkable
class SupportsEventStreaming(Protocol):
    """A store that streams events."""

    def stream_events(
        self,
        run_id: str,
        *,
        since_seq: int = 0,
        follow: bool = False,
        poll_interval_seconds: float = 0.5,
        idle_timeout_seconds: float | None = None,
    ) -> AsyncIterator[KernelEvent]:
        """Yield the events of a run, and with `follow` also new ones."""


@runtime_checkable
class SupportsModelCostAggregation(Protocol):
    """A store that sums the cost of a run."""

    async def get_model_cost_sum_for_run(self, run_id: str) -> float:
        """Return the cost of a run's model calls."""


@runtime_checkable
class SupportsRunIndexing(Protocol):
    """A store that lists its runs."""

    async def list_run_ids(self, *, tenant_id: str | None = None, since: datetime | None = None) -> list[str]:
        """Return the ids of runs, newest first."""


@runtime_checkable
class SupportsRunLeasing(Protocol):
    """A store that lets one worker at a time drive a run."""

    async def acquire_run_lease(self, *, run_id: str, worker_id: str, ttl_seconds: int) -> bool:
        """Acquire the lease of a run."""

    async def renew_run_lease(self, *, run_id: str, worker_id: str, ttl_seconds: int) -> bool:
        """Renew the lease of a run."""

    async def release_run_lease(self, *, run_id: str, worker_id: str) -> bool:
        """Release the lease of a run."""

    async def get_run_lease(self, *, run_id: str) -> RunLeaseRecord | None:
        """Return the current lease of a run."""


@runtime_checkable
class SupportsRunStateSnapshots(Protocol):
    """A store that keeps the state of its runs."""

    async def get_run_state_snapshot(self, *, run_id: str) -> RunStateSnapshotRecord | None:
        """Return the state of a run."""

    async def list_run_state_snapshots(
        self, *, tenant_id: str, since: datetime | None = None, status: RunStateLifecycleStatus | None = None
    ) -> list[RunStateSnapshotRecord]:
        """Return the states of a tenant's runs."""


@runtime_checkable
class SupportsStoreSchemaInfo(Protocol):
    """A store that reports its schema version."""

    async def get_schema_info(self) -> StoreSchemaInfo:
        """Return the backend and its schema version."""


@runtime_checkable
class SupportsToolPolicyAggregation(Protocol):
    """A store that counts tool calls and finds them by semantic key."""

    async def get_latest_tool_semantic_outcome(
        self, *, tenant_id: str, tool_name: str, semantic_idempotency_key: str
    ) -> ToolSemanticOutcomeRecord | None:
        """Return the outcome of the newest call with a semantic key."""

    async def get_tool_request_count_for_run(self, *, run_id: str, tool_name: str) -> int:
        """Return how often a run has called a tool."""

    async def get_tool_request_count_for_tenant_since(self, *, tenant_id: str, tool_name: str, since: datetime) -> int:
        """Return how often a tenant has called a tool since a moment."""


class HasLedger(Protocol):
    """A store over a ledger, which the kernel appends to."""

    @property
    def ledger(self) -> Ledger:
        """Return the ledger."""


def ledger_of(store: EventStore | HasLedger) -> Ledger:
    """Return the ledger of a store; UsageError if it has none."""
    ledger = getattr(store, "ledger", None)
    if ledger is None:
        raise UsageError(
            f"a kernel needs a store with a ledger, found `{type(store).__name__}`",
            hint="use SQLiteStore, PostgresStore or InMemoryStore",
        )
    return ledger  # type: ignore[no-any-return]
