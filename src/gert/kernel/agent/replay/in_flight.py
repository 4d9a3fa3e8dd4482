"""The steps that this process is running now, which task runs inside which, and which waits for which."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token

from gert.errors import RunError

Step = tuple[int, str, str]
"""A step in flight: the id of its `InFlight`, its run and its key."""

_INSIDE: ContextVar[frozenset[Step]] = ContextVar("gert_steps_in_flight", default=frozenset())


class InFlight:
    """The steps in flight, by run and key."""

    __slots__ = ("_counts", "_waits")

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._waits: dict[Step, list[Step]] = {}

    def has(self, run_id: str, key: str) -> bool:
        """Whether this process is about to append a request under a key, or waits for its answer."""
        return (run_id, key) in self._counts

    def enter(self, run_id: str, key: str) -> "_InFlight":
        """Mark a step as in flight while this is entered, so that no other task considers it abandoned.

        Enter it before the request is appended: other tasks may read the request before the append returns.
        """
        return _InFlight(self._counts, (id(self), run_id, key))

    @contextmanager
    def waiting(self, run_id: str, key: str) -> Iterator[None]:
        """Wait for a step of another task; RunError if that step waits, directly or indirectly, for this one."""
        awaited, inside = (id(self), run_id, key), _INSIDE.get()
        if awaited in inside:
            raise RunError(
                f"a step of run `{run_id}` waits for itself: `{_label(key)}` runs inside itself",
                hint="give the inner step a different step key",
            )
        if inside and self._waits_for(awaited, inside):
            raise RunError(
                f"steps of run `{run_id}` wait for each other: `{_label(key)}` waits for a step that it runs inside",
                hint="run steps that need each other one after the other",
            )
        for step in inside:
            self._waits.setdefault(step, []).append(awaited)
        try:
            yield
        finally:
            for step in inside:
                self._waits[step].remove(awaited)
                if not self._waits[step]:
                    del self._waits[step]

    def _waits_for(self, step: Step, others: Collection[Step]) -> bool:
        """Whether a step waits, directly or indirectly, for one of these."""
        left, seen = [step], {step}
        while left:
            for awaited in self._waits.get(left.pop(), ()):
                if awaited in others:
                    return True
                if awaited not in seen:
                    seen.add(awaited)
                    left.append(awaited)
        return False


class _InFlight:
    """Keeps a step in flight while it is entered."""

    __slots__ = ("_counts", "_step", "_token")

    def __init__(self, counts: dict[tuple[str, str], int], step: Step) -> None:
        self._counts = counts
        self._step = step
        self._token: Token[frozenset[Step]] | None = None

    def __enter__(self) -> None:
        name = self._step[1:]
        self._counts[name] = self._counts.get(name, 0) + 1
        self._token = _INSIDE.set(_INSIDE.get() | {self._step})

    def __exit__(self, *_: object) -> None:
        name = self._step[1:]
        left = self._counts[name] - 1
        if left:
            self._counts[name] = left
        else:
            del self._counts[name]
        if self._token is not None:
            # A task that is garbage-collected is closed in another context than its own.
            with suppress(ValueError):
                _INSIDE.reset(self._token)


def _label(key: str) -> str:
    return key.partition(":")[2] or key
