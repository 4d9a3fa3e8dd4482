"""The journal of a run: it stamps, chains, projects and appends what the run emits, then shows it to observers.

An event is durable before the next request is put to the world, so a crash can lose an answer, never an unannounced
action. Answers are appended in the same transaction as the events they lead to, and the first of these names them.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

import msgspec

from gert.ecosystem.host.run.observer import Observer
from gert.ecosystem.host.run.record.live_output import LiveOutput
from gert.ecosystem.ledger.jsonl.mirror import Mirror
from gert.errors import IntegrityError, TraceError
from gert.kernel.engine.requests import AnyAnswer, ApprovalAnswer, Emit
from gert.kernel.events.envelope import MAX_LINE_BYTES, Envelope, decode, encode, encode_payload, format_timestamp
from gert.kernel.events.payload import Payload, to_data
from gert.kernel.events.runbook import ContractEvaluated, RunComplete, StepStart
from gert.kernel.events.shorten import shortened
from gert.kernel.events.trace_seal import seal
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.principal import Principal
from gert.kernel.foundation.secret_refs import masked
from gert.kernel.foundation.signature import Key
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.projection import Projection
from gert.kernel.ledger.record import Batch, Claim, Event, Head, Written, hash_answer

LONGEST = MAX_LINE_BYTES - 64 * 1024
"""What the data of an event may take; the rest of the line is for the envelope."""

MOST_WAITING = 1000
"""Events that may wait for a request before they are written anyway."""


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


def micros() -> int:
    """The time in microseconds, as the journal counts it."""
    return time.time_ns() // 1000


class RecordedAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of the answer log.

    at_once: no other lane had a turn before the answer was there
    turn: of a cancellation, how many turns lanes had had when it came
    """

    key: str
    answer: AnyAnswer
    at_once: bool = False
    turn: int | None = None


_NUMBERS = re.compile(r"(?:~\d+)(?=/|#\d+\Z|\Z)|#\d+\Z")
_STALE: Final = 5.0
"""Seconds after which a process that is about to act asks whether it still drives the run."""
_ANSWERS = msgspec.json.Encoder(enc_hook=str)
_LOGGED = msgspec.json.Decoder(RecordedAnswer)


def read_answers(lines: Iterable[bytes]) -> list[RecordedAnswer]:
    """The entries of an answer log; IntegrityError where one cannot be read."""
    try:
        return [_LOGGED.decode(line) for line in lines]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise IntegrityError("an answer of the run cannot be read") from None


def path_of(key: str) -> str:
    """The path of the step that a request is about: its key without the numbers of visits and attempts."""
    return _NUMBERS.sub("", key)


class _Evaluated(Payload, frozen=True, kw_only=True):
    """`contract_evaluated`, as it is written."""

    type: ClassVar[str] = ContractEvaluated.type
    step_id: str
    resolved_contract: msgspec.Raw


