"""What gert says of approval tickets, in the names of the specification (ecosystem-v0 §4)."""

from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

from gert.ecosystem.host.shapes.errors import ErrorDocument


class TicketResponse(TypedDict):
    """An answer to a ticket, and whether it counted."""

    ticket_id: str
    approved: bool
    approver_id: str
    method: str
    timestamp: str
    signature: str | None
    signature_alg: str | None
    key_id: str | None
    reason: Any
    received: str
    objection: str | None
    counted: bool


class _Request(TypedDict):
    """What is asked for, of whom, and what the answer is bound to."""

    run_id: str
    step_id: str
    path: str
    runbook_name: str
    run_kind: str
    step_type: str
    title: str | None
    description: str | None
    target: str | None
    command: Any
    program: Any
    plan: NotRequired[Any]
    folder: Any
    risk_level: str
    rule: str | None
    contract: Any
    inputs: Any
    hidden_inputs: Any
    preview: Any
    preview_command: list[str]
    preview_skipped: Any
    request_hash: Annotated[str, Meta(description="What an answer is bound to.")]
    min_approvers: Annotated[int, Meta(description="How many have to approve.")]
    approvers: Annotated[list[list[str]], Meta(description="Of each group, one has to approve.")]
    separation_of_duties: bool
    require_signed_approvals: bool
    requested_by: Any
    notify: list[str]
    timeout: str
    extensions: Any


class PendingTicket(_Request):
    """An approval that a run waits for: answer it with `gert approve TICKET`.

    status: `pending`, or `expired` where its time is over and the run has not been resumed since
    answered: an answer was received, and the run has not taken it
    page: where it can be answered in a browser
    notes: what went wrong with it, such as a request that a channel did not deliver
    """

    ticket_id: str
    status: str
    created: str | None
    expires_at: str | None
    answered: NotRequired[bool]
    page: NotRequired[str | None]
    notes: NotRequired[list[str]]


class AwaitedTicket(TypedDict):
    """A ticket that a run waits for.

    path: where in the run the step is
    status: `pending`, or `expired` where its time is over and the run has not been resumed since
    answered: an answer was received, and the run has not taken it
    notes: what went wrong with it, such as a request that a channel did not deliver
    """

    ticket_id: str
    path: str
    status: str
    answered: bool
    expires_at: str | None
    notes: list[str]


class Ticket(_Request):
    """A ticket, in the names of the specification.

    responses: those that count
    refused: those that do not
    received: those that the run has not taken
    answered: an answer was received, and the run has not taken it
    resume: the command that resumes its run, where the ticket is answered or expired and no process drives the run
    """

    ticket_id: str
    status: str
    created: str
    expires_at: str | None
    approvals: int
    responses: list[TicketResponse]
    refused: list[TicketResponse]
    received: list[TicketResponse]
    notes: list[Any]
    answered: bool
    resume: str | None


class TicketList(TypedDict):
    """Approval tickets."""

    tickets: list[Ticket]


class AnsweredTicket(TypedDict):
    """An answer to a ticket; the run decides whether it counts when it takes it.

    approved: the answer: approved or rejected
    received: whether the answer was posted; if not, `objection` says why it could not count
    status: the status of the ticket; `pending` until the run takes the answer
    approvals: approvals that were given so far, with this one unless its signature could not be checked here
    counted: approvals that the run has taken and counted
    min_approvers: how many have to approve
    resume: the command that resumes the run, where the answer decides the ticket
    signed: whether the answer has a signature
    signature_checked_here: whether it has a signature that was verified before it was posted; the run verifies it again
    """

    ticket_id: str
    run_id: str
    approved: bool
    received: bool
    objection: str | None
    status: str
    approvals: int
    counted: int
    min_approvers: int
    resume: str | None
    signed: bool
    signature_checked_here: bool


class AnswerOfSeveral(TypedDict):
    """An answer to one of several tickets, with the keys of `AnsweredTicket`.

    ticket_id: the ticket; as it was named, if it could not be answered
    objection: why the answer was not posted
    error: why the ticket could not be answered; then the keys of a ticket are missing
    """

    ticket_id: str
    approved: bool
    received: bool
    objection: str | None
    run_id: NotRequired[str]
    status: NotRequired[str]
    approvals: NotRequired[int]
    counted: NotRequired[int]
    min_approvers: NotRequired[int]
    resume: NotRequired[str | None]
    signed: NotRequired[bool]
    signature_checked_here: NotRequired[bool]
    error: NotRequired[ErrorDocument]


class ServedPages(TypedDict):
    """The server of pages."""

    listening: str
    base_url: str
    slack: bool


class ServedTicket(TypedDict):
    """A ticket that can be answered on a page."""

    ticket_id: str
    page_url: str


class KeyDocument(TypedDict):
    """A key, without its secret.

    file: the file it was written to
    """

    id: str
    algorithm: str
    can_sign: bool
    public: str | None
    weak: bool
    file: NotRequired[str]


class KeyRow(TypedDict):
    """A variable that should hold a key.

    flaw: why it holds none
    """

    variable: str
    use: str
    id: NotRequired[str]
    algorithm: NotRequired[str]
    can_sign: NotRequired[bool]
    public: NotRequired[str | None]
    weak: NotRequired[bool]
    flaw: NotRequired[str | None]
