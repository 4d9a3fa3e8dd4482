"""The events of an agent run (agent-kernel-contracts, agent-kernel-api)."""

from gert.kernel.events.agent.run import (
    ContextRead,
    HarnessFailed,
    HarnessInitialized,
    HarnessSleep,
    HarnessStage,
    HarnessWake,
    PauseRequested,
    ResumeRequested,
    RunEnded,
    RunReopened,
    RunStarted,
    RunSummary,
)
from gert.kernel.events.agent.steps import (
    ModelCompleted,
    ModelFailed,
    ModelRequested,
    ReplayedWithDrift,
    ToolCompleted,
    ToolRequested,
    WorkflowStepCompleted,
    WorkflowStepFailed,
    WorkflowStepRequested,
)
from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook.approvals import (
    ApprovalOutdated,
    ApprovalRefused,
    ApprovalResolved,
    ApprovalResponse,
    ApprovalSubmitted,
)

EVENTS: tuple[type[Payload], ...] = (
    RunStarted, RunEnded, RunReopened, PauseRequested, ResumeRequested, RunSummary, ContextRead,
    HarnessInitialized, HarnessWake, HarnessSleep, HarnessFailed, HarnessStage,
    ModelRequested, ModelCompleted, ModelFailed, ReplayedWithDrift,
    ToolRequested, ToolCompleted,
    WorkflowStepRequested, WorkflowStepCompleted, WorkflowStepFailed,
    ApprovalSubmitted, ApprovalResponse, ApprovalRefused, ApprovalResolved, ApprovalOutdated,
)  # fmt: skip
