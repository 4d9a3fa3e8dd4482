"""Who acts: the system, a human or an agent (kernel-v0 §11)."""

from collections.abc import Mapping
from typing import Any, Literal, cast, get_args

import msgspec

from gert.errors import InputError

PrincipalKind = Literal["system", "human", "agent"]
PRINCIPAL_KINDS: tuple[PrincipalKind, ...] = get_args(PrincipalKind)

_FIELDS = ("kind", "id", "role", "model")


class Principal(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who performed an action; `id` is stable, `role` and `model` are free text."""

    kind: PrincipalKind
    id: str
    role: str | None = None
    model: str | None = None


KERNEL = Principal("system", "kernel")
"""The principal of everything that gert does by itself."""


def parse_principal(value: object) -> Principal:
    """Parse a principal from a mapping; InputError says what is wrong with it."""
    if isinstance(value, Principal):
        return value
    if not isinstance(value, Mapping):
        raise InputError("expected a principal with `kind` and `id`", hint="use {kind: human, id: alice@example.com}")
    unknown = [str(key) for key in value if key not in _FIELDS]
    if unknown:
        raise InputError(f"a principal has no field `{unknown[0]}`", hint=f"known fields: {', '.join(_FIELDS)}")
    kind = value.get("kind")
    if kind not in PRINCIPAL_KINDS:
        raise InputError(f"expected the kind of a principal to be {' | '.join(PRINCIPAL_KINDS)}, found `{kind}`")
    return Principal(
        cast("PrincipalKind", kind),
        _required(value, "id"),
        _optional(value, "role"),
        _optional(value, "model"),
    )


def principal_of(declared: Principal | None, item_key: str | None, item: object, actor: Principal | None) -> Principal:
    """Return the principal of a step: declared, else its keyed item, else the run's actor, else the kernel."""
    if declared is not None:
        return declared
    if item_key is not None and item_key.strip():
        return Principal("agent", item_key, role=_role_of(item))
    return actor if actor is not None else KERNEL


def _role_of(item: object) -> str | None:
    role = item.get("role") if isinstance(item, Mapping) else None
    return role if isinstance(role, str) and role.strip() else None


def _required(value: Mapping[Any, Any], field: str) -> str:
    text = _optional(value, field)
    if text is None:
        raise InputError(f"a principal needs `{field}`")
    return text


def _optional(value: Mapping[Any, Any], field: str) -> str | None:
    text = value.get(field)
    if text is None:
        return None
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"expected `{field}` of a principal to be text, found `{text}`")
    return text
