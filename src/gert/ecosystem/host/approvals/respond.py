"""Responding to tickets: a signed or unsigned response each, posted to the ledger or left in a drop box."""

import getpass
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import msgspec

from gert.ecosystem.approvals.drop_box import find_request, leave_response
from gert.ecosystem.approvals.request_text import summary
from gert.ecosystem.approvals.signatures import sign_response
from gert.ecosystem.approvals.tickets import Answered, Received, Tickets, TicketView
from gert.ecosystem.host.approvals.find_ticket import find_ticket, find_tickets
from gert.ecosystem.host.approvals.resume_words import input_words
from gert.ecosystem.host.approvals.ticket_ledger import open_tickets
from gert.ecosystem.host.config.keys.approval_keys import SIGNING_KEY, is_checked, key_to_sign_with
from gert.ecosystem.host.runs.place import Place
from gert.ecosystem.ledger.ids import utc_now
from gert.errors import GertError, IntegrityError, UsageError
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.foundation.signature import Key
from gert.kernel.foundation.text import is_text
from gert.kernel.governance.approval import Response
from gert.kernel.governance.approval_rules import hash_of

__all__ = ["Answered", "Given", "Received", "TicketView", "Verdict", "respond", "respond_to_each", "summary"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What an approver says about a ticket.

    ticket: its id, a unique prefix, or `last`
    key: the environment variable or the file of the key to sign with
    drop_box: the drop box the request is in, instead of a ledger
    """

    ticket: str
    approved: bool
    approver: str | None = None
    reason: str | None = None
    key: str | None = None
    key_id: str | None = None
    drop_box: str | None = None


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a response.

    is_unverified: it is signed with a key that cannot be verified here
    input_words: the options that give the secret inputs of the run again when it is resumed
    """

    answered: Answered
    is_signed: bool = False
    is_unverified: bool = False
    input_words: str = ""


async def respond(
    verdict: Verdict,
    place: Place,
    environ: Mapping[str, str],
    on_ticket: Callable[[TicketView], object] = lambda _: None,
) -> Given:
    """Respond to a ticket, signed if a key is named; `on_ticket` is called with the ticket first."""
    own = key_to_sign_with(verdict.key, environ, verdict.key_id) if verdict.key is not None else None
    if verdict.drop_box is not None:
        return _leave(verdict, verdict.drop_box, own, on_ticket)
    async with open_tickets(place, environ, own, to_post=True) as tickets:
        return await _post(verdict, tickets, own, place, environ, on_ticket)


async def respond_to_each(
    verdict: Verdict,
    named: Sequence[str],
    place: Place,
    environ: Mapping[str, str],
    on_ticket: Callable[[TicketView], object] = lambda _: None,
    *,
    run: str | None = None,
) -> AsyncIterator[tuple[str, Given | GertError]]:
    """Respond to several tickets alike, one after the other; an error with one does not prevent the others.

    run: a run whose open tickets are meant, in place of those that are named
    """
    own = key_to_sign_with(verdict.key, environ, verdict.key_id) if verdict.key is not None else None
    if verdict.drop_box is not None:
        for each in dict.fromkeys(named):
            try:
                yield each, _leave(_about(verdict, each), verdict.drop_box, own, on_ticket)
            except GertError as problem:
                yield each, problem
        return
    async with open_tickets(place, environ, own, to_post=True) as tickets:
        if run is not None:
            # A rejection decides, even if approvals were received before it.
            named = await find_tickets(tickets, run, place, answered=not verdict.approved)
        for each in dict.fromkeys(named):
            try:
                yield each, await _post(_about(verdict, each), tickets, own, place, environ, on_ticket)
            except GertError as problem:
                yield each, problem


def _about(verdict: Verdict, ticket: str) -> Verdict:
    return msgspec.structs.replace(verdict, ticket=ticket)


async def _post(
    verdict: Verdict,
    tickets: Tickets,
    own: Key | None,
    place: Place,
    environ: Mapping[str, str],
    on_ticket: Callable[[TicketView], object],
) -> Given:
    view = await tickets.get(await find_ticket(tickets, verdict.ticket, place))
    response = _response(verdict, view, own, format_timestamp(await tickets.time()))
    on_ticket(view)
    is_unverified = own is not None and not is_checked(own, environ)
    answered = await tickets.answer(view.id, response, is_unverified=is_unverified)
    words = await input_words(tickets.ledger, view.resumes)
    return Given(answered=answered, is_signed=own is not None, is_unverified=is_unverified, input_words=words)


def _leave(verdict: Verdict, folder: str, own: Key | None, on_ticket: Callable[[TicketView], object]) -> Given:
    """Leave a response in a drop box; only its owner can say whether it counts."""
    view = find_request(folder, verdict.ticket)
    if own is None:
        raise UsageError("a response in a drop box has to be signed", hint=_NAME_A_KEY)
    response = _response(verdict, view, own, format_timestamp(utc_now()))
    on_ticket(view)
    leave_response(folder, response)
    return Given(answered=Answered(objection=None, view=view), is_signed=True, is_unverified=True)


_NAME_A_KEY = f"name your key with --key: a file, or a variable such as {SIGNING_KEY}; `gert keys new` makes one"


def _response(verdict: Verdict, view: TicketView, own: Key | None, moment: str) -> Response:
    """The response that a verdict is, bound to what the ticket shows."""
    request = view.ticket.request
    if verdict.approved and hash_of(request) != request.request_hash:
        # The ledger or the file may show something harmless beside the hash of something else.
        raise IntegrityError(f"the ticket `{view.id}` shows something else than what would run")
    if verdict.approved and own is None and request.require_signed_approvals:
        raise UsageError(f"the ticket `{view.id}` takes only signed approvals", hint=_NAME_A_KEY)
    response = Response(
        approver=verdict.approver if verdict.approver is not None else _user(),
        approved=verdict.approved,
        timestamp=moment,
        reason=verdict.reason,
        ticket_id=view.id,
        request_hash=request.request_hash,
    )
    _require_text(response)
    return response if own is None else sign_response(response, view.ticket, own)


def _user() -> str:
    """The user of this process, where `--as` names no approver."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        raise UsageError("the approver is not known", hint="name them with --as") from None


def _require_text(response: Response) -> None:
    for option, text in (("--as", response.approver), ("--reason", response.reason or "")):
        if not is_text(text):
            raise UsageError(f"{option} is not UTF-8 text")
