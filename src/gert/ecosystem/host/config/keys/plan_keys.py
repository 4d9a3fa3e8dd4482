"""Keys for plans: the one that authorizes them, and those that runners verify with."""

from collections.abc import Mapping
from typing import Final

from gert.ecosystem.host.config.keys.key_files import key_in, named_keys, with_key_files
from gert.errors import UsageError
from gert.kernel.foundation.signature import Key, Keys

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
    key = key_in(environ, SIGNING_KEY)
    if not key.can_sign:
        raise UsageError(f"the key in `{SIGNING_KEY}` is public and cannot sign", hint="set the private key")
    return key


def plan_keys(environ: Mapping[str, str]) -> Keys:
    """The keys that authorizations are verified with: one per id, and one for all others."""
    environ = with_key_files(environ)
    default = next((name for name in (VERIFY_KEY, SIGNING_KEY) if name in environ), None)
    return Keys(
        named_keys(environ, NAMED_KEY).values(), default=key_in(environ, default) if default is not None else None
    )


def verify_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a runner verifies with; of a key pair it gets the public half only."""
    environ = with_key_files(environ)
    passed = {name: text for name, text in environ.items() if name.startswith(NAMED_KEY)}
    default = next((name for name in (VERIFY_KEY, SIGNING_KEY) if name in environ), None)
    if default is not None:
        passed[VERIFY_KEY] = key_in(environ, default).public_text or environ[default]
    return passed
