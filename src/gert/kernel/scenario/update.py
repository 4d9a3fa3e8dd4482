"""Updates the expectations of a test so that its run passes, without adding new ones."""

from typing import Any

from gert.kernel.runbook.documents.expectations import Expectations
from gert.kernel.scenario.expect import COMPLETED, expects, literal, matches
from gert.kernel.scenario.observed import RunObservation


def updates(expected: Expectations, seen: RunObservation) -> dict[str, Any]:
    """Return the keys to change, with their new values; None removes a key."""
    outcome = seen.outcome
    found: dict[str, Any] = {
        "expected_status": seen.status,
        "expected_outcome": outcome.category if outcome is not None else None,
        "expected_code": outcome.code if outcome is not None else None,
    }
    changes = {
        name: value
        for name, value in found.items()
        if getattr(expected, name) is not None and getattr(expected, name) != value
    }
    visited = {**seen.visited, **seen.paths}
    lists = {
        "must_reach": [name for name in expected.must_reach if name in visited],
        "must_not_reach": [name for name in expected.must_not_reach if name not in visited],
        "expected_events": list(expected.expected_events[: len(expected.expected_events) - len(seen.pending)]),
    }
    maps = {
        "expected_outputs": _values(expected.expected_outputs, seen.output),
        "expected_meta": _values(expected.expected_meta, lambda name: _meta(seen, name)),
        "expected_risk": {name: seen.risks[name].word for name in expected.expected_risk if name in seen.risks},
        "expected_decisions": {
            name: seen.decisions[name].word for name in expected.expected_decisions if name in seen.decisions
        },
    }
    for name, value in (lists | maps).items():
        old = getattr(expected, name)
        if (list(old) if isinstance(value, list) else dict(old)) != value:
            changes[name] = value or None
    gone = [name for name, value in changes.items() if value is None]
    if seen.status != COMPLETED and not expects(expected, without=gone):
        # Without expectations a run has to complete, and this one does not.
        changes["expected_status"] = seen.status
    return changes


def _meta(seen: RunObservation, name: str) -> tuple[bool, Any]:
    meta = seen.outcome.meta if seen.outcome is not None else {}
    return name in meta, meta.get(name)


def _values(expected: dict[str, Any], find: Any) -> dict[str, Any]:
    """Return the same names with the found values; a pattern that still matches is kept."""
    values: dict[str, Any] = {}
    for name, want in expected.items():
        is_there, found = find(name)
        if is_there:
            values[name] = want if matches(want, found) else literal(found)
    return values
