"""The lines of a run in its file: those that are new, and those at known places."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from gert.errors import TraceError
from gert.kernel.events.envelope import MAX_LINE_BYTES


def last_end(ends: list[int]) -> int:
    """Where the last line ends."""
    return ends[-1] if ends else 0


def new_lines(path: str, ends: list[int], size: int) -> Iterator[bytes]:
    """Whole lines behind the last known one, up to a size, one at a time; where each ends is added to what is known."""
    at = last_end(ends)
    with suppress(FileNotFoundError), open(path, "rb") as file:
        file.seek(at)
        while (line := file.readline(max(0, min(size - at, MAX_LINE_BYTES + 1)))).endswith(b"\n"):
            at += len(line)
            ends.append(at)
            yield line[:-1]


def read_places(path: str, places: Sequence[tuple[int, int]]) -> list[bytes]:
    """The bytes at these places; none where they are gone."""
    found: list[bytes] = []
    try:
        with open(path, "rb") as file:
            for begins, ends in places:
                file.seek(begins)
                found.append(file.read(ends - begins))
    except FileNotFoundError:
        return [b""] * len(places)
    except OSError as problem:
        raise unreadable(path, problem) from problem
    return found


def is_cut(path: str, expected: str, found: int) -> TraceError:
    """Say that lines are missing, or that there are others."""
    return TraceError(
        f"`{path}` does not end where it should: expected {expected}, found {found}",
        hint="nothing is added to it; `gert run verify-ledger` says more",
    )


def unreadable(path: str, problem: OSError) -> TraceError:
    """Say why a file or folder cannot be read."""
    return TraceError(f"`{path}` cannot be read: {(problem.strerror or str(problem)).lower()}")