class Journal:
    """Writes one run: into a ledger, into its mirror, or for observers only.

    documents, private: stored with the first append, the latter beside the run and in no event
    live: writes what running steps print, until their answers are stored
    """

    def __init__(
        self,
        run_id: str,
        ledger: Ledger | None = None,
        *,
        mirror: Mirror | None = None,
        key: Key | None = None,
        clock: Callable[[], int] = micros,
        observers: Iterable[Observer] = (),
        has_secrets: bool = False,
        documents: Sequence[tuple[str, bytes]] = (),
        private: bytes | None = None,
        adopt: bool = False,
        live: LiveOutput | None = None,
    ) -> None:
        self._run_id = run_id
        self._ledger = ledger
        self._mirror = mirror
        self._key = key
        self._clock = clock
        self._live = live
        if live is not None and ledger is not None:
            live.begin(ledger)
        self._observers = tuple(observers) if live is None else (*observers, live)
        self._has_secrets = has_secrets
        self._documents = documents
        self._private = private
        self._adopt = adopt
        # The run as it is in the ledger, and as it will be after the next append.
        self._stored = self._head = Head(run_id, "runbook")
        self._projection = Projection(self._head)
        self._events: list[Event] = []
        self._answers: list[bytes] = []
        self._taken: list[int] = []
        self._is_named = True
        self._shown: list[tuple[Envelope, Payload]] = []
        self._timestamp = ""
        self._second = -1
        self._prefix = ""
        self._contracts: dict[int, tuple[dict[str, Any], msgspec.Raw]] = {}
        self._is_broken = False
        self._written_at = time.monotonic()
        self.finished: list[str] = []

    @property
    def head(self) -> str:
        """The hash the next event would carry."""
        return self._head.hash

    @property
    def events(self) -> int:
        """How many events the run has, those included that are not durable yet."""
        return self._head.count

    @property
    def repeats(self) -> bool:
        """Whether everything emitted so far was on record before."""
        return False

    @property
    def is_full(self) -> bool:
        """Whether so much waits that it should be written before more is emitted."""
        return len(self._events) >= MOST_WAITING

    def say_all(self, given: Sequence[Emit]) -> None:
        """Add several events."""
        for said in given:
            self.say(said)

    def say(self, said: Emit) -> None:
        """Stamp and chain an event; it is durable once `settle` returns."""
        line, said = self._encoded(said)
        payload = said.payload
        if self._observers:
            self._shown.append((decode(line), payload))
        self._add(line, payload, said.path, self._timestamp)
        self._events.append(Event(self._head.count, payload.type, self._timestamp, None, line))

    def log(self, entry: RecordedAnswer) -> None:
        """Keep an answer for the ledger, if there is one; everything that follows from it has one timestamp."""
        self._timestamp = ""
        if self._live is not None:
            self.finished += self._live.ended(path_of(entry.key))
        if self._ledger is None:
            return
        line = _ANSWERS.encode(entry)
        self._answers.append(line)
        if entry.answer.message_id is not None:
            self._taken.append(entry.answer.message_id)
        if isinstance(entry.answer, ApprovalAnswer):
            self._taken += (each.message_id for each in entry.answer.responses if each.message_id is not None)
        self._count_answer(line)

    async def settle(self, claims: Sequence[Claim] = ()) -> Mapping[str, int]:
        """Make what was emitted and answered durable, then show it; the requests whose claims were refused."""
        refused: Mapping[str, int] = {}
        if self._is_broken:
            raise TraceError(f"nothing more is written of run `{self._run_id}`: an earlier append failed")
        if self._events or self._answers or claims:
            self._timestamp = ""
            batch = self._batch()._replace(claims=claims)
            try:
                refused = await self._append(batch)
            except BaseException:
                # Later events would depend on lost ones.
                self._is_broken = True
                raise
        shown, self._shown = self._shown, []
        for envelope, payload in shown:
            for observer in self._observers:
                observer.said(envelope, payload)
        return refused

    async def confirm(self) -> None:
        """Refuse to act where another process has taken the run: LeaseLost.

        The ledger is asked only if this process has not written for a while: it may have been stopped meanwhile.
        """
        if self._ledger is not None and time.monotonic() - self._written_at > _STALE:
            await self._ledger.confirm(self._run_id)
            self._written_at = time.monotonic()

    async def flush(self) -> None:
        """Make what the witness has durable, and export the rest: the run has ended, or waits."""
        if self._ledger is not None and self._ledger.witness is not None:
            await self._ledger.witness.flush()
        if self._ledger is not None and self._ledger.export is not None:
            await self._ledger.export.flush()

    def close(self) -> None:
        """Complete the mirror, and write no more output of running steps."""
        if self._live is not None:
            self._live.close()
        if self._mirror is not None:
            self._mirror.close()

    @property
    def problem(self) -> str | None:
        """Why the mirror, the witness or what was exported is not complete, if it is not."""
        beside = (self._ledger.witness, self._ledger.export) if self._ledger is not None else ()
        found = (each.problem for each in (self._mirror, *beside) if each is not None)
        return "; ".join(problem for problem in found if problem is not None) or None

    # --- appending

    def _batch(self) -> Batch:
        projection = self._projection
        head = msgspec.structs.replace(self._head, snapshot=projection.snapshot)
        batch = Batch(
            head,
            self._events,
            tuple(projection.calls),
            tuple(projection.ends),
            self._answers,
            tuple(projection.tickets),
            tuple(projection.ticket_ends),
            tuple(self._taken),
            self._documents,
            tuple(self.finished),
            self._private,
            responses=tuple(projection.responses),
        )
        projection.clear()
        self._events, self._answers, self._taken, self._documents, self.finished = [], [], [], (), []
        return batch

    async def _append(self, batch: Batch) -> Mapping[str, int]:
        refused: Mapping[str, int] = {}
        before, self._stored = self._stored, batch.head
        if self._ledger is not None:

            def write(head: Head, _: str) -> Batch:
                if _mark(head) != _mark(before):
                    raise IntegrityError(
                        f"the record of run `{self._run_id}` was changed while it was driven",
                        hint="`gert run verify-ledger` says more",
                    )
                return batch

            written = await self._ledger.append(self._run_id, write, adopt=self._adopt)
            if not isinstance(written, Written):
                raise TraceError(f"the ledger refused an append to run `{self._run_id}`")
            self._written_at = time.monotonic()
            refused = written.refused
        if self._mirror is not None:
            self._mirror.write([event.line for event in batch.events])
        return refused

    def _add(self, line: bytes, payload: Payload, path: str | None, timestamp: str) -> None:
        """Take a line into the chain, and into what a ledger projects from it."""
        head = self._head
        self._head = msgspec.structs.replace(
            head,
            count=head.count + 1,
            hash=sha256_hex(line),
            started_at=head.started_at or timestamp,
            updated_at=timestamp,
        )
        if self._ledger is not None:
            self._projection.add(payload, self._head.count, timestamp, path)
        self._is_named = True

    def _count_answer(self, line: bytes) -> None:
        head = self._head
        self._head = msgspec.structs.replace(
            head, answers=head.answers + 1, answers_hash=hash_answer(head.answers_hash, line)
        )
        self._is_named = False

    # --- encoding

    def _encoded(self, said: Emit) -> tuple[bytes, Emit]:
        """The line of an event, and what it says: without references to secrets, and not too long."""
        if self._has_secrets:
            said = Emit(without_references(said.payload), masked(said.path), _unnamed(said.principal))
        try:
            return self._line(said.payload, said.path, said.principal), said
        except TraceError:
            # A value too large for a line is written by its digest: nothing else may depend on the size of a value.
            line = self._line(shortened(said.payload, LONGEST), said.path, said.principal)
            return line, Emit(decode(line).payload, said.path, said.principal)

    def _line(self, payload: Payload, path: str | None, principal: Principal | None) -> bytes:
        head, kind = self._head, type(payload)
        timestamp = self._timestamp or self._stamp()
        if kind is RunComplete:
            return encode(seal(self._envelope(payload, path, timestamp), self._key))
        if kind is ContractEvaluated:
            payload = self._evaluated(payload)  # type: ignore[arg-type]
        answers = None if self._is_named else self._answers_mark()
        return encode_payload(
            payload, head.count + 1, self._run_id, timestamp, principal, path, head.hash, answers=answers
        )

    def _answers_mark(self) -> str | None:
        """The answers that the next event names: those of the run so far, where some came since the last event."""
        if self._ledger is None or self._is_named:
            return None
        return f"{self._head.answers}:{self._head.answers_hash}"

    def _stamp(self) -> str:
        """The time as events carry it; all but the microseconds stays the same for a second."""
        second, rest = divmod(self._clock(), 1_000_000)
        if second != self._second:
            self._second, self._prefix = second, format_timestamp(datetime.fromtimestamp(second, UTC))[:-7]
        self._timestamp = f"{self._prefix}{rest:06d}Z"
        return self._timestamp

    def _evaluated(self, payload: ContractEvaluated) -> "_Evaluated":
        """The same event with its contract encoded before: many steps run under one contract."""
        contract = payload.resolved_contract
        known = self._contracts.get(id(contract))
        if known is None or known[0] is not contract:
            known = self._contracts[id(contract)] = (contract, msgspec.Raw(_ANSWERS.encode(contract)))
        return _Evaluated(step_id=payload.step_id, resolved_contract=known[1])

    def _envelope(self, payload: Payload, path: str | None, timestamp: str) -> Envelope:
        return Envelope(
            seq=self._head.count + 1,
            run_id=self._run_id,
            type=payload.type,
            timestamp=timestamp,
            path=path,
            answers=self._answers_mark(),
            prev_hash=self._head.hash,
            data=to_data(payload),
        )


def _mark(head: Head) -> tuple[int, str, int, str]:
    return head.count, head.hash, head.answers, head.answers_hash


def _unnamed(principal: Principal | None) -> Principal | None:
    """A principal whose name is made from a secret is not called by it."""
    if principal is None:
        return None
    return msgspec.convert(masked(msgspec.to_builtins(principal)), Principal)


def without_references(payload: Payload) -> Payload:
    """A payload in which references to secrets are placeholders."""
    data = msgspec.to_builtins(payload, enc_hook=str)
    shown = masked(data)
    if shown == data:
        return payload
    changed = msgspec.convert(shown, type(payload))
    # Converted, an unknown input would be the text it is shown as.
    return (
        msgspec.structs.replace(changed, inputs=masked(payload.inputs)) if isinstance(payload, StepStart) else changed
    )
