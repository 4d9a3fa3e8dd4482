"""Questions the engine puts to the world, and the answers it takes.

A question names itself by `key`, which is the same whenever the same runbook asks it again: answers are kept
under it, and recording, replay and resume all rest on that. Answers are data. They hold nothing that is
secret, because whoever answers redacts first (`gert.ecosystem.host.run.sanitize`).
"""

from collections.abc import Generator, Mapping
from typing import Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import field

from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.principal import Principal
from gert.kernel.governance.contract import Contract

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


# --- answers


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """What every answer may say.

    duration: seconds it took
    at: when the run took it, in seconds since its first event; only scripted answers do not say
    idle: intervals in which no process drove the run, on the first answer after a resume
    failure: why there is no good answer; its kind decides whether the step failed or could not execute
    redacted: how many secrets were masked in it
    assumed: why nobody was asked, so that nothing in it is known
    """

    duration: float = 0.0
    at: float | None = None
    idle: tuple[tuple[float, float], ...] = ()
    failure: Failure | None = None
    redacted: int = 0
    assumed: Literal["dry_run", "probe", "after_skipped_write"] | None = None


class ToolAnswer(Answer, frozen=True, kw_only=True, tag="tool"):
    """What a tool or an extension gave.

    outputs: what was extracted, of the declared types where they fit; what is not declared is still in it
    stdout, stderr: what it printed; the middle of more than 1 MiB is left out
    again: the outputs of a second execution with equal inputs, where there was one
    principal: who an extension says acted
    reconciled: the operator says that it succeeded, and which outputs it gave
    """

    outputs: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    again: dict[str, Any] | None = None
    principal: Principal | None = None
    reconciled: bool = False


class EvidenceAnswer(Answer, frozen=True, kw_only=True, tag="evidence"):
    """What a person gave: evidence by name, and who gave it."""

    evidence: dict[str, Any] = field(default_factory=dict)
    by: Principal | None = None


class TicketAnswer(Answer, frozen=True, kw_only=True, tag="ticket"):
    """A request for approval was submitted.

    request_hash: the hash of the request as it was submitted; the run compares what it would do against it
    program, folder, host: where the program was found and would run, and on which host
    secrets: an HMAC of each secret input, by input
    admitted: who may approve, list by list, with groups looked up when the request was submitted
    must_sign: the ledger can be written by others, so only signed approvals count
    """

    ticket_id: str = ""
    method: str = ""
    request_hash: str = ""
    program: str | None = None
    folder: str | None = None
    host: str | None = None
    secrets: dict[str, str] = field(default_factory=dict)
    created_at: str | None = None
    expires_at: str | None = None
    admitted: tuple[tuple[str, ...], ...] | None = None
    must_sign: bool = False


