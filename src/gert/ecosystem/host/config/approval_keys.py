"""Keys for approvals: one to sign an answer with, those to check answers with, and whom each speaks for."""

import os
import stat
from collections.abc import Iterator, Mapping
from typing import Final

from gert.ecosystem.approvals.signatures import KeyVerifier
from gert.ecosystem.host.config.key_files import MAX_KEY_BYTES, with_key_files
from gert.errors import IntegrityError, UsageError
from gert.kernel.foundation.signature import DEFAULT_KEY_ID, Key, Keys, find_approval_key_names, parse_key

VERIFY_KEY: Final = "GERT_APPROVAL_VERIFY_KEY"
SIGNING_KEY: Final = "GERT_APPROVAL_SIGNING_KEY"
NAMED_KEY: Final = "GERT_APPROVAL_KEY_"
OWNER: Final = "GERT_APPROVAL_OWNER"
_SUFFIXES: Final = (".pem", ".key", ".pub", ".txt")


class ApprovalKeys(Keys):
    """The keys of an environment (DECISIONS 44).

    `GERT_APPROVAL_KEY_<ID>` holds the key of that id, `GERT_APPROVAL_VERIFY_KEY` (or else the signing key) the one
    for every other. `GERT_APPROVAL_OWNER_<ID>` and `GERT_APPROVAL_OWNER` name the people such a key speaks for.
    """

    __slots__ = ("_environ", "_named")

    def __init__(self, environ: Mapping[str, str]) -> None:
        # All are read at once: what is no key is said now, and not when an answer happens to name it.
        self._environ = environ = with_key_files(environ)
        self._named = {
            name: environment_key(environ, name)
            for name in sorted(environ)
            if name.startswith(NAMED_KEY) and name != NAMED_KEY
        }
        default = next((name for name in (VERIFY_KEY, SIGNING_KEY) if name in environ), None)
        super().__init__(default=environment_key(environ, default) if default is not None else None)

    def __iter__(self) -> Iterator[Key]:
        yield from self._named.values()
        yield from super().__iter__()

    def lists(self, key_id: str) -> bool:
        """Tell whether a key of this very id is held."""
        return _variable(key_id) in self._named

    def find(self, key_id: str | None) -> Key:
        """Find the key an id leads to."""
        return self._named[_variable(key_id)] if key_id and self.lists(key_id) else super().find(key_id)

    def owners(self, key_id: str | None) -> list[str] | None:
        """The people the key for an id speaks for; none are named where it may speak for anybody."""
        suffix = _variable(key_id).removeprefix(NAMED_KEY) if key_id and self.lists(key_id) else None
        said = self._environ.get(OWNER if suffix is None else f"{OWNER}_{suffix}")
        return None if said is None else [each.strip() for each in said.split(",") if each.strip()]


def approval_verifier(environ: Mapping[str, str], own: Key | None = None, *, is_strict: bool = False) -> KeyVerifier:
    """Checks answers with the keys of an environment.

    is_strict: whether only keys with an owner approve
    own: the key somebody signs with just now; it holds where the environment has none for its id, because whether
    the run knows it, only the run can say
    """
    keys = ApprovalKeys(environ)
    if own is None or is_checked(own, environ):
        return KeyVerifier(keys, keys.owners, is_strict=is_strict)
    return KeyVerifier(Keys([own]))


def is_checked(own: Key, environ: Mapping[str, str]) -> bool:
    """Whether the environment has a key to check a signature by this one with."""
    environ = with_key_files(environ)
    return _variable(own.id) in environ or VERIFY_KEY in environ


def key_to_sign_with(named: str, environ: Mapping[str, str], key_id: str | None = None) -> Key:
    """The key in an environment variable or a file; one that cannot sign is refused."""
    key = named_key(named, environ, key_id)
    if not key.can_sign:
        raise UsageError(f"the key `{key.id}` is public and cannot sign", hint="name the private key")
    return key


def named_key(named: str, environ: Mapping[str, str], key_id: str | None = None) -> Key:
    """The key in an environment variable or a file; what is named is not repeated, since it may be the key itself."""
    try:
        environ = with_key_files(environ)
        if named in environ:
            return environment_key(environ, named, key_id)
        return parse_key(_read(named), key_id or _id_of_file(named))
    except IntegrityError as problem:
        raise UsageError(problem.message, hint=problem.hint) from None


def environment_key(environ: Mapping[str, str], name: str, key_id: str | None = None) -> Key:
    """The key in an environment variable; its name says which id it is for."""
    if key_id is None and name.startswith(NAMED_KEY):
        key_id = name.removeprefix(NAMED_KEY).lower()
    try:
        return parse_key(environ[name], key_id)
    except IntegrityError as problem:
        raise IntegrityError(f"`{name}` holds no key: {problem.message}", hint=problem.hint) from None


def _variable(key_id: str | None) -> str:
    return find_approval_key_names(key_id)[0]


def _id_of_file(path: str) -> str:
    name = os.path.basename(path)
    stem, suffix = os.path.splitext(name)
    return (stem if suffix in _SUFFIXES else name) or DEFAULT_KEY_ID


def _read(path: str) -> str:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UsageError("what `--key` names is not a regular file")
        with open(path, "rb") as file:
            data = file.read(MAX_KEY_BYTES + 1)
    except UsageError:
        raise
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise UsageError(
            "there is neither a variable nor a file of the name given for the key",
            hint=f"name an environment variable such as {SIGNING_KEY}, or a file; never write the key itself",
        ) from None
    except OSError as problem:
        raise UsageError(f"the key cannot be read: {(problem.strerror or str(problem)).lower()}") from None
    if len(data) > MAX_KEY_BYTES:
        raise UsageError(f"the file is too large for a key: expected at most {MAX_KEY_BYTES} bytes")
    return data.decode("utf-8", "surrogateescape")
