"""Verdicts: the three answers governance gives."""

from enum import IntEnum
from typing import Final


class Verdict(IntEnum):
    """Ordered from permissive to strict, so the strictest is simply the max."""

    ALLOW = 0
    REQUIRE_APPROVAL = 1
    DENY = 2

    @property
    def word(self) -> str:
        """The word used in rules and events."""
        return self.name.lower().replace("_", "-")

    @classmethod
    def from_word(cls, word: str) -> "Verdict":
        """The verdict a rule names; `ValueError` for any other word."""
        try:
            return VERDICT_WORDS[word]
        except KeyError:
            raise ValueError(f"expected one of {', '.join(VERDICT_WORDS)}, found `{word}`") from None


VERDICT_WORDS: Final = {verdict.word: verdict for verdict in Verdict}
