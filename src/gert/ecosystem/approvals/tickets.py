"""The tickets of a ledger: found, shown, and answered with a message to the run that asks.

A ticket is a row that the run's own events lead to. A response is a message in the run's inbox; it counts or does not
once the run has taken it. The rules of the kernel are asked beforehand too, so that an approver learns at once why a
response would be refused.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import msgspec

from gert.ecosystem.approvals.port import SignatureVerifier
from gert.ecosystem.approvals.responses import bare, encode_response, response_in, unfit
from gert.ecosystem.approvals.signatures import NO_KEYS
from gert.errors import DocumentError, Forbidden, GertError, UsageError
from gert.kernel.events.envelope import format_timestamp, parse_timestamp
from gert.kernel.foundation.names import is_safe_name, listing
from gert.kernel.foundation.text import printable
from gert.kernel.governance.approval import ApprovalRequest, Response, ticket_prefix
from gert.kernel.governance.approval_rules import Ticket, tally
from gert.kernel.governance.decide import person_key
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Message, TicketRow, TicketStatus

_MOST_NAMED: Final = 5
_MOST_NOTES: Final = 20
_NOTE_LENGTH: Final = 300
_ALL: Final = 100_000


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """A response as the ledger has it.

    objection: why it does not count
    is_taken: the run took it; otherwise it waits in the inbox, and nothing is decided about it
    """

    response: Response
    received_at: str
    objection: str | None = None
    is_taken: bool = False

    @property
    def counts(self) -> bool:
        """Whether the run has counted it."""
        return self.is_taken and self.objection is None


class TicketView(msgspec.Struct, frozen=True, kw_only=True):
    """A ticket with everything the ledger has about it.

    responses: those the run took, counted and refused, then those that wait in the inbox
    """

    ticket: Ticket
    run_id: str
    method: str
    status: TicketStatus
    responses: tuple[Received, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The id of the ticket."""
        return self.ticket.id

    @property
    def resumes(self) -> str | None:
        """The run that a resume continues with the ticket; for a ticket of an agent, the one whose step it is."""
        request = self.ticket.request
        if request.run_kind != "agent":
            return self.run_id
        parent = request.extensions.get("parent_run_id")
        return parent if isinstance(parent, str) else None

    @property
    def needed(self) -> int:
        """How many people must approve."""
        return max(1, self.ticket.request.min_approvers)

    @property
    def counted(self) -> list[Response]:
        """The responses that the run has counted."""
        return [each.response for each in self.responses if each.counts]

    @property
    def approvals(self) -> int:
        """How many approvals the run has counted."""
        return sum(1 for response in self.counted if response.approved)

    @property
    def given(self) -> int:
        """How many approvals were given: counted, or received and not taken yet."""
        return sum(1 for response in self.expected if response.approved)

    @property
    def waiting(self) -> list[Response]:
        """The responses that the run has not taken yet."""
        return [each.response for each in self.responses if not each.is_taken]

    @property
    def is_answered(self) -> bool:
        """Whether the responses that the run has received decide the ticket, as far as can be known before it does."""
        said = self.expected
        return self.status == "pending" and bool(said) and not tally(self.ticket, said).is_open

    @property
    def expected(self) -> list[Response]:
        """The responses that count, or will as far as is known: signatures are verified when the run takes them."""
        return [_as_verified(each) for each in (*self.counted, *self.waiting) if each.unfit is None]

    def is_over(self, now: datetime) -> bool:
        """Whether the time to respond is over."""
        expires = self.ticket.expires_at
        return expires is not None and now > parse_timestamp(expires)

    def status_at(self, now: datetime) -> TicketStatus:
        """The status, also where no run has noticed yet that the time is over; an answer in time decides."""
        return "expired" if self.status == "pending" and self.is_over(now) and not self.is_answered else self.status

    def is_due(self, now: datetime) -> bool:
        """Whether its run has no more to wait for: the ticket is closed, answered, or its time is over."""
        return self.is_answered or self.status_at(now) != "pending"


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """The result of posting a response: the ticket, and why the response was not posted, if it was not.

    is_decided: with this response the ticket is decided, as far as can be known before the run takes it
    is_late: the time of the ticket is over, and its run has not noticed yet
    """

    objection: str | None
    view: TicketView
    is_decided: bool = False
    is_late: bool = False


