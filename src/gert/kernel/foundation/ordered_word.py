"""Enums whose members are ordered words, so that the strictest or worst is the max."""

from enum import IntEnum
from typing import Self


class OrderedWord(IntEnum):
    """An enum of words in ascending order."""

    @property
    def word(self) -> str:
        """The word used in documents and events."""
        return self.name.lower().replace("_", "-")

    @classmethod
    def words(cls) -> tuple[str, ...]:
        """Return every word, in order."""
        return tuple(each.word for each in cls)

    @classmethod
    def from_word(cls, word: str) -> Self:
        """Return the member with this word; ValueError for any other word."""
        for each in cls:
            if each.word == word:
                return each
        raise ValueError(f"expected one of {', '.join(cls.words())}, found `{word}`")
