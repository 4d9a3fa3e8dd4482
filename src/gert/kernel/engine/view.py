"""The part of the state a step may see (kernel-v0 §7, visibility)."""

from collections.abc import Mapping
from typing import Any

from gert.kernel.engine.state import REPEAT, STEP
from gert.kernel.foundation.globs import Visibility, filter_view


def visible(root: Mapping[str, Any], visibility: Visibility, items: Mapping[str, Any]) -> dict[str, Any]:
    """What of the state is visible; the items of the loops around are always.

    A record has two names, `.id` and `.step.id`. A glob that denies one of them denies the record, and one that
    allows either allows it; otherwise a step could reach by one name what is hidden under the other.
    """
    records: dict[str, Any] = root[STEP]
    names = {name: value for name, value in root.items() if name != STEP}
    hidden = Visibility(None, (glob.text for glob in visibility.deny))
    seen = filter_view(names, hidden)
    seen_records = filter_view(records, hidden)
    seen_records = filter_view({STEP: seen_records}, hidden).get(STEP, {})
    for step_id in records.keys() & seen.keys():
        # What is denied as `.step.id.x` is denied as `.id.x`, too.
        denied = filter_view({STEP: {step_id: seen[step_id]}}, hidden).get(STEP, {})
        seen[step_id] = denied.get(step_id)
    if visibility.allow is not None:
        allowed = Visibility((glob.text for glob in visibility.allow), None)
        by_id = filter_view(seen_records, allowed)
        by_step = filter_view({STEP: seen_records}, allowed).get(STEP, {})
        twice = filter_view({STEP: {each: seen[each] for each in records.keys() & seen.keys()}}, allowed).get(STEP, {})
        seen = _united(filter_view(seen, allowed), twice)
        seen_records = _united(by_id, by_step)
    loops = {REPEAT: root[REPEAT]} if REPEAT in root else {}
    return {**seen, STEP: seen_records, **loops, **items}


def _united(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Two parts of one tree together."""
    both = dict(one)
    for key, value in other.items():
        mine = both.get(key)
        both[key] = _united(mine, value) if isinstance(mine, dict) and isinstance(value, dict) else value
    return both
