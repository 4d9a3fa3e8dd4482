"""Keys in files: the variable `NAME_FILE` names the file that holds the key of `NAME`.

A file keeps a key out of the environment, which wrappers, crash reports and other processes may read.
"""

import os
import re
import stat
from collections.abc import Mapping
from typing import Final

from gert.errors import IntegrityError
from gert.kernel.foundation.signature import Key, parse_key

_FORMS: Final = "write `base64:…`, `ed25519:…`, `ed25519-public:…`, a PEM file, or plain text of 8 bytes or more"
MAX_KEY_BYTES: Final = 16 * 1024
_VARIABLE: Final = re.compile(
    r"(GERT_TRACE_SIGNING_KEY|GERT_(?:APPROVAL|PLAN)_(?:SIGNING|VERIFY)_KEY|GERT_(?:TRACE|APPROVAL|PLAN)_KEY_.+)_FILE"
)
_SECRET_BITS: Final = 0o077
_WRITE_BITS: Final = 0o022


def with_key_files(environ: Mapping[str, str]) -> dict[str, str]:
    """Copy an environment and replace each `NAME_FILE` by `NAME` with the content of the file."""
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


def key_in(environ: Mapping[str, str], name: str, key_id: str | None = None) -> Key:
    """The key in a variable of an environment."""
    try:
        return parse_key(environ[name], key_id)
    except IntegrityError as problem:
        raise IntegrityError(
            f"`{name}` does not hold a valid key: {problem.message}", hint=problem.hint or _FORMS
        ) from None


def named_keys(environ: Mapping[str, str], prefix: str) -> dict[str, Key]:
    """The keys in variables that name the id of a key after a prefix, by variable."""
    names = (name for name in sorted(environ) if name.startswith(prefix) and name != prefix)
    return {name: key_in(environ, name, name.removeprefix(prefix).lower()) for name in names}


def _read(variable: str, path: str) -> str:
    """Read a key file; errors repeat the path only once a file is open, since the text may be the key itself."""
    if not path.strip():
        raise IntegrityError(f"`{variable}` is empty", hint="name a file, or unset the variable")
    try:
        # Without blocking: a pipe must not stop the run.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as problem:
        why = problem.strerror if isinstance(problem, OSError) and problem.strerror else "it is not a path"
        raise IntegrityError(
            f"cannot open the file that `{variable}` names: {why.lower()}",
            hint="set the variable to the path of the file, not to the key",
        ) from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise IntegrityError(f"`{variable}`: `{path}` is not a regular file")
        data = os.read(descriptor, MAX_KEY_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MAX_KEY_BYTES:
        raise IntegrityError(f"`{variable}`: `{path}` is larger than {MAX_KEY_BYTES} bytes, so it is not a key")
    text = data.decode("utf-8", "surrogateescape")
    if os.name == "posix":
        _require_private(variable, path, found, may_be_read=_is_public(text))
    return text


def _require_private(variable: str, path: str, found: os.stat_result, *, may_be_read: bool) -> None:
    """Refuse a key that other users can change, and a secret key that they can read."""
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
