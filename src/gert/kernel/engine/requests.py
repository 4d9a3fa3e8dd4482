"""Requests that the engine makes, and the answers to them.

A request has a `key`, which is the same whenever the same runbook makes the request again: answers are stored
under it, and recording, replay and resume depend on that. Answers are data. They contain no secrets,
because the host redacts them first (`gert.ecosystem.host.run.world.sanitize`).
"""

from collections.abc import Generator, Mapping
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import field

from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.principal import Principal
from gert.kernel.governance.approval import ApprovalRequest, Response
from gert.kernel.governance.contract import Contract

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


# --- answers


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """The fields of every answer.

    duration: seconds it took
    at: when the run received it, in seconds since its first event; None for scripted answers
    idle: intervals in which no process drove the run, on the first answer after a resume
    failure: why the request failed; its kind decides whether the step failed or could not execute
    redacted: how many secrets were masked in it
    assumed: why the request was not made, so that its result is unknown
    message_id: the message of the inbox that it came in, or that let the call begin
    """

    duration: float = 0.0
    at: float | None = None
    idle: tuple[tuple[float, float], ...] = ()
    failure: Failure | None = None
    redacted: int = 0
    assumed: Literal["dry_run", "probe", "after_skipped_write"] | None = None
    message_id: int | None = None


class ToolAnswer(Answer, frozen=True, kw_only=True, tag="tool"):
    """The result of a tool or extension call.

    outputs: extracted values, in their declared types where they fit; may contain undeclared ones
    stdout, stderr: what it printed; the middle of more than 1 MiB is left out
    again: the outputs of a second execution with equal inputs, where there was one
    principal: the principal that an extension reports
    child_run_id: the run that it started, such as that of an agent
    reconciled: the operator reconciled the call as successful, with these outputs
    preview: it is the answer of a preview, and the action itself was not called
    """

    outputs: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    again: dict[str, Any] | None = None
    principal: Principal | None = None
    child_run_id: str | None = None
    reconciled: bool = False
    preview: bool = False


class EvidenceAnswer(Answer, frozen=True, kw_only=True, tag="evidence"):
    """Evidence by name, and the person who gave it."""

    evidence: dict[str, Any] = field(default_factory=dict)
    by: Principal | None = None


class TicketAnswer(Answer, frozen=True, kw_only=True, tag="ticket"):
    """The ticket of a submitted approval request.

    request_hash: the hash of the request as submitted; the run compares the call it would make with it
    program, folder, host: where the program was found and would run, and on which host
    secrets: an HMAC of each secret input, by input
    plan: the plan that a runner would execute, for a step that calls a skill
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
    plan: dict[str, Any] | None = None
    created_at: str | None = None
    expires_at: str | None = None
    admitted: tuple[tuple[str, ...], ...] | None = None
    must_sign: bool = False


class ApprovalAnswer(Answer, frozen=True, kw_only=True, tag="approval"):
    """Responses to a request for approval, in the order they were received; the kernel decides whether they suffice.

    more: further responses can follow; unless these decide, the run waits again
    """

    responses: tuple[Response, ...] = ()
    expired: bool = False
    more: bool = False


class PauseAnswer(Answer, frozen=True, kw_only=True, tag="pause"):
    """The pause has ended."""


AnyAnswer: TypeAlias = ToolAnswer | EvidenceAnswer | TicketAnswer | ApprovalAnswer | PauseAnswer


# --- requests


class Execution(msgspec.Struct, frozen=True):
    """What a call counts as for `max_per_hour`, and the limit that applies to it."""

    target: str
    max_per_hour: int | None = None


class Request(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A request to the driver; T is the type of its answer.

    timeout: seconds after which the driver stops waiting
    counts: what it counts as for `max_per_hour`; None where it executes nothing
    """

    key: str
    path: str
    step_id: str
    timeout: float | None = None
    counts: Execution | None = None


