"""Functions that choose: logic, comparison, and values to fall back on."""

from collections.abc import Iterator
from typing import Any

from gert.kernel.template.budget import Meter
from gert.kernel.template.compare import comparable, equal
from gert.kernel.template.values import MISSING, is_empty, truth


def both(_: Meter, values: Iterator[Any]) -> Any:
    """`and`: the first false value, or the last; later arguments are not evaluated."""
    value: Any = MISSING
    for value in values:
        if not truth(value):
            break
    return value


def either(_: Meter, values: Iterator[Any]) -> Any:
    """`or`: the first true value, or the last; later arguments are not evaluated."""
    value: Any = MISSING
    for value in values:
        if truth(value):
            break
    return value


def negated(_: Meter, value: Any) -> bool:
    """`not`: the opposite truth."""
    return not truth(value)


def equals(meter: Meter, left: Any, *others: Any) -> bool:
    """`eq`: the first value equals one of the others."""
    return any(equal(left, other, meter) for other in others)


def differs(meter: Meter, left: Any, right: Any) -> bool:
    """`ne`: the values are not equal."""
    return not equal(left, right, meter)


def before(meter: Meter, left: Any, right: Any) -> bool:
    """`lt`: the first comes before the second."""
    one, other = comparable(left, right, meter)
    return bool(one < other)


def not_after(meter: Meter, left: Any, right: Any) -> bool:
    """`le`: the first comes before the second, or with it."""
    one, other = comparable(left, right, meter)
    return bool(one <= other)


def after(meter: Meter, left: Any, right: Any) -> bool:
    """`gt`: the first comes after the second."""
    one, other = comparable(left, right, meter)
    return bool(one > other)


def not_before(meter: Meter, left: Any, right: Any) -> bool:
    """`ge`: the first comes after the second, or with it."""
    one, other = comparable(left, right, meter)
    return bool(one >= other)


def default(_: Meter, fallback: Any, value: Any = MISSING) -> Any:
    """`default`: the value, or the fallback where the value is empty."""
    return fallback if is_empty(value) else value


def coalesce(_: Meter, *values: Any) -> Any:
    """`coalesce`: the first value that is not empty."""
    return next((value for value in values if not is_empty(value)), MISSING)


def ternary(_: Meter, yes: Any, no: Any, condition: Any) -> Any:
    """`ternary`: the first value where the condition is true, otherwise the second."""
    return yes if truth(condition) else no
