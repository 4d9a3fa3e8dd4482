"""The drop box: a folder through which other users of a machine read requests and leave signed responses.

    DIR/             0711  passed through by others, not listed
    DIR/requests/    0755  the open requests, without secrets; written by the owner alone
    DIR/responses/   1733  others add files; they list nothing, and change no file of another user

A response is read with suspicion: any user of the machine can have left it. Only an approval that is signed by a key
with an owner reaches the inbox of the run; a rejection reaches it if it is signed at all.
"""

import os
import secrets
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from gert.ecosystem.approvals.port import SignatureVerifier
from gert.ecosystem.approvals.responses import ResponseMessage, encode_response, unfit
from gert.ecosystem.approvals.tickets import TicketView
from gert.errors import DocumentError, GertError, InputError, IntegrityError, TraceError, UsageError
from gert.kernel.events.envelope import parse_timestamp
from gert.kernel.foundation.names import is_safe_name, listing
from gert.kernel.foundation.text import os_reason
from gert.kernel.governance.approval import ApprovalRequest, Response, as_recorded
from gert.kernel.governance.approval_rules import Ticket
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import MAX_MESSAGE

REQUESTS: Final = "requests"
RESPONSES: Final = "responses"
MAX_REQUEST: Final = 8 * 1024 * 1024
_MODES: Final = {"": 0o711, REQUESTS: 0o755, RESPONSES: 0o1733}
_MOST_AT_ONCE: Final = 10_000
_SUFFIX: Final = ".json"
_READ: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


class _Request(msgspec.Struct, frozen=True):
    """A request as it is published."""

    ticket_id: str
    run_id: str
    created_at: str
    expires_at: str
    request: dict[str, Any]


class _Refused(Exception):
    """A file that is no valid response; the message is for people."""


def _remove(path: str) -> None:
    """Remove what was left, where the system allows it; a folder that holds something stays, and is never read."""
    for remove in (os.unlink, os.rmdir):
        with suppress(OSError):
            remove(path)
            return


class DropBox:
    """The drop box of the user who runs; `verifier` accepts approvals only by keys that have an owner."""

    def __init__(self, path: str, verifier: SignatureVerifier) -> None:
        self.path = path
        self._verifier = verifier
        self._noted: set[tuple[str, str]] = set()

    def prepare(self) -> None:
        """Make the folders, or refuse those that another user controls."""
        if os.name != "posix":
            raise InputError("a drop box needs the file permissions of a POSIX system")
        try:
            for name, mode in _MODES.items():
                folder = os.path.join(self.path, name) if name else self.path
                with suppress(FileExistsError):
                    os.makedirs(folder)
                    os.chmod(folder, mode)
                found = os.lstat(folder)
                if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                    raise InputError(f"the drop box `{folder}` is not a folder of yours")
                if stat.S_IMODE(found.st_mode) != mode:
                    raise InputError(
                        f"the rights of the drop box `{folder}` are {stat.S_IMODE(found.st_mode):04o}, "
                        f"and have to be {mode:04o}",
                        hint=f"chmod {mode:04o} {folder}",
                    )
        except OSError as problem:
            raise InputError(f"the drop box `{self.path}` cannot be used: {os_reason(problem)}") from None

    def publish(self, view: TicketView) -> str | None:
        """Publish a request for others to read; returns why it could not be."""
        ticket = view.ticket
        document = _Request(
            view.id, view.run_id, ticket.created_at or "", ticket.expires_at or "", as_recorded(ticket.request)
        )
        folder = os.path.join(self.path, REQUESTS)
        try:
            self._prune(folder)
            _write(folder, f"{view.id}{_SUFFIX}", msgspec.json.encode(document))
        except OSError as problem:
            return f"the request was not published: {os_reason(problem)}"
        return None

    def remove(self, ticket_ids: Iterable[str]) -> None:
        """Withdraw requests that no run waits for any more."""
        for ticket_id in ticket_ids:
            with suppress(OSError):
                os.unlink(os.path.join(self.path, REQUESTS, f"{ticket_id}{_SUFFIX}"))

    def holds(self, ticket_id: str) -> bool:
        """Whether a response to a ticket was left."""
        return any(map(os.path.isfile, self._left_for(ticket_id)))

    async def collect(self, ledger: Ledger, run_id: str, ticket: Ticket) -> None:
        """Post the responses that were left for a ticket to the run, and remove their files."""
        for path in self._left_for(ticket.id):
            # A file that is refused is removed as well, so that no user can hide the responses of others behind it.
            try:
                response = self._read(path, ticket)
            except _Refused as problem:
                await self._note(ledger, run_id, ticket.id, str(problem))
            else:
                await ledger.post(run_id, "approval", encode_response(response), ticket.id)
            # Only now: a response that could not be posted is collected the next time.
            _remove(path)

    def _left_for(self, ticket_id: str) -> list[str]:
        """What was left for a ticket."""
        try:
            with os.scandir(os.path.join(self.path, RESPONSES)) as entries:
                found = sorted(entry.path for entry in entries if entry.name.startswith(f"{ticket_id}."))
        except OSError:
            return []
        return found[:_MOST_AT_ONCE]

    def _read(self, path: str, ticket: Ticket) -> Response:
        """The response in a file; _Refused where it could not be taken."""
        try:
            descriptor = os.open(path, _READ)
        except OSError as problem:
            raise _Refused(f"a response cannot be read: {os_reason(problem)}") from None
        found = os.fstat(descriptor)
        # (1) It is a file of its author alone: no link, pipe or device, and no other user can change it.
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            os.close(descriptor)
            raise _Refused("a response is not a regular file of its own")
        with open(descriptor, "rb") as file:
            if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise _Refused("a response can be changed by other users than its author")
            # (2) It is short, and (3) a response.
            data = file.read(MAX_MESSAGE + 1) if found.st_size <= MAX_MESSAGE else b""
        if not 0 < len(data) <= MAX_MESSAGE:
            raise _Refused(f"a response has the wrong size: expected 1 to {MAX_MESSAGE} bytes")
        try:
            response = msgspec.json.decode(data, type=ResponseMessage).response()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise _Refused("a file is not a response") from None
        flaw = unfit(response)
        if flaw is not None:
            raise _Refused(f"a response cannot be taken: {flaw}")
        # (4) Its signature holds, for this ticket, by a key with an owner. A signed rejection is never dropped: the run
        # records it, and says why it does not count.
        checked = self._verifier.verify(response, ticket)
        if not checked.verified and (response.approved or response.signature is None):
            raise _Refused(f"a response is not validly signed: {checked.flaw or 'it has no signature'}")
        return response

    async def _note(self, ledger: Ledger, run_id: str, ticket_id: str, text: str) -> None:
        """Note once for each ticket what was refused: files can be left without end."""
        if (ticket_id, text) not in self._noted:
            self._noted.add((ticket_id, text))
            await ledger.post(run_id, "note", f"drop box: {text}".encode(errors="replace"), ticket_id)

    def _prune(self, folder: str) -> None:
        """Remove requests whose time is over: their run may have been killed."""
        now = datetime.now(UTC)
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            with suppress(OSError, DocumentError, TraceError):
                if name.endswith(_SUFFIX) and parse_timestamp(_published(path).expires_at) < now:
                    os.unlink(path)


