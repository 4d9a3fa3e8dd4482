"""Which steps this process is taking right now, and which of them whoever asks is inside of."""

from contextvars import ContextVar, Token
from types import TracebackType

from gert.errors import RunError

_INSIDE: ContextVar[frozenset[tuple[int, str, str]]] = ContextVar("gert_steps_being_taken", default=frozenset())


class Taking:
    """The steps that are under way, by run and key."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def is_taken(self, run_id: str, key: str) -> bool:
        """Whether somebody in this process is about to ask under a key, or waits for the answer."""
        return (run_id, key) in self._counts

    def take(self, run_id: str, key: str) -> "Taken":
        """Ask under a key and wait for the answer; nobody else takes the request for abandoned meanwhile.

        It is said before the request is written: others may read it before whoever wrote it hears of that.
        """
        return Taken(self._counts, (id(self), run_id, key))

    def refuse_inside(self, run_id: str, key: str) -> None:
        """Refuse whoever would wait for a step it is itself a part of."""
        if (id(self), run_id, key) in _INSIDE.get():
            raise RunError(
                f"a step of run `{run_id}` waits for itself: `{key.partition(':')[2] or key}` is taken from within",
                hint="give the step inside another step key",
            )


class Taken:
    """A step that is under way as long as this is entered."""

    __slots__ = ("_counts", "_step", "_token")

    def __init__(self, counts: dict[tuple[str, str], int], step: tuple[int, str, str]) -> None:
        self._counts = counts
        self._step = step
        self._token: Token[frozenset[tuple[int, str, str]]] | None = None

    def __enter__(self) -> None:
        name = self._step[1:]
        self._counts[name] = self._counts.get(name, 0) + 1
        self._token = _INSIDE.set(_INSIDE.get() | {self._step})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _INSIDE.reset(self._token)
        name = self._step[1:]
        left = self._counts[name] - 1
        if left:
            self._counts[name] = left
        else:
            del self._counts[name]
