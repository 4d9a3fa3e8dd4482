"""The tickets of a state directory, for runs and for whoever answers: where they are, and what an answer comes to."""

import getpass
import os
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from gert.ecosystem.approvals.sharing import Group
from gert.ecosystem.approvals.signatures import sign_response
from gert.ecosystem.approvals.ticket_file import TicketFile
from gert.ecosystem.approvals.tickets import Answered, Tickets
from gert.ecosystem.host.config.approval_keys import SIGNING_KEY, approval_verifier, is_checked, key_to_sign_with
from gert.ecosystem.host.config.state_dir import state_dir
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.run.journal import now
from gert.errors import IntegrityError, UsageError
from gert.kernel.engine.approval_rules import hash_of
from gert.kernel.engine.requests import Response
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.foundation.signature import Key

if TYPE_CHECKING:
    from gert.ecosystem.host.config.settings import Settings

FOLDER: Final = "approvals"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody says about a ticket.

    ticket: its id, or as much of it as no other has
    key: the environment variable or the file of the key to sign with
    """

    ticket: str
    approved: bool
    approver: str | None = None
    reason: str | None = None
    key: str | None = None
    key_id: str | None = None


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an answer.

    is_unverified: it is signed with a key that cannot be verified here, and counts once the run has verified it
    """

    answered: Answered
    is_unverified: bool = False


def tickets_in(
    state: str, environ: Mapping[str, str], own: Key | None = None, clock: Callable[[], datetime] = now
) -> Tickets:
    """The tickets of a state directory; signatures are checked with the keys of the environment."""
    return Tickets(os.path.join(state, FOLDER), clock, approval_verifier(environ, own))


def tickets_for_run(state: str, environ: Mapping[str, str], settings: "Settings") -> Tickets:
    """The tickets of a run: in a folder of its own, or in one that settings share with a group.

    There everybody of the group can write every file. So only signatures count, by keys that speak for somebody.
    """
    said = settings.approvals.shared_with if settings.approvals is not None else None
    group = Group(said) if said is not None else None
    verifier = approval_verifier(environ, is_strict=group is not None)
    return Tickets(os.path.join(state, FOLDER), now, verifier, group)


def tickets_here(
    chosen: str | None, environ: Mapping[str, str], own: Key | None = None, working: str | None = None
) -> Tickets:
    """The tickets of the project of the working folder, or of the state directory that was chosen."""
    folder = working if working is not None else os.getcwd()
    return tickets_in(state_dir(chosen, Workspace(folder).project_root(folder), environ), environ, own)


def give(
    answer: Answer,
    chosen: str | None,
    environ: Mapping[str, str],
    on_ticket: Callable[[TicketFile], object] = lambda _: None,
) -> Given:
    """Put an answer to a ticket, signed if a key is named; `on_ticket` hears what it is about before."""
    own = key_to_sign_with(answer.key, environ, answer.key_id) if answer.key is not None else None
    tickets = tickets_here(chosen, environ, own)
    file = tickets.get(tickets.find(answer.ticket))
    if answer.approved and hash_of(file.ticket.request) != file.ticket.request.request_hash:
        # Whoever can write the file could show something harmless beside the hash of something else.
        raise IntegrityError(f"the ticket `{file.id}` shows something else than what would run")
    if answer.approved and own is None and file.ticket.request.require_signed_approvals:
        raise UsageError(
            f"the ticket `{file.id}` takes only signed approvals",
            hint=f"name your key with --key: a file, or a variable such as {SIGNING_KEY}; `gert keys new` makes one",
        )
    response = Response(
        approver=answer.approver if answer.approver is not None else whoever(),
        approved=answer.approved,
        timestamp=format_timestamp(tickets.clock()),
        reason=answer.reason,
        ticket_id=file.id,
        request_hash=file.ticket.request.request_hash,
    )
    _require_text(response)
    on_ticket(file)
    if own is None:
        return Given(answered=tickets.answer(file.id, response))
    is_unverified = not is_checked(own, environ)
    answered = tickets.answer(file.id, sign_response(response, file.ticket, own), is_unverified=is_unverified)
    return Given(answered=answered, is_unverified=is_unverified)


def whoever() -> str:
    """The user of this process, where nobody says who answers."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        raise UsageError("it is not known who answers", hint="say so with --as") from None


def _require_text(response: Response) -> None:
    for option, text in (("--as", response.approver), ("--reason", response.reason or "")):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{option} is not UTF-8 text") from None
