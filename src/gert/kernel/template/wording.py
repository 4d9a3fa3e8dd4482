"""Quotes the user's words in messages."""

from gert.kernel.foundation.text import printable


def shown(words: str, longest: int = 40) -> str:
    """Put words in backticks, on one line and shortened."""
    line = printable(" ".join(words[: longest + 1].split())) if not words.isprintable() else words
    return f"`{line}`" if len(line) <= longest else f"`{line[: longest - 1]}…`"
