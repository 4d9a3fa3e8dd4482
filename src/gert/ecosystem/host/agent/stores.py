"""The documented stores: each is a ledger behind the same methods."""

import logging
import os
from collections.abc import AsyncIterator
from datetime import datetime
from os import PathLike, fspath
from typing import Any, Final, cast

import msgspec

from gert.ecosystem.host.agent.event_listener import EventListener, ObservedLedger, OnEvent
from gert.ecosystem.host.config.dsn import Dsn
from gert.ecosystem.host.config.keys.trace_keys import signing_key
from gert.ecosystem.host.config.ledger_location import Database
from gert.ecosystem.host.config.telemetry import export_for
from gert.errors import InputError, RunError, RunExists, RunNotFound
from gert.kernel.agent.types.payload_models import EventPayload, EventType, RunSummaryPayload
from gert.kernel.agent.types.payloads import KernelEvent, event_from_line, known_events, to_entry_payload
from gert.kernel.agent.types.store import (
    RunLeaseRecord,
    RunStateLifecycleStatus,
    RunStateSnapshotRecord,
    StoreSchemaInfo,
    ToolSemanticOutcomeRecord,
)
from gert.kernel.events.agent import RunSummary, ToolRequested
from gert.kernel.events.envelope import decode, parse_timestamp
from gert.kernel.events.payload import Payload
from gert.kernel.foundation.arguments import checks_arguments
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps
from gert.kernel.foundation.closable import Closable
from gert.kernel.foundation.signature import Key, Keys
from gert.kernel.ledger.build_batch import Entry, build_batch
from gert.kernel.ledger.export import RunExport
from gert.kernel.ledger.head_seal import adoption
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.projection import event_id, idempotency_key, seq_of
from gert.kernel.ledger.record import Batch, Head, RunFilter, Written
from gert.kernel.ledger.witness import Witness

_LOG: Final = logging.getLogger("gert.agent")
PAGE = 1000
ADOPTED = "run_adopted"
"""The type of the summary that says why a run which was not sealed is continued."""


