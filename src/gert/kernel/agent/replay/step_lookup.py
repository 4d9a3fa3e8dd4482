"""Looking up a recorded step, while other tasks or processes may be taking the same one."""

from collections.abc import Sequence

from gert.errors import RunError, TraceError
from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.ledger.compose import Entry
from gert.kernel.ledger.projection import key_of
from gert.kernel.ledger.record import Call, CallKind, CallOutcome, Expect, Written, last_seq_of

LOOK_AGAIN = 5.0
"""Seconds until a step that waits for the same step in another task looks again, whatever happened."""

MOST_TURNS = 1000
"""How often a step looks again because others were faster."""

Stood = tuple[CallOutcome, int | None]
"""How a call stood: its outcome, and the event that said so."""


class StepLookup:
    """Looks up the requests under a key, again and again until it is clear what a step does.

    The cache is enough to replay an answer and to make a request: what is written is refused if anything happened
    under the key meanwhile. A step that would fail reads the ledger first: `turn`.

    count: the number of events when the ledger was last read; None where the cache will do
    moved: another process made or ended a request under the key meanwhile
    """

    def __init__(
        self, log: RunLog, run_id: str, tenant: str, kind: CallKind, step_key: str | None, hashed: str
    ) -> None:
        self._log = log
        self._run_id = run_id
        self._tenant = tenant
        self._kind: CallKind = kind
        self._step_key = step_key
        self._turns = 0
        self.hashed = hashed
        self.key = key_of(kind, step_key, hashed)
        self.count: int | None = None
        self.moved = False

    async def look(self) -> tuple[list[Call], frozenset[int]]:
        """The requests, the newest first, and the numbers of those that this process waits for."""
        in_flight = self._log.in_flight
        before = in_flight.has(self._run_id, self.key)
        calls = await self._log.calls(
            self._run_id, self._tenant, self._kind, self._step_key, self.hashed, fresh=self.count is not None
        )
        if not before and not in_flight.has(self._run_id, self.key):
            return calls, frozenset()
        return calls, frozenset(call.seq for call in calls if call.outcome == "open")

    async def turn(self) -> None:
        """Read the ledger at the next look, and remember how long the run was before it."""
        self.count = (await self._log.head(self._run_id)).count

    async def look_anew(self) -> list[Call]:
        """The requests as the ledger has them."""
        await self.turn()
        return (await self.look())[0]

    def expect(self, last_seq: int) -> Expect:
        """What an append expects of the key: nothing happened under it after this event."""
        return Expect(self.key, last_seq)

    def overtaken(self) -> None:
        """Others were faster: look again, but not for ever."""
        self.count = None
        self._turns += 1
        if self._turns > MOST_TURNS:
            raise RunError(
                f"others wrote to run `{self._run_id}` {MOST_TURNS} times before this step could",
                hint="take the step again when fewer work on the run",
            )

    async def wait(self, key: str | None = None) -> None:
        """Wait for a request of this process: look first, since its end may have come meanwhile."""
        with self._log.in_flight.waiting(self._run_id, self.key if key is None else key):
            if self.count is None:
                await self.turn()
            else:
                await self._log.ledger.wait(self._run_id, self.count, LOOK_AGAIN)
                self.count = None

    async def end(
        self, entries: Sequence[Entry], seq: int, last_seq: int, stood: Stood, *, wins: bool, step: bool = False
    ) -> Written | None:
        """Record how a request ended, if it still stands as it did; None where another process recorded its end.

        last_seq: the last event under the key when it was looked up
        wins: it is an answer, which counts more than any end but another answer
        step: the run must take steps
        """
        while True:
            expect = self.expect(last_seq)
            written = await self._log.write(self._run_id, self._tenant, entries, expect=expect, step=step)
            if isinstance(written, Written):
                return written
            self.moved = True
            self.overtaken()
            calls = await self.look_anew()
            now = next((call for call in calls if call.seq == seq), None)
            if now is None:
                raise TraceError(f"event {seq} of run `{self._run_id}` is no request under `{self.key}`")
            if (now.outcome, now.done_seq) != stood:
                if not wins or now.outcome == "success":
                    return None
                stood = (now.outcome, now.done_seq)
            last_seq = last_seq_of(calls)
