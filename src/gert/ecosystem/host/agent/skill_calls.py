"""Skill calls of agents: an action of a tool with `transport: runner`, as one plan that one runner executes once."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from gert.ecosystem.host.config.keys.plan_keys import plan_signing_key
from gert.ecosystem.host.run.prepare import Prepared
from gert.ecosystem.host.runner.plan_files import planned_day
from gert.ecosystem.host.runner.skill_call import perform_skill_call, plan_call
from gert.ecosystem.host.runner.transport import order_of, project_of, recorded_answer, require_callable
from gert.ecosystem.process.environment import started_by
from gert.errors import InDoubt, InputError, Refused
from gert.kernel.engine.requests import CallTool, ToolAnswer
from gert.kernel.events.runbook import Failure
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.governance.decide import Decision
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runbook.documents.tool import ActionBlock
from gert.kernel.runner.authorization import Grant
from gert.kernel.runner.plan import Order, plan_data, plan_id_of
from gert.kernel.runner.registry import capabilities_digest, route

_UNNAMED: Final = "plan"
_UNDATED: Final = "1970-01-01"


class SkillCalls:
    """Calls the skills of a tool for the runs of agents; Refused where they could not be called."""

    def __init__(self, prepared: Prepared, actions: Sequence[ActionBlock]) -> None:
        self._project = project_of(prepared)
        self._project.root_run = started_by(prepared.environ).root_run_id
        self._actor = prepared.actor
        for action in actions:
            if action.plan is not None:
                raise InputError("an action that authorizes a plan is for runbooks, not for agents")
            require_callable(self._project, action)
        plan_signing_key(self._project.environ)

    def version(self, action: ActionBlock, tool: str) -> str:
        """The version of a tool that calls a skill: it changes with the tool, the skill and its runner.

        tool: the digest of the tool file
        """
        lookup = self._project.skill(action.skill or "")
        runner = route(lookup.document.model, self._project.runners, action.runner)
        parts = (tool, lookup.document.digest, capabilities_digest(runner, self._project.runners[runner]))
        return sha256_hex("\n".join(parts).encode())[:12]

    def plan(self, action: ActionBlock, path: str, inputs: Mapping[str, Any], run_id: str) -> dict[str, Any]:
        """The plan of a call as its approver sees it: all but its id and the paths with its date, given at the call."""
        order = self._order(action, _UNNAMED, inputs, _UNDATED, run_id, path)
        planned = plan_data(plan_call(self._project, order))
        return {name: value for name, value in planned.items() if name not in ("plan_id", "artifacts")}

    async def call(self, action: ActionBlock, ask: CallTool, run_id: str, decision: Decision) -> ToolAnswer:
        """Call a skill once, however often it is requested.

        decision: of the policies; where it demands an approval, the kernel has it before a tool is called
        """
        asked = decision.verdict is Verdict.REQUIRE_APPROVAL
        grant = Grant(verdict="approved" if asked else "allow", rule=decision.rule)
        plan_id = plan_id_of(run_id, ask.key)
        try:
            day = planned_day(self._project.state, plan_id) or datetime.now(UTC).strftime("%Y-%m-%d")
            order = self._order(action, plan_id, ask.inputs, day, run_id, ask.path)
            result = await perform_skill_call(self._project, order, grant=grant)
        except InDoubt as problem:
            return ToolAnswer(failure=Failure("unknown_outcome", problem.message))
        except Refused as refusal:
            return _not_done(refusal.rule, refusal.message)
        if result.record is not None:
            return recorded_answer(result.record)
        refused = result.refused
        return _not_done(refused.rule if refused else None, refused.message if refused else None)

    def _order(
        self, action: ActionBlock, plan_id: str, inputs: Mapping[str, Any], day: str, run_id: str, path: str
    ) -> Order:
        return order_of(action, plan_id, inputs, day, requested_by=self._actor, run_id=run_id, step=path)


def _not_done(rule: str | None, message: str | None) -> ToolAnswer:
    """A refusal before the start: the vendor was not called."""
    said = message or "the runner did not begin"
    return ToolAnswer(failure=Failure("denied", f"{said} ({rule})" if rule else said))