class Response(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person's response to a request for approval.

    ticket_id, request_hash: what it is about, where the response says so
    verified: its signature was checked, and holds
    flaw: why its signature does not hold
    unfit: why it is no response at all
    scripted: it is from a scenario, so no person can have signed it
    received_at: when the ledger received it, by the ledger's clock; it decides about the timeout
    message_id: the message of the inbox it came in
    """

    approver: str
    approved: bool
    timestamp: str
    reason: str | None = None
    ticket_id: str = ""
    request_hash: str = ""
    signature: str | None = None
    signature_alg: str | None = None
    key_id: str | None = None
    verified: bool = False
    flaw: str | None = None
    unfit: str | None = None
    scripted: bool = False
    received_at: str | None = None
    message_id: int | None = None


class ApprovalAnswer(Answer, frozen=True, kw_only=True, tag="approval"):
    """Responses to a request for approval, in the order they were received; the kernel decides whether they suffice.

    more: further responses can follow; unless these decide, the run waits again
    """

    responses: tuple[Response, ...] = ()
    expired: bool = False
    more: bool = False


class PauseAnswer(Answer, frozen=True, kw_only=True, tag="pause"):
    """The time is over."""


AnyAnswer: TypeAlias = ToolAnswer | EvidenceAnswer | TicketAnswer | ApprovalAnswer | PauseAnswer


# --- questions


class Execution(msgspec.Struct, frozen=True):
    """What a call counts as for `max_per_hour`, and the limit that applies to it."""

    target: str
    max_per_hour: int | None = None


class Ask(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A question to the world; T is the type of its answer.

    timeout: seconds after which the driver stops waiting
    counts: what it counts as for `max_per_hour`; None where it executes nothing
    """

    key: str
    path: str
    step_id: str
    timeout: float | None = None
    counts: Execution | None = None


class CallTool(Ask[ToolAnswer], frozen=True, kw_only=True):
    """Call an action of a tool.

    after_skipped_write: a step before it that may write was only assumed, so the tool would read another world
    approval: what was approved, where an approval was needed; anything else is not started
    """

    tool: str
    action: str
    inputs: dict[str, Any]
    contract: Contract
    after_skipped_write: bool = False
    approval: "ApprovalRequest | None" = None


class CallPreview(Ask[ToolAnswer], frozen=True, kw_only=True):
    """Run the preview of an action; what it prints is the answer.

    contract: that of the preview: the effects of the action, and no writes
    """

    tool: str
    action: str
    inputs: dict[str, Any]
    contract: Contract


class CallExtension(Ask[ToolAnswer], frozen=True, kw_only=True):
    """Hand a step to an extension runner; `view` is the state it may see."""

    extension: str
    inputs: dict[str, Any]
    view: dict[str, Any]
    contract: Contract
    approval: "ApprovalRequest | None" = None


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of evidence that is asked for."""

    kind: Literal["text", "checklist", "attachment"]
    name: str
    description: str | None = None
    items: tuple[str, ...] = ()


class CollectEvidence(Ask[EvidenceAnswer], frozen=True, kw_only=True):
    """Ask a person to do something, and for evidence of it."""

    instructions: str
    title: str | None = None
    evidence: tuple[Wanted, ...] = ()
    contract: Contract
    inputs: dict[str, Any] = field(default_factory=dict)
    approval: "ApprovalRequest | None" = None


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What an approver must know: what would run, how risky it is, and which rule asks.

    path: where in the run the step is; it tells the items of a loop and the lanes apart
    request_hash: binds an answer to what would run (`gert.kernel.engine.approval_rules.hash_of`)
    approvers, admitted: who may approve, list by list, as policy writes it and with groups looked up
    tool_digest, command: the tool file, and the command or call that would be made, without the values of secrets
    hidden: inputs that are not shown, and who marked them secret: `runbook` or `tool`
    secrets: an HMAC of each of those under a key of the run
    program, folder, host: where the program was found and would run, and on which host
    preview, preview_command, preview_skipped: what the preview printed, its command, and why it was not run
    """

    run_id: str
    runbook: str
    step_id: str
    title: str | None
    risk_level: str
    rule: str | None
    contract: dict[str, Any]
    target: str
    inputs: dict[str, Any]
    request_hash: str
    min_approvers: int
    approvers: tuple[tuple[str, ...], ...]
    admitted: tuple[tuple[str, ...], ...]
    separation_of_duties: bool
    require_signed_approvals: bool
    requested_by: str | None
    approval_timeout: float
    notify: tuple[str, ...] = ()
    preview: str | None = None
    runbook_hash: str = ""
    extensions: dict[str, Any] = field(default_factory=dict)
    step_type: str = "tool"
    description: str | None = None
    tool_digest: str | None = None
    command: dict[str, Any] | None = None
    hidden: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    program: str | None = None
    folder: str | None = None
    host: str | None = None
    preview_command: tuple[str, ...] = ()
    preview_skipped: str | None = None
    path: str = ""

    @property
    def place(self) -> str:
        """What the step is called where it is named to people: its path."""
        return self.path or self.step_id


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The call that an approval is about, before it is made; it is never written down."""

    inputs: dict[str, Any]
    tool: str | None = None
    action: str = ""


class SubmitApproval(Ask[TicketAnswer], frozen=True, kw_only=True):
    """Ask for approval; the answer is a ticket, at once."""

    request: ApprovalRequest
    subject: Subject | None = None


class AwaitApproval(Ask[ApprovalAnswer], frozen=True, kw_only=True):
    """Wait until a ticket is answered.

    created_at, expires_at: while when an answer counts, as it is on record
    """

    ticket_id: str
    request: ApprovalRequest
    created_at: str | None = None
    expires_at: str | None = None
    subject: Subject | None = None


class Pause(Ask[PauseAnswer], frozen=True, kw_only=True):
    """Let some time pass before another attempt."""

    seconds: float


ANSWERS: Final[Mapping[type[Ask[Any]], type[AnyAnswer]]] = {
    CallTool: ToolAnswer,
    CallPreview: ToolAnswer,
    CallExtension: ToolAnswer,
    CollectEvidence: EvidenceAnswer,
    SubmitApproval: TicketAnswer,
    AwaitApproval: ApprovalAnswer,
    Pause: PauseAnswer,
}


def answer_with(ask: Ask[Any], failure: Failure) -> AnyAnswer:
    """The answer to a question that nobody could answer."""
    return ANSWERS[type(ask)](failure=failure)


# --- the seam


class Said(NamedTuple):
    """Something to write down: what happened, where, and who did it (the kernel itself, where nobody is named).

    Whoever says something may be told in return that the run is cancelled; loops listen, so that none goes on for ever.
    """

    payload: Payload
    path: str | None
    principal: Principal | None


class RunLanes(msgspec.Struct, frozen=True):
    """Run these side by side; the answer is what each returned, in order, or None for one that never began.

    after: for each lane, the earlier ones that must be done before it begins
    """

    lanes: tuple["Steps[Any]", ...]
    after: tuple[frozenset[int], ...]


Steps: TypeAlias = Generator["Ask[Any] | RunLanes | Said", Any, T]
