"""One skill call, from request to result: plan, verdict, authorization, one-shot runner, record.

There is no other way to a skill's secret: steps of runbooks and tools of agents come through here.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from gert.ecosystem.host.config.keys.plan_keys import plan_signing_key
from gert.ecosystem.host.config.ledger_location import open_ledger
from gert.ecosystem.host.config.telemetry import export_for
from gert.ecosystem.host.runner.dispatch import Dispatched, dispatch
from gert.ecosystem.host.runner.plan_files import store_plan, write_authorization
from gert.ecosystem.host.runner.plan_state import state_of
from gert.ecosystem.host.runner.project import RunnerProject
from gert.ecosystem.runners.sandbox import read_files
from gert.errors import InDoubt, Refused
from gert.kernel.governance.contract import Contract, resolve
from gert.kernel.governance.decide import decide
from gert.kernel.governance.rules import Policy
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runner.authorization import Grant, authorize
from gert.kernel.runner.execution_record import ExecutionRecord
from gert.kernel.runner.exit_codes import is_refusal
from gert.kernel.runner.plan import Order, Plan, make_plan

MAX_ATTEMPTS = 100


class SkillResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a call: its record, or why the runner refused before it began.

    replayed: the execution happened before; nothing was called now
    """

    plan_id: str
    record: ExecutionRecord | None = None
    refused: Dispatched | None = None
    replayed: bool = False


def plan_call(project: RunnerProject, order: Order, *, with_ledger: bool = True) -> Plan:
    """Make a plan; Refused where the registry, the router or a secrets policy does not allow it.

    with_ledger: it is spent in the ledger of the project; otherwise once in each state directory
    """
    lookup = project.skill(order.skill_id)
    read_files(lookup)
    skill = lookup.document.model
    plan = make_plan(order, skill, lookup.document.digest, project.runners, project.ledger if with_ledger else None)
    project.allow_secret(skill, plan.secret_ref, plan.scope)
    return plan


def decide_call(contract: Contract, policies: Sequence[Policy]) -> Grant:
    """Decide about a call without a run that could ask for approval; Refused unless it is allowed."""
    decision = decide(contract, policies)
    if decision.verdict is Verdict.DENY:
        raise Refused("governance/denied", f"the call is denied by {decision.rule}")
    if decision.verdict is Verdict.REQUIRE_APPROVAL:
        raise Refused("governance/approval", f"the call needs an approval by {decision.rule}")
    return Grant(verdict="allow", rule=decision.rule)


async def perform_skill_call(
    project: RunnerProject, order: Order, *, grant: Grant | None = None, policies: Sequence[Policy] = ()
) -> SkillResult:
    """Perform a skill call once, however often it is asked for; InDoubt where an execution ended without a record.

    order: `plan_id_of` makes its id from a run and a call
    grant: what governance decided, where a run has asked; otherwise `policies` decide, and an approval is a refusal
    """
    if grant is None:
        contract = resolve(project.skill(order.skill_id).document.model.contract.declared())
        grant = decide_call(contract, [*policies, *project.policies()])
    plan = plan_call(project, order)
    known = await state_of(plan, project.database, project.state)
    if known.state == "recorded":
        return SkillResult(plan_id=plan.plan_id, record=known.record, replayed=True)
    if known.state != "unspent":
        raise in_doubt(plan, known.state)
    return await execute_plan(project, plan, grant)


async def execute_plan(
    project: RunnerProject, plan: Plan, grant: Grant, mark: tuple[str, str] | None = None
) -> SkillResult:
    """Authorize a plan and have the one-shot runner execute it.

    mark: run and call by which a later process finds a runner that outlived this one
    """
    file = store_plan(project.state, plan)
    write_authorization(file, authorize(plan, grant, plan_signing_key(project.environ), datetime.now(UTC)))
    ended = await dispatch(project, plan, file, mark=mark)
    return await result_of(project, plan, ended)


async def export_execution(project: RunnerProject, plan_id: str) -> str | None:
    """Export an execution that a runner has recorded; return why that failed. The runner itself exports nothing."""
    export = export_for(project.settings.telemetry, project.environ)
    if export is None or (isinstance(project.database, str) and not os.path.exists(project.database)):
        return None
    async with open_ledger(project.database, {}, read_only=True) as ledger:
        export.recorded(ledger, plan_id)
        await export.flush()
    export.close()
    return export.problem


async def result_of(project: RunnerProject, plan: Plan, ended: Dispatched) -> SkillResult:
    """The result of a plan whose runner has ended: its record, unless the runner refused to begin."""
    if is_refusal(ended.exit_code):
        return SkillResult(plan_id=plan.plan_id, refused=ended)
    known = await state_of(plan, project.database, project.state)
    if known.state == "recorded":
        return SkillResult(plan_id=plan.plan_id, record=known.record)
    if known.state == "unspent":
        return SkillResult(plan_id=plan.plan_id, refused=ended)
    raise in_doubt(plan, known.state)


def in_doubt(plan: Plan, state: str) -> InDoubt:
    """The error of a plan that was spent and has no record."""
    if state == "running":
        return InDoubt(f"the plan `{plan.plan_id}` is being executed by another process", hint="wait for it to end")
    return InDoubt(
        f"outcome of the plan `{plan.plan_id}` is unknown: its runner ended without a record",
        hint="`gert runner recover` says what is known; check the vendor",
    )