class Tickets:
    """The tickets of one ledger.

    verifier: verifies signatures of responses before they are posted; the run verifies them again
    """

    def __init__(self, ledger: Ledger, verifier: SignatureVerifier = NO_KEYS) -> None:
        self.ledger = ledger
        self.verifier = verifier

    async def time(self) -> datetime:
        """The time by the clock of the ledger, which decides about timeouts."""
        return await self.ledger.time()

    async def get(self, ticket_id: str) -> TicketView:
        """The ticket with exactly this id; UsageError where there is none."""
        rows = [row for row in await self._rows(ticket_id) if row.ticket_id == ticket_id]
        if not rows:
            raise no_ticket(ticket_id)
        return await self._view(min(rows, key=_rank))

    async def find(self, start: str) -> str:
        """The id of the one ticket that begins like this, or of the open one where one run has more of them.

        UsageError where there is none, or more than one.
        """
        rows = await self._rows(start)
        found = sorted({row.ticket_id for row in rows})
        if start in found or len(found) == 1:
            return start if start in found else found[0]
        is_open = sorted({row.ticket_id for row in rows if row.status == "pending"})
        if len(is_open) == 1 and len({row.run_id for row in rows}) == 1:
            return is_open[0]
        if not found:
            raise no_ticket(start)
        hint = f"write more of it: {listing(found, _MOST_NAMED)}"
        if len(is_open) > 1 and len({row.run_id for row in rows}) == 1:
            hint = f"{hint}; `gert approve {rows[0].run_id} --all` answers all of the run"
        raise UsageError(f"`{start}` may be {len(found)} tickets", hint=hint)

    async def all(
        self,
        *statuses: TicketStatus,
        run_id: str | None = None,
        overdue: bool = False,
        on_problem: Callable[[GertError], object] | None = None,
    ) -> list[TicketView]:
        """The tickets with one of these statuses, or all, the oldest first.

        run_id: only those of this run
        overdue: with the pending ones, also those whose time is over and whose run has not noticed yet
        on_problem: called for a ticket that cannot be read
        """
        # One whose time is over is on record as pending until its run has noticed.
        stored = {"pending" if each == "expired" else each for each in statuses} | set(statuses)
        now = await self.time()
        found: dict[str, TicketView] = {}
        for row in sorted(await self.ledger.tickets(*stored, run_id=run_id, limit=_ALL), key=_rank):
            if row.ticket_id in found:
                continue  # a rerun took it over, answered
            try:
                found[row.ticket_id] = await self._view(row)
            except DocumentError as problem:
                if on_problem is not None:
                    on_problem(problem)
        views = [
            view
            for view in found.values()
            if not statuses or view.status_at(now) in statuses or (overdue and view.status in statuses)
        ]
        return sorted(views, key=lambda view: (view.ticket.created_at or "", view.id))

    async def of_run(self, run_id: str) -> list[TicketView]:
        """The open tickets of a run; those that cannot be read are left out."""
        found = []
        for row in await self.ledger.tickets("pending", run_id=run_id):
            with suppress(DocumentError):
                found.append(await self._view(row))
        return found

    async def answer(self, ticket_id: str, response: Response, *, is_unverified: bool = False) -> Answered:
        """Post a response to the run that asks, unless it could not count.

        is_unverified: it is signed with a key that cannot be verified here; whether it holds, the run finds out
        """
        view, moment = await self.get(ticket_id), await self.time()
        now = format_timestamp(moment)
        objection = unfit(response)
        if objection is not None:
            return Answered(objection=objection, view=view)
        said = bare(response)
        said = msgspec.structs.replace(
            said,
            ticket_id=said.ticket_id or ticket_id,
            request_hash=said.request_hash or view.ticket.request.request_hash,
        )
        checked = msgspec.structs.replace(self.verifier.verify(said, view.ticket), received_at=now)
        objection = _closed(view) or _objection(view, checked)
        if objection is not None:
            is_late = view.status == "pending" and view.status_at(moment) == "expired"
            return Answered(objection=objection, view=view, is_late=is_late)
        await self.ledger.post(view.run_id, "approval", encode_response(said), ticket_id)
        posted = Received(response=said, received_at=now)
        is_open = tally(view.ticket, [*view.expected, checked]).is_open
        return Answered(
            objection=None,
            view=msgspec.structs.replace(view, responses=(*view.responses, posted)),
            is_decided=not is_open and not is_unverified,
        )

    async def note(self, ticket_id: str, text: str) -> None:
        """Keep a note about a ticket for people to read; it decides nothing."""
        view = await self.get(ticket_id)
        await self.ledger.post(view.run_id, "note", printable(text)[:_NOTE_LENGTH].encode(), ticket_id)

    async def _rows(self, start: str) -> list[TicketRow]:
        if not is_safe_name(start):
            raise UsageError(f"`{printable(start)}` is not a ticket id", hint="`gert approvals list` shows them")
        return await self.ledger.tickets(prefix=start)

    async def _view(self, row: TicketRow) -> TicketView:
        try:
            messages = await self.ledger.messages(row.run_id, ticket_id=row.ticket_id)
        except Forbidden:
            messages = []  # the database role of an approver may not read the inbox
        try:
            return view_of(row, messages)
        except (msgspec.MsgspecError, RecursionError, ValueError, KeyError, TypeError, GertError):
            raise DocumentError(
                f"the ticket `{row.ticket_id}` cannot be read",
                hint=f"`gert run verify-ledger {row.run_id}` finds what was changed",
            ) from None


