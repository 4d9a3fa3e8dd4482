"""What gert says of approval tickets, in the names of the specification (ecosystem-v0 §4)."""

from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta


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

    answered: an answer was received, and the run has not taken it
    page: where it can be answered in a browser
    """

    ticket_id: str
    status: str
    created: str | None
    expires_at: str | None
    answered: NotRequired[bool]
    page: NotRequired[str | None]


class Ticket(_Request):
    """A ticket, in the names of the specification.

    responses: those that count
    refused: those that do not
    received: those that the run has not taken
    answered: an answer was received, and the run has not taken it
    resume: the command that resumes its run, where no process drives it
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
    """An answer that reached the run, which decides whether it counts."""

    ticket_id: str
    run_id: str
    approved: bool
    received: bool
    objection: str | None
    status: str
    approvals: int
    min_approvers: int
    resume: str | None
    signature_checked_here: bool


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
