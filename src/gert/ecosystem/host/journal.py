"""The journal of a run: what is said is stamped, chained, made durable, and then shown to whoever watches.

An event is on disk before the next question is put to the world, so a crash can lose an answer, never an
unannounced action. Answers go into a log of their own, durable no later than the events they lead to.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec

from gert.ecosystem.host.observer import Observer
from gert.ecosystem.stores.port import QUICK_SECONDS, Store
from gert.errors import TraceError
from gert.kernel.engine.asks import AnyAnswer, Said
from gert.kernel.events.chain import Chain
from gert.kernel.events.envelope import MAX_LINE_BYTES, Envelope, encode, encode_payload, format_timestamp
from gert.kernel.events.payload import Payload, to_data
from gert.kernel.events.runbook import ContractEvaluated, RunComplete
from gert.kernel.events.seal import seal
from gert.kernel.events.shortening import shortened
from gert.kernel.foundation.principal import Principal
from gert.kernel.foundation.secret_refs import masked
from gert.kernel.foundation.signature import Key

LONGEST = MAX_LINE_BYTES - 64 * 1024
"""What the data of an event may take; the rest of the line is for the envelope."""

MOST_WAITING = 1000
"""Events that may wait for a question before they are written anyway."""


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


def micros() -> int:
    """The time in microseconds, as the journal counts it."""
    return time.time_ns() // 1000


class Logged(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of the answer log.

    at_once: nobody had to be waited for, so that no other lane had a turn
    turn: of a cancellation, how many turns lanes had had when it came
    """

    key: str
    answer: AnyAnswer
    at_once: bool = False
    turn: int | None = None


_ANSWERS = msgspec.json.Encoder(enc_hook=str)
_LOGGED = msgspec.json.Decoder(Logged)


def read_answers(lines: Iterable[bytes]) -> Iterable[Logged]:
    """The entries of an answer log."""
    return (_LOGGED.decode(line) for line in lines)


class _Evaluated(Payload, frozen=True, kw_only=True):
    """`contract_evaluated`, as it is written."""

    type: ClassVar[str] = ContractEvaluated.type
    step_id: str
    resolved_contract: msgspec.Raw


