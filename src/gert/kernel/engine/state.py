"""The state of a run: names templates read, records of steps, and scopes (kernel-v0 §7).

`root` is the data templates see. Values in it are never changed in place, so a fork is a copy of the outer maps
alone, and the changes of a lane or an iteration are known without comparing.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Any

import msgspec

from gert.kernel.engine.state_maps import (
    KeyedResults,
    Origin,
    ReportMissingKey,
    StateMap,
    add_places,
    facts_of,
    ignore_missing_key,
    origins_of,
    outputs_of,
)
from gert.kernel.template.unknown import UNKNOWN, Unknown, is_unknown
from gert.kernel.template.values import Results

STEP = "step"
SCOPE = "scope"
REPEAT = "repeat"


class Changes:
    """What was set since a fork: names, records by step id, scopes, and which names were exported."""

    __slots__ = (
        "dropped", "exports", "loops", "names", "records", "scopes", "shadowed", "skipped_write", "writers",
    )  # fmt: skip

    def __init__(self) -> None:
        self.names = StateMap()
        self.records: dict[str, tuple[Any, Any]] = {}
        # Dropped scopes apply before the values that were set in them afterwards.
        self.dropped: dict[tuple[str, ...], None] = {}
        self.scopes: dict[tuple[str, ...], StateMap] = {}
        # The step that wrote each scope, for the error when two lanes write it.
        self.writers: dict[tuple[str, ...], str] = {}
        self.exports = StateMap()
        self.shadowed: set[str] = set()
        self.loops: set[str] = set()
        self.skipped_write = False

    def archive(self) -> StateMap:
        """Return the archive of an iteration: its names, and its records by step id."""
        return StateMap({step_id: record for step_id, (record, _) in self.records.items()}).overlay(self.names)


class State:
    """Names, records and scopes at one point of one lane."""

    __slots__ = ("bare", "changes", "counts", "executions", "loops", "report", "root", "shadowed", "skipped_write")

    def __init__(self, names: Mapping[str, Any], report: ReportMissingKey = ignore_missing_key) -> None:
        self.report = report
        self.root = StateMap({**names, STEP: StateMap(), SCOPE: StateMap()})
        # Names that are not step ids: inputs, constants, outputs. They win over a step of the same name.
        self.bare: set[str] = set(names)
        self.counts: dict[str, Any] = {}
        # Steps with an output called `status`, which is what `.id.status` then reads.
        self.shadowed: set[str] = set()
        # Steps whose record is the results of a loop.
        self.loops: set[str] = set()
        # How often each step has executed on every path that leads here; lanes and iterations share the count.
        self.executions: dict[int, int] = {}
        # A step that may write was only assumed on a path that leads here: later reads are unknown.
        self.skipped_write = False
        self.changes: Changes | None = None

    def fork(self, *, uncertain: bool = False) -> "State":
        """Copy the state for a lane or an iteration and track its changes; `uncertain` if its path may not be taken."""
        copy = State.__new__(State)
        copy.report = self.report
        copy.root = StateMap({**self.root, STEP: StateMap(self.root[STEP])}, self.root.origins)
        copy.bare = set(self.bare)
        copy.counts = dict(self.counts)
        copy.shadowed = set(self.shadowed)
        copy.loops = set(self.loops)
        copy.executions = dict(self.executions) if uncertain else self.executions
        copy.skipped_write = self.skipped_write
        copy.changes = Changes()
        return copy

    # --- setting

    def set_name(self, name: str, value: Any, origin: Origin | None = None) -> None:
        """Set a global name."""
        self.bare.add(name)
        if origin is not None:
            origin.bare.add(name)
        for names in (self.root, self.changes.names) if self.changes is not None else (self.root,):
            _put(names, name, value, origin)

    def export(self, name: str, value: Any, origin: Origin | None = None) -> None:
        """Set a global name that survives the iteration it is set in."""
        self.set_name(name, value, origin)
        if self.changes is not None:
            _put(self.changes.exports, name, value, origin)

    def set_record(self, step_id: str, outputs: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Set the record of a step: in `.id` its outputs win over gert's facts, in `.step.id` the facts win."""
        places = (step_id,), (STEP, step_id)
        given = outputs_of(outputs)
        add_places(given, *places)
        if "status" in outputs:
            self._mark(shadowed={step_id})
        if step_id in self.counts:
            facts = {**facts, "retry_count": self.counts[step_id]}
        own = facts_of(facts, *places)
        if own.keys().isdisjoint(given):
            # No output is called as a fact is, so both places read the same map.
            own.update(given)
            own.origins.update(given.origins)
            self._set_records(step_id, own, own)
        else:
            self._set_records(step_id, own.overlay(given), given.overlay(own))

    def set_results(self, step_id: str, results: Mapping[str, Any] | list[Any], status: str) -> None:
        """Set the results of a loop: a list, or a map by the keys of its items; `.step` also has its status."""
        places = (step_id,), (STEP, step_id)
        counts = facts_of({"retry_count": self.counts[step_id]} if step_id in self.counts else {}, *places)
        facts = facts_of({"status": status}, *places).overlay(counts)
        shown: KeyedResults | Results
        own: StateMap
        if isinstance(results, Mapping):
            shown = KeyedResults(results, step_id, self.report, counts)
            own = KeyedResults(results, step_id, self.report, StateMap()).overlay(facts)
        else:
            shown = Results(results, counts)
            own = StateMap({str(index): each for index, each in enumerate(results)}).overlay(facts)
        add_places(shown, *places)
        self._mark(loops={step_id})
        self._set_records(step_id, shown, own)

    def _mark(self, *, shadowed: Set[str] = frozenset(), loops: Set[str] = frozenset()) -> None:
        for known in (self, self.changes):
            if known is not None:
                known.shadowed |= shadowed
                known.loops |= loops

    def set_status(self, step_id: str, status: str) -> None:
        """Set the status of a step without outputs; its earlier outputs remain."""
        if isinstance(self.root[STEP].get(step_id), Unknown):
            return  # the whole record is unknown, and remains so
        record, own = self._records(step_id)
        fact = facts_of({"status": status}, (step_id,), (STEP, step_id))
        if step_id in self.loops:
            self._set_records(step_id, self.root.get(step_id), own.overlay(fact))
            return
        shown = record if step_id in self.shadowed else record.overlay(fact)
        self._set_records(step_id, shown, own.overlay(fact))

    def _records(self, step_id: str) -> tuple[StateMap, StateMap]:
        own = self.root[STEP].get(step_id)
        record = None if step_id in self.bare else self.root.get(step_id)
        first, second = (each if isinstance(each, StateMap) else StateMap() for each in (record, own))
        return first, second

    def _set_records(self, step_id: str, record: Any, own: Any) -> None:
        self.root[STEP][step_id] = own
        if step_id not in self.bare:
            self.root[step_id] = record
        if self.changes is not None:
            self.changes.records[step_id] = (record, own)

    def set_scoped(self, scope: tuple[str, ...], values: Mapping[str, Any], writer: str = "") -> None:
        """Set values in a scope; `writer` is the path of the step that sets them."""
        values = outputs_of(values)
        add_places(values, (SCOPE, *scope))
        self.root[SCOPE] = _with_values(self.root[SCOPE], scope, values)
        if self.changes is not None:
            self.changes.scopes[scope] = self.changes.scopes.get(scope, StateMap()).overlay(values)
            self.changes.writers[scope] = writer

    def drop_scope(self, scope: tuple[str, ...]) -> None:
        """Drop the values of a scope: a block that runs again starts with an empty one."""
        self.root[SCOPE] = _without_path(self.root[SCOPE], scope)
        if self.changes is not None:
            kept = {path: values for path, values in self.changes.scopes.items() if path[: len(scope)] != scope}
            self.changes.scopes = kept
            self.changes.dropped[scope] = None

    def set_unknown(self, step_id: str) -> None:
        """Mark the results of a loop as unknown, including their number."""
        self._set_records(step_id, UNKNOWN, UNKNOWN)

    def invalidate(self, step_id: str | None, names: Iterable[str]) -> None:
        """Mark everything a step may have set as unknown, because it is unknown how often it ran."""
        for name in names:
            if name in self.bare:
                self.set_name(name, UNKNOWN, self.root.origins.get(name))
        if step_id is not None and step_id in self.root[STEP]:
            self.set_unknown(step_id)
        self.root[SCOPE] = _invalidated(self.root[SCOPE])
        if self.changes is not None:
            self.changes.scopes = {scope: _invalidated(values) for scope, values in self.changes.scopes.items()}

    def set_jump_count(self, step_id: str, jumps: int | Unknown) -> None:
        """Set how often a jump from or to a step was taken."""
        self.counts[step_id] = jumps
        if isinstance(self.root[STEP].get(step_id), Unknown):
            return
        record, own = self._records(step_id)
        fact = facts_of({"retry_count": jumps}, (step_id,), (STEP, step_id))
        if step_id in self.loops:
            # The results of a loop are a list, or a map with the author's keys: gert's facts are stored beside them.
            self._set_records(step_id, _with_fact(self.root.get(step_id), fact), own.overlay(fact))
        else:
            self._set_records(step_id, record.overlay(fact), own.overlay(fact))

    def skip_write(self) -> None:
        """Note that a step which may write was only assumed."""
        self.skipped_write = True
        if self.changes is not None:
            self.changes.skipped_write = True

    # --- joining

    def merge(self, changes: Changes) -> None:
        """Merge everything that a lane set."""
        self.merge_scopes(changes)
        for name, value in changes.names.items():
            self.set_name(name, value, changes.names.origins.get(name))
        for step_id, (record, own) in changes.records.items():
            self._set_records(step_id, record, own)
        self._mark(shadowed=changes.shadowed, loops=changes.loops)
        if self.changes is not None:
            self.changes.exports = self.changes.exports.overlay(changes.exports)

    def merge_iteration(self, changes: Changes) -> None:
        """Merge what survives an iteration: exports and scopes."""
        self.merge_scopes(changes)
        for name, value in changes.exports.items():
            self.export(name, value, changes.exports.origins.get(name))

    def merge_scopes(self, changes: Changes) -> None:
        """Merge dropped and set scopes, and skipped writes."""
        if changes.skipped_write:
            self.skip_write()
        for scope in changes.dropped:
            self.drop_scope(scope)
        for scope, values in changes.scopes.items():
            self.set_scoped(scope, values, changes.writers.get(scope, ""))

    def merge_uncertain(self, ways: Iterable["State | None"]) -> None:
        """Merge the changes of several paths of which only one is taken; None is a path without changes.

        Values equal on all paths stay known, others become unknown. Executions on one path only are not counted.
        """
        ways = tuple(ways)
        changed = [way.changes for way in ways if way is not None and way.changes is not None]
        certain = len(changed) == len(ways)
        for scope in dict.fromkeys(scope for each in changed for scope in each.dropped):
            before = _record_at(self.root[SCOPE], scope)
            if before is not None:
                self.set_scoped(scope, _invalidated(before))
        for scope in dict.fromkeys(scope for each in changed for scope in each.scopes):
            names = dict.fromkeys(name for each in changed for name in each.scopes.get(scope, ()))
            origins = [each.scopes[scope].origins for each in changed if scope in each.scopes]
            self.set_scoped(scope, StateMap(dict.fromkeys(names, UNKNOWN), _common_origins(names, origins)))
        for name in dict.fromkeys(name for each in changed for name in each.names):
            value = _common_value([each.names.get(name, UNKNOWN) for each in changed], certain=certain)
            origin = _common_origins((name,), [each.names.origins for each in changed]).get(name)
            if any(name in each.exports for each in changed):
                self.export(name, value, origin)
            else:
                self.set_name(name, value, origin)
        for step_id in dict.fromkeys(step_id for each in changed for step_id in each.records):
            both = [each.records.get(step_id, (UNKNOWN, UNKNOWN)) for each in changed]
            records = _common_value([record for record, _ in both], certain=certain)
            self._set_records(step_id, records, _common_value([own for _, own in both], certain=certain))
        if any(each.skipped_write for each in changed):
            self.skip_write()
        for each in changed:
            self._mark(shadowed=each.shadowed, loops=each.loops)


