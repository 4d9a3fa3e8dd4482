"""Equality and order of values; text that is a number compares as a number."""

from typing import Any

from gert.kernel.template.budget import Meter
from gert.kernel.template.values import as_number, is_list, is_map, is_nothing, is_number, kind, named, number_in


def equal(left: Any, right: Any, meter: Meter) -> bool:
    """Return whether two values are equal; a number equals its text, a boolean its text, and nothing equals ""."""
    if is_nothing(left):
        return is_nothing(right) or right == ""
    if is_nothing(right):
        return bool(left == "")
    if isinstance(left, str):
        return _same_text(left, right, meter) if isinstance(right, str) else _equals_text(right, left, meter)
    if isinstance(right, str):
        return _equals_text(left, right, meter)
    if isinstance(left, bool) and isinstance(right, bool):
        return left is right
    if is_number(left) and is_number(right):
        return bool(left == right)
    if (is_list(left) and is_list(right)) or (is_map(left) and is_map(right)):
        return identical(left, right, meter)
    raise meter.fault(f"cannot compare {kind(left)} with {kind(right)}")


def same_kind(wanted: Any, item: Any) -> bool:
    """Return whether two values can be compared."""
    plain = not (is_list(wanted) or is_map(wanted))
    if plain != (not (is_list(item) or is_map(item))):
        return False
    return kind(wanted) == kind(item) or (plain and (isinstance(wanted, str) or isinstance(item, str)))


def _same_text(left: str, right: str, meter: Meter) -> bool:
    if len(left) == len(right):
        meter.read(len(left))
    return left == right


def _equals_text(value: Any, text: str, meter: Meter) -> bool:
    if isinstance(value, bool):
        return len(text) <= 5 and text.lower() == ("true" if value else "false")
    if is_number(value):
        return bool(number_in(text) == value)
    raise meter.fault(f"cannot compare {kind(value)} with text", hint="use `not` to ask whether it is empty")


def identical(left: Any, right: Any, meter: Meter) -> bool:
    """Return whether two values are the same JSON value; inside maps and lists a number never equals its text."""
    pairs = [(left, right)]
    while pairs:
        meter.step()
        one, other = pairs.pop()
        if isinstance(one, str) and isinstance(other, str):
            if not _same_text(one, other, meter):
                return False
        elif is_map(one) and is_map(other):
            meter.visit(len(one))
            if len(one) != len(other) or any(key not in other for key in one):
                return False
            pairs.extend((of, other[key]) for key, of in one.items())
        elif is_list(one) and is_list(other):
            meter.visit(len(one))
            if len(one) != len(other):
                return False
            pairs.extend(zip(one, other, strict=True))
        elif is_nothing(one) and is_nothing(other):
            continue
        elif kind(one) != kind(other) or one != other:
            return False
    return True


def comparable(left: Any, right: Any, meter: Meter) -> tuple[Any, Any]:
    """Return both sides as numbers, or both as text, for Python to order."""
    one, other = as_number(left), as_number(right)
    if one is not None and other is not None:
        return one, other
    if is_nothing(left) and isinstance(right, str):
        return "", right
    if is_nothing(right) and isinstance(left, str):
        return left, ""
    if isinstance(left, str) and isinstance(right, str):
        meter.read(min(len(left), len(right)))
        return left, right
    hint = None
    if is_nothing(left) or is_nothing(right):
        hint = "give it a value with `default`, as in `gt (default 0 .x) 5`"
    raise meter.fault(f"cannot order {named(left)} and {named(right)}", hint=hint)
