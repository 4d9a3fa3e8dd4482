"""What is known of a step before it runs: its name, contract, the verdict of governance, and its terms.

None of this depends on state, so each step is planned once, however often it runs.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from gert.kernel.events.runbook import ContractEvaluated, GovernanceDecision
from gert.kernel.foundation.duration import parse_duration
from gert.kernel.foundation.globs import Visibility
from gert.kernel.governance.contract import Contract, Parameter
from gert.kernel.governance.decide import Decision, decide
from gert.kernel.governance.risk import risk_of
from gert.kernel.governance.rules import Policy
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runbook.documents.modifiers import RetryBlock
from gert.kernel.runbook.documents.steps import ExtensionStep, Step, ToolStep
from gert.kernel.runbook.documents.tool import ActionBlock
from gert.kernel.runbook.program import Program

EXTENSION_TIMEOUT: Final = 60.0
MAX_BACKOFF: Final = 300.0
"""Seconds between attempts at most, where the author sets no bound."""


class Retry(msgspec.Struct, frozen=True):
    """When and how often a step is tried again; times are in seconds."""

    max: int
    backoff: float
    max_backoff: float
    on: frozenset[str]

    def delay(self, attempt: int) -> float:
        """How long to wait after an attempt; it doubles each time."""
        # The exponent is bounded before the power is taken: a thousand attempts make no number of 300 digits.
        return min(self.backoff * float(2 ** min(attempt - 1, 40)), self.max_backoff)


NO_RETRY: Final = Retry(0, 0.0, 0.0, frozenset())


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one step that does not depend on state."""

    contract: Contract
    decision: Decision
    evaluated: ContractEvaluated
    decided: GovernanceDecision
    summary: dict[str, Any]
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Parameter]
    extracted: frozenset[str]
    target: str
    action: str | None
    timeout: float | None
    retry: Retry
    visibility: Visibility | None
    secrets: tuple[str, ...]

    @property
    def risk(self) -> str:
        """The risk of the contract, in its word."""
        return self.decided.risk_level


def plan_step(step: Step, contract: Contract, program: Program, policies: Iterable[Policy]) -> Plan:
    """Plan a step that has a contract."""
    step_id = step.id or ""
    action = program.action_of(step) if isinstance(step, ToolStep) else None
    tool = program.tool_of(step) if isinstance(step, ToolStep) else None
    within = program.base_contract_of(step) if isinstance(step, ToolStep) else None
    decision = decide(contract, policies, within=within)
    risk = max(risk_of(each) for each in (contract, within) if each is not None)
    block = action[1] if action is not None else None
    return Plan(
        contract=contract,
        decision=decision,
        evaluated=ContractEvaluated(step_id=step_id, resolved_contract=contract.full()),
        decided=GovernanceDecision(
            step_id=step_id,
            risk_level=risk.word,  # type: ignore[arg-type]
            decision=decision.verdict.word,  # type: ignore[arg-type]
            rule=decision.rule,
            min_approvers=decision.min_approvers if decision.verdict is Verdict.REQUIRE_APPROVAL else None,
        ),
        summary=contract.summary() | {"risk": risk.word},
        inputs=program.inputs_of(step) if isinstance(step, ToolStep | ExtensionStep) else {},
        outputs=contract.outputs,
        extracted=frozenset(block.extract) if block is not None else frozenset(),
        target=_target(step, action),
        action=action[0] if action is not None else None,
        timeout=_timeout(step, block),
        retry=_retry(step, block) if contract.idempotent else NO_RETRY,
        visibility=Visibility(step.visibility.allow, step.visibility.deny) if step.visibility is not None else None,
        secrets=tuple(dict.fromkeys(secret.env for secret in tool.all_secrets)) if tool is not None else (),
    )


def _target(step: Step, action: tuple[str, ActionBlock] | None) -> str:
    if isinstance(step, ToolStep):
        return f"{step.tool}:{action[0]}" if action is not None else step.tool
    return step.extension if isinstance(step, ExtensionStep) else step.type


def _timeout(step: Step, action: ActionBlock | None) -> float | None:
    said = step.timeout or (action.timeout if action is not None else None)
    if said is not None:
        return parse_duration(said).total_seconds()
    return EXTENSION_TIMEOUT if isinstance(step, ExtensionStep) else None


def _retry(step: Step, action: ActionBlock | None) -> Retry:
    block: RetryBlock | None = step.retry or (action.retry if action is not None else None)
    if block is None:
        return NO_RETRY
    backoff = parse_duration(block.backoff).total_seconds() if block.backoff else 0.0
    longest = parse_duration(block.max_backoff).total_seconds() if block.max_backoff else max(MAX_BACKOFF, backoff)
    return Retry(block.max, backoff, longest, frozenset(block.on))
