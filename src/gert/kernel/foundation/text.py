"""Text on its way to people: nothing in it may act on a terminal."""

from typing import Final

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """The text with control, escape and bidirectional formatting characters made harmless; one line stays one."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else REPLACEMENT for character in text)


def a_noun(noun: str) -> str:
    """A noun with its article."""
    return f"an {noun}" if noun[:1] in "aeiou" else f"a {noun}"
