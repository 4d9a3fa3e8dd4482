"""Keys for approvals: the key to sign a response with, the keys to verify responses with, and their owners."""

import os
import stat
from collections.abc import Iterator, Mapping
from typing import Final

from gert.ecosystem.approvals.signatures import KeyVerifier
from gert.ecosystem.host.config.keys.key_files import MAX_KEY_BYTES, key_in, named_keys, with_key_files
from gert.errors import IntegrityError, UsageError
from gert.kernel.foundation.signature import DEFAULT_KEY_ID, Key, Keys, find_approval_key_names, parse_key
from gert.kernel.foundation.text import os_reason

VERIFY_KEY: Final = "GERT_APPROVAL_VERIFY_KEY"
SIGNING_KEY: Final = "GERT_APPROVAL_SIGNING_KEY"
NAMED_KEY: Final = "GERT_APPROVAL_KEY_"
OWNER: Final = "GERT_APPROVAL_OWNER"
_SUFFIXES: Final = (".pem", ".key", ".pub", ".txt")


class ApprovalKeys(Keys):
    """The keys of an environment (DECISIONS 44).

    `GERT_APPROVAL_KEY_<ID>` holds the key of that id, `GERT_APPROVAL_VERIFY_KEY` (or else the signing key) the one
    for every other. `GERT_APPROVAL_OWNER_<ID>` and `GERT_APPROVAL_OWNER` name the owners of such a key.
    """

    __slots__ = ("_environ", "_named")

    def __init__(self, environ: Mapping[str, str]) -> None:
        # All keys are parsed now, so that an invalid one is reported before a response names it.
        self._environ = environ = with_key_files(environ)
        self._named = named_keys(environ, NAMED_KEY)
        default = next((name for name in (VERIFY_KEY, SIGNING_KEY) if name in environ), None)
        super().__init__(default=environment_key(environ, default) if default is not None else None)

    def __iter__(self) -> Iterator[Key]:
        yield from self._named.values()
        yield from super().__iter__()

    def lists(self, key_id: str) -> bool:
        """Whether there is a key with exactly this id."""
        return _variable(key_id) in self._named

    def find(self, key_id: str | None) -> Key:
        """Find the key for an id."""
        return self._named[_variable(key_id)] if key_id and self.lists(key_id) else super().find(key_id)

    def owners(self, key_id: str | None) -> list[str] | None:
        """The owners of the key for an id; None if the key has no owner and may approve as anyone."""
        suffix = _variable(key_id).removeprefix(NAMED_KEY) if key_id and self.lists(key_id) else None
        said = self._environ.get(OWNER if suffix is None else f"{OWNER}_{suffix}")
        return None if said is None else [each.strip() for each in said.split(",") if each.strip()]


def verify_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a process which only verifies approvals needs; of a key pair, the public half."""
    environ = with_key_files(environ)
    keys = {name: name for name in environ if name.startswith(NAMED_KEY) and name != NAMED_KEY}
    default = next((name for name in (VERIFY_KEY, SIGNING_KEY) if name in environ), None)
    if default is not None:
        keys[VERIFY_KEY] = default
    passed = {name: value for name, value in environ.items() if name == OWNER or name.startswith(f"{OWNER}_")}
    for name, held in keys.items():
        passed[name] = environment_key(environ, held).public_text or environ[held]
    return passed


def approval_verifier(environ: Mapping[str, str], own: Key | None = None, *, is_strict: bool = False) -> KeyVerifier:
    """A verifier with the keys of an environment.

    is_strict: accept only keys with an owner
    own: the key that signs now; it is used if the environment has no key for its id, because only the run knows
    whether it accepts that key
    """
    keys = ApprovalKeys(environ)
    if own is None or is_checked(own, environ):
        return KeyVerifier(keys, keys.owners, is_strict=is_strict)
    return KeyVerifier(Keys([own]))


def is_checked(own: Key, environ: Mapping[str, str]) -> bool:
    """Whether the environment has a key that verifies signatures of this one."""
    environ = with_key_files(environ)
    return _variable(own.id) in environ or VERIFY_KEY in environ


def key_to_sign_with(named: str, environ: Mapping[str, str], key_id: str | None = None) -> Key:
    """Read a key from an environment variable or a file; refuse a key that cannot sign."""
    key = named_key(named, environ, key_id)
    if not key.can_sign:
        raise UsageError(f"the key `{key.id}` is public and cannot sign", hint="name the private key")
    return key


def named_key(named: str, environ: Mapping[str, str], key_id: str | None = None) -> Key:
    """Read a key from an environment variable or a file; errors do not repeat the name, which may be the key itself."""
    try:
        environ = with_key_files(environ)
        if named in environ:
            return environment_key(environ, named, key_id)
        return parse_key(_read(named), key_id or _id_of_file(named))
    except IntegrityError as problem:
        raise UsageError(problem.message, hint=problem.hint) from None


def environment_key(environ: Mapping[str, str], name: str, key_id: str | None = None) -> Key:
    """Read the key in an environment variable; the name of the variable holds the id."""
    if key_id is None and name.startswith(NAMED_KEY):
        key_id = name.removeprefix(NAMED_KEY).lower()
    return key_in(environ, name, key_id)


def _variable(key_id: str | None) -> str:
    return find_approval_key_names(key_id)[0]


def _id_of_file(path: str) -> str:
    name = os.path.basename(path)
    stem, suffix = os.path.splitext(name)
    return (stem if suffix in _SUFFIXES else name) or DEFAULT_KEY_ID


def _read(path: str) -> str:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UsageError("the key file is not a regular file")
        with open(path, "rb") as file:
            data = file.read(MAX_KEY_BYTES + 1)
    except UsageError:
        raise
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise UsageError(
            "no variable or file has the name given for the key",
            hint=f"name an environment variable such as {SIGNING_KEY}, or a file; never pass the key itself",
        ) from None
    except OSError as problem:
        raise UsageError(f"cannot read the key file: {os_reason(problem)}") from None
    if len(data) > MAX_KEY_BYTES:
        raise UsageError(f"the key file is too large: expected at most {MAX_KEY_BYTES} bytes")
    return data.decode("utf-8", "surrogateescape")