@checks_arguments
class LedgerStore(Closable):
    """A store over a ledger.

    database: where the ledger is, if other processes can open it
    """

    database: Database | None = None

    def __init__(
        self,
        ledger: Ledger,
        on_event: OnEvent | None = None,
        keys: Keys | None = None,
        witness: Witness | None = None,
        export: RunExport | None = None,
    ) -> None:
        ledger.witness = witness
        ledger.export = export if export is not None else export_for(None, os.environ, _LOG.warning)
        listened = ledger if on_event is None else ObservedLedger(ledger, EventListener(on_event))
        self.ledger = cast("Ledger", listened)
        self._keys = keys if keys is not None else Keys()

    async def append_event(
        self,
        *,
        run_id: str,
        tenant_id: str,
        event_type: EventType,
        payload: EventPayload,
        parent_step_key: str | None = None,
    ) -> KernelEvent:
        """Append one event; durable when this returns. A `tool_requested` gets the idempotency key of its number.

        An end without `request_seq` ends the newest open request of the same model, tool or step.
        """
        if payload.kind != event_type.value:
            raise InputError(f"expected the payload of `{event_type.value}`, found `{payload.kind}`")
        said = to_entry_payload(await with_request_seq(self.ledger, run_id, payload))

        def write(head: Head, moment: str) -> Batch:
            if bool(head.count) == (event_type is EventType.RUN_STARTED):
                if head.count:
                    raise RunExists(f"run `{run_id}` already exists")
                raise RunNotFound(f"run `{run_id}` has not started")
            return build_batch(head, moment, tenant_id, (Entry(_keyed(said, run_id, head.count + 1), parent_step_key),))

        written = await self.ledger.append(run_id, write)
        if not isinstance(written, Written):
            raise RunError(f"another call holds the semantic key of this one, in run `{run_id}`")
        return event_from_line(written.batch.events[0].line)

    async def get_events_for_run(self, run_id: str) -> list[KernelEvent]:
        """Return every event of a run whose type this version knows; none if the run does not exist."""
        events: list[KernelEvent] = []
        read = 0
        while lines := await self.ledger.lines(run_id, read, PAGE):
            events.extend(known_events(lines))
            read += len(lines)
        return events

    async def get_latest_run_summary(self, run_id: str, summary_type: str) -> RunSummaryPayload | None:
        """Return the newest summary of a type."""
        line = await self.ledger.summary(run_id, summary_type)
        said = None if line is None else decode(line).payload
        if not isinstance(said, RunSummary):
            return None
        return RunSummaryPayload(summary_type=said.summary_type, summary_json=said.summary_json, step_key=said.step_key)

    async def verify_run_chain(self, run_id: str) -> bool:
        """Verify the chain of a run; an unknown run is an error.

        With a signing key, its head must be sealed, too.
        """
        from gert.ecosystem.ledger.verify_run import verify_run

        return (await verify_run(self.ledger, run_id, self._keys)).holds

    async def adopt_unsealed_run(self, *, run_id: str, tenant_id: str, reason: str, actor: str = "") -> KernelEvent:
        """Continue a run that is not sealed although this store seals runs, and record who did so and why.

        The events recorded so far are sealed as they are found; nothing proves their origin.
        """

        def write(head: Head, moment: str) -> Batch:
            if not head.count:
                raise RunNotFound(f"run `{run_id}` has not started")
            facts = canonical_json_dumps(msgspec.to_builtins(adoption(head, actor, reason)))
            note = RunSummary(summary_type=ADOPTED, summary_json=facts)
            return build_batch(head, moment, tenant_id, (Entry(note),))

        written = await self.ledger.append(run_id, write, adopt=True)
        if not isinstance(written, Written):
            raise RunError(f"run `{run_id}` was not adopted")
        return event_from_line(written.batch.events[0].line)

    async def list_run_ids(self, *, tenant_id: str | None = None, since: datetime | None = None) -> list[str]:
        """Return the ids of runs, newest first."""
        return [head.run_id for head in await self.ledger.runs(RunFilter(tenant_id, "agent", since=since))]

    async def get_model_cost_sum_for_run(self, run_id: str) -> float:
        """Return the cost of a run's model calls."""
        head = await self.ledger.head(run_id)
        return head.agent.model_cost if head is not None and head.agent is not None else 0.0

    async def get_run_state_snapshot(self, *, run_id: str) -> RunStateSnapshotRecord | None:
        """Return the state of a run."""
        head = await self.ledger.head(run_id)
        return None if head is None else _snapshot(head)

    async def list_run_state_snapshots(
        self, *, tenant_id: str, since: datetime | None = None, status: RunStateLifecycleStatus | None = None
    ) -> list[RunStateSnapshotRecord]:
        """Return the states of a tenant's runs, newest first."""
        heads = await self.ledger.runs(RunFilter(tenant_id, "agent", status, since))
        return [found for head in heads if (found := _snapshot(head)) is not None]

    async def stream_events(
        self,
        run_id: str,
        *,
        since_seq: int = 0,
        follow: bool = False,
        poll_interval_seconds: float = 0.5,
        idle_timeout_seconds: float | None = None,
    ) -> AsyncIterator[KernelEvent]:
        """Yield the events of a run; with `follow` also new ones, without polling."""
        async for line in self.ledger.stream(run_id, since_seq, follow=follow, idle_timeout=idle_timeout_seconds):
            for event in known_events((line,)):
                yield event

    async def acquire_run_lease(self, *, run_id: str, worker_id: str, ttl_seconds: int) -> bool:
        """Acquire the lease of a run."""
        return await self.ledger.acquire(run_id, worker_id, ttl_seconds) is not None

    async def renew_run_lease(self, *, run_id: str, worker_id: str, ttl_seconds: int) -> bool:
        """Renew the lease of a run."""
        return await self.ledger.renew(run_id, worker_id, ttl_seconds) is not None

    async def release_run_lease(self, *, run_id: str, worker_id: str) -> bool:
        """Release the lease of a run."""
        return await self.ledger.release(run_id, worker_id)

    async def get_run_lease(self, *, run_id: str) -> RunLeaseRecord | None:
        """Return the current lease of a run."""
        held = await self.ledger.lease(run_id)
        if held is None or held.worker_id is None:
            return None
        return RunLeaseRecord(run_id, held.worker_id, held.expires_at)

    async def get_latest_tool_semantic_outcome(
        self, *, tenant_id: str, tool_name: str, semantic_idempotency_key: str
    ) -> ToolSemanticOutcomeRecord | None:
        """Return the outcome of the newest call with a semantic key; an open call has an unknown outcome."""
        calls = await self.ledger.holders(tenant_id, tool_name, semantic_idempotency_key)
        if not calls:
            return None
        call = calls[0]
        line = (await self.ledger.lines_at(call.run_id, (call.seq,))).get(call.seq)
        request = None if line is None else decode(line).payload
        if not isinstance(request, ToolRequested):
            return None
        outcome = "unknown_outcome" if call.outcome == "open" else call.outcome
        return ToolSemanticOutcomeRecord(
            call.run_id, event_id(call.run_id, call.seq), outcome, request.step_key, request.arguments_json
        )

    async def get_tool_request_count_for_run(self, *, run_id: str, tool_name: str) -> int:
        """Return how often a run has called a tool."""
        return await self.ledger.count_calls(tool_name, run_id=run_id)

    async def get_tool_request_count_for_tenant_since(self, *, tenant_id: str, tool_name: str, since: datetime) -> int:
        """Return how often a tenant has called a tool since a moment."""
        return await self.ledger.count_calls(tool_name, tenant=tenant_id, since=since)

    async def get_schema_info(self) -> StoreSchemaInfo:
        """Return the backend and its schema version."""
        info = await self.ledger.schema_info()
        return StoreSchemaInfo(cast("Any", info.backend), info.schema_version)

    async def close(self) -> None:
        """Close the ledger after pending appends."""
        await self.ledger.close()
        witness = self.ledger.witness
        if witness is not None and witness.problem is not None:
            _LOG.warning("%s", witness.problem)


