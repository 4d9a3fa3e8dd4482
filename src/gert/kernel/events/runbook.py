"""The events of a runbook run (kernel-v0 §11, ecosystem-v0 §4-§6, §12-§15)."""

from typing import Any, ClassVar

import msgspec
from msgspec import field

from gert.kernel.events.payload import Payload
from gert.kernel.events.vocabulary import (
    ApprovalStatus,
    FailureKind,
    GovernanceVerdict,
    OutcomeCategory,
    Reconciliation,
    RiskLevel,
    RunKind,
    RunMode,
    RunStatus,
    Severity,
    SkipReason,
    StepStatus,
    ViolationKind,
)


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a step or a run failed: a kind for policies and metrics, a message for people."""

    kind: FailureKind
    message: str


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run came to: a fixed category, the author's code, and free details."""

    category: OutcomeCategory
    code: str
    meta: dict[str, Any] = field(default_factory=dict)


class BranchOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one lane of a parallel block ended."""

    index: int
    status: StepStatus
    label: str | None = None
    outcome: Outcome | None = None
    failure: Failure | None = None


# ── the run ──────────────────────────────────────────────────────────────────────────────────────────


class RunStart(Payload, frozen=True, kw_only=True):
    """A run begins; this is the first event of every run.

    runbook: the name of the runbook
    runbook_hash: the digest of the runbook file's content
    actor: who started the run
    host: where it runs
    tool_hashes: the digest of each tool file's content, by tool name
    policy_hashes: the digest of each external policy file's content, by name
    input_sources: where each input came from, by input name
    secrets: the names of declared secrets, never their values
    scenario: the scenario that answers, in a replay
    parent_run_id: the run that started this one, if a run did
    """

    type: ClassVar[str] = "run_start"
    runbook: str
    runbook_hash: str
    actor: str
    host: str
    gert_version: str
    mode: RunMode
    tool_hashes: dict[str, str] = field(default_factory=dict)
    policy_hashes: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)
    input_sources: dict[str, str] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    extensions: dict[str, Any] = field(default_factory=dict)
    kind: RunKind = "runbook"
    scenario: str | None = None
    parent_run_id: str | None = None


class InputResolved(Payload, frozen=True, kw_only=True):
    """An input got its value; one event per input, after `run_start`.

    source: `cli`, `env/NAME`, `file/PATH`, `prompt`, `provider/NAME.PATH` or `default`
    """

    type: ClassVar[str] = "input_resolved"
    name: str
    source: str
    value: Any = None


class RunResumed(Payload, frozen=True, kw_only=True):
    """A run that had stopped goes on in another process.

    actor: who resumed it
    answered: how many recorded answers were taken before the live world
    accepted_changes: files that changed since the run began, and were accepted
    """

    type: ClassVar[str] = "run_resumed"
    actor: str
    host: str
    gert_version: str
    answered: int
    ticket_id: str | None = None
    accepted_changes: tuple[str, ...] = ()


class RunForked(Payload, frozen=True, kw_only=True):
    """This run takes the recorded answers of another one up to a step, and goes on live.

    source_run_id: the run the answers come from
    from_step: the first step that runs live
    source_chain_hash: the head of the other run's chain when its answers were taken
    """

    type: ClassVar[str] = "run_forked"
    source_run_id: str
    from_step: str
    source_chain_hash: str
    answered: int


class RunCancelled(Payload, frozen=True, kw_only=True):
    """Somebody, or the timeout of the run, asked the run to stop.

    reason: `interrupted`, `timeout`, `abandoned`, or the words of whoever stopped it
    """

    type: ClassVar[str] = "run_cancelled"
    reason: str


class FinallyStart(Payload, frozen=True, kw_only=True):
    """The run has ended, and its `finally` steps begin.

    status: how the run ended; the steps cannot change it
    """

    type: ClassVar[str] = "finally_start"
    status: RunStatus
    step_count: int


class FinallyComplete(Payload, frozen=True, kw_only=True):
    """The `finally` steps are done.

    failure: the first failure among them, recorded beside the run's own
    """

    type: ClassVar[str] = "finally_complete"
    status: StepStatus
    failure: Failure | None = None


class RunComplete(Payload, frozen=True, kw_only=True):
    """A run ended; this event carries the seal.

    outcome: what the run came to, if it reached an `end` step
    reachable_outcomes: in a dry-run, every outcome that can be reached; a dry-run claims none
    finally_failure: the first failure among the `finally` steps
    break_glass: how many decisions were overridden in an emergency
    chain_hash: the head of the chain before this event; equal to its `prev_hash`
    signature: the signature over `chain_hash`
    signing_key_id: the label of the key that signed
    signature_alg: `hmac-sha256` or `ed25519`
    body_signature: the signature over this event's own line; see the trace format
    """

    type: ClassVar[str] = "run_complete"
    status: RunStatus
    mode: RunMode
    duration: str
    outcome: Outcome | None = None
    failure: Failure | None = None
    failed_step: str | None = None
    reachable_outcomes: tuple[Outcome, ...] = ()
    finally_failure: Failure | None = None
    break_glass: int = 0
    chain_hash: str | None = None
    signature: str | None = None
    signing_key_id: str | None = None
    signature_alg: str | None = None
    body_signature: str | None = None


class WebhookSent(Payload, frozen=True, kw_only=True):
    """A notification about the outcome was sent, or given up; written after `run_complete`, outside the seal.

    url: where to, without secrets
    attempts: how often it was tried
    status_code: the last answer, if there was one
    """

    type: ClassVar[str] = "webhook_sent"
    url: str
    delivered: bool
    attempts: int
    category: OutcomeCategory | None = None
    status_code: int | None = None
    error: str | None = None


# ── steps ────────────────────────────────────────────────────────────────────────────────────────────


class StepStart(Payload, frozen=True, kw_only=True):
    """A step is about to execute; nothing has been asked of the world yet.

    type: the type of the step
    contract_summary: effects, reads, writes, deterministic, idempotent and risk
    inputs: the inputs after templates, defaults and `inputs_from`, redacted
    secrets: the names of the secrets the step is given
    """

    type: ClassVar[str] = "step_start"
    step_id: str
    step_type: str = field(name="type")
    contract_summary: dict[str, Any] = field(default_factory=dict)
    tool: str | None = None
    action: str | None = None
    extension: str | None = None
    inputs: dict[str, Any] = field(default_factory=dict)
    scope: str | None = None
    secrets: tuple[str, ...] = ()
    extensions: dict[str, Any] = field(default_factory=dict)


class StepComplete(Payload, frozen=True, kw_only=True):
    """A step ended.

    outputs: the declared outputs, redacted
    failure: present when the status is `failed` or `error`, or the step was denied
    reason: why the step was skipped
    evidence: what a person provided in a manual step
    attempts: how often the step was tried, if more than once
    continued: the step failed and `continue_on_fail` let the run go on
    assumed: the outputs are unknown, as in a dry-run
    """

    type: ClassVar[str] = "step_complete"
    step_id: str
    status: StepStatus
    duration: str
    outputs: dict[str, Any] = field(default_factory=dict)
    failure: Failure | None = None
    reason: SkipReason | None = None
    exit_code: int | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    attempts: int = 1
    continued: bool = False
    assumed: bool = False


class StepRetry(Payload, frozen=True, kw_only=True):
    """A step failed and will be tried again.

    attempt: the attempt that is about to begin, from 2 on
    max: how many attempts there are at most
    delay: how long to wait before it
    failure: why the last attempt failed
    """

    type: ClassVar[str] = "step_retry"
    step_id: str
    attempt: int
    max: int
    delay: str
    failure: Failure


class StepReconciled(Payload, frozen=True, kw_only=True):
    """On resume, a call without a recorded result was settled.

    choice: what the operator said happened, or `retry`
    automatic: the contract is idempotent, so nobody had to be asked
    """

    type: ClassVar[str] = "step_reconciled"
    step_id: str
    choice: Reconciliation
    automatic: bool = False


class RedactionApplied(Payload, frozen=True, kw_only=True):
    """Secrets were masked in what the world answered.

    pattern_count: how many were masked
    """

    type: ClassVar[str] = "redaction_applied"
    step_id: str
    pattern_count: int


class VisibilityApplied(Payload, frozen=True, kw_only=True):
    """A step was given a filtered view of the state.

    allow: absent when the step declares none, which allows everything
    view_hash: the digest of the filtered view
    """

    type: ClassVar[str] = "visibility_applied"
    step_id: str
    view_hash: str
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


class ScopeExport(Payload, frozen=True, kw_only=True):
    """Variables of a step or scope became global."""

    type: ClassVar[str] = "scope_export"
    step_id: str
    exported_vars: tuple[str, ...]
    scope: str | None = None


# ── flow ─────────────────────────────────────────────────────────────────────────────────────────────


class BranchEnter(Payload, frozen=True, kw_only=True):
    """An arm of a branch is entered.

    condition: the arm's condition as written
    explored: in a dry-run, the condition is unknown and every arm is explored
    """

    type: ClassVar[str] = "branch_enter"
    step_id: str
    branch_label: str
    condition: str
    explored: bool = False


class BranchExit(Payload, frozen=True, kw_only=True):
    """An arm of a branch is left."""

    type: ClassVar[str] = "branch_exit"
    step_id: str
    branch_label: str
    status: StepStatus = "success"


class ParallelFork(Payload, frozen=True, kw_only=True):
    """The lanes of a parallel block begin, each with a copy of the state.

    branches: the labels of the lanes, in order; the position is the lane's index
    forked_state_hash: the digest of the state each lane got
    serialized: groups of lanes, by index, that run one after the other because their contracts conflict
    """

    type: ClassVar[str] = "parallel_fork"
    step_id: str
    branch_count: int
    forked_state_hash: str
    branches: tuple[str, ...] = ()
    serialized: tuple[tuple[int, ...], ...] = ()


class ParallelMerge(Payload, frozen=True, kw_only=True):
    """All lanes of a parallel block are done."""

    type: ClassVar[str] = "parallel_merge"
    step_id: str
    branch_outcomes: tuple[BranchOutcome, ...]
    merged_outputs: dict[str, Any] = field(default_factory=dict)


class ForEachStart(Payload, frozen=True, kw_only=True):
    """A step begins to iterate.

    over: the list as written
    variable: the name an item has inside, `as` in the runbook
    keys: the keys of the items, if the step declares one
    """

    type: ClassVar[str] = "for_each_start"
    step_id: str
    over: Any
    item_count: int
    parallel: bool
    variable: str = field(name="as")
    keys: tuple[str, ...] = ()


class ForEachItem(Payload, frozen=True, kw_only=True):
    """One item of an iteration begins."""

    type: ClassVar[str] = "for_each_item"
    step_id: str
    index: int
    value: Any
    key: str | None = None


class RepeatStart(Payload, frozen=True, kw_only=True):
    """A repeat block begins."""

    type: ClassVar[str] = "repeat_start"
    step_id: str
    max: int
    until: str | None = None


class RepeatIteration(Payload, frozen=True, kw_only=True):
    """One iteration of a repeat block is done.

    until_result: whether the condition to stop was met; absent without one
    """

    type: ClassVar[str] = "repeat_iteration"
    step_id: str
    index: int
    until_result: bool | None = None


class NextTaken(Payload, frozen=True, kw_only=True):
    """A step sent the run to another step with `next`.

    target: the step that follows
    count: how often this jump was taken, this time included
    max: how often it may be taken, for a backward jump
    """

    type: ClassVar[str] = "next_taken"
    step_id: str
    target: str
    count: int
    backward: bool = False
    max: int | None = None


class OutcomeResolved(Payload, frozen=True, kw_only=True):
    """An `end` step was reached."""

    type: ClassVar[str] = "outcome_resolved"
    step_id: str
    structured_outcome: Outcome


# ── governance ───────────────────────────────────────────────────────────────────────────────────────


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
    """A step did not keep its contract, or an approval was not validly signed."""

    type: ClassVar[str] = "contract_violation"
    step_id: str
    kind: ViolationKind
    message: str
    severity: Severity


class PreviewCaptured(Payload, frozen=True, kw_only=True):
    """What a step would change was asked beforehand.

    digest: the digest of the preview, part of the request hash of an approval
    """

    type: ClassVar[str] = "preview_captured"
    step_id: str
    digest: str
    output: str


class ApprovalSubmitted(Payload, frozen=True, kw_only=True):
    """Approval was requested.

    request_hash: binds the approval to runbook, step, contract, inputs and preview
    method: the provider that asks
    expires_at: when the ticket lapses
    approvers: people and `group:` names who may answer; empty means anyone
    """

    type: ClassVar[str] = "approval_submitted"
    ticket_id: str
    step_id: str
    risk_level: RiskLevel
    request_hash: str
    min_approvers: int
    method: str
    expires_at: str | None = None
    approvers: tuple[str, ...] = ()
    requested_by: str | None = None
    preview_digest: str | None = None


class ApprovalResponse(Payload, frozen=True, kw_only=True):
    """Somebody answered a request for approval.

    objection: why the answer does not count, if it does not
    verified: whether its signature was checked and holds
    timestamp: when the approver answered, by the approver's clock
    """

    type: ClassVar[str] = "approval_response"
    ticket_id: str
    step_id: str
    approved: bool
    approver_id: str
    method: str
    timestamp: str
    verified: bool = False
    signature: str | None = None
    signature_alg: str | None = None
    key_id: str | None = None
    reason: str | None = None
    objection: str | None = None


class ApprovalEscalated(Payload, frozen=True, kw_only=True):
    """Nobody answered in time, and the request went to others.

    escalated_to: people and `group:` names who may answer now
    """

    type: ClassVar[str] = "approval_escalated"
    ticket_id: str
    step_id: str
    escalated_to: tuple[str, ...]
    expires_at: str | None = None


class ApprovalResolved(Payload, frozen=True, kw_only=True):
    """A ticket was resolved, and cannot be used again.

    approver_id: whose answer resolved it; absent when it expired
    approvers: everyone whose approval counted
    verified: every answer that counted was validly signed
    """

    type: ClassVar[str] = "approval_resolved"
    ticket_id: str
    step_id: str
    approved: bool
    status: ApprovalStatus
    method: str
    approver_id: str | None = None
    approvers: tuple[str, ...] = ()
    verified: bool = False
    signature: str | None = None
    reason: str | None = None


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


EVENTS: tuple[type[Payload], ...] = (
    RunStart, InputResolved, RunResumed, RunForked, RunCancelled, FinallyStart, FinallyComplete, RunComplete,
    WebhookSent,
    StepStart, StepComplete, StepRetry, StepReconciled, RedactionApplied, VisibilityApplied, ScopeExport,
    BranchEnter, BranchExit, ParallelFork, ParallelMerge, ForEachStart, ForEachItem, RepeatStart,
    RepeatIteration, NextTaken, OutcomeResolved,
    ContractEvaluated, GovernanceDecision, ContractViolation, PreviewCaptured,
    ApprovalSubmitted, ApprovalResponse, ApprovalEscalated, ApprovalResolved, BreakGlass,
)  # fmt: skip
