"""The events about one step: its start, its attempts, its end, and what it may see and share."""

from typing import Any, ClassVar

from msgspec import field

from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.events.vocabulary import Reconciliation, SkipReason, StepStatus


class StepStart(Payload, frozen=True, kw_only=True):
    """A step is about to execute; no request has been made yet.

    type: the type of the step
    title: its title after templates, redacted
    contract_summary: effects, reads, writes, deterministic, idempotent and risk
    inputs: the inputs after templates, defaults and `inputs_from`, redacted
    secrets: the names of the secrets the step is given
    instructions: what a person is asked to do in a manual step, redacted
    """

    type: ClassVar[str] = "step_start"
    step_id: str
    step_type: str = field(name="type")
    title: str | None = None
    contract_summary: dict[str, Any] = field(default_factory=dict)
    tool: str | None = None
    action: str | None = None
    extension: str | None = None
    inputs: dict[str, Any] = field(default_factory=dict)
    scope: str | None = None
    secrets: tuple[str, ...] = ()
    instructions: str | None = None
    extensions: dict[str, Any] = field(default_factory=dict)


class StepComplete(Payload, frozen=True, kw_only=True):
    """A step ended.

    duration: from its first to its last event
    waited: the part of `duration` spent waiting for people, a free lane or a resume
    outputs: the declared outputs, redacted
    failure: present if the status is `failed` or `error`, or the step was denied
    reason: why the step was skipped
    evidence: what a person provided in a manual step
    attempts: how often the step was tried, if more than once
    continued: the step failed and `continue_on_fail` let the run continue
    assumed: the outputs are unknown, as in a dry-run
    child_run_id: the run that the step started, such as that of an agent
    """

    type: ClassVar[str] = "step_complete"
    step_id: str
    status: StepStatus
    duration: str
    waited: str | None = None
    outputs: dict[str, Any] = field(default_factory=dict)
    failure: Failure | None = None
    reason: SkipReason | None = None
    exit_code: int | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    attempts: int = 1
    continued: bool = False
    assumed: bool = False
    child_run_id: str | None = None


class StepRetry(Payload, frozen=True, kw_only=True):
    """A step failed and will be retried.

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
    """On resume, a call without a recorded result was reconciled.

    choice: the operator's choice: `success`, `failed` or `retry`
    automatic: the contract is idempotent, or what is called continues what it began, so no operator was needed
    """

    type: ClassVar[str] = "step_reconciled"
    step_id: str
    choice: Reconciliation
    automatic: bool = False


class StepWaiting(Payload, frozen=True, kw_only=True):
    """The process that drove the run ended while the agent of a step waits for people; `gert resume` continues it.

    ticket_id, run_id: the ticket, and the run that opened it: the agent, or a run that it started
    """

    type: ClassVar[str] = "step_waiting"
    step_id: str
    ticket_id: str
    run_id: str


class RedactionApplied(Payload, frozen=True, kw_only=True):
    """Secrets were masked in an answer.

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


class MissingKey(Payload, frozen=True, kw_only=True):
    """A warning: a template read a key that the result of a keyed loop does not have, and got nothing.

    loop: the step whose result it is
    keys: the first keys that exist
    """

    type: ClassVar[str] = "missing_key"
    step_id: str
    loop: str
    key: str
    keys: tuple[str, ...] = ()


class ScopeExport(Payload, frozen=True, kw_only=True):
    """Variables of a step or scope became global."""

    type: ClassVar[str] = "scope_export"
    step_id: str
    exported_vars: tuple[str, ...]
    scope: str | None = None