@checks_arguments
class InMemoryStore(LedgerStore):
    """A store in memory: a SQLite ledger that lives as long as the store."""

    def __init__(self, *, on_event: OnEvent | None = None, export: RunExport | None = None, **ledger: Any) -> None:
        from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger

        super().__init__(SqliteLedger(":memory:", **ledger), on_event, export=export)


@checks_arguments
class SQLiteStore(LedgerStore):
    """A store in a SQLite file, durable by default.

    busy_timeout_ms: how long each of `max_retry_attempts` waits for other processes
    retry_backoff_seconds: the pause after the first attempt; it doubles with each further one
    """

    def __init__(
        self,
        database_path: str | PathLike[str],
        *,
        busy_timeout_ms: int = 5000,
        max_retry_attempts: int = 5,
        retry_backoff_seconds: float = 0.02,
        on_event: OnEvent | None = None,
        export: RunExport | None = None,
        **ledger: Any,
    ) -> None:
        from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger

        self.database = os.path.abspath(fspath(database_path)) if fspath(database_path) != ":memory:" else None
        key = _key(ledger)
        witness = _witness(ledger, fspath(database_path), key)
        super().__init__(
            SqliteLedger(
                fspath(database_path),
                key=key,
                patience=_patience(busy_timeout_ms, max_retry_attempts, retry_backoff_seconds),
                **ledger,
            ),
            on_event,
            _keys(key),
            witness,
            export,
        )


@checks_arguments
class PostgresStore(LedgerStore):
    """A store in Postgres, which several machines can share."""

    def __init__(
        self,
        dsn: str,
        *,
        min_pool_size: int = 1,
        max_pool_size: int = 10,
        command_timeout_seconds: float = 30.0,
        max_retry_attempts: int = 5,
        retry_backoff_seconds: float = 0.02,
        on_event: OnEvent | None = None,
        export: RunExport | None = None,
        **ledger: Any,
    ) -> None:
        from gert.ecosystem.ledger.postgres.ledger import PostgresLedger

        # Runs of runbooks are recorded in the schema `gert`.
        self.database = Dsn(dsn) if ledger.get("schema", "gert") == "gert" else None
        key = _key(ledger)
        witness = _witness(ledger, Dsn(dsn), key)
        super().__init__(
            PostgresLedger(
                dsn,
                key=key,
                min_pool_size=min_pool_size,
                max_pool_size=max_pool_size,
                command_timeout_seconds=command_timeout_seconds,
                max_retry_attempts=max_retry_attempts,
                retry_backoff_seconds=retry_backoff_seconds,
                **ledger,
            ),
            on_event,
            _keys(key),
            witness,
            export,
        )