class Journal:
    """Writes one run."""

    def __init__(
        self,
        store: Store,
        run_id: str,
        *,
        key: Key | None = None,
        clock: Callable[[], int] = micros,
        observers: Iterable[Observer] = (),
        has_secrets: bool = False,
    ) -> None:
        self._store = store
        self._run_id = run_id
        self._key = key
        self._clock = clock
        self._observers = tuple(observers)
        self._has_secrets = has_secrets
        self._chain = Chain()
        self._lines: list[bytes] = []
        self._answers: list[bytes] = []
        self._shown: list[tuple[Envelope, Payload]] = []
        self._written = 0
        self._timestamp = ""
        self._second = -1
        self._contracts: dict[int, tuple[dict[str, Any], msgspec.Raw]] = {}
        self._prefix = ""
        # One thread, so that appends follow each other, and the loop goes on reading while the disk is slow. A quick
        # disk is done sooner than a thread is woken, and the processes that are under way need the processor.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="gert-journal") if store.durable else None
        self._took = 0.0
        self._is_broken = False

    @property
    def head(self) -> str:
        """The hash the next event would carry."""
        return self._chain.head

    @property
    def events(self) -> int:
        """How many events were said."""
        return self._chain.count

    @property
    def repeats(self) -> bool:
        """Whether everything said so far was on record before."""
        return False

    @property
    def is_full(self) -> bool:
        """Whether so much waits that it should be written before more is said."""
        return len(self._lines) >= MOST_WAITING

    def say(self, said: Said) -> None:
        """Stamp and chain an event; it is durable once `settle` returns."""
        line, (payload, path, principal) = self._encoded(said)
        if self._observers:
            envelope = self._envelope(payload, path, self._timestamp or self._stamp())
            self._shown.append((msgspec.structs.replace(envelope, principal=principal), payload))
        self._chain.append(line)
        self._lines.append(line)

    def _encoded(self, said: Said) -> tuple[bytes, Said]:
        """The line of an event, and what it says: without references to secrets, and not too long."""
        if self._has_secrets:
            said = Said(without_references(said.payload), masked(said.path), _unnamed(said.principal))
        payload, path, principal = said
        try:
            return self._line(payload, path, principal), said
        except TraceError:
            # What is too large for a line is written by its digest: nothing else may depend on the size of a value.
            payload = shortened(payload, LONGEST)
            return self._line(payload, path, principal), Said(payload, path, principal)

    def _line(self, payload: Payload, path: str | None, principal: Principal | None) -> bytes:
        chain, kind = self._chain, type(payload)
        timestamp = self._timestamp or self._stamp()
        if kind is RunComplete:
            return encode(seal(self._envelope(payload, path, timestamp), self._key))
        if kind is ContractEvaluated:
            payload = self._evaluated(payload)  # type: ignore[arg-type]
        return encode_payload(payload, chain.count + 1, self._run_id, timestamp, principal, path, chain.head)

    def _stamp(self) -> str:
        """The time as events carry it; all but the microseconds stays the same for a second."""
        second, micros = divmod(self._clock(), 1_000_000)
        if second != self._second:
            self._second, self._prefix = second, format_timestamp(datetime.fromtimestamp(second, UTC))[:-7]
        self._timestamp = f"{self._prefix}{micros:06d}Z"
        return self._timestamp

    def _evaluated(self, payload: ContractEvaluated) -> "_Evaluated":
        """The same event with its contract encoded before: many steps run under one contract."""
        contract = payload.resolved_contract
        known = self._contracts.get(id(contract))
        if known is None or known[0] is not contract:
            known = self._contracts[id(contract)] = (contract, msgspec.Raw(_ANSWERS.encode(contract)))
        return _Evaluated(step_id=payload.step_id, resolved_contract=known[1])

    def log(self, entry: Logged) -> None:
        """Keep an answer; what follows from it, follows at one moment."""
        self._timestamp = ""
        self._answers.append(_ANSWERS.encode(entry))

    async def settle(self, *, alone: bool = False) -> None:
        """Make everything that was said and answered durable, then show it.

        alone: nothing else is under way that a slow disk could hold up, so nobody else need wait for it
        """
        lines, answers = self._lines, self._answers
        if self._is_broken:
            # What comes after would rest on what is lost, and a log of answers alone does not show the gap.
            raise TraceError(f"nothing more is written of run `{self._run_id}`: what was said before is lost")
        if not lines and not answers:
            return
        self._timestamp = ""
        first = self._written + 1
        self._lines, self._answers = [], []
        self._written += len(lines)
        if self._writer is None or alone or self._took < QUICK_SECONDS:
            self._append(first, lines, answers)
        else:
            loop = asyncio.get_running_loop()
            # Shielded: a write that has begun is finished, whoever stops waiting for it.
            await asyncio.shield(loop.run_in_executor(self._writer, self._append, first, lines, answers))
        shown, self._shown = self._shown, []
        for envelope, payload in shown:
            for observer in self._observers:
                observer.said(envelope, payload)

    def _append(self, first: int, lines: list[bytes], answers: list[bytes]) -> None:
        began = time.perf_counter()
        try:
            self._store.append(self._run_id, first, lines, answers)
        except BaseException:
            self._is_broken = True
            raise
        self._took = time.perf_counter() - began

    def close(self) -> None:
        """Let go of the writer."""
        if self._writer is not None:
            self._writer.shutdown()

    def _envelope(self, payload: Payload, path: str | None, timestamp: str) -> Envelope:
        return Envelope(
            seq=self._chain.next_seq,
            run_id=self._run_id,
            type=payload.type,
            timestamp=timestamp,
            path=path,
            prev_hash=self._chain.head,
            data=to_data(payload),
        )


def _unnamed(principal: Principal | None) -> Principal | None:
    """A principal whose name is made from a secret is not called by it."""
    if principal is None:
        return None
    return msgspec.convert(masked(msgspec.to_builtins(principal)), Principal)


def without_references(payload: Payload) -> Payload:
    """A payload in which references to secrets are placeholders."""
    data = msgspec.to_builtins(payload, enc_hook=str)
    shown = masked(data)
    return payload if shown == data else msgspec.convert(shown, type(payload))
