"""Create a plan by hand, and verify one: what `gert plan create` and `gert plan verify` do."""

import asyncio
import os
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec

from gert.ecosystem.host.config.files import write_new
from gert.ecosystem.host.config.keys.plan_keys import plan_keys
from gert.ecosystem.host.runner.plan_files import load_authorization, load_plan, read_file, store_plan
from gert.ecosystem.host.runner.plan_state import state_of
from gert.ecosystem.host.runner.project import RunnerProject, fitted_inputs
from gert.ecosystem.host.runner.skill_call import plan_call
from gert.ecosystem.runners.artifacts import StateFolder
from gert.ecosystem.runners.sandbox import read_files
from gert.ecosystem.runners.secrets import Resolving
from gert.ecosystem.runners.verification import STEPS, Invocation, Runner, Started, verify
from gert.errors import Refused
from gert.kernel.governance.contract import resolve
from gert.kernel.governance.decide import Decision, decide
from gert.kernel.runner.authorization import encode_authorization
from gert.kernel.runner.execution_record import ExecutionRecord
from gert.kernel.runner.plan import MAX_PLAN_BYTES, Order, Plan, plan_bytes
from gert.kernel.runner.registry import admit, route


class CreatedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A new plan, its file, and what governance would decide about it."""

    plan: Plan
    file: str
    decision: Decision


def create_plan(project: RunnerProject, order: Order, out: str | None, *, with_ledger: bool = True) -> CreatedPlan:
    """Make a plan and write it, to a new file or below the state directory; inputs are those that were given."""
    skill = project.skill(order.skill_id).document.model
    fitted = msgspec.structs.replace(order, inputs=fitted_inputs(skill, order.inputs))
    plan = plan_call(project, fitted, with_ledger=with_ledger)
    decision = decide(resolve(skill.contract.declared()), project.policies())
    if out is None:
        return CreatedPlan(plan=plan, file=store_plan(project.state, plan), decision=decision)
    write_new(out, plan_bytes(plan))
    return CreatedPlan(plan=plan, file=out, decision=decision)


def new_order(skill_id: str, **given: Any) -> Order:
    """An order with an id of its own, for today."""
    return Order(
        plan_id=f"plan-{secrets.token_hex(16)}-1",
        day=datetime.now(UTC).strftime("%Y-%m-%d"),
        skill_id=skill_id,
        **given,
    )


class PlanCheck(msgspec.Struct, frozen=True):
    """One check of a plan: whether it passed, and why not; None where an earlier one failed."""

    number: int
    name: str
    passed: bool | None
    reason: str = ""


class _Look:
    """Where a plan would be spent, for looking only."""

    def __init__(self, project: RunnerProject, plan: Plan) -> None:
        self.name = plan.ledger
        self._look = partial(state_of, plan, project.database, project.state)

    async def is_spent(self, plan_id: str) -> bool:
        """Whether the plan was spent before."""
        return (await self._look()).state != "unspent"

    async def begin(self, started: Started) -> None:
        """Refuse: nothing is executed here."""
        raise Refused("spent/look", "a plan that is only looked at is not executed")

    async def finish(self, record: ExecutionRecord, record_digest: str) -> None:
        """There is nothing to report."""


async def verify_plan(project: RunnerProject, file: str) -> list[PlanCheck]:
    """Check a plan by the procedure of its runner, without executing it; the first failure ends it."""
    reached: list[str] = []
    try:
        plan = load_plan(file)
        runner = Runner(
            keys=plan_keys(project.environ),
            runners=project.runners,
            skills=project.skills.get,
            policies=project.secrets_policies,
            spend=_Look(project, plan),
            state=project.state,
            clock=lambda: datetime.now(UTC),
            resolving=Resolving(environ={}),
            host="",
            version="",
            stop=asyncio.Event(),
            observe=reached.append,
        )
        reached += _CHECKS[:1]
        given = Invocation(
            plan=read_file(file, MAX_PLAN_BYTES),
            authorization=encode_authorization(load_authorization(file)),
            runner_id=plan.runner_id,
            secret_ref=plan.secret_ref,
            scope=plan.scope,
            ttl_seconds=plan.ttl_seconds,
        )
        with StateFolder(project.state) as folder:
            await verify(given, runner, folder)
    except Refused as refusal:
        # A plan that cannot be read fails the first check, and one without an authorization the second.
        failed = max(_CHECKS.index(reached[-1]), 1) if reached else 0
        said = {failed: f"{refusal.rule}: {refusal.message}"}
        return [
            PlanCheck(at + 1, name, None if at > failed else at < failed, said.get(at, ""))
            for at, name in enumerate(_CHECKS)
        ]
    return [PlanCheck(number, name, True) for number, name in enumerate(_CHECKS, start=1)]


_CHECKS: Final = STEPS[: STEPS.index("prepare")]


class SkillCheck(msgspec.Struct, frozen=True):
    """What the three gates say about a skill; None where a gate has nothing to say."""

    id: str
    file: str
    registry: str | None
    router: str | None
    secrets: str | None

    @property
    def passes(self) -> bool:
        """Whether a plan can be made for it."""
        return self.registry is None and self.router is None and self.secrets is None


def check_skills(project: RunnerProject, secret_ref: str | None = None) -> Iterator[SkillCheck]:
    """Put every skill of a project to the registry, the router and, for a reference, the secrets policies."""
    known = {lookup.file for lookup in project.skills.values()}
    for file in project.workspace.skill_files(project.folder):
        if file not in known:
            yield SkillCheck(os.path.basename(file), file, f"not valid: gert validate {file}", None, None)
    for lookup in project.skills.values():
        skill = lookup.skill
        if skill is None:
            yield SkillCheck(lookup.id, lookup.file, f"not valid: gert validate {lookup.file}", None, None)
            continue
        reference = secret_ref if skill.required_secrets else None
        yield SkillCheck(
            lookup.id,
            lookup.file,
            _said(partial(admit, skill)) or _said(partial(read_files, lookup)),
            _said(partial(route, skill, project.runners)),
            _said(partial(project.allow_secret, skill, reference, skill.scopes)),
        )


def _said(gate: Callable[[], object]) -> str | None:
    try:
        gate()
    except Refused as refusal:
        return f"{refusal.rule}: {refusal.message}"
    return None