# --- for approvers


def find_request(path: str, start: str) -> TicketView:
    """The one published request with this id, or prefix of an id."""
    if not is_safe_name(start):
        raise UsageError(f"`{start}` is not a ticket id")
    found = [name for name in _requests(path) if name.startswith(start)]
    if start in found:
        found = [start]
    if len(found) != 1:
        hint = f"write more of it: {listing(found, 5)}" if found else None
        raise UsageError(f"there are {len(found)} requests `{start}` in the drop box `{path}`", hint=hint)
    return _request(path, found[0])


def list_requests(path: str, on_problem: Callable[[GertError], object]) -> list[TicketView]:
    """The published requests, the oldest first; `on_problem` is called for one that cannot be read."""
    found: list[TicketView] = []
    for name in _requests(path)[:_MOST_AT_ONCE]:
        try:
            found.append(_request(path, name))
        except (DocumentError, IntegrityError) as problem:
            on_problem(problem)
    return sorted(found, key=lambda view: (view.ticket.created_at or "", view.id))


def _requests(path: str) -> list[str]:
    try:
        names = os.listdir(os.path.join(path, REQUESTS))
    except OSError as problem:
        raise UsageError(f"the drop box `{path}` cannot be read: {os_reason(problem)}") from None
    return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX) and name[0] != ".")


def _request(path: str, name: str) -> TicketView:
    document = _published(os.path.join(path, REQUESTS, f"{name}{_SUFFIX}"))
    try:
        request = msgspec.convert({**document.request, "run_id": document.run_id}, ApprovalRequest)
        for moment in filter(None, (document.created_at, document.expires_at)):
            parse_timestamp(moment)
    except (msgspec.ValidationError, TraceError):
        raise DocumentError(f"the request `{name}` of the drop box cannot be read") from None
    ticket = Ticket(
        id=document.ticket_id, request=request, created_at=document.created_at, expires_at=document.expires_at
    )
    if ticket.id != name:
        raise IntegrityError(f"the request `{name}` of the drop box is another ticket's")
    return TicketView(ticket=ticket, run_id=document.run_id, method="ticket", status="pending")


def leave_response(path: str, response: Response) -> None:
    """Leave a signed response in a drop box."""
    name = f"{response.ticket_id}.{secrets.token_hex(16)}{_SUFFIX}"
    try:
        _write(os.path.join(path, RESPONSES), name, encode_response(response))
    except OSError as problem:
        raise UsageError(f"the response cannot be left in the drop box `{path}`: {os_reason(problem)}") from None


def _published(path: str) -> _Request:
    try:
        with open(path, "rb", opener=lambda name, _: os.open(name, _READ)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise DocumentError(f"`{path}` is not a regular file")
            return msgspec.json.decode(file.read(MAX_REQUEST + 1), type=_Request)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise DocumentError(f"`{path}` is not a request for approval") from None
    except OSError as problem:
        raise DocumentError(f"`{path}` cannot be read: {os_reason(problem)}") from None


def _write(folder: str, name: str, data: bytes) -> None:
    """Write a file that others can read, whole or not at all."""
    temporary = os.path.join(folder, f".{secrets.token_hex(16)}")
    with open(temporary, "wb", opener=lambda path, _: os.open(path, _NEW, 0o644)) as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(data)
    os.rename(temporary, os.path.join(folder, name))
