"""Why a program failed, as one line: taken from what it printed, for real and for scripted calls."""

import re
from collections.abc import Iterator
from typing import Final

from gert.kernel.foundation.text import printable

_SEARCHED: Final = 16 * 1024
"""Characters at the end of a stream that are searched for a reason."""

_LONGEST: Final = 200
_USAGE: Final = re.compile(r"\s*usage:", re.IGNORECASE)
_NAMED: Final = re.compile(r"[\w./+-]{1,100}: ")
_POINTER: Final = re.compile(
    r"\s*(?:(?!\S*(?:error|exception|fatal)\b)[\w./+-]{1,100}: ){0,2}"
    r"(?:for [\w ]{1,100}, )?(?:please )?(?:try|run|see|use|type)\b.*(?:\bhelp\b|[\s'\"`]-h\b|\bman )",
    re.IGNORECASE,
)
"""`Try 'tar --help' for more information.`, `curl: try 'curl --help' …`, `For more information, try '--help'.`"""


def reason_line(*streams: str) -> str:
    """The last line that says something, of the first stream that has one; pointers to help and usage say nothing."""
    for text in streams:
        said = [line for line in text[-_SEARCHED:].splitlines() if line.strip()]
        if said:
            return (list(_reasons(said)) or said)[-1].strip()
    return ""


def exit_message(name: str, code: int, reason: str) -> str:
    """The message of a failure: the program, its exit code, and its reason, on one bounded line."""
    line = printable(reason)
    detail = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
    return f"{name} exited with {code}" + (f": {detail}" if detail else "")


def _reasons(lines: list[str]) -> Iterator[str]:
    """Lines that may be a reason; below the usage of a program only those that name it or an error: `tar: …`."""
    in_usage = False
    for line in lines:
        if _USAGE.match(line):
            in_usage = True
        elif not _POINTER.match(line) and (not in_usage or _NAMED.match(line)):
            yield line
