"""A ticket as it lies on disk: what is asked, what was said and why it does not count, and how it stands.

The file helps people. The run that asked judges every answer again, with its own request and its own keys: whatever
is changed here by hand, an approval cannot be made of it that the run would not have counted.
"""

from datetime import datetime
from typing import Final, Literal

import msgspec

from gert.errors import DocumentError, TraceError
from gert.kernel.engine.approval_rules import Ticket, tally
from gert.kernel.engine.requests import ApprovalRequest, Response
from gert.kernel.events.envelope import parse_timestamp
from gert.kernel.foundation.canonical import canonical, sha256_hex
from gert.kernel.foundation.names import MAX_NAME
from gert.kernel.foundation.text import printable

VERSION: Final = 1
MAX_BYTES: Final = 8 * 1024 * 1024
"""A larger file is neither written nor read; what is asked must be readable to whoever decides."""

MOST_HEARD: Final = 100
"""How many answers that do not count are kept; further ones are only counted."""
MOST_ANSWERS: Final = 300
"""How many answers a file can hold; gert never writes so many, and whoever does wants to keep the run busy."""
MOST_NOTES: Final = 20
_NOTE_LENGTH: Final = 300
_HEX: Final = 12

Status = Literal["pending", "approved", "rejected", "expired", "abandoned"]


class RunRef(msgspec.Struct, frozen=True, kw_only=True):
    """The run that asks, and how to find it again.

    key: names the question within the run
    db, dsn: the database the run is in, by its path or by its address without a password; neither for one in a folder
    """

    run_id: str
    runbook: str
    file: str
    state_dir: str
    key: str = ""
    db: str = ""
    dsn: str = ""


class Heard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer as it came: when, and why it does not count.

    is_unverified: it is signed, and where it was given no key could verify that; it does not count before a verifier
    with the key has found that the signature holds
    """

    response: Response
    at: str
    objection: str | None = None
    is_unverified: bool = False

    @property
    def counts(self) -> bool:
        """Whether the answer counts, as it is recorded."""
        return self.objection is None and not self.is_unverified


class TicketFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One ticket with everything that is known about it.

    responses: what was said while the ticket was open, also what does not count
    refused: what could not be an answer any more, or never was one; the run does not see it
    unrecorded: how many answers came after there was no more room
    """

    version: int
    ticket: Ticket
    method: str
    run: RunRef
    status: Status
    responses: tuple[Heard, ...] = ()
    refused: tuple[Heard, ...] = ()
    unrecorded: int = 0
    notes: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The id of the ticket."""
        return self.ticket.id

    @property
    def needed(self) -> int:
        """How many people must approve."""
        return max(1, self.ticket.request.min_approvers)

    @property
    def counted(self) -> list[Response]:
        """The answers that count, as it is recorded."""
        return [heard.response for heard in self.responses if heard.counts]

    @property
    def approvals(self) -> int:
        """How many people have approved, as it is recorded."""
        return sum(1 for response in self.counted if response.approved)

    def is_over(self, now: datetime) -> bool:
        """Whether the time to answer is over."""
        expires = self.ticket.expires_at
        return expires is not None and now > parse_timestamp(expires)

    def status_at(self, now: datetime) -> Status:
        """How the ticket stands, also where nobody has noticed yet that its time is over."""
        return "expired" if self.status == "pending" and self.is_over(now) else self.status

    def noting(self, text: str) -> "TicketFile":
        """The file with a note; the last ones are kept."""
        notes = (*self.notes, printable(text)[:_NOTE_LENGTH])
        return msgspec.structs.replace(self, notes=notes[-MOST_NOTES:])

    def refusing(self, heard: Heard) -> "TicketFile":
        """The file with an answer that the run will not see."""
        if len(self.refused) >= MOST_HEARD:
            return msgspec.structs.replace(self, unrecorded=self.unrecorded + 1)
        return msgspec.structs.replace(self, refused=(*self.refused, heard))

    @property
    def is_full(self) -> bool:
        """Whether there is no more room for answers that do not count."""
        return len(self.responses) - len(self.counted) >= MOST_HEARD

    def hearing(self, heard: Heard) -> "TicketFile":
        """The file with one more answer, and the status it leads to."""
        if not heard.counts and self.is_full:
            return msgspec.structs.replace(self, unrecorded=self.unrecorded + 1)
        return settled(msgspec.structs.replace(self, responses=(*self.responses, heard)))


def ticket_id_for(run_id: str, key: str) -> str:
    """The id of the ticket for a question: the same whenever the run asks it, so nobody is asked twice."""
    mark = sha256_hex(canonical({"run_id": run_id, "question": key}))[:_HEX]
    return f"{run_start(run_id)}-{mark}"


def run_start(run_id: str) -> str:
    """What the ids of a run's tickets begin with: of a long id, as much as leaves room."""
    return run_id[: MAX_NAME - _HEX - 1]


