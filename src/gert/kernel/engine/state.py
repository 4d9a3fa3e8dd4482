"""The state of a run: names templates read, records of steps, and scopes (kernel-v0 §7).

`root` is the data templates see. Values in it are never changed in place, so a fork is a copy of the outer maps
alone, and what a lane or an iteration changed is known without comparing.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Any

import msgspec

from gert.kernel.engine.unknown import UNKNOWN, Unknown, is_unknown

STEP = "step"
SCOPE = "scope"
REPEAT = "repeat"


class Changes:
    """What was set since a fork: names, records by step id, scopes, and which names were exported."""

    __slots__ = (
        "dropped", "executions", "exports", "loops", "names", "records", "scopes", "shadowed", "skipped_write",
    )  # fmt: skip

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.records: dict[str, tuple[Any, Any]] = {}
        # Scopes that were forgotten come before what was set in them afterwards.
        self.dropped: dict[tuple[str, ...], None] = {}
        self.scopes: dict[tuple[str, ...], dict[str, Any]] = {}
        self.exports: dict[str, Any] = {}
        self.shadowed: set[str] = set()
        self.loops: set[str] = set()
        self.executions: dict[int, int] = {}
        self.skipped_write = False

    def archive(self) -> dict[str, Any]:
        """What an iteration leaves behind: its names, and its records by step id."""
        return {step_id: record for step_id, (record, _) in self.records.items()} | self.names


class State:
    """Names, records and scopes at one point of one lane."""

    __slots__ = ("bare", "changes", "counts", "executions", "loops", "root", "shadowed", "skipped_write")

    def __init__(self, names: Mapping[str, Any]) -> None:
        self.root: dict[str, Any] = {**names, STEP: {}, SCOPE: {}}
        # Names that are no step ids: inputs, constants, outputs. They win over a step of the same name.
        self.bare: set[str] = set(names)
        self.counts: dict[str, Any] = {}
        # Steps with an output called `status`, which is what `.id.status` then reads.
        self.shadowed: set[str] = set()
        # Steps whose record is the results of a loop.
        self.loops: set[str] = set()
        # Where outcomes are explored: how often each step has executed on any way that leads here.
        self.executions: dict[int, int] = {}
        # A step that may write was only assumed on a way that leads here: the world is not as the run would have it.
        self.skipped_write = False
        self.changes: Changes | None = None

    def fork(self) -> "State":
        """A copy for a lane or an iteration, which remembers what it changes."""
        copy = State.__new__(State)
        copy.root = {**self.root, STEP: dict(self.root[STEP])}
        copy.bare = set(self.bare)
        copy.counts = dict(self.counts)
        copy.shadowed = set(self.shadowed)
        copy.loops = set(self.loops)
        copy.executions = dict(self.executions)
        copy.skipped_write = self.skipped_write
        copy.changes = Changes()
        return copy

    # --- setting

    def set_name(self, name: str, value: Any) -> None:
        """Set a global name."""
        self.root[name] = value
        self.bare.add(name)
        if self.changes is not None:
            self.changes.names[name] = value

    def export(self, name: str, value: Any) -> None:
        """Make a value global; unlike other names it survives the iteration it is set in."""
        self.set_name(name, value)
        if self.changes is not None:
            self.changes.exports[name] = value

    def set_record(self, step_id: str, outputs: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Set the record of a step: as `.id` its outputs come first, as `.step.id` what gert says of it."""
        if "status" in outputs:
            self._mark(shadowed={step_id})
        if step_id in self.counts:
            facts = {**facts, "retry_count": self.counts[step_id]}
        self._set_records(step_id, {**facts, **outputs}, {**outputs, **facts})

    def set_results(self, step_id: str, results: Any, status: str) -> None:
        """Set the results of a loop: a list or a map; what gert says of it is under `.step`."""
        by_name = results if isinstance(results, dict) else {str(index): each for index, each in enumerate(results)}
        facts = {"status": status}
        if step_id in self.counts:
            facts["retry_count"] = self.counts[step_id]
        self._mark(loops={step_id})
        self._set_records(step_id, results, {**by_name, **facts})

    def _mark(self, *, shadowed: Set[str] = frozenset(), loops: Set[str] = frozenset()) -> None:
        for known in (self, self.changes):
            if known is not None:
                known.shadowed |= shadowed
                known.loops |= loops

    def set_status(self, step_id: str, status: str) -> None:
        """Note how a step ended that set nothing: what it set before stays."""
        if isinstance(self.root[STEP].get(step_id), Unknown):
            return  # nothing is known of it, and one fact does not change that
        record, own = self._records(step_id)
        if step_id in self.loops:
            self._set_records(step_id, self.root.get(step_id), {**own, "status": status})
            return
        shown = record if step_id in self.shadowed else {**record, "status": status}
        self._set_records(step_id, shown, {**own, "status": status})

    def _records(self, step_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
        own = self.root[STEP].get(step_id)
        record = None if step_id in self.bare else self.root.get(step_id)
        return (record if isinstance(record, dict) else {}), (own if isinstance(own, dict) else {})

    def _set_records(self, step_id: str, record: Any, own: Any) -> None:
        self.root[STEP][step_id] = own
        if step_id not in self.bare:
            self.root[step_id] = record
        if self.changes is not None:
            self.changes.records[step_id] = (record, own)

    def set_scoped(self, scope: tuple[str, ...], values: Mapping[str, Any]) -> None:
        """Set values in a scope."""
        self.root[SCOPE] = _grafted(self.root[SCOPE], scope, values)
        if self.changes is not None:
            self.changes.scopes.setdefault(scope, {}).update(values)

    def drop_scope(self, scope: tuple[str, ...]) -> None:
        """Forget what a scope holds: a block that runs again begins anew."""
        self.root[SCOPE] = _pruned(self.root[SCOPE], scope)
        if self.changes is not None:
            kept = {path: values for path, values in self.changes.scopes.items() if path[: len(scope)] != scope}
            self.changes.scopes = kept
            self.changes.dropped[scope] = None

    def set_unknown(self, step_id: str) -> None:
        """Nobody knows what a loop gave, not even how much."""
        self._set_records(step_id, UNKNOWN, UNKNOWN)

    def blur(self, step_id: str | None, names: Iterable[str]) -> None:
        """Forget what a step has set, wherever it did: nobody knows how often it ran."""
        for name in names:
            if name in self.bare:
                self.set_name(name, UNKNOWN)
        if step_id is not None and step_id in self.root[STEP]:
            self.set_unknown(step_id)
        self.root[SCOPE] = _blurred(self.root[SCOPE])
        if self.changes is not None:
            self.changes.scopes = {scope: _blurred(values) for scope, values in self.changes.scopes.items()}

    def count(self, step_id: str, jumps: int | Unknown) -> None:
        """Note how often a jump was taken, on a step it comes from or leads to."""
        self.counts[step_id] = jumps
        if isinstance(self.root[STEP].get(step_id), Unknown):
            return
        record, own = self._records(step_id)
        # The results of a loop are a list, or a map of the author's keys: nothing of ours belongs among them.
        shown = self.root.get(step_id) if step_id in self.loops else {**record, "retry_count": jumps}
        self._set_records(step_id, shown, {**own, "retry_count": jumps})

    def set_executions(self, step: int, count: int) -> None:
        """Note how often a step has executed for certain."""
        self.executions[step] = count
        if self.changes is not None:
            self.changes.executions[step] = count

    def skip_write(self) -> None:
        """Note that a step which may write was only assumed."""
        self.skipped_write = True
        if self.changes is not None:
            self.changes.skipped_write = True

    # --- joining

    def merge(self, changes: Changes) -> None:
        """Take over everything a lane set."""
        self.take_lasting(changes)
        for name, value in changes.names.items():
            self.set_name(name, value)
        for step_id, (record, own) in changes.records.items():
            self._set_records(step_id, record, own)
        self._mark(shadowed=changes.shadowed, loops=changes.loops)
        if self.changes is not None:
            self.changes.exports.update(changes.exports)

    def keep(self, changes: Changes) -> None:
        """Take over what survives an iteration: exports, and scopes."""
        self.take_lasting(changes)
        for name, value in changes.exports.items():
            self.export(name, value)

    def take_lasting(self, changes: Changes) -> None:
        """Take over what was forgotten and set in scopes, how often steps have executed, and skipped writes."""
        if changes.skipped_write:
            self.skip_write()
        for step, count in changes.executions.items():
            self.set_executions(step, max(count, self.executions.get(step, 0)))
        for scope in changes.dropped:
            self.drop_scope(scope)
        for scope, values in changes.scopes.items():
            self.set_scoped(scope, values)

    def doubt(self, ways: Iterable["State | None"]) -> None:
        """Take over what several ways may have set, of which nobody knows which is taken; None is no change.

        What all of them agree on is known afterwards. What executed on one of them may not have, and does not count.
        """
        ways = tuple(ways)
        changed = [way.changes for way in ways if way is not None and way.changes is not None]
        certain = len(changed) == len(ways)
        for scope in dict.fromkeys(scope for each in changed for scope in each.dropped):
            before = _found(self.root[SCOPE], scope)
            if before is not None:
                self.set_scoped(scope, _blurred(before))
        for scope in dict.fromkeys(scope for each in changed for scope in each.scopes):
            names = dict.fromkeys(name for each in changed for name in each.scopes.get(scope, ()))
            self.set_scoped(scope, dict.fromkeys(names, UNKNOWN))
        for name in dict.fromkeys(name for each in changed for name in each.names):
            value = _agreed([each.names.get(name, UNKNOWN) for each in changed], certain=certain)
            if any(name in each.exports for each in changed):
                self.export(name, value)
            else:
                self.set_name(name, value)
        for step_id in dict.fromkeys(step_id for each in changed for step_id in each.records):
            both = [each.records.get(step_id, (UNKNOWN, UNKNOWN)) for each in changed]
            records = _agreed([record for record, _ in both], certain=certain)
            self._set_records(step_id, records, _agreed([own for _, own in both], certain=certain))
        if any(each.skipped_write for each in changed):
            self.skip_write()
        for each in changed:
            self._mark(shadowed=each.shadowed, loops=each.loops)


def _agreed(values: list[Any], *, certain: bool) -> Any:
    """What all ways have come to, if it is one value and known; `1` is not `true`."""
    if not certain or any(is_unknown(value) for value in values):
        return UNKNOWN
    first = _COMPARED.encode(values[0])
    return values[0] if all(_COMPARED.encode(value) == first for value in values[1:]) else UNKNOWN


_COMPARED = msgspec.json.Encoder(order="sorted")


def _blurred(tree: Any) -> Any:
    return {key: _blurred(value) for key, value in tree.items()} if isinstance(tree, dict) else UNKNOWN


def _found(tree: Any, path: tuple[str, ...]) -> dict[str, Any] | None:
    for segment in path:
        tree = tree.get(segment) if isinstance(tree, dict) else None
    return tree if isinstance(tree, dict) else None


def _pruned(tree: Any, path: tuple[str, ...]) -> Any:
    if not isinstance(tree, dict) or path[0] not in tree:
        return tree
    node = dict(tree)
    rest = _pruned(node[path[0]], path[1:]) if len(path) > 1 else {}
    if rest == {}:
        del node[path[0]]
    else:
        node[path[0]] = rest
    return node


def _grafted(tree: Any, path: tuple[str, ...], values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a tree with values set at a path; what is not on the way is shared."""
    node = dict(tree) if isinstance(tree, dict) else {}
    if not path:
        return {**node, **values}
    node[path[0]] = _grafted(node.get(path[0]), path[1:], values)
    return node