class CallTool(Request[ToolAnswer], frozen=True, kw_only=True):
    """Call an action of a tool.

    after_skipped_write: an earlier step that may write was only assumed, so what the tool reads would be stale
    approval: the approved request, if an approval was needed; the driver starts nothing else
    """

    tool: str
    action: str
    inputs: dict[str, Any]
    contract: Contract
    after_skipped_write: bool = False
    approval: "ApprovalRequest | None" = None


class CallPreview(Request[ToolAnswer], frozen=True, kw_only=True):
    """Run the preview of an action; what it prints is the answer.

    contract: the preview's contract: the effects of the action, without writes
    """

    tool: str
    action: str
    inputs: dict[str, Any]
    contract: Contract


class CallExtension(Request[ToolAnswer], frozen=True, kw_only=True):
    """Call an extension; `view` is the state it may see."""

    extension: str
    inputs: dict[str, Any]
    view: dict[str, Any]
    contract: Contract
    approval: "ApprovalRequest | None" = None


class RequestedEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of evidence to collect."""

    kind: Literal["text", "checklist", "attachment"]
    name: str
    description: str | None = None
    items: tuple[str, ...] = ()


class CollectEvidence(Request[EvidenceAnswer], frozen=True, kw_only=True):
    """Ask a person to do something, and collect evidence of it."""

    instructions: str
    title: str | None = None
    evidence: tuple[RequestedEvidence, ...] = ()
    contract: Contract
    inputs: dict[str, Any] = field(default_factory=dict)
    approval: "ApprovalRequest | None" = None


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The call that an approval is about, before it is made; never recorded.

    contract: what the values of secret inputs are checked against
    call: which visit of a step makes it
    """

    inputs: dict[str, Any]
    contract: Contract = msgspec.field(default_factory=Contract)
    tool: str | None = None
    action: str = ""
    call: str = ""
    extension: str | None = None


class SubmitApproval(Request[TicketAnswer], frozen=True, kw_only=True):
    """Submit an approval request; the answer is a ticket, without waiting for a decision."""

    request: ApprovalRequest
    subject: Subject | None = None


class AwaitApproval(Request[ApprovalAnswer], frozen=True, kw_only=True):
    """Wait until a ticket is resolved.

    created_at, expires_at: the recorded time in which a response counts
    items: how many items the loops around the step have; 1 outside a loop
    """

    ticket_id: str
    request: ApprovalRequest
    created_at: str | None = None
    expires_at: str | None = None
    subject: Subject | None = None
    items: int = 1


class Pause(Request[PauseAnswer], frozen=True, kw_only=True):
    """Wait before the next attempt."""

    seconds: float


ANSWERS: Final[Mapping[type[Request[Any]], type[AnyAnswer]]] = {
    CallTool: ToolAnswer,
    CallPreview: ToolAnswer,
    CallExtension: ToolAnswer,
    CollectEvidence: EvidenceAnswer,
    SubmitApproval: TicketAnswer,
    AwaitApproval: ApprovalAnswer,
    Pause: PauseAnswer,
}


def call_of(key: str) -> str:
    """Return which visit of a step a request belongs to: its key without the number of the request."""
    visit, _, number = key.rpartition("#")
    return visit if visit and number.isdecimal() else key


def failed_answer(ask: Request[Any], failure: Failure) -> AnyAnswer:
    """Return the failed answer to a request."""
    return ANSWERS[type(ask)](failure=failure)


# --- what the engine yields


class Emit(msgspec.Struct, frozen=True):
    """An event to record: its payload, its path, and the principal (None for the kernel itself).

    The driver may send a failure back if the run is cancelled; loops check it, so that none continues for ever.
    """

    payload: Payload
    path: str | None
    principal: Principal | None


class RunLanes(msgspec.Struct, frozen=True):
    """Run lanes concurrently; the answer holds each lane's result in order, or None for a lane that never began.

    after: for each lane, the earlier lanes that must end before it begins
    """

    lanes: tuple["Steps[Any]", ...]
    after: tuple[frozenset[int], ...]


Steps: TypeAlias = Generator[Request[Any] | RunLanes | Emit, Any, T]
