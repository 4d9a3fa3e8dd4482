"""Tickets on disk, one file each: opened by a run, answered by whoever may, closed exactly once.

Every change is made under a lock that holds across processes. Answers are judged as they come, and by the run again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

import msgspec

from gert.ecosystem.approvals.evaluate import CHANGED, Terms, checked, is_for_the_run, judged, renewed, reopened, strict
from gert.ecosystem.approvals.folder import TicketFolder, no_ticket, not_an_id
from gert.ecosystem.approvals.port import SignatureVerifier
from gert.ecosystem.approvals.rejections import Rejections
from gert.ecosystem.approvals.sharing import Group
from gert.ecosystem.approvals.signatures import NO_KEYS
from gert.ecosystem.approvals.ticket_file import (
    VERSION,
    Heard,
    RunRef,
    TicketFile,
    as_recorded,
    as_written,
    bare,
    run_start,
    settled,
    ticket_id_for,
)
from gert.ecosystem.approvals.validate_response import future, recordable, unfit
from gert.errors import GertError, IntegrityError, UsageError
from gert.kernel.engine.approval_rules import Ticket, tally
from gert.kernel.engine.requests import ApprovalRequest, Response
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.foundation.names import is_safe_name

_MOST_NAMED: Final = 5


class Answered(msgspec.Struct, frozen=True):
    """What became of an answer: why it does not count, if it does not, and the ticket as it is now."""

    objection: str | None
    file: TicketFile


class Tickets:
    """The tickets in a folder; only its owner can read them, or the people of a group.

    verifier: checks signatures of answers as they come; without one, no signature holds
    shared_with: the group that may answer, for a run; whoever answers goes by what the folder is
    """

    def __init__(
        self,
        folder: str,
        clock: Callable[[], datetime],
        verifier: SignatureVerifier = NO_KEYS,
        shared_with: Group | None = None,
    ) -> None:
        self.folder = folder
        self.shared_with = shared_with
        self._folder = TicketFolder(folder, shared_with)
        self.clock = clock
        self.verifier = verifier
        self._subscribers: list[Callable[[str], object]] = []

    # --- what runs do

    def prepare(self) -> None:
        """Find out before anything runs whether the folder can be what settings say."""
        if self.shared_with is not None:
            self._folder.make()
        else:
            self._folder.require()

    def open(self, request: ApprovalRequest, run: RunRef, method: str) -> TicketFile:
        """The ticket for a question; one that is there already is given again, with whatever was said about it."""
        ticket_id = ticket_id_for(run.run_id, run.key)
        now = self.clock()
        terms = Terms(
            request=self._terms(request),
            created_at=format_timestamp(now),
            expires_at=format_timestamp(now + timedelta(seconds=request.approval_timeout)),
        )
        ticket = Ticket(
            id=ticket_id,
            request=as_written(terms.request),
            created_at=terms.created_at,
            expires_at=terms.expires_at,
        )
        fresh = TicketFile(version=VERSION, ticket=ticket, method=method, run=run, status="pending")
        self._folder.make()
        with self._folder.lock(ticket_id):
            if self.shared_with is not None:
                Rejections(self.folder, ticket_id).make(self.shared_with.id)
            if not self._folder.holds(ticket_id):
                self._folder.write(fresh)
                return fresh
            found = self.get(ticket_id)
            if found.run.key != run.key or found.run.run_id != run.run_id:
                raise IntegrityError(f"the ticket `{ticket_id}` belongs to another question")
            if found.ticket.request.request_hash != terms.request.request_hash:
                # The run was stopped before it had the ticket on record, and what would run has changed since.
                # What a group can have written beforehand is not carried over.
                again = fresh.noting(CHANGED) if self.shared_with is not None else reopened(fresh, found)
                self._folder.write(again)
                return self.get(ticket_id)
            again = renewed(found, Terms(request=terms.request))
            if self.shared_with is not None:
                # The run has nothing on record about it, and anybody of the group can have put it there beforehand:
                # it is open from now on.
                again = msgspec.structs.replace(renewed(found, terms), status="pending")
            if again != found:
                self._folder.write(again)
            return again

    def judge(
        self, ticket_id: str, request: ApprovalRequest, created_at: str | None = None, expires_at: str | None = None
    ) -> TicketFile:
        """Judge everything that was said by what the run asks and the keys it holds, and put the record right.

        An answer counts if it is recorded to count and also does here. Nobody is told one thing and finds another.
        created_at, expires_at: while when an answer counts, as the run has it on record
        """
        return self._judge(ticket_id, Terms(request=request, created_at=created_at, expires_at=expires_at))

    def withdraw(self, ticket_id: str, terms: Terms, why: str) -> TicketFile:
        """Judge everything that was answered, and close the ticket: what would run is not what it asks for.

        Both happen under one lock, so no answer comes in between. A rejection that counts leaves it rejected.
        """
        return self._judge(ticket_id, terms, outdated=why)

    def _judge(self, ticket_id: str, terms: Terms, outdated: str | None = None) -> TicketFile:
        self._folder.require()
        terms = msgspec.structs.replace(terms, request=self._terms(terms.request))
        with self._changing(ticket_id) as (found, now):
            kept = Rejections(self.folder, ticket_id).kept() if self.shared_with is not None else None
            file = judged(found, terms, self.verifier, now, kept)
            responses = tuple(msgspec.structs.replace(each, response=bare(each.response)) for each in file.responses)
            stored = msgspec.structs.replace(file, responses=responses)
            if outdated is not None:
                # People have answered what the file shows; the request of the run names what would run now.
                stored = _withdrawn(msgspec.structs.replace(stored, ticket=found.ticket), outdated)
            if stored != found:
                self._folder.write(stored)
        return file

    def abandon(self, ticket_id: str, why: str = "the run does not wait for an answer any more") -> TicketFile:
        """Close a ticket nobody will ask about again; one that is closed stays as it is."""
        return self._close(ticket_id, "abandoned", why)

    def expire(self, ticket_id: str) -> TicketFile:
        """Close a ticket whose time is over; one that is closed, or has time left, stays as it is."""
        return self._close(ticket_id, "expired", None)

    def note(self, ticket_id: str, text: str) -> TicketFile:
        """Write something down for people."""
        with self._changing(ticket_id) as (file, _):
            noted = file.noting(text)
            self._folder.write(noted)
        return noted

    # --- what people do

    def answer(self, ticket_id: str, response: Response, *, is_unverified: bool = False) -> Answered:
        """Take an answer and say at once whether it counts; it does or does not for everybody and for good.

        is_unverified: it is signed with a key that cannot be verified here; it is kept and decides nothing before
        the run has verified it
        """
        is_shared = self._folder.is_shared
        with self._changing(ticket_id) as (file, now):
            said, flaw = _bound(file, response)
            at = format_timestamp(now)
            flaw = flaw or future(said, now)
            objection = flaw or _closed(file, now)
            if objection is None:
                found = checked(said, file.ticket, self.verifier, is_shared=is_shared)
                before = [as_recorded(each) for each in file.counted]
                is_closed = not tally(file.ticket, before).is_open
                objection = tally(file.ticket, [*before, found]).objections[-1]
                if objection is None and is_unverified and file.is_full:
                    objection = "the ticket has no room for another answer that cannot be verified here"
                heard = Heard(response=said, at=at, objection=objection, is_unverified=is_unverified)
                # What came too late is kept apart: the run might find an earlier answer wanting, and count this one.
                changed = file.refusing(heard) if is_closed else file.hearing(heard)
            else:
                changed = file.refusing(Heard(response=recordable(said), at=at, objection=objection))
            if changed.status == "pending" and changed.is_over(now):
                changed = msgspec.structs.replace(changed, status="expired")
            if is_shared and flaw is None and not said.approved and is_for_the_run(file, said):
                # First: whoever is told that it counts must not lose it to the next who writes the file.
                Rejections(self.folder, ticket_id).keep(said)
            self._folder.write(changed)
        for tell in tuple(self._subscribers):
            tell(ticket_id)
        return Answered(objection, changed)

    def get(self, ticket_id: str) -> TicketFile:
        """The ticket of this very id; what a group can write is never said to take unsigned approvals."""
        file = self._folder.read(ticket_id)
        if not self._folder.is_shared:
            return file
        ticket = msgspec.structs.replace(file.ticket, request=strict(file.ticket.request))
        return msgspec.structs.replace(file, ticket=ticket)

    def all(
        self, *statuses: str, run_id: str | None = None, on_problem: Callable[[GertError], object] | None = None
    ) -> list[TicketFile]:
        """The tickets with one of these statuses, or every one, oldest first; of those that cannot be read, why."""
        found = []
        for ticket_id in self._folder.ids():
            # Ids begin with their run's: of a thousand runs only one has to be looked at.
            if run_id is not None and not ticket_id.startswith(run_start(run_id)):
                continue
            try:
                file = self.get(ticket_id)
            except GertError as problem:
                if on_problem is not None:
                    on_problem(problem)
                continue
            if (not statuses or file.status_at(self.clock()) in statuses) and run_id in (None, file.run.run_id):
                found.append(file)
        return sorted(found, key=lambda file: (file.ticket.created_at or "", file.id))

    def find(self, start: str) -> str:
        """The id that begins like this, if only one does."""
        if not is_safe_name(start):
            raise not_an_id(start)
        found = [each for each in self._folder.ids() if each.startswith(start)]
        if start in found or len(found) == 1:
            return start if start in found else found[0]
        if not found:
            raise no_ticket(start, self._folder.path)
        named = ", ".join(f"`{each}`" for each in found[:_MOST_NAMED])
        more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        raise UsageError(f"`{start}` may be {len(found)} tickets", hint=f"write more of it: {named}{more}")

    # --- being told

    def subscribe(self, tell: Callable[[str], object]) -> Callable[[], None]:
        """Be told the id of a ticket that is answered in this process, in whatever thread; the result ends it."""
        self._subscribers.append(tell)
        return lambda: self._subscribers.remove(tell)

    def stamp(self, ticket_id: str) -> tuple[int, int, int] | None:
        """Something that is another after every change, and cheap to look at."""
        return self._folder.stamp(ticket_id)

    def _terms(self, request: ApprovalRequest) -> ApprovalRequest:
        return strict(request) if self.shared_with is not None else request

    def _close(self, ticket_id: str, status: str, why: str | None) -> TicketFile:
        with self._changing(ticket_id) as (file, now):
            if file.status != "pending" or (status == "expired" and not file.is_over(now)):
                return file
            closed: TicketFile = msgspec.structs.replace(file, status=status)
            if why is not None:
                closed = closed.noting(why)
            self._folder.write(closed)
        return closed

    @contextmanager
    def _changing(self, ticket_id: str) -> Iterator[tuple[TicketFile, datetime]]:
        self.get(ticket_id)  # nothing is made for a ticket that is not there
        with self._folder.lock(ticket_id):
            yield self.get(ticket_id), self.clock()


def _bound(file: TicketFile, response: Response) -> tuple[Response, str | None]:
    """The answer, bound to what it is about; or why it cannot be one."""
    flaw = unfit(response)
    if flaw is not None:
        return response, flaw
    return msgspec.structs.replace(
        bare(response),
        ticket_id=response.ticket_id or file.id,
        request_hash=response.request_hash or file.ticket.request.request_hash,
    ), None


def _withdrawn(file: TicketFile, why: str) -> TicketFile:
    if file.status in ("rejected", "abandoned"):
        return file
    return msgspec.structs.replace(file, status="abandoned").noting(f"outdated: {why}")


def _closed(file: TicketFile, now: datetime) -> str | None:
    """Why nobody can answer any more, other than that somebody has decided."""
    if file.status == "abandoned":
        return "the ticket is closed: the run does not wait for an answer any more"
    # Decided is decided, and says by whom; marked so by hand, it is not.
    if file.status == "expired" or (file.is_over(now) and settled(file).status == "pending"):
        return f"the response came too late: the ticket expired at {file.ticket.expires_at}"
    return None
