"""Maps of the state that track which execution stored each value and under which names (DECISIONS 66).

Values are shared between the places they are read from: `.x`, `.id.x`, `.step.id.x`, a scope, the result of a loop, the
archive of a repeated block. Their origin travels with them, so equal values of different steps are never confused.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from gert.kernel.template.values import Ordered, Results

StatePath: TypeAlias = tuple[str, ...]
ReportMissingKey: TypeAlias = Callable[[str, str, Iterable[str]], None]
"""Called with a key that a keyed result does not have: the loop, the key, and the existing keys."""


def ignore_missing_key(loop: str, key: str, keys: Iterable[str]) -> None:
    """Ignore a missing key."""


class Origin:
    """One execution of a step, and every path its values were stored at.

    places: the paths of the maps that hold them
    bare: which of its values are also global names
    """

    __slots__ = ("bare", "places")

    def __init__(self, *places: StatePath) -> None:
        self.places: dict[StatePath, None] = dict.fromkeys(places)
        self.bare: set[str] = set()

    @classmethod
    def overlay(cls, origins: Iterable["Origin"]) -> "Origin":
        """Merge the origins of a value that one of several executions stored."""
        both = cls()
        for each in origins:
            both.places |= each.places
            both.bare |= each.bare
        return both


Origins: TypeAlias = Mapping[str, Origin]
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
NO_ORIGINS: Final[Origins] = MappingProxyType({})


class StateMap(dict[str, Any]):
    """A map of the state; values that a step stored have an origin, maps inside it have none."""

    __slots__ = ("origins",)

    def __init__(self, values: Mapping[str, Any] = NOTHING, origins: Origins = NO_ORIGINS) -> None:
        super().__init__(values)
        self.origins: dict[str, Origin] = {**origins} if origins else {}

    def with_values(self, values: Mapping[str, Any]) -> "StateMap":
        """Return a copy with other values, and the same origins."""
        return StateMap(values, {key: origin for key, origin in self.origins.items() if key in values})

    def overlay(self, other: Mapping[str, Any]) -> "StateMap":
        """Return this map overlaid with another."""
        both = StateMap(self, self.origins)
        both.update(other)
        for key in other if both.origins else ():
            both.origins.pop(key, None)
        both.origins.update(origins_of(other))
        return both


class KeyedResults(StateMap, Ordered):
    """The results of a loop by the keys of its items, in order; reading a missing key is reported.

    beside: gert's facts about the loop, read if no item has that key
    """

    __slots__ = ("beside", "loop", "report")

    def __init__(
        self,
        values: Mapping[str, Any],
        loop: str,
        report: ReportMissingKey,
        beside: StateMap,
        origins: Origins = NO_ORIGINS,
    ) -> None:
        super().__init__(values, origins)
        self.loop, self.report, self.beside = loop, report, beside

    def with_values(self, values: Mapping[str, Any]) -> "KeyedResults":
        """Return a copy with other values, and the same origins."""
        return KeyedResults(values, self.loop, self.report, self.beside, super().with_values(values).origins)

    def overlay(self, other: Mapping[str, Any]) -> "KeyedResults":
        """Return these results overlaid with other values."""
        both = super().overlay(other)
        return KeyedResults(both, self.loop, self.report, self.beside, both.origins)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the result under a key, else gert's fact of that name."""
        if key in self:
            return self[key]
        if key in self.beside:
            return self.beside[key]
        self.report(self.loop, key, (each for each in self if each not in self.origins))
        return default


def outputs_of(values: Mapping[str, Any]) -> StateMap:
    """Return the outputs of one execution, with a new origin if they have none."""
    return values if isinstance(values, StateMap) else StateMap(values, dict.fromkeys(values, Origin()))


def facts_of(values: Mapping[str, Any], *places: StatePath) -> StateMap:
    """Return gert's facts about a step, with the places they are read at."""
    return StateMap(values, dict.fromkeys(values, Origin(*places)))


def origins_of(values: Mapping[str, Any]) -> Origins:
    """Return the origins of a map, if it tracks them."""
    return values.origins if isinstance(values, StateMap) else NO_ORIGINS


def add_places(values: Any, *paths: StatePath) -> None:
    """Note that a map of the state, and every map in it, can be read at these paths."""
    if isinstance(values, StateMap):
        for origin in set(values.origins.values()):
            for path in paths:
                origin.places[path] = None
        if values.origins.keys() == values.keys():
            return  # a step stored all of it: there is no map of the state inside
    for key, inner in _maps_in(values):
        add_places(inner, *((*path, key) for path in paths))


def _maps_in(values: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(values, StateMap):
        yield from ((key, inner) for key, inner in values.items() if key not in values.origins)
    elif is_structure(values):
        yield from ((str(index), inner) for index, inner in enumerate(values))


def is_structure(value: Any) -> bool:
    """Whether a value is a map of the state or a list of such maps, rather than something a step stored."""
    return isinstance(value, StateMap | Results)
