"""Keys for plans: the one that authorizes them, and those that runners verify with."""

from collections.abc import Mapping
from typing import Final

from gert.ecosystem.host.config.keys.key_files import with_key_files
from gert.errors import IntegrityError, UsageError
from gert.kernel.foundation.signature import Key, Keys, parse_key

SIGNING_KEY: Final = "GERT_PLAN_SIGNING_KEY"
VERIFY_KEY: Final = "GERT_PLAN_VERIFY_KEY"
NAMED_KEY: Final = "GERT_PLAN_KEY_"


def plan_signing_key(environ: Mapping[str, str]) -> Key:
    """The key that authorizes plans; UsageError where there is none, or where it cannot sign."""
    environ = with_key_files(environ)
    if SIGNING_KEY not in environ:
        raise UsageError(
            "there is no key to authorize plans with",
            hint=f"create one with `gert keys new --out plan.key`, and set {SIGNING_KEY}_FILE=plan.key",
        )
    key = _parse(environ, SIGNING_KEY)
    if not key.can_sign:
        raise UsageError(f"the key in `{SIGNING_KEY}` is public and cannot sign", hint="set the private key")
    return key


def plan_keys(environ: Mapping[str, str]) -> Keys:
    """The keys that authorizations are verified with: one per id, and one for all others."""
    environ = with_key_files(environ)
    named = [
        _parse(environ, name, name.removeprefix(NAMED_KEY).lower())
        for name in sorted(environ)
        if name.startswith(NAMED_KEY) and name != NAMED_KEY
    ]
    default = next((name for name in (VERIFY_KEY, SIGNING_KEY) if name in environ), None)
    return Keys(named, default=_parse(environ, default) if default is not None else None)


def verify_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a runner verifies with; of a key pair it gets the public half only."""
    environ = with_key_files(environ)
    passed = {name: text for name, text in environ.items() if name.startswith(NAMED_KEY)}
    default = next((name for name in (VERIFY_KEY, SIGNING_KEY) if name in environ), None)
    if default is not None:
        passed[VERIFY_KEY] = _parse(environ, default).public_text or environ[default]
    return passed


def _parse(environ: Mapping[str, str], name: str, key_id: str | None = None) -> Key:
    try:
        return parse_key(environ[name], key_id)
    except IntegrityError as problem:
        raise IntegrityError(f"`{name}` does not hold a valid key: {problem.message}", hint=problem.hint) from None
