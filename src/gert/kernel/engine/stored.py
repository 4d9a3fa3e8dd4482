"""Maps of the state that know, for each value, which execution stored it and under which names (DECISIONS 66).

Values are shared between the places they are read from: `.x`, `.id.x`, `.step.id.x`, a scope, the result of a loop, the
archive of a repeated block. Their origin travels with them, so equal values of different steps are never confused.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from gert.kernel.template.values import Ordered, Results

Place: TypeAlias = tuple[str, ...]
Report: TypeAlias = Callable[[str, str, Iterable[str]], None]
"""Told of a key that a keyed result does not have: the loop, the key, and the keys there are."""


def unheard(loop: str, key: str, keys: Iterable[str]) -> None:
    """Report a key to nobody."""


class Origin:
    """One execution of a step, and every name its values were ever stored under.

    places: the paths of the maps that hold them
    bare: which of them are global names, too
    """

    __slots__ = ("bare", "places")

    def __init__(self, *places: Place) -> None:
        self.places: dict[Place, None] = dict.fromkeys(places)
        self.bare: set[str] = set()

    @classmethod
    def joined(cls, origins: Iterable["Origin"]) -> "Origin":
        """What several executions have in common when nobody knows which of them stored a value."""
        both = cls()
        for each in origins:
            both.places |= each.places
            both.bare |= each.bare
        return both


Origins: TypeAlias = Mapping[str, Origin]
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
NO_ORIGINS: Final[Origins] = MappingProxyType({})


class Record(dict[str, Any]):
    """A map of the state; values that a step stored have an origin, maps inside it have none."""

    __slots__ = ("origins",)

    def __init__(self, values: Mapping[str, Any] = NOTHING, origins: Origins = NO_ORIGINS) -> None:
        super().__init__(values)
        self.origins: dict[str, Origin] = dict(origins)

    def like(self, values: Mapping[str, Any]) -> "Record":
        """Other values under the same names."""
        return Record(values, {key: origin for key, origin in self.origins.items() if key in values})

    def joined(self, other: Mapping[str, Any]) -> "Record":
        """This map with the values of another over it."""
        origins = {key: origin for key, origin in self.origins.items() if key not in other}
        return Record({**self, **other}, {**origins, **origins_of(other)})


class Keyed(Record, Ordered):
    """The results of a loop by the keys of its items, in their order; a key that it does not have is reported.

    beside: what gert says of the loop, read where no item has such a key
    """

    __slots__ = ("beside", "loop", "report")

    def __init__(
        self, values: Mapping[str, Any], loop: str, report: Report, beside: Record, origins: Origins = NO_ORIGINS
    ) -> None:
        super().__init__(values, origins)
        self.loop, self.report, self.beside = loop, report, beside

    def like(self, values: Mapping[str, Any]) -> "Keyed":
        """Some of the results."""
        return Keyed(values, self.loop, self.report, self.beside, super().like(values).origins)

    def joined(self, other: Mapping[str, Any]) -> "Keyed":
        """The results with other values over them."""
        both = super().joined(other)
        return Keyed(both, self.loop, self.report, self.beside, both.origins)

    def get(self, key: str, default: Any = None) -> Any:
        """The result under a key, or what gert says of the loop under that name."""
        if key in self:
            return self[key]
        if key in self.beside:
            return self.beside[key]
        self.report(self.loop, key, (each for each in self if each not in self.origins))
        return default


def outputs_of(values: Mapping[str, Any]) -> Record:
    """The outputs of one execution, with an origin of their own where they have none yet."""
    return values if isinstance(values, Record) else Record(values, dict.fromkeys(values, Origin()))


def facts_of(values: Mapping[str, Any], *places: Place) -> Record:
    """What gert says of a step, named by where it can be read."""
    return Record(values, dict.fromkeys(values, Origin(*places)))


def origins_of(values: Mapping[str, Any]) -> Origins:
    """The origins of values that have some."""
    return values.origins if isinstance(values, Record) else NO_ORIGINS


def place(values: Any, *paths: Place) -> None:
    """Note that a map of the state, with all the maps in it, can be read at these paths."""
    if isinstance(values, Record):
        for origin in set(values.origins.values()):
            origin.places.update(dict.fromkeys(paths))
    for key, inner in _maps_in(values):
        place(inner, *((*path, key) for path in paths))


def _maps_in(values: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(values, Record):
        yield from ((key, inner) for key, inner in values.items() if key not in values.origins)
    elif is_structure(values):
        yield from ((str(index), inner) for index, inner in enumerate(values))


def is_structure(value: Any) -> bool:
    """Whether a value is a map of the state or a list of such maps, rather than something a step stored."""
    return isinstance(value, Record | Results)
