"""Names that are safe to use: in templates, as run ids, and as file names on every system."""

import re
from collections.abc import Iterable
from functools import lru_cache
from heapq import nsmallest
from itertools import islice
from typing import Final

MAX_NAME = 128
"""Leaves room for a directory and a suffix on file systems with a limit of 255 bytes."""

MAX_RUN_ID = 512
"""The run id of a nested agent contains the ids of the agents above it."""

TAG: Final = "^[!-~]+$"
"""A tag of a contract or a rule: printable ASCII without white space, so that equal tags look equal."""

_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\Z")
_RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:@+=~-]*\Z")
_RESERVED = frozenset({"con", "prn", "aux", "nul"}) | {
    f"{device}{number}" for device in ("com", "lpt") for number in range(10)
}

_MAX_WORD = 64
_MAX_CANDIDATES = 500
_MAX_COMPARED = 8
_MAX_SLIP = 3
_MIN_SLIP = 4
_MIN_REPLACED = 6
_PARTS = re.compile(r"[^a-z0-9]+")


def is_safe_name(text: str) -> bool:
    """Return whether a text is a plain file name on every system: no path, no device, no hidden file."""
    return (
        len(text) <= MAX_NAME
        and _SAFE.match(text) is not None
        and not text.endswith(".")
        and text.partition(".")[0].lower() not in _RESERVED
    )


def is_run_id(text: str) -> bool:
    """Return whether a text is a valid run id; unlike a safe name it is never used as a file name unchanged."""
    return len(text) <= MAX_RUN_ID and _RUN_ID.match(text) is not None


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate closest to a word, if one is close enough."""
    if not word or len(word) > _MAX_WORD:
        return None
    known = [name for name in islice(candidates, _MAX_CANDIDATES) if len(name) <= _MAX_WORD and name != word]
    folded = _fold(word)
    for name in known:
        if _fold(name) == folded:
            return name
    # Comparing is slow and a document may contain thousands of mistakes, so only the likeliest are compared fully.
    near = [name for name in known if abs(len(name) - len(word)) <= max(2, len(word) // 2)]
    likely = nsmallest(_MAX_COMPARED, near, key=lambda name: _difference(name, word))
    if not likely:
        return None
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, likely, n=1, cutoff=0.6)), None)


def suggestion(word: str, candidates: Iterable[str]) -> str | None:
    """Return a hint that names the candidate closest to a word, if one is close enough."""
    guess = did_you_mean(word, candidates)
    return None if guess is None else f"did you mean `{guess}`?"


def listing(words: Iterable[object], most: int = 30) -> str:
    """List names for a message, in the given order: at most so many, and how many more there are."""
    names = [f"`{word}`" for word in words]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def misspelling(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that a word is almost certainly a misspelling of: one letter off, or another number.

    Stricter than `did_you_mean`: `eu-west` is not a misspelling of `eu-east`, nor `node-1` of `node-2`.
    """
    if len(word) > _MAX_WORD:
        return None
    near = (name for name in candidates if abs(len(name) - len(word)) <= _MAX_SLIP and name != word)
    return next((name for name in islice(near, _MAX_CANDIDATES) if _is_slip(name, word)), None)


def _is_slip(name: str, word: str) -> bool:
    if _fold(name) == _fold(word):
        return True
    parts, others = _PARTS.split(name.lower()), _PARTS.split(word.lower())
    differing = [pair for pair in zip(parts, others, strict=False) if pair[0] != pair[1]]
    return len(parts) == len(others) and len(differing) == 1 and _is_one_letter_off(*differing[0])


def _is_one_letter_off(one: str, other: str) -> bool:
    shorter, longer = sorted((one, other), key=len)
    if longer in (shorter + "s", shorter + "es"):
        return bool(shorter)
    # Short words that differ in a letter are often both meant, as are numbers.
    if len(longer) < _MIN_SLIP or not (one.isalpha() and other.isalpha()):
        return False
    difference = _difference(one, other)
    if len(shorter) < len(longer):
        return difference == 1
    return (difference == 1 and len(longer) >= _MIN_REPLACED) or (difference == 2 and sorted(one) == sorted(other))


def _difference(name: str, word: str) -> int:
    """Return how many characters differ between the common prefix and suffix of two words."""
    shorter = min(len(name), len(word))
    start = end = 0
    while start < shorter and name[start] == word[start]:
        start += 1
    while end < shorter - start and name[-1 - end] == word[-1 - end]:
        end += 1
    return max(len(name), len(word)) - start - end


@lru_cache(maxsize=4096)
def _fold(name: str) -> str:
    """Fold what people confuse most: case, dashes and underscores."""
    return name.lower().replace("-", "").replace("_", "")
