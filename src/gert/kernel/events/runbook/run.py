"""The events about a whole run, from its start to its seal and the notifications after it."""

from typing import Any, ClassVar

from msgspec import field

from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook.parts import DeniedStep, Failure, Outcome, Start
from gert.kernel.events.vocabulary import OutcomeCategory, RunKind, RunMode, RunStatus, StepStatus
from gert.kernel.foundation.principal import Principal


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
    start: everything a later process needs to resume the run
    parent_run_id: the run that started this one: the one it is a rerun of, or the one whose tool called gert
    root_run_id: the first of the runs that started each other; None if no run started this one, or it is a rerun
    principal: the actor, where it is not a human: an agent that started the run through a server
    require_signed: approvals of this run need a signature, whatever policies say
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
    root_run_id: str | None = None
    start: Start | None = None
    principal: Principal | None = None
    require_signed: bool = False


class InputResolved(Payload, frozen=True, kw_only=True):
    """An input got its value, or its source has none; one event per input, after `run_start`.

    source: `cli`, `env/NAME`, `file/PATH`, `prompt`, `provider/NAME.PATH`, `default`, or `unset` if an optional
        input has no value in its source
    """

    type: ClassVar[str] = "input_resolved"
    name: str
    source: str
    value: Any = None


class RunResumed(Payload, frozen=True, kw_only=True):
    """A stopped run was resumed in another process.

    actor: who resumed it
    answered: how many recorded answers were replayed before the run continued live
    accepted_changes: files that changed since the run began, and were accepted
    accepted_digests: what each of them was when it was accepted; empty for one that is gone
    """

    type: ClassVar[str] = "run_resumed"
    actor: str
    host: str
    gert_version: str
    answered: int
    ticket_id: str | None = None
    accepted_changes: tuple[str, ...] = ()
    accepted_digests: dict[str, str] = field(default_factory=dict)


class RunAdopted(Payload, frozen=True, kw_only=True):
    """A run that was not sealed is continued with a signing key; nothing proves its events up to here.

    actor: who adopted it
    reason: why, in the words of the actor
    events: how many events the run had
    chain_hash: the head of its chain
    source_run_id: the adopted run, where a rerun takes the answers of an unsealed run
    """

    type: ClassVar[str] = "run_adopted"
    actor: str
    reason: str
    events: int
    chain_hash: str
    source_run_id: str | None = None


class RunForked(Payload, frozen=True, kw_only=True):
    """This run replays the recorded answers of another run up to a step, and continues live.

    source_run_id: the run the answers come from
    from_step: the first step that runs live
    source_root_run_id: the root of the other run, where a run started it
    source_chain_hash: the head of the other run's chain when its answers were taken
    """

    type: ClassVar[str] = "run_forked"
    source_run_id: str
    from_step: str
    source_chain_hash: str
    answered: int
    source_root_run_id: str | None = None


class RunCancelled(Payload, frozen=True, kw_only=True):
    """The run was cancelled, by a person or by its timeout.

    reason: `interrupted`, `timeout`, `abandoned`, or the reason given
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

    failure: the first failure among them, in addition to the run's own
    """

    type: ClassVar[str] = "finally_complete"
    status: StepStatus
    failure: Failure | None = None


class RunComplete(Payload, frozen=True, kw_only=True):
    """A run ended; this event carries the seal.

    duration: from its first to its last event
    waited: the part of `duration` spent waiting for people, a free lane or a resume
    outcome: the outcome, if the run reached an `end` step
    reachable_outcomes: in a dry-run, every outcome that can be reached; a dry-run claims none
    denied: in a dry-run or a probe, the steps on paths to these outcomes that policy denies
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
    waited: str | None = None
    outcome: Outcome | None = None
    failure: Failure | None = None
    failed_step: str | None = None
    reachable_outcomes: tuple[Outcome, ...] = ()
    denied: tuple[DeniedStep, ...] = ()
    finally_failure: Failure | None = None
    break_glass: int = 0
    chain_hash: str | None = None
    signature: str | None = None
    signing_key_id: str | None = None
    signature_alg: str | None = None
    body_signature: str | None = None


class WebhookSent(Payload, frozen=True, kw_only=True):
    """A notification about the outcome was sent, or given up; written after `run_complete`, outside the seal.

    url: the URL, without secrets
    status: how a run without an outcome ended: `failed`, `denied` or `rejected`
    attempts: how often it was tried
    status_code: the last response status, if there was one
    """

    type: ClassVar[str] = "webhook_sent"
    url: str
    delivered: bool
    attempts: int
    category: OutcomeCategory | None = None
    status: str | None = None
    status_code: int | None = None
    error: str | None = None
