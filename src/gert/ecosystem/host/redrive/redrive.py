"""Redrive a run: recorded answers are fed to the engine, each event is compared with the record, and where the record
ends, a `Then` takes over.

That is the live world (`exec`, `resume`, `rerun`), a cancellation (`abandon`), a refusal (a scenario that is made of a
run), or the script of a scenario (`replay`).
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

from gert.ecosystem.approvals.port import SignatureVerifier
from gert.ecosystem.host.run.driver.clock import RunClock
from gert.ecosystem.host.run.driver.driver import MAX_PARALLEL, Driver, Gate, JournalPort, OnRest
from gert.ecosystem.host.run.record.journal import Journal, RecordedAnswer
from gert.ecosystem.host.run.world.worlds import World
from gert.errors import IntegrityError, TraceError
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.requests import AnyAnswer, ApprovalAnswer, AwaitApproval, Emit, Request
from gert.kernel.engine.run import RunResult, run
from gert.kernel.events.envelope import Envelope, decode
from gert.kernel.events.runbook import RunAdopted, RunComplete, RunForked, RunResumed, StepReconciled, StepWaiting
from gert.kernel.governance.approval import Response
from gert.kernel.governance.approval_rules import Ticket
from gert.kernel.ledger.record import Claim
from gert.kernel.scenario.recording import collect_requests

HOST_EVENTS: Final = frozenset(each.type for each in (RunResumed, RunAdopted, RunForked, StepReconciled, StepWaiting))
"""Events that the host writes about a run: the engine does not emit them again."""

_SAME: Final = ("step_id", "status", "ticket_id", "approver", "approved", "outcome")
"""What an event about a step must repeat even where the runbook has changed."""
_MOST_NAMED: Final = 3

Same: TypeAlias = Callable[[Envelope, Envelope], bool]
"""Whether an emitted event repeats a recorded one."""
Verify: TypeAlias = Callable[[Request[Any], AnyAnswer], object]
"""Checks a recorded answer to a request; IntegrityError where it must not be used."""


class NoWorld:
    """A world that gets no request: the `Then` stops the run before."""

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        """No request is answered."""
        return None

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        """Never called."""
        raise AssertionError(ask.key)


class Then:
    """What takes over where the recorded answers end.

    world: answers the requests from there on
    driver: drives the run, once it has begun
    gate: waits until a request may be put to the world
    on_rest: learns what the run waits for, where no lane can go on
    """

    world: World = NoWorld()
    driver: Driver | None = None
    gate: Gate | None = None
    on_rest: OnRest | None = None

    def begin(self, announced: list[Request[Any]]) -> None:
        """Take over, or refuse to.

        announced: requests that were recorded as about to be put and have no recorded answer
        """
        raise NotImplementedError


async def redrive(
    setup: Setup,
    recorded: Iterable[RecordedAnswer] | None,
    journal: JournalPort,
    then: Then,
    *,
    lanes: int = MAX_PARALLEL,
    until: Callable[[str | None], bool] | None = None,
    verify: Verify | None = None,
    clock: RunClock | None = None,
    asks: dict[str, Request[Any]] | None = None,
    claim_of: Callable[[Request[Any]], Claim | None] = lambda _: None,
) -> RunResult:
    """Drive a run on its recorded answers, and hand over to `then` where they end.

    recorded: none where the run is new: then takes over before it begins
    journal: compares each event with the record
    until: whether a path lies in the step before which the recorded answers end
    asks: the requests of the run are added to it, by key
    claim_of: the execution that a request counts as, where policy limits executions
    """
    is_new = recorded is None
    driver = then.driver = Driver(
        then.world,
        journal,
        max_parallel=lanes,
        recorded=recorded or (),
        until=until,
        on_recorded=verify,
        on_live=None if is_new else then.begin,
        clock=clock,
        claim_of=claim_of,
        gate=then.gate,
        on_rest=then.on_rest,
    )
    if is_new:
        then.begin([])
    steps = run(setup)
    return await driver.drive(steps if asks is None else collect_requests(steps, asks))


class RedriveJournal(Journal):
    """Compares what a run emits with its record, then continues the record.

    Nothing is written before `go_live`, so that a run which must not continue stays as it was.

    same: whether an event repeats a recorded one; without it, their lines must be equal
    opening: emitted before anything that is new
    on_end: called when the run ends by what is on record alone, before it says so; it goes live, or refuses
    """

    def __init__(
        self,
        run_id: str,
        lines: Sequence[bytes],
        answers: Sequence[bytes],
        *args: Any,
        same: Same | None = None,
        opening: Sequence[Emit] = (),
        **options: Any,
    ) -> None:
        super().__init__(run_id, *args, **options)
        self._same = same
        self._opening = opening
        self.on_end: Callable[[], object] = self.go_live
        self._is_live = False
        self._recorded = deque(lines)
        self._known = deque(answers)
        self._is_new = False
        self._skip_host_events()

    @property
    def repeats(self) -> bool:
        """Whether everything emitted so far was on record before."""
        return not self._is_new

    @property
    def is_full(self) -> bool:
        """Whether so much waits that it should be written before more is emitted."""
        return self._is_live and super().is_full

    def go_live(self) -> None:
        """From here on, what is emitted is appended; IntegrityError where the record goes further than its answers."""
        if self._recorded:
            first = decode(self._recorded[0])
            raise IntegrityError(
                f"replay diverged at event {first.seq}: the record holds {len(self._recorded)} events that its answers "
                "do not lead to",
                hint="the record was changed; `gert run verify-ledger` says more",
            )
        self._is_live = True
        self._open()

    def take_all(self) -> None:
        """Take the whole record as it is, and go live after it."""
        for line in self._known:
            self._count_answer(line)
        self._known.clear()
        while self._recorded:
            self._take()
        self._is_live = self._is_new = True

    async def settle(self, claims: Sequence[Claim] = ()) -> Mapping[str, int]:
        """Make everything durable that is new, once the run is live; gives the requests whose claims were refused."""
        return await super().settle(claims) if self._is_live else {}

    def say(self, said: Emit) -> None:
        """Compare an event with the record, or append it."""
        if self._recorded:
            self._compare(said, decode(self._recorded[0]), self._recorded[0])
            self._take()
            self._skip_host_events()
            return
        self._open()
        if not self._is_live and type(said.payload) is RunComplete:
            self.on_end()
        super().say(said)

    def log(self, entry: RecordedAnswer) -> None:
        """Keep an answer that is not on record yet."""
        if self._known:
            self._timestamp = ""
            self._count_answer(self._known.popleft())
            self._stored = self._head
            return
        self._is_new = True
        super().log(entry)

    def _compare(self, said: Emit, recorded: Envelope, stored: bytes | None) -> None:
        """Refuse an event that does not repeat the recorded one."""
        self._timestamp = recorded.timestamp
        again = self._again(said)
        if again is not None and again == stored:
            return
        emitted = decode(again) if again is not None else None
        if self._same is None or emitted is None or not self._same(recorded, emitted):
            how = difference(recorded, emitted, said.payload.type)
            raise diverged(recorded, how, said.path, self._hint(recorded))

    def _hint(self, recorded: Envelope) -> str:
        """The hint of a divergence."""
        return "the runbook, its tools, its inputs or gert itself have changed since the run began"

    def _open(self) -> None:
        """Before the first new event come those that say who adopted and resumed the run."""
        self._is_new = True
        opening, self._opening = self._opening, ()
        for said in opening:
            super().say(said)

    def _again(self, said: Emit) -> bytes | None:
        try:
            return self._encoded(said)[0]
        except TraceError:
            return None

    def _take(self) -> None:
        """Take the next recorded line as it is."""
        line = self._recorded.popleft()
        event = decode(line)
        payload = event.payload
        self._add(line, payload, event.path, event.timestamp)
        self._projection.clear()
        self._stored = self._head
        for observer in self._observers:
            observer.repeated(event, payload)

    def _skip_host_events(self) -> None:
        """Go to the next recorded event that the engine emits."""
        while self._recorded and decode(self._recorded[0]).type in HOST_EVENTS:
            self._take()
        if not self._recorded:
            self._timestamp = ""


# --- comparison


def is_alike(recorded: Envelope, again: Envelope) -> bool:
    """Whether an event repeats another one although the runbook has changed: same step, same path, same result."""
    if (recorded.type, recorded.path) != (again.type, again.path):
        return False
    if any(recorded.data.get(name) != again.data.get(name) for name in _SAME):
        return False
    mine, its = (event.data.get("outputs") or {} for event in (recorded, again))
    return all(mine[name] == its[name] for name in mine.keys() & its.keys())


def difference(recorded: Envelope, again: Envelope | None, emitted: str) -> str:
    """How an event differs from its record: another event, or the same one with other data."""
    if again is not None and recorded.type == again.type:
        names = dict.fromkeys((*recorded.data, *again.data))
        if others := [f"`{name}`" for name in names if recorded.data.get(name) != again.data.get(name)]:
            return f"`{recorded.type}` is recorded with another {' and another '.join(others[:_MOST_NAMED])}"
        if recorded.answers != again.answers:
            return f"`{recorded.type}` is recorded after other answers"
    return f"`{recorded.type}` is recorded, and the run emits `{emitted}`"


def diverged(event: Envelope, how: str, path: str | None, hint: str) -> IntegrityError:
    """The error of a run that does not repeat an event of its record."""
    return IntegrityError(f"replay diverged at event {event.seq}: {how}" + (f" at `{path}`" if path else ""), hint=hint)


# --- recorded approvals


def approval_check(make_verifier: Callable[[], SignatureVerifier]) -> Verify:
    """Check signatures of recorded approvals again.

    A record without a seal can be changed: an approval that was added to it can claim a valid signature, but not have
    one.
    """
    # Most records claim no signature, so keys are read only where one does.
    verifier = cache(make_verifier)

    def verify(ask: Request[Any], answer: AnyAnswer) -> None:
        if not isinstance(ask, AwaitApproval) or not isinstance(answer, ApprovalAnswer):
            return
        ticket = Ticket(id=ask.ticket_id, request=ask.request, created_at=ask.created_at, expires_at=ask.expires_at)
        for response in answer.responses:
            if _claims_signature(response, ask) and not (found := verifier().verify(response, ticket)).verified:
                raise IntegrityError(
                    f"the record has an approval of `{ticket.id}` by `{response.approver}` whose signature does not "
                    f"hold: {found.flaw or 'there is none'}",
                    hint="set the keys that approvals were verified with; if they are set, the record was changed",
                )

    return verify


def _claims_signature(response: Response, ask: AwaitApproval) -> bool:
    if not response.approved or response.flaw is not None:
        return False  # it approves nothing
    # Only a scenario scripts answers, and a recorded run is never made of one.
    return (
        response.verified
        or response.signature is not None
        or (response.scripted and ask.request.require_signed_approvals)
    )
