"""Look up a recorded step while other tasks or processes may run the same one."""

from collections.abc import Sequence

from gert.errors import RunError, TraceError
from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.ledger.build_batch import Entry
from gert.kernel.ledger.projection import key_of
from gert.kernel.ledger.record import Call, CallKind, CallOutcome, Expect, Written, last_seq_of

RECHECK_SECONDS = 5.0
"""Seconds after which a step that waits for another task looks again in any case."""

MAX_ATTEMPTS = 1000
"""How often a step looks again because another writer was faster."""

CallState = tuple[CallOutcome, int | None]
"""The state of a call: its outcome, and the event that recorded it."""


class StepLookup:
    """Looks up the requests under a key until it is clear what the step has to do.

    The cache is enough to replay an answer and to append a request: an append is refused if the key changed meanwhile.
    Before a step fails, it reads the ledger: `refresh`.

    count: the number of events when the ledger was last read; None while the cache is enough
    changed: another process added or ended a request under the key meanwhile
    """

    def __init__(
        self, log: RunLog, run_id: str, tenant: str, kind: CallKind, step_key: str | None, input_hash: str
    ) -> None:
        self._log = log
        self._run_id = run_id
        self._tenant = tenant
        self._kind: CallKind = kind
        self._step_key = step_key
        self._attempts = 0
        self.input_hash = input_hash
        self.key = key_of(kind, step_key, input_hash)
        self.count: int | None = None
        self.changed = False

    async def find(self) -> tuple[list[Call], frozenset[int]]:
        """Return the requests, newest first, and the numbers of those that this process waits for."""
        in_flight = self._log.in_flight
        before = in_flight.has(self._run_id, self.key)
        calls = await self._log.calls(
            self._run_id, self._tenant, self._kind, self._step_key, self.input_hash, fresh=self.count is not None
        )
        if not before and not in_flight.has(self._run_id, self.key):
            return calls, frozenset()
        return calls, frozenset(call.seq for call in calls if call.outcome == "open")

    async def refresh(self) -> None:
        """Read the ledger at the next lookup, and remember the current number of events."""
        self.count = (await self._log.head(self._run_id)).count

    async def find_in_ledger(self) -> list[Call]:
        """Return the requests, newest first, from the ledger instead of the cache."""
        await self.refresh()
        return (await self.find())[0]

    def expect(self, last_seq: int) -> Expect:
        """Return what an append expects of the key: no event under it after this one."""
        return Expect(self.key, last_seq)

    def retry(self) -> None:
        """Look again because another writer was faster; RunError after too many attempts."""
        self.count = None
        self._attempts += 1
        if self._attempts > MAX_ATTEMPTS:
            raise RunError(
                f"other writers appended to run `{self._run_id}` {MAX_ATTEMPTS} times before this step could",
                hint="run the step again when fewer workers share the run",
            )

    async def wait(self, key: str | None = None) -> None:
        """Wait for a request of this process; look at the ledger first, since it may have ended meanwhile."""
        with self._log.in_flight.waiting(self._run_id, self.key if key is None else key):
            if self.count is None:
                await self.refresh()
            else:
                await self._log.ledger.wait(self._run_id, self.count, RECHECK_SECONDS)
                self.count = None

    async def end(
        self, entries: Sequence[Entry], seq: int, last_seq: int, state: CallState, *, wins: bool, step: bool = False
    ) -> Written | None:
        """Record how a request ended if its state has not changed; None if another process recorded its end.

        last_seq: the last event under the key when it was looked up
        wins: it is an answer, which replaces any end but another answer
        step: refuse it where the run is paused or blocked
        """
        while True:
            expect = self.expect(last_seq)
            written = await self._log.write(self._run_id, self._tenant, entries, expect=expect, step=step)
            if isinstance(written, Written):
                return written
            self.changed = True
            self.retry()
            calls = await self.find_in_ledger()
            now = next((call for call in calls if call.seq == seq), None)
            if now is None:
                raise TraceError(f"event {seq} of run `{self._run_id}` is not a request under `{self.key}`")
            if (now.outcome, now.done_seq) != state:
                if not wins or now.outcome == "success":
                    return None
                state = (now.outcome, now.done_seq)
            last_seq = last_seq_of(calls)
