"""The events about contracts and policy decisions."""

from typing import Any, ClassVar

from gert.kernel.events.payload import Payload
from gert.kernel.events.vocabulary import ApprovalStatus, GovernanceVerdict, RiskLevel, Severity, ViolationKind


class ContractEvaluated(Payload, frozen=True, kw_only=True):
    """The contract of a step was resolved from tool, action and step."""

    type: ClassVar[str] = "contract_evaluated"
    step_id: str
    resolved_contract: dict[str, Any]


class GovernanceDecision(Payload, frozen=True, kw_only=True):
    """Policy was evaluated for a step.

    rule: the rule that made the decision
    reasons: what else was considered, strictest first
    approval_result: how the approval ended, once it has
    """

    type: ClassVar[str] = "governance_decision"
    step_id: str
    risk_level: RiskLevel
    decision: GovernanceVerdict
    rule: str | None = None
    reasons: tuple[str, ...] = ()
    min_approvers: int | None = None
    approval_result: ApprovalStatus | None = None


class ContractViolation(Payload, frozen=True, kw_only=True):
    """A step violated its contract, or an approval had no valid signature."""

    type: ClassVar[str] = "contract_violation"
    step_id: str
    kind: ViolationKind
    message: str
    severity: Severity


class PreviewCaptured(Payload, frozen=True, kw_only=True):
    """The preview of a step was run.

    digest: the digest of the preview, part of the request hash of an approval
    command: the program and its arguments
    """

    type: ClassVar[str] = "preview_captured"
    step_id: str
    digest: str
    output: str
    command: tuple[str, ...] = ()


class PreviewSkipped(Payload, frozen=True, kw_only=True):
    """The preview of a step was not run.

    command: the program and its arguments
    """

    type: ClassVar[str] = "preview_skipped"
    step_id: str
    reason: str
    command: tuple[str, ...] = ()


class BreakGlass(Payload, frozen=True, kw_only=True):
    """A decision was overridden in an emergency.

    overridden: what policy had decided
    rule: the rule that allows the override
    reason: the mandatory reason
    """

    type: ClassVar[str] = "break_glass"
    step_id: str
    actor: str
    reason: str
    overridden: GovernanceVerdict
    risk_level: RiskLevel
    rule: str | None = None
