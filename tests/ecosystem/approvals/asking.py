"""A run in a ledger that requests approval, approvers who respond, and a clock that is set by hand."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gert.ecosystem.approvals.port import ApprovalProvider, Channel
from gert.ecosystem.approvals.provider import TicketApprovals
from gert.ecosystem.approvals.signatures import KeyVerifier, sign_response
from gert.ecosystem.approvals.tickets import Tickets, TicketView
from gert.ecosystem.host.run.record.journal import Journal, RecordedAnswer
from gert.ecosystem.ledger import sql
from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger
from gert.ecosystem.ledger.transactions import Change
from gert.errors import UsageError
from gert.kernel.engine.requests import ApprovalAnswer, AwaitApproval, Emit, SubmitApproval, TicketAnswer
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.events.runbook import ApprovalRefused, ApprovalResolved, ApprovalResponse, ApprovalSubmitted, RunStart
from gert.kernel.events.vocabulary import ApprovalStatus
from gert.kernel.foundation.secret_refs import secret_ref
from gert.kernel.foundation.signature import Key, Keys, parse_key
from gert.kernel.governance.approval import ApprovalRequest, Response, as_recorded, ticket_id_for
from gert.kernel.governance.approval_rules import Tally, Ticket, hash_of, tally
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.projection import Projection

T = TypeVar("T")
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
HALF_AN_HOUR = 1800.0
RUN = "run-1"
KEY = "restart!submit"
REQUEST = ApprovalRequest(
    run_id=RUN,
    runbook="restart-service",
    step_id="restart",
    title="Restart it",
    risk_level="high",
    rule="rules[0]",
    contract={"effects": ["service"], "writes": ["service"], "idempotent": False},
    target="kubectl/restart",
    inputs={"name": "web", "token": f"Bearer {secret_ref('key')}", "n": [1, {"a": None}]},
    request_hash="sha256:" + "0" * 64,
    min_approvers=1,
    approvers=(),
    admitted=(),
    separation_of_duties=False,
    require_signed_approvals=False,
    requested_by="ann",
    approval_timeout=HALF_AN_HOUR,
)

ANN_KEY = parse_key("ed25519:" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=", "ann")
BOB_KEY = parse_key("ed25519:" + "YmNkZWZBQkNERUZHSElKS0xNTk9QUVJTVFVWV1hZWmE=", "bob")
SHARED = parse_key("base64:c2hhcmVkIHNlY3JldCBvZiB0aGUgc2VydmljZQ==", "shared")
MALLORY_KEY = parse_key("ed25519:" + "bWFsbG9yeSBoYXMgYSBrZXkgb2YgaGVyIG93biwgdG8=", "ann")


def public(key: Key) -> Key:
    assert key.public_text is not None
    return parse_key(key.public_text, key.id)


def verifier(*keys: Key, is_strict: bool = False, **owners: str) -> KeyVerifier:
    held = Keys(keys or (public(ANN_KEY), public(BOB_KEY), SHARED))
    return KeyVerifier(held, lambda key_id: [owners[key_id]] if key_id in owners else None, is_strict=is_strict)


class Clock:
    """A clock that is set."""

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **time: float) -> None:
        self.now += timedelta(**time)


def asking(**changes: Any) -> ApprovalRequest:
    """A request, bound to what it shows."""
    asked = msgspec.structs.replace(REQUEST, **changes)
    return asked if "request_hash" in changes else msgspec.structs.replace(asked, request_hash=hash_of(asked))


def yes(approver: str = "bob", at: datetime = NOON, **more: Any) -> Response:
    return Response(approver=approver, approved=True, timestamp=format_timestamp(at), **more)


def no(approver: str = "bob", at: datetime = NOON, **more: Any) -> Response:
    return Response(approver=approver, approved=False, timestamp=format_timestamp(at), **more)


def signed(view: TicketView, key: Key = BOB_KEY, response: Response | None = None) -> Response:
    return sign_response(response if response is not None else yes(), view.ticket, key)


def submitting(request: ApprovalRequest = REQUEST, key: str = KEY) -> SubmitApproval:
    return SubmitApproval(key=key, path="restart", step_id="restart", request=request)


class Run:
    """A run that records what it asks and takes, as the driver does."""

    def __init__(self, ledger: Ledger, run_id: str = RUN) -> None:
        self.ledger = ledger
        self.run_id = run_id
        self.journal = Journal(run_id, ledger)
        self._is_new = True
        self._waits = 0

    def provider(self, *channels: Channel, check: KeyVerifier | None = None, **options: Any) -> TicketApprovals:
        made = TicketApprovals(self.run_id, check or verifier(), channels=channels, **options)
        made.attach(self.ledger)
        return made

    async def resumed(self) -> None:
        """Continue the run where it is there already."""
        head = await self.ledger.head(self.run_id)
        if head is not None:
            await self.ledger.acquire(self.run_id, "driver", 3600)
            self.journal._stored = self.journal._head = head
            self.journal._projection = Projection(head)
            self._is_new = False

    async def opened(self, asker: ApprovalProvider | None = None, key: str = KEY, **changes: Any) -> AwaitApproval:
        """Request approval and record it; what the run waits for then."""
        request = asking(run_id=self.run_id, **changes)
        ticket = await (asker or self.provider()).submit(submitting(request, key))
        assert ticket.failure is None, ticket.failure
        if ticket.must_sign:
            request = msgspec.structs.replace(request, require_signed_approvals=True)
        await self.submitted(ticket, request)
        return AwaitApproval(
            key=f"{key}!wait",
            path="restart",
            step_id="restart",
            ticket_id=ticket.ticket_id,
            request=request,
            created_at=ticket.created_at,
            expires_at=ticket.expires_at,
        )

    async def submitted(self, ticket: TicketAnswer, request: ApprovalRequest) -> None:
        """Record a ticket."""
        if self._is_new:
            started = RunStart(
                runbook="restart-service", runbook_hash="h", actor="ann", host="x", gert_version="1", mode="real"
            )
            self.journal.say(Emit(started, None, None))
            self._is_new = False
            await self.ledger.acquire(self.run_id, "driver", 3600)
        submitted = ApprovalSubmitted(
            ticket_id=ticket.ticket_id,
            step_id="restart",
            risk_level="high",
            request_hash=request.request_hash,
            min_approvers=request.min_approvers,
            method=ticket.method,
            expires_at=ticket.expires_at,
            created_at=ticket.created_at,
            request=as_recorded(request),
        )
        self.journal.say(Emit(submitted, "restart", None))
        await self.journal.settle()

    async def waited(self, asker: ApprovalProvider, ask: AwaitApproval) -> tuple[Tally, ApprovalAnswer]:
        """Wait until the ticket is decided, recording what was taken."""
        given: list[Response] = []
        while True:
            answer = await asker.wait(ask)
            count, answer = await self.took(ask, answer, given)
            if not (answer.more and count.is_open):
                return count, answer

    async def took(
        self, ask: AwaitApproval, answer: ApprovalAnswer, given: list[Response]
    ) -> tuple[Tally, ApprovalAnswer]:
        """Record an answer as the engine does."""
        self._waits += 1
        self.journal.log(RecordedAnswer(f"{ask.key}#{self._waits}", answer))
        first = len(given)
        given += answer.responses
        ticket = Ticket(id=ask.ticket_id, request=ask.request, created_at=ask.created_at, expires_at=ask.expires_at)
        count = tally(ticket, given)
        for response, objection in zip(answer.responses, count.objections[first:], strict=True):
            said: dict[str, Any] = {
                "ticket_id": ask.ticket_id,
                "step_id": "restart",
                "approved": response.approved,
                "approver_id": response.approver,
                "method": "ticket",
                "timestamp": response.timestamp,
                "received_at": response.received_at,
                "reason": response.reason,
                "verified": response.verified,
            }
            event = ApprovalResponse(**said) if objection is None else ApprovalRefused(**said, objection=objection)
            self.journal.say(Emit(event, "restart", None))
        if not (answer.more and count.is_open):
            by = count.resolved_by
            status: ApprovalStatus = "expired" if by is None else "approved" if by.approved else "rejected"
            resolved = ApprovalResolved(
                ticket_id=ask.ticket_id,
                step_id="restart",
                approved=status == "approved",
                status=status,
                method="ticket",
            )
            self.journal.say(Emit(resolved, "restart", None))
        await self.journal.settle()
        return count, answer


@asynccontextmanager
async def running(
    clock: Clock | None = None, db: Path | str = ":memory:", run_id: str = RUN
) -> AsyncIterator[tuple[Run, Tickets]]:
    """A run that may request approval, and the tickets of its ledger."""
    async with SqliteLedger(db, clock=clock or Clock(), poll_interval=0.02) as ledger:
        yield Run(ledger, run_id), Tickets(ledger, verifier())


async def insert(ledger: Any, ticket_id: str, body: bytes, run_id: str = RUN, received_at: datetime = NOON) -> None:
    """Write a message as another program would: gert itself posts nothing that could not count."""

    def begin() -> Any:
        values = (run_id, "approval", body, ticket_id, format_timestamp(received_at))
        yield Change(sql.POST_AT, (values,))

    await ledger._executor.transact(begin, lambda _: None)


def ticket_in(db: Path, clock: Clock | None = None, run_id: str = RUN, **changes: Any) -> TicketView:
    """A ticket in the ledger of a file, requested by a run that is not driven any more."""

    async def make() -> TicketView:
        async with running(clock or Clock(datetime.now(UTC)), db, run_id) as (run, tickets):
            await run.resumed()
            ask = await run.opened(**changes)
            await run.ledger.release(run_id, "driver")
            return await tickets.get(ask.ticket_id)

    db.parent.mkdir(parents=True, exist_ok=True)
    return done(make())


def view_in(db: Path, ticket_id: str) -> TicketView:
    """A ticket as it is in the ledger of a file."""

    async def read() -> TicketView:
        async with SqliteLedger(db, read_only=True) as ledger:
            return await Tickets(ledger).get(ticket_id)

    return done(read())


def done(steps: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(steps)


# --- a ledger for channels, whose tests act outside of the event loop as well


class _EachCall:
    """A ledger in a file that is opened for each call, in whatever loop."""

    def __init__(self, db: Path, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        async def call(*values: Any, **options: Any) -> Any:
            async with SqliteLedger(self._db, clock=self._clock) as ledger:
                return await getattr(ledger, name)(*values, **options)

        return call


class Store(Tickets):
    """The tickets of a ledger in a folder."""

    def __init__(self, folder: Path, clock: Clock | None = None, check: KeyVerifier | None = None) -> None:
        self.clock = clock or Clock()
        self.folder = str(folder / "approvals")
        self.db = folder / "runs" / "ledger.db"
        super().__init__(_EachCall(self.db, self.clock), check or verifier())

    def opened(self, run_id: str = RUN, key: str = KEY, **changes: Any) -> TicketView:
        if self.db.exists():
            with suppress(UsageError):
                found: TicketView = apart(lambda: view_in(self.db, ticket_id_for(run_id, key)))
                return found
        made: TicketView = apart(lambda: ticket_in(self.db, self.clock, run_id, key=key, **changes))
        return made

    def now(self, ticket_id: str) -> TicketView:
        """The ticket as a run leaves it that takes the responses in its inbox now."""
        view: TicketView = apart(lambda: view_in(self.db, ticket_id))
        given = [self.verifier.verify(each.response, view.ticket) for each in view.responses]
        given = [
            msgspec.structs.replace(response, received_at=each.received_at)
            for response, each in zip(given, view.responses, strict=True)
        ]
        count = tally(view.ticket, given)
        by = count.resolved_by
        taken = tuple(
            msgspec.structs.replace(each, is_taken=True, objection=objection)
            for each, objection in zip(view.responses, count.objections, strict=True)
        )
        status = view.status if by is None else "approved" if by.approved else "rejected"
        found: TicketView = msgspec.structs.replace(view, responses=taken, status=status)
        return found

    def taken(self, ticket_id: str) -> TicketView:
        """Let the run take the responses in its inbox."""

        async def take() -> None:
            async with running(self.clock, self.db, self.run_of(ticket_id)) as (run, tickets):
                await run.resumed()
                ticket = (await tickets.get(ticket_id)).ticket
                asks = run.provider(check=self.verifier, detach=True)  # type: ignore[arg-type]
                await run.waited(asks, awaiting(ticket))
                await run.ledger.release(run.run_id, "driver")

        apart(lambda: done(take()))
        view: TicketView = apart(lambda: view_in(self.db, ticket_id))
        return view

    def run_of(self, ticket_id: str) -> str:
        return ticket_id.rpartition("-")[0]

    def insert(self, ticket_id: str, body: bytes) -> None:
        """Write a message as another program would."""
        columns = "run_id, kind, body, ticket_id, received_at"
        values = (self.run_of(ticket_id), body, ticket_id, format_timestamp(self.clock()))
        self.change(f"INSERT INTO inbox ({columns}) VALUES (?, 'approval', ?, ?, ?)", *values)

    def change(self, statement: str, *values: Any) -> None:
        """Change the ledger behind the back of gert."""
        with closing(sqlite3.connect(self.db, isolation_level=None)) as found:
            found.execute(statement, values)


def awaiting(ticket: Ticket) -> AwaitApproval:
    return AwaitApproval(
        key="again!wait",
        path="restart",
        step_id="restart",
        ticket_id=ticket.id,
        request=ticket.request,
        created_at=ticket.created_at,
        expires_at=ticket.expires_at,
    )


def apart(act: Any) -> Any:
    """Do something in a thread of its own, where an event loop may run here."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(act).result()


def tickets(folder: Path, clock: Clock | None = None, check: KeyVerifier | None = None) -> Store:
    return Store(folder, clock, check)


def opened(store: Store, **changes: Any) -> TicketView:
    return store.opened(**changes)
