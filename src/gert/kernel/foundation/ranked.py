"""Ranked words: a few words in a fixed order, so that the strictest or worst is simply the max."""

from enum import IntEnum
from typing import Self


class Ranked(IntEnum):
    """Words with an order."""

    @property
    def word(self) -> str:
        """The word authors write and events carry."""
        return self.name.lower().replace("_", "-")

    @classmethod
    def words(cls) -> tuple[str, ...]:
        """Every word, in order."""
        return tuple(each.word for each in cls)

    @classmethod
    def from_word(cls, word: str) -> Self:
        """The member a word names; `ValueError` for any other word."""
        for each in cls:
            if each.word == word:
                return each
        raise ValueError(f"expected one of {', '.join(cls.words())}, found `{word}`")
