"""Updates the expectations of a test so that its run passes, without adding new ones."""

from collections.abc import Iterable
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
    lists = {
        "must_reach": [name for name in expected.must_reach if seen.is_reached(name)],
        "must_not_reach": [name for name in expected.must_not_reach if not seen.is_reached(name)],
        "expected_events": list(expected.expected_events[: len(expected.expected_events) - len(seen.pending)]),
    }
    maps = {
        "expected_outputs": _values(expected.expected_outputs, seen.output),
        "expected_meta": _values(expected.expected_meta, lambda name: _meta(seen, name)),
        "expected_risk": _words(expected.expected_risk, 1, seen),
        "expected_decisions": _words(expected.expected_decisions, 0, seen),
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


def _words(expected: Iterable[str], at: int, seen: RunObservation) -> dict[str, str]:
    found = ((name, seen.decision_on(name)) for name in expected)
    return {name: decided[at].word for name, decided in found if decided is not None}


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
