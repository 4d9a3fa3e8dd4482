"""Keys that are given as files: a variable that ends in `_FILE` names the file with the key of the variable before it.

A file keeps a key out of the environment, which wrappers, crash reports and other processes may see.
"""

import os
import re
import stat
from collections.abc import Mapping
from typing import Final

from gert.errors import IntegrityError
from gert.kernel.foundation.signature import parse_key

MAX_KEY_BYTES: Final = 16 * 1024
_VARIABLE: Final = re.compile(
    r"(GERT_TRACE_SIGNING_KEY|GERT_APPROVAL_(?:SIGNING|VERIFY)_KEY|GERT_(?:TRACE|APPROVAL)_KEY_.+)_FILE"
)
_SECRET_BITS: Final = 0o077
_WRITE_BITS: Final = 0o022


def with_key_files(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment in which keys given as files stand under the variables without `_FILE`."""
    found = dict(environ)
    for variable in environ:
        match = _VARIABLE.fullmatch(variable)
        if match is None:
            continue
        name = match.group(1)
        if name in environ:
            raise IntegrityError(f"both `{name}` and `{variable}` are set", hint="set only one of them")
        found[name] = _read(variable, found.pop(variable))
    return found


def _read(variable: str, path: str) -> str:
    """The text of a key file; the path is not repeated before a file is found there, since it may be the key itself."""
    if not path.strip():
        raise IntegrityError(f"`{variable}` is empty", hint="name a file, or unset the variable")
    try:
        # Without waiting: a pipe is not a file, and must not hold up the run.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as problem:
        why = problem.strerror if isinstance(problem, OSError) and problem.strerror else "it is not a path"
        raise IntegrityError(
            f"the file that `{variable}` names cannot be opened: {why.lower()}",
            hint="write the path of the file there, not the key",
        ) from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise IntegrityError(f"`{variable}`: `{path}` is not a regular file")
        data = os.read(descriptor, MAX_KEY_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MAX_KEY_BYTES:
        raise IntegrityError(f"`{variable}`: `{path}` is larger than {MAX_KEY_BYTES} bytes, and no key")
    text = data.decode("utf-8", "surrogateescape")
    if os.name == "posix":
        _require_private(variable, path, found, may_be_read=_is_public(text))
    return text


def _require_private(variable: str, path: str, found: os.stat_result, *, may_be_read: bool) -> None:
    """Refuse a key that other users can change, and a secret one that they can read."""
    if found.st_uid not in (0, os.geteuid()):
        raise IntegrityError(
            f"`{variable}`: `{path}` belongs to another user, who can change the key",
            hint=f"chown {os.geteuid()} {path}",
        )
    if found.st_mode & (_WRITE_BITS if may_be_read else _SECRET_BITS):
        what = "change" if may_be_read else "read or change"
        raise IntegrityError(
            f"`{variable}`: other users may {what} `{path}` (its mode is {stat.S_IMODE(found.st_mode):04o})",
            hint=f"chmod {'go-w' if may_be_read else '600'} {path}",
        )


def _is_public(text: str) -> bool:
    try:
        return not parse_key(text).can_sign
    except IntegrityError:
        return False