def view_of(row: TicketRow, messages: list[Message]) -> TicketView:
    """A ticket as its row and the untaken messages of its inbox show it."""
    document = msgspec.json.decode(row.request, type=dict[str, Any])
    request = msgspec.convert({**document, "run_id": row.run_id}, ApprovalRequest)
    for moment in (row.created_at, *([] if row.expires_at is None else [row.expires_at])):
        parse_timestamp(moment)
    taken = [_recorded(msgspec.json.decode(line, type=dict[str, Any])) for line in row.responses.splitlines()]
    waiting = [
        Received(response=response, received_at=message.received_at, objection=response.unfit)
        for message in messages
        if message.kind == "approval" and message.taken is None
        for response in (response_in(message),)
    ]
    notes = [printable(each.body.decode(errors="replace"))[:_NOTE_LENGTH] for each in messages if each.kind == "note"]
    return TicketView(
        ticket=Ticket(id=row.ticket_id, request=request, created_at=row.created_at, expires_at=row.expires_at),
        run_id=row.run_id,
        method="ticket",
        status=row.status,
        responses=(*taken, *waiting),
        notes=tuple(notes[-_MOST_NOTES:]),
    )


def _recorded(data: dict[str, Any]) -> Received:
    """A response as an event records it."""
    response = Response(
        approver=data["approver_id"],
        approved=data["approved"],
        timestamp=data["timestamp"],
        reason=data.get("reason"),
        ticket_id=data["ticket_id"],
        request_hash=data.get("request_hash") or "",
        signature=data.get("signature"),
        signature_alg=data.get("signature_alg"),
        key_id=data.get("key_id"),
        verified=data.get("verified", False),
        received_at=data.get("received_at"),
    )
    received_at = data.get("received_at") or data["timestamp"]
    return Received(response=response, received_at=received_at, objection=data.get("objection"), is_taken=True)


def _rank(row: TicketRow) -> tuple[bool, bool]:
    """The open ticket first, then that of the run which asked: a rerun takes over answered ones."""
    return row.status != "pending", not row.ticket_id.startswith(ticket_prefix(row.run_id))


def _closed(view: TicketView) -> str | None:
    """Why a ticket takes no more responses."""
    if view.status == "abandoned":
        return "the ticket is closed: the run does not wait for an answer any more"
    if view.status == "expired":
        return f"the response came too late: the ticket expired at {view.ticket.expires_at}"
    by = next((each for each in reversed(view.counted)), None)
    if view.status != "pending":
        return f"the ticket is closed: `{by.approver}` has decided" if by is not None else "the ticket is closed"
    return None


def _objection(view: TicketView, response: Response) -> str | None:
    """Why a response would not count, by what the run has recorded.

    What waits in the inbox may turn out not to count, so it closes nothing here: no rejection is turned away for it.
    """
    objection = tally(view.ticket, [*map(_as_verified, view.counted), response]).objections[-1]
    if objection is None and response.approved:
        same = (each for each in view.waiting if each.approved and each.unfit is None)
        if any(person_key(each.approver) == person_key(response.approver) for each in same):
            return f"`{response.approver}` has already responded"
    return objection


def _as_verified(response: Response) -> Response:
    """A response that the run has verified, or will: to count here it needs no second check."""
    return msgspec.structs.replace(response, verified=response.signature is not None)


def no_ticket(start: str) -> UsageError:
    """Say that there is no such ticket."""
    return UsageError(
        f"there is no ticket `{start}` in this ledger",
        hint="`gert approvals list --all` shows them; --state-dir, --db or --dsn say where else to look",
    )