async def with_request_seq(ledger: Ledger, run_id: str, payload: EventPayload) -> EventPayload:
    """Complete an end with the number of the request it ends; 0 if no such request is open."""
    kind, name_field = _ENDS.get(payload.kind, ("", ""))
    if not kind or getattr(payload, "request_seq", None) is not None:
        return payload
    named = getattr(payload, "request_id", None)
    if isinstance(named, str) and named.startswith(f"{run_id}#"):
        return payload.model_copy(update={"request_seq": seq_of(named)})
    name = getattr(payload, name_field)
    found = [call.seq for call in await ledger.open_calls(run_id) if (call.kind, call.name) == (kind, name)]
    return payload.model_copy(update={"request_seq": max(found, default=0)})


_ENDS = {
    "model_completed": ("model", "model"),
    "model_failed": ("model", "model"),
    "tool_completed": ("tool", "tool_name"),
    "workflow_step_completed": ("workflow", "step_name"),
    "workflow_step_failed": ("workflow", "step_name"),
}
"""The events that end a request: the kind of request, and the field that names it."""


def _patience(busy_timeout_ms: int, attempts: int, backoff_seconds: float) -> float:
    """Return how long all attempts take together, in seconds."""
    attempts = max(1, attempts)
    return attempts * busy_timeout_ms / 1000 + backoff_seconds * (2.0 ** (attempts - 1) - 1)


def _key(settings: dict[str, Any]) -> Key | None:
    """Return the key that seals the heads of runs: the one passed, or the one that signs traces."""
    if "key" in settings:
        return cast("Key | None", settings.pop("key"))
    return signing_key(os.environ)


def _witness(settings: dict[str, Any], database: Database, key: Key | None) -> Witness | None:
    """Return the witness of sealed heads: the one passed, or the one that the settings of the working folder name."""
    where = cast("str | PathLike[str] | None", settings.pop("witness", None))
    if key is None and where is None:
        return None
    from gert.ecosystem.host.config.settings import settings_for, witness_place
    from gert.ecosystem.host.config.witness import witness_for
    from gert.ecosystem.host.config.workspace import Workspace

    working = os.getcwd()
    found = settings_for(Workspace(working), working)
    if where is not None:
        found = msgspec.structs.replace(found, witness=witness_place(working, fspath(where)))
    return witness_for(found, os.environ, database, key)


def _keys(key: Key | None) -> Keys:
    return Keys() if key is None else Keys([key])


def _keyed(said: Payload, run_id: str, seq: int) -> Payload:
    if not isinstance(said, ToolRequested):
        return said
    import msgspec

    return msgspec.structs.replace(said, idempotency_key=idempotency_key(run_id, said.tool_name, seq))


def _snapshot(head: Head) -> RunStateSnapshotRecord | None:
    found = head.agent
    if found is None:
        return None
    failed = found.status == "failed"
    return RunStateSnapshotRecord(
        run_id=head.run_id,
        tenant_id=head.tenant or "",
        last_event_seq=head.count,
        last_event_type=found.last_type,
        updated_at=parse_timestamp(head.updated_at),
        status=found.status,
        blocked_on=found.blocked_on,
        failure_reason=found.failure_reason if failed else None,
        last_step_key=found.last_step_key,
        drift_count=found.drift_count,
        last_stage=found.last_stage,
        last_tool=found.last_tool,
        model_cost_total=found.model_cost,
        open_pause_count=len(found.pauses),
        explain_status="failed" if failed else "completed",
        explain_failure_reason=found.failure_reason if failed else None,
        explain_failure_step=found.failure_step if failed else None,
    )
