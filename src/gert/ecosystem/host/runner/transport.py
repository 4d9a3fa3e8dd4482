"""The transport `runner`: an action is a skill call, so a step has no other way to the skill's secret."""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gert.ecosystem.host.config.keys.plan_keys import plan_signing_key
from gert.ecosystem.host.config.ledger_location import open_ledger
from gert.ecosystem.host.runner.plan_files import load_plan, write_authorization
from gert.ecosystem.host.runner.plan_state import state_of
from gert.ecosystem.host.runner.project import RunnerProject
from gert.ecosystem.host.runner.skill_call import MAX_ATTEMPTS, SkillResult, execute_plan, in_doubt, plan_call
from gert.errors import GertError, InDoubt, Refused
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.requests import CallPreview, CallTool, Subject, ToolAnswer, call_of
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.events.vocabulary import FailureKind
from gert.kernel.foundation.duration import parse_duration
from gert.kernel.governance.approval import ApprovalRequest
from gert.kernel.governance.decide import decide
from gert.kernel.governance.rules import Policy
from gert.kernel.governance.verdict import Verdict
from gert.kernel.ledger.port import Ledger
from gert.kernel.runbook.documents.tool import RUNNER, ActionBlock, Tool
from gert.kernel.runbook.program import Program
from gert.kernel.runner.authorization import Grant, authorize
from gert.kernel.runner.execution_record import ExecutionRecord
from gert.kernel.runner.plan import (
    DEFAULT_TTL,
    Order,
    Plan,
    attempt_of,
    check_dispatched,
    check_skill,
    plan_data,
    plan_digest,
    plan_id_of,
)
from gert.kernel.runner.registry import capabilities_digest, route

if TYPE_CHECKING:
    from gert.ecosystem.host.run.prepare import Prepared
    from gert.ecosystem.tools.stdio import ProgramLocation

_DAY: Final = re.compile(r"(\d{4})(\d{2})(\d{2})-")
_KINDS: Final[Mapping[str, FailureKind]] = {
    "vendor": "tool_error",
    "program": "tool_error",
    "timeout": "timeout",
    "response": "extraction",
    "secret": "missing_secret",
    "cancelled": "cancelled",
    "governance": "denied",
}


class RunnerRun(msgspec.Struct, frozen=True, kw_only=True):
    """The run whose steps call skills.

    break_glass: the run overrides governance in an emergency
    """

    run_id: str
    actor: str
    program: Program
    policies: Sequence[Policy]
    break_glass: bool = False


def project_of(prepared: "Prepared") -> RunnerProject:
    """The project of a run, for planning and executing."""
    return RunnerProject(
        os.path.dirname(os.path.abspath(prepared.options.file)),
        environ=prepared.environ,
        state=prepared.state,
        database=prepared.ledger,
        config=prepared.options.config,
        workspace=prepared.workspace,
        settings=prepared.settings,
    )


def require_callable(project: RunnerProject, action: ActionBlock) -> None:
    """Refuse an action whose skill could not be called: its skill, its runner, or its secret."""
    skill = project.skill(action.skill or "").document.model
    route(skill, project.runners, action.runner)
    check_dispatched(action.secret_ref)
    project.allow_secret(skill, action.secret_ref, skill.scopes)


def order_of(action: ActionBlock, plan_id: str, inputs: Mapping[str, Any], day: str, **asked: Any) -> Order:
    """What an action asks for.

    asked: by whom, and for which run and step
    """
    ttl = parse_duration(action.ttl).total_seconds() if action.ttl is not None else DEFAULT_TTL
    return Order(
        plan_id=plan_id,
        skill_id=action.skill or "",
        inputs=inputs,
        day=day,
        runner=action.runner,
        secret_ref=action.secret_ref,
        ttl_seconds=max(1, int(ttl)),
        unsandboxed=action.unsandboxed,
        **asked,
    )


def runner_transport(prepared: "Prepared", setup: Setup) -> "RunnerTransport":
    """How the steps of a run call skills; Refused where they could not be called."""
    run = RunnerRun(
        run_id=setup.run_id,
        actor=setup.actor,
        program=prepared.program,
        policies=setup.policies,
        break_glass=setup.break_glass is not None,
    )
    project = project_of(prepared)
    project.root_run = setup.started.root_run_id
    transport = RunnerTransport(project, run)
    transport.require_ready(is_real=setup.mode in ("real", "probe"))
    return transport


