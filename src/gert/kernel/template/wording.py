"""How messages quote the user's words."""

from gert.kernel.foundation.text import printable


def shown(words: str, longest: int = 40) -> str:
    """The words in backticks, on one line and cut where they are long."""
    line = printable(" ".join(words[: longest + 1].split())) if not words.isprintable() else words
    return f"`{line}`" if len(line) <= longest else f"`{line[: longest - 1]}…`"
