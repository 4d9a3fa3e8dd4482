"""Keys for traces in the environment: the signing key, and all verification keys."""

from collections.abc import Iterator, Mapping
from typing import Final

from gert.ecosystem.host.config.keys.key_files import key_in, named_keys, with_key_files
from gert.errors import IntegrityError
from gert.kernel.foundation.signature import DEFAULT_KEY_ID, Key, Keys, find_key_names

SIGNING_KEY: Final = "GERT_TRACE_SIGNING_KEY"
SIGNING_KEY_ID: Final = "GERT_TRACE_SIGNING_KEY_ID"
NAMED_KEY: Final = "GERT_TRACE_KEY_"


def signing_key(environ: Mapping[str, str]) -> Key | None:
    """The signing key of an environment, if any; refuse a key that cannot sign.

    An empty variable is refused as well: a secret that a pipeline failed to fill in must not turn signed traces into
    unsigned ones.
    """
    environ = with_key_files(environ)
    key_id = environ.get(SIGNING_KEY_ID) or None
    names = find_key_names(key_id)
    for name in names:
        if name in environ:
            key = key_in(environ, name, key_id)
            if not key.can_sign:
                raise IntegrityError(f"the key in `{name}` is public and cannot sign", hint="set the private key")
            return key
    if key_id is not None:
        raise IntegrityError(
            f"`{SIGNING_KEY_ID}` names the key `{key_id}`, but that key is not set", hint=key_hint(key_id)
        )
    return None


def verification_keys(environ: Mapping[str, str], key_id: str | None) -> Keys:
    """The verification keys of an environment: the one with this id, or all."""
    environ = with_key_files(environ)
    if key_id is None:
        return _EnvironmentKeys(environ)
    for name in find_key_names(key_id):
        # The signing key counts only under its own id.
        if name in environ and (name != SIGNING_KEY or (environ.get(SIGNING_KEY_ID) or DEFAULT_KEY_ID) == key_id):
            return Keys([key_in(environ, name, key_id)])
    return Keys()


def sealing_keys(environ: Mapping[str, str]) -> Keys:
    """The keys that may have sealed a run to resume; none if this environment does not sign."""
    return verification_keys(environ, None) if signing_key(environ) is not None else Keys()


def key_hint(key_id: str | None) -> str:
    """A hint that names the variable of a key."""
    return f"set `{find_key_names(key_id)[0]}`"


class _EnvironmentKeys(Keys):
    """All keys of an environment.

    The name of a variable is ambiguous: `PROD_2026` may be `prod-2026` or `prod_2026`. So a key is found by the
    variable for an id, and carries the id that was asked for.
    """

    __slots__ = ("_environ", "_named")

    def __init__(self, environ: Mapping[str, str]) -> None:
        # All keys are parsed now, so that an invalid one is reported before a trace names it.
        self._environ = environ
        self._named = named_keys(environ, NAMED_KEY)
        label = environ.get(SIGNING_KEY_ID) or None
        own = key_in(environ, SIGNING_KEY, label) if SIGNING_KEY in environ else None
        super().__init__([own] if own is not None and label is not None else [], default=own)

    def __iter__(self) -> Iterator[Key]:
        yield from self._named.values()
        yield from super().__iter__()

    def lists(self, key_id: str) -> bool:
        """Whether there is a key with exactly this id."""
        return find_key_names(key_id)[0] in self._named or super().lists(key_id)

    def find(self, key_id: str | None) -> Key:
        """Find the key for an id."""
        name = find_key_names(key_id)[0]
        return key_in(self._environ, name, key_id) if name in self._named else super().find(key_id)
