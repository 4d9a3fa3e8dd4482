"""Parameters: the declaration of one input or output in a contract."""

from collections.abc import Iterator
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from gert.kernel.foundation.names import listing
from gert.kernel.foundation.values import TYPE_NAMES, TypeName, coerce_if_possible, objection

ParameterType: TypeAlias = TypeName
PARAMETER_TYPES: Final = TYPE_NAMES

V = TypeVar("V")


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One named input or output; `None` means that the author omitted the key.

    `has_default` distinguishes `default: null` from no default. `optional` is set if the author declares
    `required: false` or a default: an extracted output without either must be present.
    """

    type: ParameterType = "any"
    required: bool = False
    default: Any = None
    has_default: bool = False
    description: str | None = None
    enum: tuple[Any, ...] | None = None
    pattern: str | None = None
    min: float | None = None
    max: float | None = None
    secret: bool = False
    optional: bool = False

    @property
    def must_be_given(self) -> bool:
        """Whether a caller must give a value: required, and without a default."""
        return self.required and not self.has_default

    @property
    def is_unbounded(self) -> bool:
        """Whether any value of the type is allowed."""
        return self.enum is None and self.pattern is None and self.min is None and self.max is None

    def objection(self, value: Any) -> str | None:
        """Return why a value of its type does not fit, or None."""
        return objection(value, type=self.type, enum=self.enum, pattern=self.pattern, min=self.min, max=self.max)

    def summary(self) -> dict[str, Any]:
        """Return the declared keys as JSON, without a secret's default."""
        said: dict[str, Any] = {"type": self.type}
        if self.required:
            said["required"] = True
        if self.has_default and not self.secret:
            said["default"] = self.default
        if self.enum is not None:
            said["enum"] = list(self.enum)
        for name in ("description", "pattern", "min", "max"):
            value = getattr(self, name)
            if value is not None:
                said[name] = value
        if self.secret:
            said["secret"] = True
        return said


def narrowed(outer: Parameter, inner: Parameter) -> Parameter:
    """Merge an inner layer's declaration of a parameter into the outer one.

    A description or a default may be replaced. Everything that limits a value only gets narrower, whatever
    the inner layer says: a runbook cannot remove a tool's `pattern`. Attempts to widen are
    reported by `widenings`.
    """
    default_from = inner if inner.has_default else outer
    type_name = inner.type if outer.type == "any" else outer.type
    return Parameter(
        type=type_name,
        required=outer.required or inner.required,
        default=coerce_if_possible(default_from.default, type_name),
        has_default=default_from.has_default,
        description=_inner_or_outer(outer.description, inner.description),
        enum=_common(outer.enum, inner.enum),
        pattern=outer.pattern if outer.pattern is not None else inner.pattern,
        min=_pick(max, outer.min, inner.min),
        max=_pick(min, outer.max, inner.max),
        secret=outer.secret or inner.secret,
        optional=outer.optional and not inner.required,
    )


def widenings(outer: Parameter, inner: Parameter) -> Iterator[str]:
    """Yield what an inner layer tries to widen, as messages.

    An omitted `required` or `secret` is inherited, so repeating a parameter without them is not widening.
    """
    if outer.type not in ("any", inner.type) and inner.type != "any":
        yield f"its type is `{outer.type}` and may not become `{inner.type}`"
    if outer.enum is not None and inner.enum is not None:
        added = [value for value in inner.enum if not _contains(outer.enum, value)]
        if added:
            yield f"`enum` may only lose values; {listing(added)} would be new"
    if None not in (outer.pattern, inner.pattern) and outer.pattern != inner.pattern:
        yield f"`pattern` is `{outer.pattern}` and may not be replaced"
    if outer.min is not None and inner.min is not None and inner.min < outer.min:
        yield f"`min` is {outer.min:g} and may only go up"
    if outer.max is not None and inner.max is not None and inner.max > outer.max:
        yield f"`max` is {outer.max:g} and may only go down"


def _inner_or_outer(outer: V | None, inner: V | None) -> V | None:
    return outer if inner is None else inner


def _pick(choose: Any, outer: float | None, inner: float | None) -> float | None:
    given = [bound for bound in (outer, inner) if bound is not None]
    picked: float | None = choose(given) if given else None
    return picked


def _common(outer: tuple[Any, ...] | None, inner: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    if outer is None or inner is None:
        return _inner_or_outer(outer, inner)
    return tuple(value for value in outer if _contains(inner, value))


def _contains(values: tuple[Any, ...], value: Any) -> bool:
    # `True == 1` in Python, but not in YAML.
    return any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in values)
