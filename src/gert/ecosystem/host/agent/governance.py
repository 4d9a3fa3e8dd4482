"""The verdict of policy files about the tools of a kernel: the same `decide()` as for the steps of runbooks."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from gert.errors import PolicyViolationError, UsageError
from gert.kernel.agent.middleware.base import PreparedToolRequest
from gert.kernel.agent.middleware.conditions import Conditions
from gert.kernel.agent.replay.run_log import refuse_if_blocked
from gert.kernel.agent.safety.approvals import NO_DETAILS, CallDetails
from gert.kernel.agent.safety.config import ApprovalGatePolicy, SafetyPolicyConfig, ToolLimitPolicy, ToolSafetyPolicy
from gert.kernel.agent.safety.middleware import SafetyPolicyMiddleware
from gert.kernel.agent.safety.records import Call, decision
from gert.kernel.agent.types.api import TenantContext
from gert.kernel.governance.decide import Decision, person_key
from gert.kernel.governance.verdict import Verdict
from gert.kernel.ledger.projection import tool_hash

Describe: TypeAlias = Callable[[Call, Mapping[str, Any]], Awaitable[CallDetails]]
NO_RULE: Final = "no rule"
_HOUR: Final = 3600


class PolicyFileMiddleware(SafetyPolicyMiddleware):
    """Applies the decisions of policy files to calls of tools with a contract, and records each.

    decisions: by tool
    groups: the people of each group, from the settings of the project
    describe: says what a call would do, which an approval is bound to
    """

    def __init__(
        self,
        decisions: Mapping[str, Decision],
        groups: Mapping[str, Iterable[str]],
        describe: Describe | None = None,
    ) -> None:
        self._decisions = dict(decisions)
        self._describe = describe
        tools = {name: _policy(name, each, groups) for name, each in decisions.items()}
        super().__init__(config=SafetyPolicyConfig(tools={name: each for name, each in tools.items() if each}))

    async def details(self, call: Call, arguments: Any) -> CallDetails:
        """Return what a call would do."""
        return await self._describe(call, arguments) if self._describe is not None else NO_DETAILS

    def why_allowed(self, found: Decision) -> str:
        """Return why a call may be made that is neither denied nor waits."""
        return "approved as the rule demands" if found.verdict is Verdict.REQUIRE_APPROVAL else "allowed"

    async def prepare_tool_request(
        self, *, run_id: str, tenant: TenantContext, tool_name: str, arguments_json: str, step_key: str | None = None
    ) -> str | PreparedToolRequest:
        """Deny a call, ask people about it, or allow it, as the rules demand."""
        found = self._decisions.get(tool_name)
        if found is None:
            return arguments_json
        fingerprint = tool_hash(tool_name, arguments_json)
        call = Call(run_id, tenant.tenant_id, tool_name, arguments_json, fingerprint, step_key)
        rule = found.rule or NO_RULE
        if found.verdict is Verdict.DENY or found.limits.max_targets == 0:
            denied = decision(call, outcome="deny", rule_id=rule, reason=f"denied by {rule}", code="policy_denied")
            await self.log.append(run_id, tenant.tenant_id, (denied,), guard=refuse_if_blocked)
            message = f"`{tool_name}` is denied by {rule}"
            raise PolicyViolationError(
                code="policy_denied", message=message, tool_name=tool_name, fingerprint=fingerprint
            )
        asked = await super().prepare_tool_request(
            run_id=run_id, tenant=tenant, tool_name=tool_name, arguments_json=arguments_json, step_key=step_key
        )
        allowed = decision(call, outcome="allow", rule_id=rule, reason=self.why_allowed(found))
        own = PreparedToolRequest(arguments_json, conditions=Conditions((allowed,)))
        return own if isinstance(asked, str) else asked.merge(own)


def _policy(name: str, found: Decision, groups: Mapping[str, Iterable[str]]) -> ToolSafetyPolicy | None:
    """What a decision demands of a call beside its verdict; None if nothing."""
    most = found.limits.max_per_hour
    limits = None if most is None else ToolLimitPolicy(max_calls_per_tenant_window=most, tenant_window_seconds=_HOUR)
    gate = _gate(name, found, groups) if found.verdict is Verdict.REQUIRE_APPROVAL else None
    return None if limits is None and gate is None else ToolSafetyPolicy(limits=limits, approval=gate)


def _gate(name: str, found: Decision, groups: Mapping[str, Iterable[str]]) -> ApprovalGatePolicy:
    if found.on_timeout == "escalate":
        raise UsageError(
            f"`{name}` needs an approval that escalates ({found.rule}), which calls of agents cannot do",
            hint="call it in a runbook, and register the runbook as a tool",
        )
    return ApprovalGatePolicy(
        mode="human",
        min_approvers=max(found.min_approvers, 1),
        approvers=_approvers(name, found, groups),
        separation_of_duties=found.separation_of_duties,
        require_signed_approvals=found.require_signed_approvals,
        notify=tuple(sorted(found.notify)),
        timeout_seconds=max(int(found.approval_timeout), 1),
    )


def _approvers(name: str, found: Decision, groups: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """The people whom every policy admits; without a list, anyone."""
    if not found.approvers:
        return ()
    lists = [each.all_people(groups) for each in found.approvers]
    common = set.intersection(*({person_key(person) for person in each} for each in lists))
    if not common:
        raise UsageError(
            f"no one may approve `{name}`: its policies have no approver in common ({found.rule})",
            hint="name the people of each group under `groups` in the project",
        )
    spelled = {person_key(person): person for each in lists for person in sorted(each)}
    return tuple(sorted(spelled[key] for key in common))
