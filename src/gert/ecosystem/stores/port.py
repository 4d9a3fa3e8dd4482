"""What every store promises: batches of lines, durable when the call returns, and readable as they were given."""

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, Protocol, Self

QUICK_SECONDS: Final = 0.002
"""How long an event loop may stand still for a write that is done at once, instead of on a thread."""


class Store(Protocol):
    """Keeps the events of runs, and beside them the answers that led to these events.

    A store is dumb: it knows the number of an event and nothing of what it says. One thread appends; any
    thread may read meanwhile, and sees whole batches only.
    """

    @property
    def durable(self) -> bool:
        """Whether what was appended survives a loss of power."""
        ...

    def append(self, run_id: str, first_seq: int, events: Sequence[bytes], answers: Sequence[bytes] = ()) -> None:
        """Write lines, without their line breaks; when this returns they are durable.

        The first event has the number `first_seq`. A number that exists, a gap, or a line that is not the
        event its place says raises `TraceError`, and nothing of the batch is written. Answers are written
        before the events of the same call, so that a process that is killed leaves no event without them.
        """
        ...

    def events(self, run_id: str, since: int = 0) -> Iterator[bytes]:
        """The lines of a run after the number `since`, one at a time; none for a run that is not here."""
        ...

    def answers(self, run_id: str) -> Iterator[bytes]:
        """The answers of a run in the order they were given, one at a time."""
        ...

    def runs(self) -> Iterator[str]:
        """The runs that have events here, by id."""
        ...

    def close(self) -> None:
        """Let go of the files; closing twice is closing once."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
