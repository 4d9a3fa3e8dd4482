"""Looking up what was asked before, while others in this process may be asking the same."""

from gert.kernel.agent.book import Book
from gert.kernel.agent.compose import key_of
from gert.kernel.agent.ledger import Call, CallKind

LOOK_AGAIN = 5.0
"""Seconds until a step that waits for its twin looks again, whatever happened."""


class Looking:
    """Looks up the requests under a key, again and again until it is clear what a step does.

    What is remembered is enough to replay an answer and to ask for the first time. Whoever asks again, or would
    refuse to, looks into the ledger first: `turn`. What is found then is as new as `count`, and asking is refused if
    the run has grown since.
    """

    def __init__(self, book: Book, run_id: str, tenant: str, kind: CallKind, step_key: str | None, hashed: str) -> None:
        self._book = book
        self._run_id = run_id
        self._tenant = tenant
        self._kind: CallKind = kind
        self._step_key = step_key
        self._hashed = hashed
        self.key = key_of(kind, step_key, hashed)
        self.count: int | None = None

    async def look(self) -> tuple[list[Call], frozenset[int]]:
        """The requests, the newest first, and the numbers of those this process waits for."""
        asking = self._book.is_asking(self._run_id, self.key)
        calls = await self._book.calls(
            self._run_id, self._tenant, self._kind, self._step_key, self._hashed, fresh=self.count is not None
        )
        if not asking and not self._book.is_asking(self._run_id, self.key):
            return calls, frozenset()
        return calls, frozenset(call.seq for call in calls if call.outcome == "open")

    async def turn(self) -> int:
        """Find out how long the run is, so that what is looked up next is at least as new."""
        self.count = (await self._book.head(self._run_id)).count
        return self.count

    async def wait(self) -> None:
        """Wait for a request of this process: look first, since its end may have come meanwhile."""
        if self.count is None:
            await self.turn()
        else:
            await self._book.ledger.wait(self._run_id, self.count, LOOK_AGAIN)
            self.count = None
