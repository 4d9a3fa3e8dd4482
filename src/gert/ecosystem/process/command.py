"""The command of a process to start."""

from typing import TypeAlias

import msgspec

Encoded: TypeAlias = dict[bytes, bytes]


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A process to start; it contains the values of secrets and must not be recorded.

    name: the program as the tool calls it
    program: the file that is run
    inherited: descriptors beside the first three that it gets under the same numbers
    """

    name: str
    program: str
    arguments: tuple[str, ...]
    environment: Encoded
    folder: str
    stdin: bytes | None = None
    inherited: tuple[int, ...] = ()
