"""Arithmetic on numbers and on texts that spell numbers; integers have 64 bits."""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from gert.kernel.template.budget import Meter
from gert.kernel.template.values import as_number, is_nothing, named

Number: TypeAlias = int | float


def _number(value: Any, meter: Meter, name: str) -> Number:
    number = as_number(value)
    if number is None:
        hint = "give it a value with `default`" if is_nothing(value) else None
        raise meter.fault(f"`{name}` needs a number, found {named(value)}", hint=hint)
    return _bounded(number, meter, name)


def _bounded(number: Number, meter: Meter, name: str) -> Number:
    if isinstance(number, int):
        if not -(2**63) <= number < 2**63:
            raise meter.fault(f"`{name}`: the number does not fit in 64 bits")
    elif not math.isfinite(number):
        raise meter.fault(f"`{name}`: the number is too large")
    return number


def _fold(meter: Meter, name: str, values: tuple[Any, ...], of: Callable[[Any, Any], Number]) -> Number:
    result = _number(values[0], meter, name)
    for value in values[1:]:
        result = _bounded(of(result, _number(value, meter, name)), meter, name)
    return result


def add(meter: Meter, *values: Any) -> Number:
    """`add`: the sum."""
    return _fold(meter, "add", values, lambda a, b: a + b)


def sub(meter: Meter, left: Any, right: Any) -> Number:
    """`sub`: the first less the second."""
    return _fold(meter, "sub", (left, right), lambda a, b: a - b)


def mul(meter: Meter, *values: Any) -> Number:
    """`mul`: the product."""
    return _fold(meter, "mul", values, lambda a, b: a * b)


def div(meter: Meter, left: Any, right: Any) -> Number:
    """`div`: the quotient; of two integers an integer, cut toward zero."""
    one, other = _number(left, meter, "div"), _number(right, meter, "div")
    if other == 0:
        raise meter.fault("`div` by zero")
    if isinstance(one, int) and isinstance(other, int):
        quotient = abs(one) // abs(other)
        return _bounded(quotient if (one < 0) == (other < 0) else -quotient, meter, "div")
    try:
        return _bounded(one / other, meter, "div")
    except OverflowError:
        raise meter.fault("`div`: the number is too large") from None


def mod(meter: Meter, left: Any, right: Any) -> Number:
    """`mod`: the remainder, with the sign of the first."""
    one, other = _number(left, meter, "mod"), _number(right, meter, "mod")
    if other == 0:
        raise meter.fault("`mod` by zero")
    if isinstance(one, int) and isinstance(other, int):
        remainder = abs(one) % abs(other)
        return remainder if one >= 0 else -remainder
    return math.fmod(one, other)


def least(meter: Meter, *values: Any) -> Number:
    """`min`: the smallest."""
    return _fold(meter, "min", values, min)


def greatest(meter: Meter, *values: Any) -> Number:
    """`max`: the largest."""
    return _fold(meter, "max", values, max)


def to_int(meter: Meter, value: Any) -> int:
    """`int`: a number cut toward zero, the integer a text spells, 1 or 0 of a boolean."""
    if isinstance(value, bool):
        return int(value)
    return int(_bounded(int(_number(value, meter, "int")), meter, "int"))


def to_float(meter: Meter, value: Any) -> float:
    """`float`: the same value as a float."""
    return float(value) if isinstance(value, bool) else float(_number(value, meter, "float"))
