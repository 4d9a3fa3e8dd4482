"""What a decision requires beside its verdict: compared by tests of policies and scenarios, written by recordings."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from gert.kernel.foundation.duration import format_duration, parse_duration
from gert.kernel.foundation.names import listing
from gert.kernel.governance.decide import Approvers, Decision
from gert.kernel.governance.verdict import Verdict

DECISION: Final = "decision"
_PLAIN: Final = (
    "min_approvers",
    "separation_of_duties",
    "require_signed_approvals",
    "on_timeout",
    "break_glass",
    "violations_deny",
    "serialize",
)
_OF_STEP: Final = frozenset({"break_glass", "violations_deny", "serialize", "max_targets", "max_per_hour"})
"""Settings that do not need an approval to have an effect."""


def settings_of(decision: Decision) -> dict[str, Any]:
    """Return all settings of a decision, by the names of rules."""
    escalated = decision.escalations if decision.on_timeout == "escalate" else frozenset()
    return {
        **{name: getattr(decision, name) for name in _PLAIN},
        "max_targets": decision.limits.max_targets,
        "max_per_hour": decision.limits.max_per_hour,
        "approval_timeout": format_duration(timedelta(seconds=decision.approval_timeout)),
        "approvers": _listed(decision.approvers),
        "escalate_to": _listed(escalated),
        "notify": sorted(decision.notify),
    }


def unmet_settings(want: Mapping[str, Any], decision: Decision) -> Iterator[tuple[str, str, str]]:
    """Yield each setting that is not as expected: its name, and both values as text."""
    yield from different_settings({name: _normal(name, each) for name, each in want.items()}, settings_of(decision))


def different_settings(want: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the settings of the first that are different in the second."""
    for name, each in found.items():
        if name in want and want[name] != each:
            yield name, shown_setting(want[name]), shown_setting(each)


def written_decision(word: str, decision: Decision | None) -> Any:
    """Return a decision as a recorded test expects it: its verdict, and what differs from the defaults.

    It also says that there is no emergency override: a rule that later allows one is a weaker rule.
    """
    if decision is None:
        return word
    verdict = decision.verdict
    asks = verdict is Verdict.REQUIRE_APPROVAL
    default = settings_of(Decision(verdict=verdict, min_approvers=1, bars_break_glass=True))
    found = {
        name: each
        for name, each in settings_of(decision).items()
        if (asks or name in _OF_STEP) and (each != default[name] or (name == "break_glass" and word != "allow"))
    }
    return {DECISION: word, **found} if found else word


def as_map(want: Any) -> Mapping[str, Any]:
    """Return an expected decision as a map; a word is its verdict."""
    return want if isinstance(want, Mapping) else {DECISION: want}


def _normal(name: str, value: Any) -> Any:
    if name == "approval_timeout":
        return format_duration(parse_duration(value))
    return sorted(value) if isinstance(value, list | tuple) else value


def shown_setting(value: Any) -> str:
    """Format a setting for a message."""
    if value is None:
        return "none"
    if isinstance(value, list):
        return listing(value) or "no one"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _listed(lists: Iterable[Approvers]) -> list[str]:
    return sorted(frozenset().union(*(each.listed for each in lists)))