def settled(file: TicketFile) -> TicketFile:
    """The file with the status that its counted answers lead to."""
    by = tally(file.ticket, [as_recorded(response) for response in file.counted]).resolved_by
    status: Status = "pending" if by is None else "approved" if by.approved else "rejected"
    return msgspec.structs.replace(file, status=status)


def as_recorded(response: Response) -> Response:
    """An answer of which it is recorded that it counts: its signature was checked when it came."""
    return msgspec.structs.replace(response, verified=response.signature is not None)


def bare(response: Response) -> Response:
    """An answer without what only whoever checks it may say."""
    return msgspec.structs.replace(response, verified=False, flaw=None, scripted=False)


def as_written(request: ApprovalRequest) -> ApprovalRequest:
    """A request as it comes back from disk, so that two can be compared."""
    try:
        return msgspec.json.decode(_ENCODER.encode(request), type=ApprovalRequest)
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError):
        raise DocumentError("the request for approval cannot be written: it is not plain data") from None


def encode(file: TicketFile) -> bytes:
    """The bytes of a file, or a refusal to write them."""
    try:
        data = msgspec.json.format(_ENCODER.encode(file), indent=2) + b"\n"
    except (TypeError, ValueError, RecursionError):
        raise DocumentError(f"the ticket `{file.id}` cannot be written: it is not plain data") from None
    if len(data) > MAX_BYTES:
        raise DocumentError(
            f"the ticket `{file.id}` is too large: expected at most {MAX_BYTES} bytes, found {len(data)}",
            hint="what is to be approved has to be readable: hand over less",
        )
    return data


def decode(data: bytes, ticket_id: str, path: str) -> TicketFile:
    """Read a file; one that is not exactly what was written is refused."""
    if len(data) > MAX_BYTES:
        raise DocumentError(f"`{path}` is too large for a ticket: expected at most {MAX_BYTES} bytes")
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
        if version != VERSION:
            raise DocumentError(f"`{path}` is a ticket of version {version}, and this gert reads version {VERSION}")
        file = msgspec.json.decode(data, type=TicketFile)
        _check(file, ticket_id)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, OverflowError, TraceError) as problem:
        why = printable(str(problem)).partition("\n")[0][:_NOTE_LENGTH]
        raise DocumentError(
            f"`{path}` is not a ticket: {why[:1].lower()}{why[1:]}", hint="it was changed by something else than gert"
        ) from None
    return file


class _Versioned(msgspec.Struct):
    version: int


def _check(file: TicketFile, ticket_id: str) -> None:
    """Refuse what has the form of a ticket and is none: judging must not fail later."""
    if file.ticket.id != ticket_id:
        raise ValueError(f"it says that it is the ticket `{file.ticket.id}`")
    if file.ticket.created_at is None or file.ticket.expires_at is None:
        raise ValueError("it does not say until when it can be answered")
    parse_timestamp(file.ticket.created_at)
    parse_timestamp(file.ticket.expires_at)
    if len(file.responses) > MOST_ANSWERS or len(file.refused) > MOST_HEARD or len(file.notes) > MOST_NOTES:
        raise ValueError("it holds more than a ticket ever does")
    if len(file.ticket.request.approvers) != len(file.ticket.request.admitted):
        raise ValueError("its approvers and the people they stand for are not as many")


_ENCODER = msgspec.json.Encoder(enc_hook=str)
