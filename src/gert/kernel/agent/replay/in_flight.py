"""Which steps this process is taking now, which of them the current task is inside of, and which waits for which."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from types import TracebackType

from gert.errors import RunError

Step = tuple[int, str, str]
"""A step that is under way: whose, in which run, under which key."""

_INSIDE: ContextVar[frozenset[Step]] = ContextVar("gert_steps_in_flight", default=frozenset())


class InFlight:
    """The steps that are under way, by run and key."""

    __slots__ = ("_counts", "_waits")

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._waits: dict[Step, list[Step]] = {}

    def has(self, run_id: str, key: str) -> bool:
        """Whether this process is about to make a request under a key, or waits for its answer."""
        return (run_id, key) in self._counts

    def take(self, run_id: str, key: str) -> "_InFlight":
        """Make a request under a key and wait for its answer; no other task takes it for abandoned meanwhile.

        It is entered before the request is written: other tasks may read it before its writer is told.
        """
        return _InFlight(self._counts, (id(self), run_id, key))

    @contextmanager
    def waiting(self, run_id: str, key: str) -> Iterator[None]:
        """Wait for a step of another task; RunError where that step waits, directly or not, for this one."""
        awaited, inside = (id(self), run_id, key), _INSIDE.get()
        if awaited in inside:
            raise RunError(
                f"a step of run `{run_id}` waits for itself: `{_named(key)}` is taken from within",
                hint="give the step inside another step key",
            )
        if inside and self._comes_to(awaited, inside):
            raise RunError(
                f"steps of run `{run_id}` wait for each other: `{_named(key)}` waits for a step it is taken in",
                hint="take steps that need each other one after the other",
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

    def _comes_to(self, step: Step, others: Collection[Step]) -> bool:
        """Whether a step waits for one of these, or for one that does."""
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
    """A step that is under way as long as this is entered."""

    __slots__ = ("_counts", "_step", "_token")

    def __init__(self, counts: dict[tuple[str, str], int], step: Step) -> None:
        self._counts = counts
        self._step = step
        self._token: Token[frozenset[Step]] | None = None

    def __enter__(self) -> None:
        name = self._step[1:]
        self._counts[name] = self._counts.get(name, 0) + 1
        self._token = _INSIDE.set(_INSIDE.get() | {self._step})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        name = self._step[1:]
        left = self._counts[name] - 1
        if left:
            self._counts[name] = left
        else:
            del self._counts[name]
        if self._token is not None:
            # A task that is discarded is closed in another context than its own.
            with suppress(ValueError):
                _INSIDE.reset(self._token)


def _named(key: str) -> str:
    return key.partition(":")[2] or key
