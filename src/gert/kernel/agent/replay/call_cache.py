"""The requests of runs as this process knows them, so that it need not read the ledger before every append.

It is a hint and never the truth: an append says what it expects of a key, and is refused where another process was
faster. An answer that is known stays the answer, since nothing on record ever changes.
"""

from collections import OrderedDict
from collections.abc import Iterable

from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Batch, Call, ended

MOST_RUNS = 256
"""Runs a process remembers."""

MOST_CALLS = 50_000
"""Requests it remembers of all of them, and of one."""

CHECK_EVERY = 64
"""How many requests of a run are taken until all are counted again."""

LOADED = 1000
"""A run with fewer requests is read at once when it is first looked up; of a longer one, one key at a time."""

LOADED_EVENTS = 4 * LOADED


class _Run:
    """What is known of one run.

    count: how many events this process knows of
    complete: a key that is not here has no requests
    calls: requests by key and number; None where the ledger is known to have others
    """

    __slots__ = ("calls", "complete", "count", "keys")

    def __init__(self, count: int, *, complete: bool, calls: Iterable[Call] = ()) -> None:
        self.count = count
        self.complete = complete
        self.calls: dict[str, dict[int, Call] | None] = {}
        self.keys: dict[int, str] = {}
        for call in calls:
            self.add(call)

    def add(self, call: Call) -> None:
        """Take a request; of two versions of it the later one counts."""
        known = self.calls.setdefault(call.key, {})
        if known is not None and (call.seq not in known or known[call.seq].last_seq < call.last_seq):
            known[call.seq] = call
            self.keys[call.seq] = call.key

    def clear(self) -> None:
        """Know nothing any more."""
        self.complete = False
        self.calls.clear()
        self.keys.clear()


class CallCache:
    """The requests of the runs a kernel works on."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._runs: OrderedDict[str, _Run] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    async def calls(self, run_id: str, key: str, *, fresh: bool = False) -> list[Call]:
        """The requests under a key, the newest first; read from the ledger where they are not known."""
        run = self._runs.get(run_id)
        if run is None and not fresh:
            run = self._keep(run_id, await self._loaded(run_id))
        if run is None:
            return await self._ledger.calls(run_id, key)
        self._runs.move_to_end(run_id)
        known = run.calls.get(key)
        if fresh or (known is None and (key in run.calls or not run.complete)):
            found = await self._ledger.calls(run_id, key)
            if run.calls.get(key) is None:
                run.calls[key] = {}
            for call in found:
                run.add(call)
            self._shrink(run)
            return found
        return sorted((known or {}).values(), key=lambda call: call.seq, reverse=True)

    def begin(self, batch: Batch) -> None:
        """Know a run from its first event on."""
        self._keep(batch.head.run_id, _Run(0, complete=True))
        self.take(batch)

    def take(self, batch: Batch) -> None:
        """Take what this process has appended to a run that is known."""
        run = self._runs.get(batch.head.run_id)
        if run is None:
            return
        if batch.head.count != run.count + len(batch.events):
            # Another process has written in between, to any key.
            run.clear()
        run.count = max(run.count, batch.head.count)
        for call in batch.calls:
            if run.complete or run.calls.get(call.key) is not None:
                run.add(call)
        for end in batch.ends:
            known = run.calls.get(run.keys.get(end.seq, ""))
            if known:
                run.add(ended(known[end.seq], end))
        self._shrink(run)

    def doubt(self, run_id: str, key: str) -> None:
        """Read a key from the ledger next time."""
        if (run := self._runs.get(run_id)) is not None:
            for seq in run.calls.get(key) or ():
                del run.keys[seq]
            run.calls[key] = None

    def forget(self, run_id: str) -> None:
        """Read everything of a run again."""
        self._runs.pop(run_id, None)

    async def _loaded(self, run_id: str) -> _Run:
        """A run as the ledger has it, if it is short."""
        head = await self._ledger.head(run_id)
        count = 0 if head is None else head.count
        if count > LOADED_EVENTS:
            return _Run(count, complete=False)
        calls = await self._ledger.all_calls(run_id, 0, LOADED) if count else []
        return _Run(count, complete=len(calls) < LOADED, calls=calls)

    def _keep(self, run_id: str, run: _Run) -> _Run:
        # Another task may have been faster, and its run has taken appends since.
        kept = self._runs.setdefault(run_id, run)
        self._runs.move_to_end(run_id)
        self._shrink(kept)
        return kept

    def _shrink(self, run: _Run) -> None:
        """Forget the runs that were not used for longest, and the requests of a run that has too many."""
        size = len(run.keys)
        if size > MOST_CALLS:
            run.clear()
        while len(self._runs) > MOST_RUNS or (not size % CHECK_EVERY and len(self._runs) > 1 and self._is_full()):
            self._runs.popitem(last=False)

    def _is_full(self) -> bool:
        return sum(len(run.keys) for run in self._runs.values()) > MOST_CALLS
