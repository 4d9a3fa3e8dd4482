"""Report the state of plans whose runner is gone, and close their runs: recorded, or in doubt."""

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from typing import Final, Literal

import msgspec

from gert.ecosystem.host.config.ledger_location import open_ledger
from gert.ecosystem.host.config.telemetry import export_for
from gert.ecosystem.host.run.record.lease import hold_lease
from gert.ecosystem.host.runner.plan_files import PLAN_SUFFIX, PLANS, load_authorization, load_plan
from gert.ecosystem.host.runner.plan_state import PlanState, state_in, state_of
from gert.ecosystem.host.runner.project import RunnerProject
from gert.ecosystem.host.runner.spend import recorded_event
from gert.ecosystem.runners.artifacts import StateFolder
from gert.errors import Busy, GertError, Refused, TraceError
from gert.kernel.events.envelope import decode, parse_timestamp
from gert.kernel.events.payload import Payload
from gert.kernel.events.runner import PlanCreated, RunnerInDoubt
from gert.kernel.foundation.canonical import digest
from gert.kernel.ledger.build_batch import Entry, build_batch
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Batch, Head, RunFilter
from gert.kernel.runner.execution_record import record_bytes
from gert.kernel.runner.plan import STATE, Plan

Word = Literal["done", "unspent", "running", "in doubt"]
_WORDS: Final[dict[str, Word]] = {
    "recorded": "done",
    "unspent": "unspent",
    "running": "running",
    "in-doubt": "in doubt",
}


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """One plan and its state.

    expires_at: until when an unspent plan is authorized; None if it is not
    closed: its run in the ledger was closed now
    """

    plan_id: str
    skill_id: str
    runner_id: str
    state: Word
    exit_code: int | None = None
    message: str | None = None
    expires_at: str | None = None
    artifacts: tuple[str, ...] = ()
    closed: bool = False


async def recover(
    project: RunnerProject, files: Iterable[str] = (), *, actor: str, now: datetime, look_only: bool = False
) -> AsyncIterator[Recovered]:
    """Go through every plan that the state directory, the ledger or `files` know.

    look_only: change nothing
    """
    plans: dict[str, tuple[Plan, str | None]] = {}
    for file in _stored(project.state):
        if (plan := _readable(file)) is not None:
            plans[plan.plan_id] = plan, file
    named = [(load_plan(file), file) for file in files]
    plans |= {plan.plan_id: (plan, file) for plan, file in named}
    async with AsyncExitStack() as held:
        ledger = await _ledger(project, held, look_only=look_only)
        if ledger is not None:
            for plan in await _executed(ledger):
                known = plans.get(plan.plan_id)
                if known is None or known[0] != plan:
                    plans[plan.plan_id] = plan, None  # another plan with the id of an executed one was never executed
        for _, (plan, found) in sorted(plans.items()):
            yield await _recovered(project, ledger, plan, found, actor, now, look_only=look_only)


async def _ledger(project: RunnerProject, held: AsyncExitStack, *, look_only: bool) -> Ledger | None:
    if isinstance(project.database, str) and not os.path.exists(project.database):
        return None
    ledger = await held.enter_async_context(open_ledger(project.database, project.environ, read_only=look_only))
    ledger.export = None if look_only else export_for(project.settings.telemetry, project.environ)
    return ledger


def _stored(state: str) -> Iterable[str]:
    folder = os.path.join(state, STATE, PLANS)
    try:
        return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(PLAN_SUFFIX))
    except OSError:
        return ()


def _readable(file: str) -> Plan | None:
    try:
        return load_plan(file)
    except GertError:
        return None  # what is no plan was never authorized: `gert plan verify` says what is wrong with it


async def _executed(ledger: Ledger) -> list[Plan]:
    """The plans that the ledger has runs of."""
    found = []
    for head in await ledger.runs(RunFilter(kind="runner")):
        lines = await ledger.lines(head.run_id, 0, 1)
        said = decode(lines[0]).payload if lines else None
        if isinstance(said, PlanCreated):
            found.append(msgspec.convert(said.plan, Plan))
    return found


async def _recovered(
    project: RunnerProject,
    ledger: Ledger | None,
    plan: Plan,
    file: str | None,
    actor: str,
    now: datetime,
    *,
    look_only: bool,
) -> Recovered:
    known, closed = await _known(project, ledger, plan), False
    if known.state in ("recorded", "in-doubt") and not known.is_reported and ledger is not None and not look_only:
        closed = await _close(ledger, plan, known, actor, project.state)
    return Recovered(
        plan_id=plan.plan_id,
        skill_id=plan.skill_id,
        runner_id=plan.runner_id,
        state=_WORDS[known.state],
        exit_code=known.record.exit_code if known.record is not None else None,
        message=known.record.message if known.record is not None else None,
        expires_at=_authorized_until(file, now) if known.state == "unspent" and file is not None else None,
        artifacts=tuple(_artifacts(plan, project.state)) if known.state == "in-doubt" else (),
        closed=closed,
    )


async def _known(project: RunnerProject, ledger: Ledger | None, plan: Plan) -> PlanState:
    if plan.ledger is None or ledger is None:
        return await state_of(plan, project.database, project.state)
    return await state_in(ledger, plan, project.state)


async def _close(ledger: Ledger, plan: Plan, known: PlanState, actor: str, state: str) -> bool:
    """Append what is known to the run of a plan that no runner executes."""
    payload: Payload
    if known.record is not None:
        payload = recorded_event(known.record, digest(record_bytes(known.record)), recovered=True)
    else:
        reason = "the runner ended without a record, so the vendor may have been called"
        payload = RunnerInDoubt(reason=reason, actor=actor, artifacts=_artifacts(plan, state))

    def write(head: Head, moment: str) -> Batch:
        if head.runner is None or head.runner.is_recorded or head.runner.in_doubt:
            raise TraceError(f"the run of the plan `{plan.plan_id}` was closed meanwhile")
        return build_batch(head, moment, None, [Entry(payload)], kind="runner")

    try:
        async with hold_lease(ledger, plan.plan_id):
            await ledger.append(plan.plan_id, write)
    except (Busy, TraceError):
        return False
    return True


def _artifacts(plan: Plan, state: str) -> dict[str, str]:
    """The artifacts that are there and can be read, with their digests."""
    found: dict[str, str] = {}
    with StateFolder(state) as folder:
        for name, path in plan.artifacts.paths.items():
            with suppress(Refused):
                data = folder.read(path)
                found |= {name: digest(data)} if data is not None else {}
    return found


def _authorized_until(file: str, now: datetime) -> str | None:
    try:
        found = load_authorization(file)
        return found.expires_at if parse_timestamp(found.expires_at) > now else None
    except (Refused, TraceError):
        return None
