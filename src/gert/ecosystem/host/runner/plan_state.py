"""The state of a plan: unspent, running, recorded, or in doubt."""

import os
from typing import Literal

import msgspec

from gert.ecosystem.host.config.ledger_location import Database, open_ledger
from gert.ecosystem.host.runner.spend import read_marker
from gert.ecosystem.ledger.holder import is_gone, is_running
from gert.ecosystem.runners.artifacts import StateFolder
from gert.errors import Refused
from gert.kernel.events.envelope import decode
from gert.kernel.events.runner import RunnerRecorded
from gert.kernel.ledger.port import Ledger
from gert.kernel.runner.execution_record import ExecutionRecord, read_record
from gert.kernel.runner.plan import Plan, plan_digest

State = Literal["unspent", "running", "recorded", "in-doubt"]


class PlanState(msgspec.Struct, frozen=True):
    """The state of a plan.

    record: of an execution that has ended
    is_reported: the ledger has the record, or the outcome is declared unknown there
    """

    state: State
    record: ExecutionRecord | None = None
    is_reported: bool = False


async def state_of(plan: Plan, database: Database, state: str) -> PlanState:
    """Return the state of a plan; without a ledger nothing is spent."""
    if plan.ledger is None:
        return _without_ledger(plan, state)
    if isinstance(database, str) and not os.path.exists(database):
        return PlanState("unspent")
    async with open_ledger(database, {}, read_only=True) as ledger:
        return await state_in(ledger, plan, state)


async def state_in(ledger: Ledger, plan: Plan, state: str) -> PlanState:
    """Find out what a ledger says of a plan, and what its artifacts say where the ledger knows no end."""
    head = await ledger.head(plan.plan_id)
    if head is None:
        return PlanState("unspent")
    snapshot = head.runner
    if snapshot is None or snapshot.digest != plan_digest(plan):
        raise Refused("spent/ledger", f"run `{plan.plan_id}` of the ledger is not an execution of this plan")
    if snapshot.is_recorded:
        return PlanState("recorded", await _recorded(ledger, plan), is_reported=True)
    lease = await ledger.lease(plan.plan_id)
    if lease is not None and not (lease.holder is not None and is_gone(lease.holder)):
        return PlanState("running")
    found = record_in(plan, state)
    return PlanState("in-doubt" if found is None else "recorded", found, is_reported=snapshot.in_doubt)


async def _recorded(ledger: Ledger, plan: Plan) -> ExecutionRecord | None:
    for line in await ledger.last_lines(plan.plan_id, 8):
        said = decode(line).payload
        if isinstance(said, RunnerRecorded):
            return msgspec.convert(said.record, ExecutionRecord)
    return None


def record_in(plan: Plan, state: str) -> ExecutionRecord | None:
    """The record beside the artifacts of a plan; it is written last, so where there is one, everything is there.

    One that cannot be read, or belongs to another plan, is none: the plan is spent, and its outcome is unknown.
    """
    try:
        with StateFolder(state) as folder:
            data = folder.read(plan.artifacts.record)
        return None if data is None else read_record(data, plan, plan_digest(plan))
    except Refused:
        return None


def _without_ledger(plan: Plan, state: str) -> PlanState:
    marker = read_marker(state, plan.plan_id)
    if marker is None:
        return PlanState("unspent")
    found = record_in(plan, state)
    if found is not None:
        return PlanState("recorded", found, is_reported=True)
    alive = marker.holder is not None and is_running(marker.holder)
    return PlanState("running" if alive else "in-doubt")
