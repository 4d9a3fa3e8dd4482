"""The part of the state a step may see (kernel-v0 §7, DECISIONS 66).

Visibility is about stored outputs: an output hidden or allowed under one of its names is so under all of them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gert.kernel.engine.state import REPEAT, STEP
from gert.kernel.engine.state_maps import KeyedResults, Origin, StateMap, StatePath, is_structure
from gert.kernel.foundation.globs import HIDDEN, Marks, Visibility, visible_part
from gert.kernel.template.values import Results


def visible(root: StateMap, visibility: Visibility, items: Mapping[str, Any]) -> dict[str, Any]:
    """Return the visible part of the state; the items of enclosing loops are always visible."""
    view = _View(visibility).of_root(root)
    loops = {REPEAT: root[REPEAT]} if REPEAT in root else {}
    return {**view, **loops, **items}


class _View:
    """One filtered view of the state; caches the names it has matched."""

    def __init__(self, visibility: Visibility) -> None:
        self._start = Marks.start(visibility)
        self._places: dict[StatePath, Marks] = {(): self._start}
        self._marks: dict[tuple[int, str], Marks] = {}
        self._values: dict[tuple[int, str, int], Any] = {}

    def of_root(self, root: StateMap) -> dict[str, Any]:
        """Return the visible global names, and the records of steps under both of their names."""
        records: StateMap = root[STEP]
        names = {name: value for name, value in root.items() if name != STEP}
        seen = self._kept(root, names, lambda key: self._of_record(key) if key in records else self._at((key,)))
        return {**seen, STEP: self._kept(records, records, self._of_record)}

    def _of_record(self, step_id: str) -> Marks:
        return Marks.any_of([self._at((step_id,)), self._at((STEP, step_id))])

    def _at(self, place: StatePath) -> Marks:
        """Return how far the globs match a place."""
        marks = self._places.get(place)
        if marks is None:
            marks = self._places[place] = self._at(place[:-1]).below(place[-1])
        return marks

    def _kept(self, node: StateMap, values: Mapping[str, Any], marks_of: Callable[[str], Marks]) -> dict[str, Any]:
        seen = {key: self._child(node, key, value, marks_of) for key, value in values.items()}
        return {key: value for key, value in seen.items() if value is not HIDDEN}

    def _child(self, node: StateMap, key: str, value: Any, marks_of: Callable[[str], Marks]) -> Any:
        origin = node.origins.get(key)
        if origin is not None:
            return self._stored(origin, key, value)
        return self._element(value, marks_of(key))

    def _stored(self, origin: Origin, key: str, value: Any) -> Any:
        """Return the visible part of a stored output, by all of its names."""
        known = (id(origin), key)
        marks = self._marks.get(known)
        if marks is None:
            names = [(*place, key) for place in origin.places]
            names += [(key,)] if key in origin.bare else []
            marks = self._marks[known] = Marks.any_of([self._at(name) for name in names])
        found = self._values.get((*known, id(value)), self)
        if found is self:
            found = self._values[(*known, id(value))] = visible_part(value, marks)
        return found

    def _structure(self, node: Any, marks: Marks) -> Any:
        """Return the visible part of a map or list of the state; it is hidden if nothing in it is visible."""
        if isinstance(node, Results):
            return self._results(node, marks)
        kept: dict[str, Any] = self._kept(node, node, marks.below)
        if not kept and (node or not marks.allowed):
            return HIDDEN
        shown = node.with_values(kept)
        if isinstance(shown, KeyedResults):
            shown.beside = self._facts(shown.beside, marks)
        return shown

    def _results(self, node: Results, marks: Marks) -> Any:
        items = [self._element(each, marks.below(str(index))) for index, each in enumerate(node)]
        if all(item is HIDDEN for item in items) and (items or not marks.allowed):
            return HIDDEN
        return Results([None if item is HIDDEN else item for item in items], self._facts(node.facts, marks))

    def _element(self, value: Any, marks: Marks) -> Any:
        if not is_structure(value):
            return visible_part(value, marks)
        return HIDDEN if marks.hides else self._structure(value, marks)

    def _facts(self, facts: Mapping[str, Any], marks: Marks) -> StateMap:
        return StateMap(self._kept(facts, facts, marks.below)) if isinstance(facts, StateMap) else StateMap()
