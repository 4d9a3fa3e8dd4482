"""The events of a runbook run (kernel-v0 §11, ecosystem-v0 §4-§6, §12-§15)."""

from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook.approvals import (
    ApprovalEscalated,
    ApprovalRefused,
    ApprovalResolved,
    ApprovalResponse,
    ApprovalSubmitted,
)
from gert.kernel.events.runbook.flow import (
    BranchEnter,
    BranchExit,
    ForEachItem,
    ForEachStart,
    NextTaken,
    OutcomeResolved,
    ParallelFork,
    ParallelMerge,
    RepeatIteration,
    RepeatStart,
)
from gert.kernel.events.runbook.governance import (
    BreakGlass,
    ContractEvaluated,
    ContractViolation,
    GovernanceDecision,
    PreviewCaptured,
)
from gert.kernel.events.runbook.parts import (
    BranchOutcome,
    Failure,
    Outcome,
)
from gert.kernel.events.runbook.run import (
    FinallyComplete,
    FinallyStart,
    InputResolved,
    RunCancelled,
    RunComplete,
    RunForked,
    RunResumed,
    RunStart,
    WebhookSent,
)
from gert.kernel.events.runbook.steps import (
    RedactionApplied,
    ScopeExport,
    StepComplete,
    StepReconciled,
    StepRetry,
    StepStart,
    VisibilityApplied,
)

EVENTS: tuple[type[Payload], ...] = (
    RunStart, InputResolved, RunResumed, RunForked, RunCancelled, FinallyStart, FinallyComplete, RunComplete,
    WebhookSent,
    StepStart, StepComplete, StepRetry, StepReconciled, RedactionApplied, VisibilityApplied, ScopeExport,
    BranchEnter, BranchExit, ParallelFork, ParallelMerge, ForEachStart, ForEachItem, RepeatStart,
    RepeatIteration, NextTaken, OutcomeResolved,
    ContractEvaluated, GovernanceDecision, ContractViolation, PreviewCaptured,
    ApprovalSubmitted, ApprovalResponse, ApprovalRefused, ApprovalEscalated, ApprovalResolved, BreakGlass,
)  # fmt: skip

__all__ = [
    "EVENTS",
    "ApprovalEscalated",
    "ApprovalRefused",
    "ApprovalResolved",
    "ApprovalResponse",
    "ApprovalSubmitted",
    "BranchEnter",
    "BranchExit",
    "BranchOutcome",
    "BreakGlass",
    "ContractEvaluated",
    "ContractViolation",
    "Failure",
    "FinallyComplete",
    "FinallyStart",
    "ForEachItem",
    "ForEachStart",
    "GovernanceDecision",
    "InputResolved",
    "NextTaken",
    "Outcome",
    "OutcomeResolved",
    "ParallelFork",
    "ParallelMerge",
    "PreviewCaptured",
    "RedactionApplied",
    "RepeatIteration",
    "RepeatStart",
    "RunCancelled",
    "RunComplete",
    "RunForked",
    "RunResumed",
    "RunStart",
    "ScopeExport",
    "StepComplete",
    "StepReconciled",
    "StepRetry",
    "StepStart",
    "VisibilityApplied",
    "WebhookSent",
]
