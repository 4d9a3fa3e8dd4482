"""The authorization of a plan: a signature over its digest, runner, scope and expiry, made after governance decided."""

from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from gert.errors import IntegrityError, Refused, TraceError
from gert.kernel.events.envelope import format_timestamp, parse_timestamp
from gert.kernel.foundation.canonical import canonical, digest
from gert.kernel.foundation.signature import Key, Keys, Signature, sign, verify
from gert.kernel.runner.plan import Plan, plan_digest

CLOCK_SKEW: Final = timedelta(seconds=30)
"""How far the clock of a runner may be behind that of the kernel."""

MAX_BYTES: Final = 64 * 1024
_CONTEXT: Final = b"gert-plan-authorization-v1\n"
_SIGNATURE: Final = ("alg", "key_id", "signature")


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What governance decided about a plan: the verdict, its rule, and the approvals it rests on."""

    verdict: str
    rule: str | None = None
    tickets: tuple[str, ...] = ()
    approvers: tuple[str, ...] = ()


class Authorization(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signed permission to execute one plan until it expires."""

    plan_id: str
    plan_digest: str
    runner_id: str
    scope: tuple[str, ...]
    issued_at: str
    expires_at: str
    grant: Grant
    alg: str
    signature: str
    key_id: str | None = None


def authorize(plan: Plan, grant: Grant, key: Key, now: datetime) -> Authorization:
    """Sign a plan; it is valid for its `ttl_seconds` from now on."""
    body: dict[str, Any] = {
        "plan_id": plan.plan_id,
        "plan_digest": plan_digest(plan),
        "runner_id": plan.runner_id,
        "scope": plan.scope,
        "issued_at": format_timestamp(now),
        "expires_at": format_timestamp(now + timedelta(seconds=plan.ttl_seconds)),
        "grant": grant,
    }
    unsigned = Authorization(**body, alg="", signature="")
    made = sign(key, signed_bytes(unsigned))
    return msgspec.structs.replace(unsigned, alg=made.alg, key_id=key.id, signature=made.value)


def signed_bytes(authorization: Authorization) -> bytes:
    """Return the bytes that the signature covers: everything but the signature itself."""
    data: dict[str, Any] = msgspec.to_builtins(authorization)
    return _CONTEXT + canonical({name: value for name, value in data.items() if name not in _SIGNATURE})


def encode_authorization(authorization: Authorization) -> bytes:
    """Return the bytes of the file of an authorization."""
    return canonical(msgspec.to_builtins(authorization))


def read_authorization(data: bytes) -> Authorization:
    """Read the file of an authorization."""
    if len(data) > MAX_BYTES:
        raise Refused("authorization/form", f"the authorization is larger than {MAX_BYTES} bytes")
    try:
        found = msgspec.json.decode(data, type=Authorization)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Refused("authorization/form", "the file is not an authorization") from None
    if encode_authorization(found) != data:
        raise Refused("authorization/form", "the authorization is not in canonical form")
    return found


def check_authorization(plan: Plan, data: bytes, authorization: Authorization, keys: Keys) -> None:
    """Check an authorization against the bytes of the plan as they were read, in this order."""
    # (1) It is signed by a key we hold; the key decides the algorithm.
    signature = Signature(authorization.alg, authorization.key_id, authorization.signature)
    if not len(keys):
        raise Refused("authorization/key", "this runner has no key to verify plans with", hint=KEY_HINT)
    try:
        verify(keys, signature, signed_bytes(authorization))
    except IntegrityError as problem:
        raise Refused("authorization/signature", f"the authorization is not valid: {problem.message}") from None
    # (2) It is over the bytes that were read: a genuine authorization beside another plan fails here.
    if authorization.plan_digest != digest(data):
        raise Refused("authorization/digest", "the plan is not the one that was authorized")
    # (3) What it repeats of the plan is what the plan says.
    if (authorization.plan_id, authorization.runner_id) != (plan.plan_id, plan.runner_id):
        raise Refused("authorization/digest", "the authorization names another plan or runner")
    if authorization.scope != plan.scope:
        raise Refused("scope/wider", "the authorization has another scope than the plan")
    # (4) Governance allowed it, or people approved it.
    if authorization.grant.verdict not in ("allow", "approved", "break-glass"):
        raise Refused("authorization/verdict", f"the verdict on the plan is `{authorization.grant.verdict}`")


KEY_HINT: Final = "set GERT_PLAN_VERIFY_KEY, or GERT_PLAN_VERIFY_KEY_FILE, to the public key of who authorizes plans"


def check_expiry(plan: Plan, authorization: Authorization, now: datetime, ttl_seconds: int | None = None) -> datetime:
    """Return when the authorization ends; refuse one that has ended, has not begun, or lasts longer than the plan.

    ttl_seconds: what the runner was started with, which can only shorten it
    """
    try:
        issued, expires = parse_timestamp(authorization.issued_at), parse_timestamp(authorization.expires_at)
    except TraceError as problem:
        raise Refused("expiry/form", f"the times of the authorization cannot be read: {problem.message}") from None
    if expires - issued > timedelta(seconds=plan.ttl_seconds) or expires <= issued:
        raise Refused("expiry/ttl", "the authorization lasts longer than the plan allows")
    if ttl_seconds is not None:
        if not 0 < ttl_seconds <= plan.ttl_seconds:
            raise Refused("expiry/ttl", f"expected at most {plan.ttl_seconds} as ttl_seconds, found {ttl_seconds}")
        expires = min(expires, issued + timedelta(seconds=ttl_seconds))
    if issued - now > CLOCK_SKEW:
        raise Refused("expiry/future", f"the authorization begins at {authorization.issued_at}, which is not yet")
    if now >= expires:
        raise Refused("expiry/expired", f"the authorization ended at {format_timestamp(expires)}")
    return expires
