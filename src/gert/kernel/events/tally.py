"""Counts and measures over many runs in bounded memory."""

from array import array
from collections.abc import Hashable, Iterator
from math import ceil, exp, floor, log
from typing import Final, Generic, TypeVar

MOST_KINDS: Final = 10_000
"""The most different keys that are counted separately: codes may contain templated ids."""

MOST_EXACT: Final = 10_000
"""The most durations that are stored individually."""

K = TypeVar("K", bound=Hashable)

# Buckets of one percent: the middle of a bucket is at most half a percent from its values.
_STEP: Final = log(1.01)
_SHORTEST: Final = 1e-6


class Tally(Generic[K]):
    """Counts by key; keys beyond the limit are counted together."""

    __slots__ = ("_counts", "_most", "beyond", "total")

    def __init__(self, most: int = MOST_KINDS) -> None:
        self._most = most
        self._counts: dict[K, int] = {}
        self.total = 0
        self.beyond = 0

    def add(self, kind: K, times: int = 1) -> None:
        """Add to the count of a key."""
        self.total += times
        if kind in self._counts or len(self._counts) < self._most:
            self._counts[kind] = self._counts.get(kind, 0) + times
        else:
            self.beyond += times

    def __getitem__(self, kind: K) -> int:
        return self._counts.get(kind, 0)

    def __iter__(self) -> Iterator[K]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def top(self, most: int | None = None) -> list[tuple[K, int]]:
        """Return the most frequent keys first; equal counts in the order of their text."""
        ranked = sorted(self._counts.items(), key=lambda pair: (-pair[1], str(pair[0])))
        return ranked[:most]


class Durations:
    """Seconds, and their percentiles: exact for the first ten thousand, within half a percent beyond.

    A percentile is the nearest rank: a duration that was measured, not one between two of them.
    """

    __slots__ = ("_buckets", "_exact", "count", "longest")

    def __init__(self) -> None:
        self.count = 0
        self.longest = 0.0
        self._exact = array("d")
        # Sparse; from a microsecond to a hundred years there are fewer than four thousand steps.
        self._buckets: dict[int, int] = {}

    def add(self, seconds: float) -> None:
        """Add a duration."""
        self.count += 1
        self.longest = max(self.longest, seconds)
        if self._buckets:
            self._drop_in(seconds)
            return
        self._exact.append(seconds)
        if len(self._exact) > MOST_EXACT:
            for each in self._exact:
                self._drop_in(each)
            self._exact = array("d")

    def percentile(self, percent: float) -> float | None:
        """Return the shortest duration that this percentage does not exceed; None if there are none."""
        if not self.count:
            return None
        rank = max(1, ceil(self.count * percent / 100))
        if not self._buckets:
            return sorted(self._exact)[rank - 1]
        for bucket in sorted(self._buckets):
            rank -= self._buckets[bucket]
            if rank <= 0:
                return min(_middle(bucket), self.longest)
        return self.longest

    def _drop_in(self, seconds: float) -> None:
        bucket = floor(log(max(seconds, _SHORTEST)) / _STEP)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1


def _middle(bucket: int) -> float:
    return exp((bucket + 0.5) * _STEP)
