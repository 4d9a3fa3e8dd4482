"""The fixed words used in events, each list in one place."""

from typing import Literal, get_args

StepStatus = Literal["success", "failed", "skipped", "error"]
"""How a step ended (kernel-v0 §9.5)."""

RunStatus = Literal["completed", "failed", "error", "cancelled"]
"""How a run ended; only a completed run has an outcome."""

RunMode = Literal["real", "dry-run", "probe", "replay"]
"""Who answered the engine's requests."""

ApprovalMode = Literal["terminal", "wait", "detach"]
"""Where a run asks for approval: at the terminal, elsewhere while it waits, or elsewhere while it is suspended."""

RunKind = Literal["runbook", "agent", "runner"]
"""What kind of run a trace records."""

OutcomeCategory = Literal["resolved", "escalated", "no_action", "needs_rca"]
"""The category of an outcome; fixed, because policies and metrics depend on it (ecosystem-v0 §6.1)."""

FailureKind = Literal[
    "exit_code",
    "tool_error",
    "assertion",
    "rejected",
    "reported",
    "denied",
    "approval_outdated",
    "contract_violation",
    "timeout",
    "not_found",
    "transport",
    "extraction",
    "evaluation",
    "evidence",
    "missing_secret",
    "invalid_input",
    "duplicate_key",
    "lane_failed",
    "no_outcome",
    "unknown_outcome",
    "cancelled",
    "internal",
]
"""What went wrong in a step or a run (kernel-v0 §9.5)."""

SkipReason = Literal["when_false", "governance_denied", "approval_rejected", "dry_run", "probe", "after_skipped_write"]
"""Why a step did not execute."""

RiskLevel = Literal["low", "medium", "high", "critical"]
"""How risky a step's contract is (kernel-v0 §9)."""

GovernanceVerdict = Literal["allow", "require-approval", "deny"]
"""The verdict of a policy, from permissive to strict."""

ApprovalStatus = Literal["approved", "rejected", "expired"]
"""How a ticket was resolved; an expired one counts as rejected."""

ViolationKind = Literal[
    "undeclared_output",
    "missing_output",
    "wrong_type",
    "nondeterministic",
    "invalid_signature",
]
"""How a contract was broken (ecosystem-v0 §12)."""

Severity = Literal["warning", "error"]
"""How bad a violation is; policy can make every violation an error."""

Reconciliation = Literal["success", "failed", "retry"]
"""How an operator reconciles a call without a recorded result."""

STEP_STATUSES: tuple[StepStatus, ...] = get_args(StepStatus)
RUN_STATUSES: tuple[RunStatus, ...] = get_args(RunStatus)
OUTCOME_CATEGORIES: tuple[OutcomeCategory, ...] = get_args(OutcomeCategory)
FAILURE_KINDS: tuple[FailureKind, ...] = get_args(FailureKind)
