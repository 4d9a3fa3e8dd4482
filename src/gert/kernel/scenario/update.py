"""Updates the expectations of a test so that its run passes, without adding new ones."""

from collections.abc import Iterable, Mapping
from typing import Any

from gert.kernel.runbook.documents.expectations import Expectations
from gert.kernel.runbook.model import Model
from gert.kernel.scenario.commands import as_written
from gert.kernel.scenario.decisions import DECISION, as_map, settings_of, unmet_settings
from gert.kernel.scenario.expect import (
    COMPLETED,
    command_differences,
    expects,
    failure_differences,
    literal,
    matches,
)
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
    maps: dict[str, dict[str, Any]] = {
        "expected_failure": _failure(expected, seen),
        "expected_commands": _commands(expected, seen),
        "expected_outputs": _values(expected.expected_outputs, seen.output),
        "expected_meta": _values(expected.expected_meta, lambda name: _meta(seen, name)),
        "expected_risk": _risks(expected.expected_risk, seen),
        "expected_decisions": _decisions(expected.expected_decisions, seen),
    }
    for name, value in (lists | maps).items():
        old = _plain(getattr(expected, name))
        if old != value:
            changes[name] = value or None
    if changes.get("expected_commands"):
        changes["expected_commands"] = {
            step: [as_written(each) for each in now] if isinstance(now, list) else as_written(now)
            for step, now in changes["expected_commands"].items()
        }
    gone = [name for name, value in changes.items() if value is None]
    if seen.status != COMPLETED and not expects(expected, without=gone):
        # Without expectations a run has to complete, and this one does not.
        changes["expected_status"] = seen.status
    return changes


def _plain(value: Any) -> Any:
    """Return the value of a key as it is written in a test."""
    if isinstance(value, Model):
        given = {name: getattr(value, name) for name in value.fields}
        return {name: each for name, each in given.items() if each is not None}
    return list(value) if isinstance(value, tuple) else value or {}


def _failure(expected: Expectations, seen: RunObservation) -> dict[str, Any]:
    """Return where and why the run failed, in the keys that the test has; what still holds is kept."""
    want, found = _plain(expected.expected_failure), seen.failure
    if found is None or not want:
        return {}
    now = {"step": seen.failed_step, "kind": found.kind, "message": literal(found.message)}
    unmet = {each.name.rpartition(".")[2] for each in failure_differences(expected, seen)}
    return {name: now[name] if name in unmet else value for name, value in want.items()}


def _commands(expected: Expectations, seen: RunObservation) -> dict[str, Any]:
    """Return the same steps with the commands they run now; expectations that still hold are kept."""
    found: dict[str, Any] = {}
    for step, want in expected.expected_commands.items():
        commands = [command or {} for _, command in seen.commands(step)]
        if not any(command_differences(step, want, seen)):
            found[step] = want
        elif commands:
            parts = dict.fromkeys(part for each in (want if isinstance(want, list) else [want]) for part in each)
            now = [{part: literal(each.get(part)) for part in parts} for each in commands]
            found[step] = now[0] if all(each == now[0] for each in now) else now
    return found


def _risks(expected: Iterable[str], seen: RunObservation) -> dict[str, str]:
    found = ((name, seen.decision_on(name)) for name in expected)
    return {name: decided[1].word for name, decided in found if decided is not None}


def _decisions(expected: Mapping[str, Any], seen: RunObservation) -> dict[str, Any]:
    """Return the same steps with the decisions about them now, in the keys that the test has."""
    values: dict[str, Any] = {}
    for step, want in expected.items():
        decided, rules = seen.decision_on(step), seen.rules_on(step)
        if decided is None:
            continue
        now: dict[str, Any] = {DECISION: decided[0].word}
        if rules is not None:
            found = settings_of(rules)
            now |= {name: found[name] for name, _, _ in unmet_settings(as_map(want), rules)}
        is_map = isinstance(want, Mapping)
        values[step] = {name: now.get(name, each) for name, each in want.items()} if is_map else now[DECISION]
    return values


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
