"""Functions on lists and maps."""

from collections.abc import Hashable, Iterator
from typing import Any

from gert.kernel.foundation.globs import split_path
from gert.kernel.foundation.secret_refs import is_marked
from gert.kernel.template.budget import Meter
from gert.kernel.template.compare import equal, same_kind
from gert.kernel.template.printer import sorted_items, written
from gert.kernel.template.values import MISSING, field, is_list, is_map, is_nothing, is_number, kind, list_of, number_in


def length(meter: Meter, value: Any) -> int:
    """`len`: characters of a text, items of a list, entries of a map."""
    if is_nothing(value):
        return 0
    if isinstance(value, str) or is_list(value) or is_map(value):
        return len(value)
    raise meter.fault(f"`len` needs text, a list or a map, found {kind(value)}")


def index(meter: Meter, value: Any, *keys: Any) -> Any:
    """`index`: the element at a position or key, and so on inward."""
    for key in keys:
        if is_nothing(value):
            return MISSING
        if is_map(value):
            value = value.get(key if isinstance(key, str) else _key(key, meter), MISSING)
        elif is_list(value):
            position = whole(key, meter, "index")
            if not 0 <= position < len(value):
                raise meter.fault(f"`index` is out of range: {position} in a list of {len(value)}")
            value = value[position]
        else:
            raise meter.fault(f"`index` needs a list or a map, found {kind(value)}")
    return value


def _key(key: Any, meter: Meter) -> str:
    if is_nothing(key) or is_list(key) or is_map(key):
        raise meter.fault(f"a map's key is text, found {kind(key)}")
    return written(key, meter)


def whole(value: Any, meter: Meter, name: str) -> int:
    """An integer, or a text that spells one."""
    number = number_in(value) if isinstance(value, str) else value
    if isinstance(number, int) and not isinstance(number, bool):
        if number.bit_length() > 63:
            raise meter.fault(f"`{name}`: the number does not fit in 64 bits")
        return number
    raise meter.fault(f"`{name}` needs an integer, found {kind(value)}")


def part(meter: Meter, value: Any, *bounds: Any) -> Any:
    """`slice`: from one position to another, of a text or a list."""
    if is_nothing(value):
        value = []
    if not isinstance(value, str) and not is_list(value):
        raise meter.fault(f"`slice` needs text or a list, found {kind(value)}")
    if len(bounds) == 3 and isinstance(value, str):
        raise meter.fault("`slice` of a text takes two positions")
    low, high, most = 0, len(value), len(value)
    positions = [whole(bound, meter, "slice") for bound in bounds]
    if positions:
        low = positions[0]
    if len(positions) > 1:
        high = positions[1]
    if len(positions) > 2:
        most = positions[2]
    if not 0 <= low <= high <= most <= len(value):
        wanted = ":".join(str(position) for position in positions)
        raise meter.fault(f"`slice` is out of range: {wanted} in a length of {len(value)}")
    if isinstance(value, str):
        meter.make(high - low)
    else:
        meter.visit(high - low)
    return value[low:high]


def first(meter: Meter, value: Any) -> Any:
    """`first`: the first item, or nothing."""
    items = list_of(value, meter, "first")
    return items[0] if items else MISSING


def last(meter: Meter, value: Any) -> Any:
    """`last`: the last item, or nothing."""
    items = list_of(value, meter, "last")
    return items[-1] if items else MISSING


def uniq(meter: Meter, value: Any) -> list[Any]:
    """`uniq`: the items of a list without those that equal an earlier one; a number does not equal its text."""
    items = list_of(value, meter, "uniq")
    found: dict[Hashable, Any] = {}
    for item in items:
        found.setdefault(_identity(item, meter, meter.max_depth), item)
    return list(found.values())


def _identity(value: Any, meter: Meter, depth: int) -> Hashable:
    """What two values have in common if, and only if, they are the same JSON value."""
    meter.step()
    if depth <= 0:
        raise meter.fault("the value is nested too deeply")
    if is_map(value):
        return "a map", frozenset((key, _identity(of, meter, depth - 1)) for key, of in value.items())
    if is_list(value):
        return "a list", tuple(_identity(item, meter, depth - 1) for item in value)
    if isinstance(value, str):
        _require_no_secret(value, meter)
        meter.read(len(value))
    elif is_number(value):
        # As text, because numbers can be chosen so that their hashes are equal: comparing them all would take too long.
        text = hex(int(value)) if isinstance(value, int) or value.is_integer() else str(value)
        meter.read(len(text))
        return "a number", text
    return kind(value), None if is_nothing(value) else value


def keys(meter: Meter, value: Any) -> list[str]:
    """`keys`: a map's keys, sorted; those of a keyed result in the order of its items."""
    return [key for key, _ in _entries(meter, value, "keys")]


def values(meter: Meter, value: Any) -> list[Any]:
    """`values`: a map's values, in the order of its keys."""
    return [of for _, of in _entries(meter, value, "values")]


def pluck(meter: Meter, path: Any, value: Any) -> list[Any]:
    """`pluck`: what a path leads to in each item; nothing where it leads nowhere."""
    return [None if found is MISSING else found for _, found in _items_with_value(meter, path, value, "pluck")]


def filtered(meter: Meter, path: Any, wanted: Any, value: Any) -> list[Any]:
    """`filter`: the items in which a path leads to an equal value."""
    return [item for item, found in _items_with_value(meter, path, value, "filter") if _is(found, wanted, meter)]


def any_is(meter: Meter, path: Any, wanted: Any, value: Any) -> bool:
    """`any`: whether a path leads to an equal value in at least one item."""
    return any(_is(found, wanted, meter) for _, found in _items_with_value(meter, path, value, "any"))


def all_are(meter: Meter, path: Any, wanted: Any, value: Any) -> bool:
    """`all`: whether a path leads to an equal value in every item; true of an empty list."""
    return all(_is(found, wanted, meter) for _, found in _items_with_value(meter, path, value, "all"))


def _items_with_value(meter: Meter, path: Any, value: Any, name: str) -> Iterator[tuple[Any, Any]]:
    """Each item of a list, or each value of a map, and what the path leads to in it; an empty path is the item."""
    if not isinstance(path, str):
        raise meter.fault(f"`{name}` needs a path as text, found {kind(path)}", hint=f'as in `{name} "status"`')
    segments = segments_of(path)
    for item in items_of(meter, value, name):
        meter.step(1 + len(segments))
        found = item
        for segment in segments:
            found = field(found, segment)
        yield item, found


def segments_of(path: str) -> tuple[str, ...]:
    """Return the segments of a path in an item."""
    return split_path(path.removeprefix(".")) if path.strip(".") else ()


def items_of(meter: Meter, value: Any, name: str) -> list[Any] | tuple[Any, ...]:
    """Return the items of a list, or the values of a map."""
    return values(meter, value) if is_map(value) else list_of(value, meter, name)


def _is(found: Any, wanted: Any, meter: Meter) -> bool:
    """Whether two values are equal as `eq` has it; values that cannot be compared are not."""
    _require_no_secret(found, meter)
    return same_kind(wanted, found) and equal(found, wanted, meter)


def _require_no_secret(value: Any, meter: Meter) -> None:
    if type(value) is str and is_marked(value):
        raise meter.fault("a secret cannot be compared", hint="a secret can only be passed whole")


def _entries(meter: Meter, value: Any, name: str) -> list[tuple[str, Any]]:
    if is_nothing(value):
        return []
    if not is_map(value):
        raise meter.fault(f"`{name}` needs a map, found {kind(value)}")
    return sorted_items(value, meter)