def _common_value(values: list[Any], *, certain: bool) -> Any:
    """Return the value that all paths share, else unknown; `1` is not `true`."""
    if not certain or any(is_unknown(value) for value in values):
        return UNKNOWN
    first = _ENCODER.encode(values[0])
    return values[0] if all(_ENCODER.encode(value) == first for value in values[1:]) else UNKNOWN


_ENCODER = msgspec.json.Encoder(order="sorted")


def _common_origins(names: Iterable[str], origins: list[dict[str, Origin]]) -> dict[str, Origin]:
    """Return for each name the merged origin of its value on all paths."""
    found = {name: [each[name] for each in origins if name in each] for name in names}
    return {name: each[0] if len(each) == 1 else Origin.overlay(each) for name, each in found.items() if each}


def _put(names: StateMap, name: str, value: Any, origin: Origin | None) -> None:
    names[name] = value
    if origin is not None:
        names.origins[name] = origin
    else:
        names.origins.pop(name, None)


def _with_fact(results: Any, fact: StateMap) -> Any:
    """Return the results of a loop with one more fact beside them."""
    if isinstance(results, Results):
        return Results(results, StateMap(results.facts, origins_of(results.facts)).overlay(fact))
    if isinstance(results, KeyedResults):
        return KeyedResults(results, results.loop, results.report, results.beside.overlay(fact))
    return results


def _invalidated(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return UNKNOWN
    return StateMap({key: _invalidated(value) for key, value in tree.items()}, origins_of(tree))


def _record_at(tree: Any, path: tuple[str, ...]) -> StateMap | None:
    for segment in path:
        tree = tree.get(segment) if isinstance(tree, StateMap) else None
    return tree if isinstance(tree, StateMap) else None


def _without_path(tree: Any, path: tuple[str, ...]) -> Any:
    if not isinstance(tree, StateMap) or path[0] not in tree:
        return tree
    node = StateMap(tree, tree.origins)
    rest = _without_path(node[path[0]], path[1:]) if len(path) > 1 else {}
    if rest == {}:
        del node[path[0]]
        node.origins.pop(path[0], None)
    else:
        node[path[0]] = rest
    return node


def _with_values(tree: Any, path: tuple[str, ...], values: StateMap) -> StateMap:
    """Return a copy of a tree with values set at a path; the rest is shared."""
    node = StateMap(tree, tree.origins) if isinstance(tree, StateMap) else StateMap()
    if not path:
        return node.overlay(values)
    below = None if path[0] in node.origins else node.get(path[0])
    _put(node, path[0], _with_values(below, path[1:], values), None)
    return node
