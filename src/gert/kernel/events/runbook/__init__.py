"""The events of a runbook run (kernel-v0 §11, ecosystem-v0 §4-§6, §12-§15)."""

from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook.approvals import (
    ApprovalEscalated,
    ApprovalOutdated,
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
    GroupComplete,
    GroupStart,
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
    PreviewSkipped,
)
from gert.kernel.events.runbook.parts import BranchOutcome, DeniedStep, Failure, Outcome, Recent, Start
from gert.kernel.events.runbook.run import (
    FinallyComplete,
    FinallyStart,
    InputResolved,
    RunAdopted,
    RunCancelled,
    RunComplete,
    RunForked,
    RunResumed,
    RunStart,
    WebhookSent,
)
from gert.kernel.events.runbook.steps import (
    MissingKey,
    RedactionApplied,
    ScopeExport,
    StepComplete,
    StepReconciled,
    StepRetry,
    StepStart,
    StepWaiting,
    VisibilityApplied,
)

EVENTS: tuple[type[Payload], ...] = (
    RunStart, InputResolved, RunResumed, RunAdopted, RunForked, RunCancelled, FinallyStart, FinallyComplete,
    RunComplete, WebhookSent,
    StepStart, StepComplete, StepRetry, StepReconciled, StepWaiting, RedactionApplied, VisibilityApplied, MissingKey,
    ScopeExport,
    BranchEnter, BranchExit, ParallelFork, ParallelMerge, ForEachStart, ForEachItem, RepeatStart,
    RepeatIteration, GroupStart, GroupComplete, NextTaken, OutcomeResolved,
    ContractEvaluated, GovernanceDecision, ContractViolation, PreviewCaptured, PreviewSkipped,
    ApprovalSubmitted, ApprovalResponse, ApprovalRefused, ApprovalEscalated, ApprovalOutdated, ApprovalResolved,
    BreakGlass,
)  # fmt: skip
