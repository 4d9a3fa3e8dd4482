"""Plans a step before it runs: its contract, the governance decision, timeout, retry and other settings.

None of this depends on state, so each step is planned once, however often it runs.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from gert.kernel.foundation.duration import parse_duration
from gert.kernel.foundation.globs import Visibility
from gert.kernel.governance.contract import END_CONTRACT, Contract
from gert.kernel.governance.decide import Decision, decide, decide_outcome
from gert.kernel.governance.risk import risk_of
from gert.kernel.governance.rules import NO_LIMITS, Policy
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runbook.documents.modifiers import RetryBlock
from gert.kernel.runbook.documents.steps import EndStep, ExtensionStep, Step, ToolStep
from gert.kernel.runbook.documents.tool import ActionBlock
from gert.kernel.runbook.program import Program

SERVER_TIMEOUT: Final = 60.0
"""Seconds that an extension or a server has to answer, if the author sets no `timeout`."""
MAX_BACKOFF: Final = 300.0
"""The most seconds between attempts, if the author sets no `max_backoff`."""


class Retry(msgspec.Struct, frozen=True):
    """When and how often a step is retried; times are in seconds."""

    max: int
    backoff: float
    max_backoff: float
    on: frozenset[str]

    def delay(self, attempt: int) -> float:
        """Return the delay after an attempt, which doubles each time."""
        # The exponent is bounded first, so that a thousand attempts do not compute a number of 300 digits.
        return min(self.backoff * float(2 ** min(attempt - 1, 40)), self.max_backoff)


NO_RETRY: Final = Retry(0, 0.0, 0.0, frozenset())


class PreviewSettings(msgspec.Struct, frozen=True):
    """The preview of an action: its tool, its contract, and why the policy refuses it, if it does (DECISIONS 64)."""

    tool: str
    contract: Contract
    refusal: str | None


class StepSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings shared by all steps that run the same action with the same contract and modifiers."""

    contract: Contract
    decision: Decision
    verdict: str
    rule: str | None
    min_approvers: int | None
    risk: str
    full: dict[str, Any]
    summary: dict[str, Any]
    expected: frozenset[str]
    """Outputs that a successful step must have: required, or extracted and not optional."""
    target: str
    action: str | None
    timeout: float | None
    retry: Retry
    visibility: Visibility | None
    secrets: tuple[str, ...]
    preview: PreviewSettings | None
    """The action's preview, if it declares one."""
    hides: bool
    """Whether any input is secret, and so not shown."""
    is_free: bool
    """Whether the step needs no approval and has no limit."""


class Plan(msgspec.Struct, frozen=True):
    """A step's id and settings; `inputs` as the author wrote them."""

    step_id: str
    settings: StepSettings
    inputs: Mapping[str, Any]


