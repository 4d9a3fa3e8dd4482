"""Looking up what was asked before, while others in this process or elsewhere may be asking the same."""

from collections.abc import Sequence

from gert.errors import RunError, TraceError
from gert.kernel.agent.book import Book, Standing
from gert.kernel.ledger.compose import Entry
from gert.kernel.ledger.projection import key_of
from gert.kernel.ledger.record import Call, CallKind, CallOutcome, Written

LOOK_AGAIN = 5.0
"""Seconds until a step that waits for its twin looks again, whatever happened."""

MOST_TURNS = 1000
"""How often a step looks again because others were faster."""

Stood = tuple[CallOutcome, int | None]
"""How a call stood: its outcome, and the event that said so."""


class Looking:
    """Looks up the requests under a key, again and again until it is clear what a step does.

    What is remembered is enough to replay an answer and to ask for the first time. Whoever asks again, or would
    refuse to, looks into the ledger first: `turn`. What is written then is refused if what was found may have changed.

    moved: somebody else wrote to the run meanwhile, and may have asked or ended the same
    """

    def __init__(self, book: Book, run_id: str, tenant: str, kind: CallKind, step_key: str | None, hashed: str) -> None:
        self._book = book
        self._run_id = run_id
        self._tenant = tenant
        self._kind: CallKind = kind
        self._step_key = step_key
        self._hash = ""
        self._turns = 0
        self.hashed = hashed
        self.key = key_of(kind, step_key, hashed)
        self.count: int | None = None
        self.moved = False

    async def look(self) -> tuple[list[Call], frozenset[int]]:
        """The requests, the newest first, and the numbers of those this process waits for."""
        asking = self._book.is_asking(self._run_id, self.key)
        calls = await self._book.calls(
            self._run_id, self._tenant, self._kind, self._step_key, self.hashed, fresh=self.count is not None
        )
        if not asking and not self._book.is_asking(self._run_id, self.key):
            return calls, frozenset()
        return calls, frozenset(call.seq for call in calls if call.outcome == "open")

    async def turn(self) -> None:
        """Find out where the run ends, so that what is looked up next is at least as new."""
        head = await self._book.head(self._run_id)
        self.count, self._hash = head.count, head.hash

    async def look_anew(self) -> list[Call]:
        """The requests as the ledger has them."""
        await self.turn()
        return (await self.look())[0]

    def standing(self, calls: Sequence[Call]) -> Standing:
        """What was found, as far as writing depends on it."""
        return Standing(self._hash, self.key, tuple(call.seq for call in calls))

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
        with self._book.waiting(self._run_id, self.key if key is None else key):
            if self.count is None:
                await self.turn()
            else:
                await self._book.ledger.wait(self._run_id, self.count, LOOK_AGAIN)
                self.count = None

    async def end(
        self, entries: Sequence[Entry], seq: int, standing: Standing, stood: Stood, *, wins: bool, step: bool = False
    ) -> Written | None:
        """Say how a request ended, if it still stands as it did; None where somebody else has said so meanwhile.

        wins: it is an answer, which counts more than any end but another answer
        step: the run must take steps
        """
        while True:
            written = await self._book.end(self._run_id, self._tenant, entries, standing, step=step)
            if written is not None:
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
            standing = self.standing(calls)
