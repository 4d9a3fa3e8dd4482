"""What this process itself has appended, so that it knows what cannot have happened between two ends of a run.

An end of a call changes no number a ledger could be asked to expect. But the hash of a run's last line names all that
came before it: where every line between two ends of a run was written here, what they said is known here.
"""

from collections.abc import Iterable

from gert.kernel.ledger.record import Batch

MOST_ENDS = 4096
"""Ends of runs that are remembered at least; what is forgotten is looked up again."""

MOST_NAMES = 10_000
"""Batches one stretch remembers, before a new one begins."""


class _Stretch:
    """Lines of one run that this process wrote one after the other.

    places: where in it each batch stands, by the hash it leads to
    touched: where a key or a call came up last
    """

    __slots__ = ("places", "touched")

    def __init__(self, base: str) -> None:
        self.places: dict[str, int] = {base: 0}
        self.touched: dict[int | str, int] = {}


class Trail:
    """Remembers batches by the hashes they lead to.

    A batch that was made and never written is remembered as well: no run ends with its hash, and a call it seems to
    have touched is looked up once more than needed. Nothing here is ever removed one by one, so it may be used on any
    thread.
    """

    __slots__ = ("_new", "_old")

    def __init__(self) -> None:
        self._new: dict[str, _Stretch] = {}
        self._old: dict[str, _Stretch] = {}

    def made(self, before: str, batch: Batch) -> None:
        """Take note of a batch that follows the hash `before`."""
        stretch = self._new.get(before) or self._old.get(before)
        if stretch is None or len(stretch.places) > MOST_NAMES:
            stretch = _Stretch(before)
        place = stretch.places[before] + 1
        touched = stretch.touched
        for call in batch.calls:
            touched[call.key] = max(place, touched.get(call.key, 0))
        for end in batch.ends:
            touched[end.seq] = max(place, touched.get(end.seq, 0))
        if len(self._new) >= MOST_ENDS:
            self._old, self._new = self._new, {}
        stretch.places[batch.head.hash] = place
        self._new[batch.head.hash] = stretch

    def unchanged(self, since: str, now: str, names: Iterable[int | str]) -> bool:
        """Whether it is known that between two ends of a run nothing was said of these calls and keys."""
        if since == now:
            return True
        stretch = self._new.get(now) or self._old.get(now)
        place = stretch.places.get(since) if stretch is not None else None
        if stretch is None or place is None:
            return False
        touched = stretch.touched
        return all(touched.get(name, 0) <= place for name in names)
