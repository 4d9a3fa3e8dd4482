"""Values in templates: missing, truth, kind, number."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from gert.errors import TemplateEvalError
from gert.kernel.template.budget import Meter
from gert.kernel.template.wording import shown


class Missing:
    """The value of a name that is not set: prints as nothing, is false, and is an empty list."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "MISSING"

    def __reduce__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


class Absent:
    """In the templates of tools, what is computed from a key that is not there: to be handled, never printed.

    said: what is not there
    value: the value that it has in other templates
    """

    __slots__ = ("said", "value")

    def __init__(self, said: str, value: Any = MISSING) -> None:
        self.said = said
        self.value = value

    def __bool__(self) -> bool:
        return truth(self.value)

    def fault(self, meter: Meter) -> TemplateEvalError:
        """Return the error where it is used."""
        return meter.fault(f"{self.said}: correct the name, or write `default` for a fallback")


class Ordered(dict[str, Any]):
    """A map that keeps the order of its keys wherever it is walked or printed: the keyed result of a loop."""

    __slots__ = ()


class Results(list[Any]):
    """The results of a loop, in the order of its items; `facts` are gert's facts about the loop, read by name."""

    __slots__ = ("facts",)

    def __init__(self, values: Iterable[Any], facts: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.facts = facts


_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:(\.)[0-9]*)?|(\.)[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_LONGEST_NUMBER = 400


def is_nothing(value: Any) -> bool:
    """Return whether a value is missing or null."""
    return value is None or value is MISSING


def is_map(value: Any) -> bool:
    """Return whether a value is a map."""
    return isinstance(value, dict) or isinstance(value, Mapping)  # noqa: SIM101 - the second question alone is slow


def is_list(value: Any) -> bool:
    """Return whether a value is a list."""
    return isinstance(value, list | tuple)


def is_number(value: Any) -> bool:
    """Return whether a value is a number; `true` is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def truth(value: Any) -> bool:
    """False for `false`, 0, nothing, the texts "" and "false" in any case, empty lists and maps."""
    if isinstance(value, str):
        return value != "" and (len(value) != 5 or value.lower() != "false")
    return bool(value)


def is_empty(value: Any) -> bool:
    """Return whether a value is empty; numbers and booleans never are."""
    if type(value) is Absent:
        value = value.value
    return is_nothing(value) or (not isinstance(value, bool | int | float) and not value)


def kind(value: Any) -> str:
    """Return the kind of a value for a message."""
    if is_nothing(value):
        return "nothing"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    if is_list(value):
        return "a list"
    return "a map" if is_map(value) else "a foreign value"


def named(value: Any) -> str:
    """Return the kind of a value for a message, or the text itself."""
    return f"the text {shown(value)}" if isinstance(value, str) and value else kind(value)


def number_in(text: str) -> int | float | None:
    """Return the finite number that a text contains, if it is one."""
    if not text or len(text) > _LONGEST_NUMBER or text[-1] > "9":
        return None
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    if match.lastindex is None:
        return int(text)
    value = float(text)
    return value if math.isfinite(value) else None


def as_number(value: Any) -> int | float | None:
    """Return a value as a number, if it is one or a text of one."""
    if isinstance(value, str):
        return number_in(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return None


def list_of(value: Any, meter: Meter, name: str) -> list[Any] | tuple[Any, ...]:
    """Return a value as a list; nothing is an empty list."""
    if isinstance(value, list | tuple):
        return value
    if is_nothing(value):
        return ()
    raise meter.fault(f"`{name}` needs a list, found {kind(value)}")


def field(value: Any, segment: str) -> Any:
    """Return one segment of a path in a value, or MISSING."""
    if isinstance(value, dict) or isinstance(value, Mapping):  # noqa: SIM101 - as above
        return value.get(segment, MISSING)
    if isinstance(value, list | tuple) and segment.isdecimal() and segment.isascii() and len(segment) < 10:
        index = int(segment)
        return value[index] if index < len(value) else MISSING
    return value.facts.get(segment, MISSING) if isinstance(value, Results) else MISSING