class Planner:
    """Plans each step of a program once; similar steps share their settings."""

    __slots__ = ("_plans", "_policies", "_program", "_settings")

    def __init__(self, program: Program, policies: Iterable[Policy]) -> None:
        self._program = program
        self._policies = tuple(policies)
        self._plans: dict[int, Plan | None] = {}
        # By identity: a program resolves each contract once and keeps it, and contracts are not hashable.
        self._settings: dict[tuple[Any, ...], StepSettings] = {}

    def end_settings(self, step: EndStep) -> StepSettings | None:
        """Return the settings of an `end` step, or None if no rule names its category."""
        decision = decide_outcome(step.outcome.category, self._policies)
        return None if not decision.rules else self._settings_for(step, END_CONTRACT, decision)

    def plan(self, step: Step) -> Plan | None:
        """Return the plan of a step; None for a step that only directs flow."""
        key = id(step)
        if key in self._plans:
            return self._plans[key]
        contract = self._program.contract_of(step)
        plan = self._plans[key] = self._plan(step, contract) if contract is not None else None
        return plan

    def _plan(self, step: Step, contract: Contract) -> Plan:
        named = (step.tool, step.action) if isinstance(step, ToolStep) else (step.type, id(step))
        key = (id(contract), *named, step.timeout, id(step.retry), id(step.visibility))
        settings = self._settings.get(key)
        if settings is None:
            settings = self._settings[key] = self._decided_settings(step, contract)
        inputs = self._program.inputs_of(step) if isinstance(step, ToolStep | ExtensionStep) else {}
        return Plan(step.id or "", settings, inputs)

    def _decided_settings(self, step: Step, contract: Contract) -> StepSettings:
        within = self._program.base_contract_of(step) if isinstance(step, ToolStep) else None
        return self._settings_for(step, contract, decide(contract, self._policies, within=within), within)

    def _settings_for(
        self, step: Step, contract: Contract, decision: Decision, within: Contract | None = None
    ) -> StepSettings:
        is_tool = isinstance(step, ToolStep)
        action = self._program.action_of(step) if isinstance(step, ToolStep) else None
        tool = self._program.tool_of(step) if isinstance(step, ToolStep) else None
        block = action[1] if action is not None else None
        risk = max(risk_of(each) for each in (contract, within) if each is not None).word
        asks = decision.verdict is Verdict.REQUIRE_APPROVAL
        answers = tool.answers if tool is not None else isinstance(step, ExtensionStep)
        return StepSettings(
            contract=contract,
            decision=decision,
            verdict=decision.verdict.word,
            rule=decision.rule,
            min_approvers=decision.min_approvers if asks else None,
            risk=risk,
            full=contract.full(),
            summary=contract.summary() | {"risk": risk},
            expected=expected_outputs(contract, block, answers=answers),
            target=_target(step, action),
            action=action[0] if is_tool and action is not None else None,
            timeout=_timeout(step, block, answers=answers),
            retry=_retry(step, block) if contract.idempotent else NO_RETRY,
            preview=self._preview(step, contract, within) if block is not None and block.preview else None,
            visibility=Visibility(step.visibility.allow, step.visibility.deny) if step.visibility is not None else None,
            secrets=tuple(dict.fromkeys(secret.env for secret in tool.all_secrets)) if tool is not None else (),
            hides=any(each.secret for each in contract.inputs.values()),
            is_free=decision.verdict is Verdict.ALLOW and decision.limits == NO_LIMITS,
        )

    def _preview(self, step: Step, contract: Contract, within: Contract | None) -> PreviewSettings | None:
        if not isinstance(step, ToolStep):
            return None
        own = preview_contract(contract)
        decision = decide(own, self._policies, within=preview_contract(within) if within is not None else None)
        return PreviewSettings(step.tool, own, preview_refusal(decision))


def preview_contract(contract: Contract) -> Contract:
    """Return the contract of an action's preview: the effects of the action, without writes."""
    return msgspec.structs.replace(contract, writes=frozenset(), outputs={})


def preview_refusal(decision: Decision) -> str | None:
    """Return why the policy refuses a preview: it runs only if allowed, and never requests approval."""
    if decision.verdict is Verdict.ALLOW:
        return None
    by = f" by {decision.rule}" if decision.rule else ""
    return f"policy says `{decision.verdict.word}`{by}, and a preview runs only if it is allowed"


def expected_outputs(contract: Contract, action: ActionBlock | None, *, answers: bool) -> frozenset[str]:
    """Return the outputs that must be there; an extension or server answers with them, so all count (DECISIONS 83)."""
    extracted = contract.outputs if answers else action.extract if action is not None else {}
    outputs = contract.outputs.items()
    return frozenset(name for name, each in outputs if each.required or (name in extracted and not each.optional))


def _target(step: Step, action: tuple[str, ActionBlock] | None) -> str:
    if isinstance(step, ToolStep):
        return f"{step.tool}:{action[0]}" if action is not None else step.tool
    return step.extension if isinstance(step, ExtensionStep) else step.type


def _timeout(step: Step, action: ActionBlock | None, *, answers: bool) -> float | None:
    return seconds_for(step.timeout or (action.timeout if action is not None else None), answers=answers)


def seconds_for(timeout: str | None, *, answers: bool) -> float | None:
    """Return the time limit of a call; one of a server that has none of its own has the usual one."""
    if timeout is not None:
        return parse_duration(timeout).total_seconds()
    return SERVER_TIMEOUT if answers else None


def _retry(step: Step, action: ActionBlock | None) -> Retry:
    block: RetryBlock | None = step.retry or (action.retry if action is not None else None)
    if block is None:
        return NO_RETRY
    backoff = parse_duration(block.backoff).total_seconds() if block.backoff else 0.0
    longest = parse_duration(block.max_backoff).total_seconds() if block.max_backoff else max(MAX_BACKOFF, backoff)
    return Retry(block.max, backoff, longest, frozenset(block.on))
