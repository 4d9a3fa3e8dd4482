"""Where a plan is spent: creating its run in the ledger, or its marker in the state directory, is the spend."""

from contextlib import AsyncExitStack
from typing import Final

import msgspec

from gert.ecosystem.host.config.state_dir import RunFolder
from gert.ecosystem.host.run.record.lease import hold_lease
from gert.ecosystem.ledger.holder import this_process
from gert.ecosystem.ledger.jsonl.mirror import Mirror
from gert.ecosystem.runners.artifacts import StateFolder
from gert.ecosystem.runners.verification import Started
from gert.errors import Busy, GertError, LeaseLost, Refused, TraceError
from gert.kernel.events.payload import Payload
from gert.kernel.events.runner import PlanAuthorized, PlanCreated, RunnerRecorded, RunnerStarted
from gert.kernel.foundation.canonical import canonical
from gert.kernel.foundation.names import is_run_id
from gert.kernel.ledger.build_batch import Entry, build_batch
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Batch, Head, Holder, Written
from gert.kernel.runner.execution_record import ExecutionRecord
from gert.kernel.runner.plan import STATE, plan_data


def marker_of(plan_id: str) -> str:
    """The path of the marker of a plan that is spent without a ledger."""
    return f"{STATE}/spent/{plan_id}.json"


class LedgerSpend:
    """Spends plans in a ledger: the id of the plan is the id of a run, and a run begins once.

    held: keeps the lease of the run until the process ends
    state: the state directory whose ledger it is; its runs are mirrored there
    root_run: the root of the run that a plan is executed for, where a run started that one
    """

    def __init__(
        self,
        ledger: Ledger,
        name: str,
        held: AsyncExitStack,
        *,
        host: str,
        version: str,
        state: str | None,
        root_run: str | None = None,
    ) -> None:
        self.name: str | None = name
        self._ledger = ledger
        self._held = held
        self._host = host
        self._version = version
        self._state = state
        self._root_run = root_run
        self._mirror: Mirror | None = None
        self._plan_id = ""

    async def is_spent(self, plan_id: str) -> bool:
        """Whether there is such a run."""
        return await self._ledger.head(plan_id) is not None

    async def begin(self, started: Started) -> None:
        """Begin the run of the plan; it holds the plan, its authorization and that the runner has started."""
        self._plan_id = started.plan.plan_id
        try:
            await self._held.enter_async_context(hold_lease(self._ledger, self._plan_id))
            lines = await self._append(self._opening(started), started.documents, is_first=True)
        except (Busy, LeaseLost):
            raise Refused("spent/plan", f"the plan `{self._plan_id}` is being executed by another process") from None
        except TraceError as problem:
            raise Refused("spent/ledger", f"the plan cannot be spent: {problem.message}", hint=problem.hint) from None
        self._begin_mirror(lines)

    def _opening(self, started: Started) -> list[Payload]:
        root = self._root_run if self._root_run is not None and is_run_id(self._root_run) else started.plan.run_id
        return _opening(started, self._host, self._version, root if started.plan.run_id is not None else None)

    async def finish(self, record: ExecutionRecord, record_digest: str) -> None:
        """Append the record."""
        lines = await self._append([recorded_event(record, record_digest)])
        if self._mirror is not None:
            self._mirror.write(lines)
            self._mirror.close()

    async def _append(
        self, payloads: list[Payload], documents: tuple[tuple[str, bytes], ...] = (), *, is_first: bool = False
    ) -> list[bytes]:
        def write(head: Head, moment: str) -> Batch:
            if is_first and head.count:
                raise Refused("spent/plan", f"the plan `{head.run_id}` was executed before")
            batch = build_batch(head, moment, None, [Entry(payload) for payload in payloads], kind="runner")
            return batch._replace(documents=documents)

        written = await self._ledger.append(self._plan_id, write)
        if not isinstance(written, Written):
            raise TraceError(f"the ledger refused an append to run `{self._plan_id}`")
        return [event.line for event in written.batch.events]

    def _begin_mirror(self, lines: list[bytes]) -> None:
        """Write the mirror of the run; an execution does not depend on it."""
        if self._state is None:
            return
        folder = RunFolder(self._state, self._plan_id)
        try:
            folder.create()
            self._mirror = Mirror.begin(folder.trace)
        except GertError:
            return
        self._held.callback(self._mirror.close)
        self._mirror.write(lines)


def _opening(started: Started, host: str, version: str, root_run: str | None) -> list[Payload]:
    plan, given = started.plan, started.authorization
    return [
        PlanCreated(
            plan_id=plan.plan_id,
            digest=started.digest,
            skill_id=plan.skill_id,
            vendor=plan.vendor,
            runner_id=plan.runner_id,
            plan=plan_data(plan),
            parent_run_id=plan.run_id,
            root_run_id=root_run,
            actor=plan.requested_by,
        ),
        PlanAuthorized(
            digest=given.plan_digest,
            runner_id=given.runner_id,
            scope=given.scope,
            issued_at=given.issued_at,
            expires_at=given.expires_at,
            verdict=given.grant.verdict,
            rule=given.grant.rule,
            tickets=given.grant.tickets,
            approvers=given.grant.approvers,
            alg=given.alg,
            key_id=given.key_id,
            signature=given.signature,
        ),
        RunnerStarted(
            runner_id=plan.runner_id,
            scope=started.scope,
            isolation=started.isolation,
            host=host,
            gert_version=version,
            dispatched=started.dispatched,
        ),
    ]


def recorded_event(record: ExecutionRecord, record_digest: str, *, recovered: bool = False) -> RunnerRecorded:
    """The event that closes an execution."""
    return RunnerRecorded(
        exit_code=record.exit_code,
        rule=record.rule,
        message=record.message,
        record=msgspec.json.decode(msgspec.json.encode(record)),
        record_digest=record_digest,
        recovered=recovered,
    )


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """What a state directory says about a plan that was spent there."""

    plan_id: str
    digest: str
    holder: Holder | None = None


_MARKER: Final = msgspec.json.Decoder(Marker)


class FolderSpend:
    """Spends plans in a state directory: single use holds there, and nowhere else."""

    def __init__(self, state: str) -> None:
        self.name: str | None = None
        self._state = state

    async def is_spent(self, plan_id: str) -> bool:
        """Whether there is a marker."""
        return read_marker(self._state, plan_id) is not None

    async def begin(self, started: Started) -> None:
        """Create the marker; only one process can."""
        marker = Marker(plan_id=started.plan.plan_id, digest=started.digest, holder=this_process())
        with StateFolder(self._state) as folder:
            try:
                folder.write(marker_of(marker.plan_id), canonical(msgspec.to_builtins(marker)))
            except Refused:
                if folder.read(marker_of(marker.plan_id)) is None:
                    raise
                raise Refused("spent/plan", f"the plan `{marker.plan_id}` was executed before") from None

    async def finish(self, record: ExecutionRecord, record_digest: str) -> None:
        """The record beside the artifacts is the report."""


def read_marker(state: str, plan_id: str) -> Marker | None:
    """The marker of a plan, if it was spent in this state directory; one that cannot be read counts as spent."""
    with StateFolder(state) as folder:
        data = folder.read(marker_of(plan_id))
    if data is None:
        return None
    try:
        return _MARKER.decode(data)
    except msgspec.MsgspecError:
        return Marker(plan_id=plan_id, digest="")
