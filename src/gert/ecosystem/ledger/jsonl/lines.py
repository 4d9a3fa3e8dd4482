"""Lines of a JSONL file, read with bounds whatever the file holds."""

from collections.abc import Iterator
from typing import BinaryIO, Final

_SKIPPED: Final = 1 << 20


def read_lines(file: BinaryIO, longest: int) -> Iterator[bytes]:
    """Lines as they stand, with their line breaks; of one that is too long, only enough to see that it is."""
    while line := file.readline(longest + 2):
        if len(line) < longest + 2 or line.endswith(b"\n"):
            yield line
            continue
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(_SKIPPED)
        yield line[:-1] + rest[-1:]
