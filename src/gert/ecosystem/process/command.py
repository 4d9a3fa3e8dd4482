"""A process to start, with everything the system needs to start it."""

from typing import TypeAlias

import msgspec

Encoded: TypeAlias = dict[bytes, bytes]


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A process to be started; the values of secrets are in it, so it goes nowhere else.

    name: the program as the tool calls it
    program: the file that is run
    """

    name: str
    program: str
    arguments: tuple[str, ...]
    environment: Encoded
    folder: str
    stdin: bytes | None = None
