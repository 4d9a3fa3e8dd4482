"""Keys for traces, as the environment holds them: one to sign with, and all to verify with."""

from collections.abc import Iterator, Mapping
from typing import Final

from gert.ecosystem.host.config.key_files import with_key_files
from gert.errors import IntegrityError
from gert.kernel.foundation.signature import DEFAULT_KEY_ID, Key, Keys, find_key_names, parse_key

SIGNING_KEY: Final = "GERT_TRACE_SIGNING_KEY"
SIGNING_KEY_ID: Final = "GERT_TRACE_SIGNING_KEY_ID"
NAMED_KEY: Final = "GERT_TRACE_KEY_"

_FORMS: Final = "write `base64:…`, `ed25519:…`, `ed25519-public:…`, a PEM file, or plain text of 8 bytes or more"


def signing_key(environ: Mapping[str, str]) -> Key | None:
    """The key this environment signs with, or none if it has none; one that cannot sign is refused.

    A variable that is there and empty is refused, too: a secret that a pipeline failed to fill in must not
    turn signed traces into unsigned ones.
    """
    environ = with_key_files(environ)
    key_id = environ.get(SIGNING_KEY_ID) or None
    names = find_key_names(key_id)
    for name in names:
        if name in environ:
            key = _parse(environ, name, key_id)
            if not key.can_sign:
                raise IntegrityError(f"the key in `{name}` is public and cannot sign", hint="set the private key")
            return key
    if key_id is not None:
        raise IntegrityError(f"`{SIGNING_KEY_ID}` names the key `{key_id}`, and no key is set", hint=where(key_id))
    return None


def verification_keys(environ: Mapping[str, str], key_id: str | None) -> Keys:
    """The keys this environment verifies with: the one of that id alone, or all of them."""
    environ = with_key_files(environ)
    if key_id is None:
        return _EnvironmentKeys(environ)
    for name in find_key_names(key_id):
        # The signing key has one id: another demand is not met by it.
        if name in environ and (name != SIGNING_KEY or (environ.get(SIGNING_KEY_ID) or DEFAULT_KEY_ID) == key_id):
            return Keys([_parse(environ, name, key_id)])
    return Keys()


def sealing_keys(environ: Mapping[str, str]) -> Keys:
    """The keys one of which has sealed a run that is to be continued; none where this environment does not sign."""
    return verification_keys(environ, None) if signing_key(environ) is not None else Keys()


def where(key_id: str | None) -> str:
    """Say where a key is looked for."""
    return f"set `{find_key_names(key_id)[0]}`"


class _EnvironmentKeys(Keys):
    """All keys of an environment.

    The name of a variable tells only roughly which id it is for: `PROD_2026` is `prod-2026` and
    `prod_2026`. So a key is found by the name its id leads to, and goes by the id it was asked for.
    """

    __slots__ = ("_environ", "_named")

    def __init__(self, environ: Mapping[str, str]) -> None:
        # All are read at once: a key that is no key is said now, and not when a trace happens to name it.
        self._environ = environ
        self._named = {
            name: _parse(environ, name, name.removeprefix(NAMED_KEY).lower())
            for name in sorted(environ)
            if name.startswith(NAMED_KEY) and name != NAMED_KEY
        }
        label = environ.get(SIGNING_KEY_ID) or None
        own = _parse(environ, SIGNING_KEY, label) if SIGNING_KEY in environ else None
        super().__init__([own] if own is not None and label is not None else [], default=own)

    def __iter__(self) -> Iterator[Key]:
        yield from self._named.values()
        yield from super().__iter__()

    def lists(self, key_id: str) -> bool:
        """Tell whether a key of this very id is held."""
        return find_key_names(key_id)[0] in self._named or super().lists(key_id)

    def find(self, key_id: str | None) -> Key:
        """Find the key an id leads to."""
        name = find_key_names(key_id)[0]
        return _parse(self._environ, name, key_id) if name in self._named else super().find(key_id)


def _parse(environ: Mapping[str, str], name: str, key_id: str | None) -> Key:
    try:
        return parse_key(environ[name], key_id)
    except IntegrityError as error:
        raise IntegrityError(f"`{name}` holds no key: {error.message}", hint=error.hint or _FORMS) from None
