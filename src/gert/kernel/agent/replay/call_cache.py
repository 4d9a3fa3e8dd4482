"""A cache of the requests of runs, so that a step need not read the ledger before every append.

It may be stale: an append states what it expects of a key, and is refused if another process was faster. A cached
answer stays valid, since recorded events never change.
"""

from collections import OrderedDict
from collections.abc import Iterable

from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Batch, Call, ended

MAX_RUNS = 256
"""Runs in the cache."""

MAX_CALLS = 50_000
"""Requests in the cache, of all runs together and of one run."""

CHECK_EVERY = 64
"""Requests added to a run until the size of the cache is checked again."""

MAX_PRELOADED = 1000
"""A run with fewer requests is loaded whole when it is first looked up; a longer one key by key."""

MAX_PRELOADED_EVENTS = 4 * MAX_PRELOADED


class _Run:
    """The cached requests of one run.

    count: the number of events that this process knows of
    complete: a key that is not cached has no requests
    calls: requests by key and number; None for a key that must be read from the ledger
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
        """Add a request, or replace an older version of it."""
        known = self.calls.setdefault(call.key, {})
        if known is not None and (call.seq not in known or known[call.seq].last_seq < call.last_seq):
            known[call.seq] = call
            self.keys[call.seq] = call.key

    def clear(self) -> None:
        """Forget every request."""
        self.complete = False
        self.calls.clear()
        self.keys.clear()


class CallCache:
    """Caches the requests of the runs of a kernel."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._runs: OrderedDict[str, _Run] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    async def calls(self, run_id: str, key: str, *, fresh: bool = False) -> list[Call]:
        """Return the requests under a key, newest first; read from the ledger if they are not cached."""
        run = self._runs.get(run_id)
        if run is None and not fresh:
            run = self._keep(run_id, await self._load(run_id))
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

    def add_run(self, batch: Batch) -> None:
        """Add a run with its first batch."""
        self._keep(batch.head.run_id, _Run(0, complete=True))
        self.add(batch)

    def add(self, batch: Batch) -> None:
        """Add a batch that this process appended to a cached run."""
        run = self._runs.get(batch.head.run_id)
        if run is None:
            return
        if batch.head.count != run.count + len(batch.events):
            # Another process appended in between, under any key.
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

    def invalidate(self, run_id: str, key: str) -> None:
        """Read a key from the ledger at its next lookup."""
        if (run := self._runs.get(run_id)) is not None:
            for seq in run.calls.get(key) or ():
                del run.keys[seq]
            run.calls[key] = None

    def forget(self, run_id: str) -> None:
        """Drop a run from the cache."""
        self._runs.pop(run_id, None)

    async def _load(self, run_id: str) -> _Run:
        """Load a run from the ledger if it is short."""
        head = await self._ledger.head(run_id)
        count = 0 if head is None else head.count
        if count > MAX_PRELOADED_EVENTS:
            return _Run(count, complete=False)
        calls = await self._ledger.all_calls(run_id, 0, MAX_PRELOADED) if count else []
        return _Run(count, complete=len(calls) < MAX_PRELOADED, calls=calls)

    def _keep(self, run_id: str, run: _Run) -> _Run:
        # Another task may have cached the run and added batches since.
        kept = self._runs.setdefault(run_id, run)
        self._runs.move_to_end(run_id)
        self._shrink(kept)
        return kept

    def _shrink(self, run: _Run) -> None:
        """Drop the least recently used runs, and the requests of a run that has too many."""
        size = len(run.keys)
        if size > MAX_CALLS:
            run.clear()
        while len(self._runs) > MAX_RUNS or (not size % CHECK_EVERY and len(self._runs) > 1 and self._is_full()):
            self._runs.popitem(last=False)

    def _is_full(self) -> bool:
        return sum(len(run.keys) for run in self._runs.values()) > MAX_CALLS