class RunnerTransport:
    """Calls skills for the steps of one run."""

    def __init__(self, project: RunnerProject, run: RunnerRun) -> None:
        self._project = project
        self._run = run
        match = _DAY.match(run.run_id)
        # The same day whenever the run is driven again: the paths of artifacts are part of what was approved.
        self._day = "-".join(match.groups()) if match is not None else datetime.now(UTC).strftime("%Y-%m-%d")
        self._attempts: dict[str, int] = {}
        self._recorded: Callable[[str], None] = lambda _: None

    def attach(self, ledger: Ledger) -> None:
        """Export executions together with the run, which is recorded in the same ledger."""
        export = ledger.export
        if export is not None:
            self._recorded = lambda plan_id: export.recorded(ledger, plan_id)

    def require_ready(self, *, is_real: bool) -> None:
        """Refuse a run whose skills could not be called, before its first step (DECISIONS 73).

        is_real: the run authorizes plans, so it needs a key
        """
        for lookup in self._run.program.lookups.values():
            tool = lookup.tool
            for action in tool.actions.values() if tool is not None and tool.meta.transport == RUNNER else ():
                if action.plan is None:
                    require_callable(self._project, action)
        if is_real:
            plan_signing_key(self._project.environ)

    def locate(self, tool: Tool, action: ActionBlock, inputs: Mapping[str, Any]) -> "ProgramLocation | None":
        """A plan says what runs; there is no program to find."""
        return None

    def kill_all(self) -> None:
        """Leave running runners alone: each writes its record and ends, and a resume finds it."""

    async def close(self) -> None:
        """Nothing is kept between calls."""

    def plan_of(self, request: ApprovalRequest, subject: Subject) -> dict[str, Any] | None:
        """The plan that an approval is about, as it would be executed now; None where no runner is called."""
        lookup = self._run.program.tool_names.get(subject.tool) if subject.tool is not None else None
        tool = lookup.tool if lookup is not None else None
        if tool is None or tool.meta.transport != RUNNER:
            return None
        action = tool.actions[subject.action]
        if action.plan is not None:
            return plan_data(self._given(action.plan, action, subject.inputs))
        asked = attempt_of(str(request.plan.get("plan_id"))) if request.plan is not None else None
        return plan_data(self._plan(action, subject.inputs, subject.call, request.path, asked))

    def knows(self, ask: CallTool) -> bool:
        """Whether the outcome of a call is on record, or the call never began: then it can be repeated."""
        tool = self._run.program.tool_names[ask.tool].tool
        if tool is None or tool.meta.transport != RUNNER:
            return False
        action = tool.actions[ask.action]
        if action.plan is not None:
            return True  # nothing is called: a plan may be authorized again
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        asked = attempt_of(str(ask.approval.plan.get("plan_id"))) if ask.approval and ask.approval.plan else None
        try:
            plan = self._plan(action, ask.inputs, call_of(ask.key), ask.path, asked)
            looking = state_of(plan, self._project.database, self._project.state)
            # Called from within a running loop, and a ledger belongs to one loop.
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(asyncio.run, looking).result().state in ("recorded", "unspent")
        except GertError:
            return False

    async def call(self, tool: Tool, action_name: str, action: ActionBlock, ask: CallTool | CallPreview) -> ToolAnswer:
        """Call a skill, or authorize a plan for a runner elsewhere."""
        began = time.monotonic()
        try:
            answer = await self._answer(action, ask)
        except InDoubt as problem:
            answer = ToolAnswer(failure=Failure("unknown_outcome", problem.message))
        except Refused as refusal:
            answer = ToolAnswer(failure=_failure(refusal.rule, refusal.message))
        return msgspec.structs.replace(answer, duration=round(time.monotonic() - began, 3))

    async def _answer(self, action: ActionBlock, ask: CallTool | CallPreview) -> ToolAnswer:
        if isinstance(ask, CallPreview):
            return ToolAnswer(failure=Failure("transport", "a skill has no preview"))
        grant = await self._grant(ask)
        if action.plan is not None:
            return await self._authorize(action, action.plan, ask, grant)
        call, approved = call_of(ask.key), ask.approval.plan if ask.approval is not None else None
        attempt = attempt_of(str(approved.get("plan_id"))) if approved is not None else self._attempts.get(call, 1)
        while attempt <= MAX_ATTEMPTS:
            plan = self._plan(action, ask.inputs, call, ask.path, attempt)
            if approved is not None and plan_data(plan) != approved:
                return _outdated(plan)
            known = await state_of(plan, self._project.database, self._project.state)
            if known.state == "recorded" and known.record is not None:
                return recorded_answer(known.record)
            if known.state == "running":
                raise in_doubt(plan, known.state)
            if known.state == "unspent":
                try:
                    return _result(await execute_plan(self._project, plan, grant, (self._run.run_id, ask.key)))
                finally:
                    self._recorded(plan.plan_id)
            # The outcome of this attempt is unknown, and the call is made again all the same: as another plan, which
            # no approval covers yet.
            attempt = self._attempts[call] = attempt + 1
            if approved is not None:
                reason = f"the outcome of the plan `{plan.plan_id}` is unknown, and another attempt is another plan"
                return ToolAnswer(failure=Failure("approval_outdated", reason))
        raise Refused("plan/attempts", f"the call was attempted {MAX_ATTEMPTS} times, and none of them has a record")

    def _plan(
        self, action: ActionBlock, inputs: Mapping[str, Any], call: str, path: str, attempt: int | None = None
    ) -> Plan:
        plan_id = plan_id_of(self._run.run_id, call, attempt or self._attempts.get(call, 1))
        asked = {"requested_by": self._run.actor, "run_id": self._run.run_id, "step": path}
        return plan_call(self._project, order_of(action, plan_id, inputs, self._day, **asked))

    async def _grant(self, ask: CallTool) -> Grant:
        """What governance decided about the call; a call that needs an approval and has none is refused."""
        approval = ask.approval
        if approval is None:
            decision = decide(ask.contract, self._run.policies)
            if decision.verdict is Verdict.ALLOW:
                return Grant(verdict="allow", rule=decision.rule)
            if self._run.break_glass and decision.break_glass:
                return Grant(verdict="break-glass", rule=decision.rule)
            raise Refused("governance/approval", f"the call needs an approval by {decision.rule}, and has none")
        tickets, approvers = await self._approvals(approval.request_hash)
        return Grant(verdict="approved", rule=approval.rule, tickets=tickets, approvers=approvers)

    async def _approvals(self, request_hash: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The tickets of the run that approved a request, and who did; none where it was asked at the terminal."""
        database = self._project.database
        if isinstance(database, str) and not os.path.exists(database):
            return (), ()
        async with open_ledger(database, {}, read_only=True) as ledger:
            rows = await ledger.tickets("approved", run_id=self._run.run_id)
        rows = [row for row in rows if msgspec.json.decode(row.request or "{}").get("request_hash") == request_hash]
        said = [msgspec.json.decode(line) for row in rows for line in row.responses.splitlines()]
        approvers = {each["approver_id"] for each in said if each.get("approved") and "objection" not in each}
        return tuple(row.ticket_id for row in rows), tuple(sorted(approvers))

    def _given(self, file: str, action: ActionBlock, inputs: Mapping[str, Any]) -> Plan:
        """The plan in a file, which is what the step says it is and what this project would execute."""
        plan = load_plan(os.path.join(self._project.folder, file))
        project = self._project
        lookup = project.skill(plan.skill_id)
        if plan.skill_id != action.skill or plan.inputs != inputs:
            raise Refused("plan/step", "the plan is about another skill, or has other inputs than the step")
        if lookup.document.digest != plan.skill_digest:
            raise Refused("skill/digest", f"the skill `{plan.skill_id}` has changed since the plan was made")
        check_skill(plan, lookup.document.model)
        runner_id = route(lookup.document.model, project.runners, plan.runner_id)
        if capabilities_digest(runner_id, project.runners[runner_id]) != plan.runner_digest:
            raise Refused("runner/capabilities", f"the runner `{runner_id}` has changed since the plan was made")
        project.allow_secret(lookup.document.model, plan.secret_ref, plan.scope)
        return plan

    async def _authorize(self, action: ActionBlock, file: str, ask: CallTool, grant: Grant) -> ToolAnswer:
        plan = self._given(file, action, ask.inputs)
        # The file is read once more after it was approved, and what is signed is what was approved.
        if ask.approval is not None and plan_data(plan) != ask.approval.plan:
            return _outdated(plan)
        if (await state_of(plan, self._project.database, self._project.state)).state != "unspent":
            raise Refused("spent/plan", f"the plan `{plan.plan_id}` was executed before")
        key = plan_signing_key(self._project.environ)
        written = write_authorization(
            os.path.join(self._project.folder, file), authorize(plan, grant, key, datetime.now(UTC))
        )
        outputs = {"authorization": written, "plan_id": plan.plan_id, "digest": plan_digest(plan)}
        return ToolAnswer(outputs=outputs)


def _outdated(plan: Plan) -> ToolAnswer:
    reason = f"the plan `{plan.plan_id}` is not the one that was approved"
    return ToolAnswer(failure=Failure("approval_outdated", reason))


def _result(result: SkillResult) -> ToolAnswer:
    if result.record is not None:
        return recorded_answer(result.record)
    refused = result.refused
    rule, message = (refused.rule, refused.message) if refused is not None else (None, None)
    return ToolAnswer(
        exit_code=refused.exit_code if refused is not None else None,
        failure=_failure(rule or "runner/start", message or "the runner did not begin"),
    )


def recorded_answer(record: ExecutionRecord) -> ToolAnswer:
    """The answer of an execution; its record is what the step printed."""
    printed = msgspec.json.format(msgspec.json.encode(record)).decode() + "\n"
    failure = _failure(record.rule or "", record.message or "") if record.exit_code != 0 else None
    return ToolAnswer(outputs=record.outputs, exit_code=record.exit_code, stdout=printed, failure=failure)


def _failure(rule: str, message: str) -> Failure:
    return Failure(_KINDS.get(rule.partition("/")[0], "transport"), f"{message} ({rule})" if rule else message)
