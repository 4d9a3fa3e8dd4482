"""Verification of a run in a ledger: its chain, its answers, its head, the seal, and every derived row and column.

Lines that were taken off the end leave a chain that holds; they show against the head, and a head that was changed
with them shows against its seal. Whatever a ledger derives from events (snapshot, status, calls, tickets, columns of
events) is computed again and compared, so that editing a column cannot unblock a run or hide a call.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from gert.errors import IntegrityError
from gert.kernel.events.chain import GENESIS, ChainReader, ChainReport
from gert.kernel.events.envelope import Envelope, PlainLine
from gert.kernel.events.runbook import RunAdopted
from gert.kernel.events.trace_seal import CheckReport, Verdict, run_procedure
from gert.kernel.foundation.signature import Keys, Signature, verify
from gert.kernel.ledger.head_seal import encode_snapshot, read_seal, sealed_bytes
from gert.kernel.ledger.projection import Projection, summary_type_of
from gert.kernel.ledger.record import Call, Event, Head, TicketRow, ended, hash_answer

_NO_KEYS: Final = Keys()
_NAMED: Final = re.compile(rb'"answers":"([0-9]{1,15}):[0-9a-f]{64}","prev_hash"')
_ENVELOPE_BYTES: Final = 64 * 1024


@dataclass(slots=True)
class Recomputed:
    """Everything that follows from the events and answers of a run, computed while they are read, page by page."""

    run_id: str
    chain: ChainReader = field(default_factory=ChainReader)
    events: int = 0
    answers: int = 0
    answers_hash: str = GENESIS
    columns: str | None = None
    unanswered: str | None = None
    calls: dict[int, Call] = field(default_factory=dict)
    tickets: dict[str, TicketRow] = field(default_factory=dict)
    started_at: str = ""
    updated_at: str = ""
    tenant: str | None = None
    adopted: list[RunAdopted] = field(default_factory=list)
    _projection: Projection | None = None
    _answer_hashes: dict[int, str] = field(default_factory=dict)

    def add_answers(self, lines: Sequence[bytes]) -> None:
        """Add the next answers: at least those that the next events name, see `answers_named`."""
        for line in lines:
            self.answers += 1
            self.answers_hash = hash_answer(self.answers_hash, line)
            self._answer_hashes[self.answers] = self.answers_hash

    def add_events(self, rows: Sequence[Event]) -> None:
        """Add a page of events in order; their answers were added before."""
        for row in rows:
            self.events += 1
            if row.line.endswith(b"\n") and self.columns is None:
                # Traces end their lines with one; a ledger never stores it.
                self.columns = f"the line of event {row.seq} ends in a line break"
            event = self.chain.add(row.line, row.type)
            if event is not None:  # otherwise the chain reports it
                self._add(row, event)
        # Only the last one can be named again.
        self._answer_hashes = {self.answers: self.answers_hash}

    def _add(self, row: Event, event: Envelope | PlainLine[Any]) -> None:
        payload = event.payload
        if isinstance(payload, RunAdopted):
            self.adopted.append(payload)
        if self._projection is None:
            self.tenant, self.started_at = event.tenant, event.timestamp
            self._projection = Projection(Head(self.run_id, tenant=event.tenant))
        expected = (event.seq, event.type, event.timestamp, summary_type_of(payload))
        if row[: len(expected)] != expected and self.columns is None:
            self.columns = f"the columns of event {row.seq} are not what its line says"
        if event.answers is not None and not self._names(event.answers) and self.unanswered is None:
            self.unanswered = f"event {event.seq} names answers that are not the stored ones"
        self.updated_at = event.timestamp
        self._projection.add(payload, event.seq, event.timestamp, event.path)
        if not self._projection.is_clear:
            self._apply(self._projection)

    @staticmethod
    def answers_named(rows: Sequence[Event]) -> int:
        """The greatest number of answers that a page of events names."""
        found = (_NAMED.search(row.line, 0, _ENVELOPE_BYTES) for row in rows if b'"answers":"' in row.line)
        return max((int(match[1]) for match in found if match is not None), default=0)

    def _names(self, named: str) -> bool:
        number, _, value = named.partition(":")
        return number.isdecimal() and self._answer_hashes.get(int(number)) == value

    def _apply(self, projection: Projection) -> None:
        for call in projection.calls:
            self.calls[call.seq] = call
        for end in projection.ends:
            if end.seq in self.calls:
                self.calls[end.seq] = ended(self.calls[end.seq], end)
        for ticket in projection.tickets:
            self.tickets[ticket.ticket_id] = ticket
        for ticket_id, line in projection.responses:
            if (known := self.tickets.get(ticket_id)) is not None:
                self.tickets[ticket_id] = msgspec.structs.replace(known, responses=known.responses + line)
        for closed in projection.ticket_ends:
            for ticket in list(self.tickets.values()):
                if ticket.status == "pending" and closed.ticket_id in (None, ticket.ticket_id):
                    changed = msgspec.structs.replace(ticket, status=closed.status, done_seq=closed.done_seq)
                    self.tickets[ticket.ticket_id] = changed
        projection.clear()

    @property
    def head(self) -> Head:
        """The head that the events and answers lead to."""
        report, projection = self.chain.report(), self._projection
        return Head(
            self.run_id,
            projection.kind if projection is not None else "agent",
            self.tenant,
            report.events,
            report.head,
            self.answers,
            self.answers_hash,
            projection.snapshot if projection is not None else None,
            self.started_at,
            self.updated_at,
        )


@dataclass(frozen=True, slots=True)
class Stored:
    """What a ledger has beside the events and answers of a run."""

    head: Head | None
    status: str | None
    calls: Sequence[Call]
    tickets: Sequence[TicketRow]
    snapshot: bytes | None


def check_run(
    found: Recomputed,
    stored: Stored,
    keys: Keys = _NO_KEYS,
    *,
    require_seal: bool = False,
    key_id: str | None = None,
) -> CheckReport:
    """Check what a ledger stores of a run against what its events and answers lead to.

    A caller that has keys, or names one, requires a seal: otherwise removing it would be enough to forge an end.
    """
    demanded = require_seal or len(keys) > 0 or key_id is not None
    checks = _Checks(found, found.chain.report(), stored, keys, demanded, key_id)
    made = run_procedure(_PROCEDURE, checks)
    signed_by = keys.find(checks.seal.key_id).id if all(check.passed for check in made) else None
    return CheckReport(made, signed_by, found.events)


@dataclass(frozen=True, slots=True)
class _Checks:
    """The inputs and requirements of one verification."""

    found: Recomputed
    report: ChainReport
    stored: Stored
    keys: Keys
    demanded: bool
    key_id: str | None

    @property
    def head(self) -> Head:
        if self.stored.head is None:
            raise IntegrityError("the ledger has no head for the run")
        return self.stored.head

    @property
    def seal(self) -> Signature:
        if self.head.seal is None:
            raise IntegrityError("the head of the run is not sealed")
        return read_seal(self.head.seal)


def _check_chain(checks: _Checks) -> Verdict:
    """(1) The events follow from each other."""
    report = checks.report
    if report.breaks:
        first = report.breaks[0]
        return False, f"the chain breaks at line {first.line}: {first.message}"
    if report.torn is not None:
        return False, f"the last line cannot be read: {report.torn}"
    if report.events == 0:
        return False, "there are no events"
    if report.run_id != checks.found.run_id:
        return False, f"expected run `{checks.found.run_id}`, found `{report.run_id}`"
    return True, f"{report.events} events, no breaks"


def _check_answers(checks: _Checks) -> Verdict:
    """(2) The answers are those that the events name, and as many as were written."""
    found, head = checks.found, checks.head
    if found.unanswered is not None:
        return False, found.unanswered
    if (head.answers, head.answers_hash) != (found.answers, found.answers_hash):
        return False, f"the stored answers are not those of the head: expected {head.answers}, found {found.answers}"
    return True, f"{found.answers} answers, each named by the chain or the head"


def _check_count(checks: _Checks) -> Verdict:
    """(3) There are as many events as were written: a chain whose end was taken off still holds."""
    expected, found = checks.head.count, checks.report.events
    if found < expected:
        return False, f"the end of the run is missing: expected {expected} events, found {found}"
    if found > expected:
        return False, f"there are events after the end of the run: expected {expected}, found {found}"
    return True, f"{expected} events were written"


def _check_head(checks: _Checks) -> Verdict:
    """(4) The stored head is the head we computed: an end that was exchanged for another fails here."""
    if checks.head.hash != checks.report.head:
        return False, "the stored head is not the head of the chain that was read"
    return True, f"the head is {checks.report.head}"


def _check_derived(checks: _Checks) -> Verdict:
    """(5) AgentSnapshot, status, calls, tickets and columns are those the events lead to."""
    for problem in _differences(checks):
        return False, problem
    return True, "snapshot, calls, tickets and columns follow from the events"


def _differences(checks: _Checks) -> Iterator[str]:
    found, stored, head = checks.found, checks.stored, checks.head
    expected = found.head
    if found.columns is not None:
        yield found.columns
    if stored.snapshot != encode_snapshot(expected):
        yield "the stored snapshot is not what the events fold to"
    if (stored.status or "") != expected.status:
        yield f"the stored status is `{stored.status}`, and the events lead to `{expected.status}`"
    if (head.kind, head.tenant) != (expected.kind, expected.tenant):
        yield "the stored kind or tenant is not that of the events"
    if (head.started_at, head.updated_at) != (expected.started_at, expected.updated_at):
        yield "the stored times are not those of the first and last event"
    if {call.seq: call for call in stored.calls} != found.calls:
        yield "the stored calls are not those of the events"
    if {ticket.ticket_id: ticket for ticket in stored.tickets} != found.tickets:
        yield "the stored tickets are not those of the events"


def _check_seal(checks: _Checks) -> Verdict:
    """(6) The seal is over the head we computed, not the one that is stored, by a key we hold."""
    if checks.head.seal is None:
        return False if checks.demanded else None, "the head of the run is not sealed"
    if not checks.demanded:
        return None, "the head of the run is sealed, and no key was given to check it"
    seal = checks.seal
    if checks.key_id is not None and (seal.key_id != checks.key_id or not checks.keys.lists(checks.key_id)):
        return False, f"expected a seal by key `{checks.key_id}`, found one by `{seal.key_id}`"
    verify(checks.keys, seal, sealed_bytes(checks.found.head))
    return True, f"sealed by key `{checks.keys.find(seal.key_id).id}`"


_PROCEDURE: Final[tuple[tuple[str, Callable[[_Checks], Verdict]], ...]] = (
    ("chain", _check_chain),
    ("answers", _check_answers),
    ("count", _check_count),
    ("head", _check_head),
    ("derived", _check_derived),
    ("seal", _check_seal),
)
