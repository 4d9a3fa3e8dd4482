"""A store in memory, for tests and for runs that nobody will ask about."""

from collections.abc import Iterator, Sequence
from itertools import islice
from threading import Lock
from types import TracebackType
from typing import Self

from gert.ecosystem.stores.batch import check_batch, check_next
from gert.errors import TraceError


class MemoryStore:
    """Keeps lines as long as the process lives."""

    durable = False

    def __init__(self) -> None:
        self._lock = Lock()
        self._events: dict[str, list[bytes]] = {}
        self._answers: dict[str, list[bytes]] = {}
        self._closed = False

    def append(self, run_id: str, first_seq: int, events: Sequence[bytes], answers: Sequence[bytes] = ()) -> None:
        """Keep a batch."""
        check_batch(run_id, first_seq, events, answers)
        with self._lock:
            if self._closed:
                raise TraceError("the store is closed")
            check_next(run_id, len(self._events.get(run_id, ())), first_seq)
            if answers:
                self._answers.setdefault(run_id, []).extend(answers)
            if events:
                self._events.setdefault(run_id, []).extend(events)

    def events(self, run_id: str, since: int = 0) -> Iterator[bytes]:
        """The lines after the number `since`."""
        return self._read(self._events, run_id, since)

    def answers(self, run_id: str) -> Iterator[bytes]:
        """The answers, in order."""
        return self._read(self._answers, run_id, 0)

    def runs(self) -> Iterator[str]:
        """The runs, by id."""
        with self._lock:
            return iter(sorted(self._events))

    def close(self) -> None:
        """Take no more."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, kept: dict[str, list[bytes]], run_id: str, since: int) -> Iterator[bytes]:
        with self._lock:
            # Lists only grow, so the part that is there now stays as it is.
            lines = kept.get(run_id, [])
            return islice(lines, since, len(lines))
