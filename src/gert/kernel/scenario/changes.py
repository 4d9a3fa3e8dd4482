"""Compares two runs of one scenario: how they ended, the steps they reached, decisions and outputs."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from gert.errors import GertError
from gert.kernel.events.payload import plain
from gert.kernel.foundation.canonical import digest
from gert.kernel.foundation.secret_refs import masked
from gert.kernel.foundation.text import printable
from gert.kernel.runbook.documents.expectations import Expectations
from gert.kernel.scenario.commands import ARGV, command_text, comparable, shown_pair
from gert.kernel.scenario.decisions import DECISION, as_map, different_settings, settings_of, unmet_settings
from gert.kernel.scenario.expect import (
    COMPLETED,
    command_differences,
    expects,
    failure_differences,
    matches,
    shown,
)
from gert.kernel.scenario.observed import RunObservation

NOTHING: Final = "nothing"
_MAX_DEPTH: Final = 200
_MAX_MESSAGE: Final = 200
_ENCODER: Final = msgspec.json.Encoder(enc_hook=plain)


class Ending(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a run ended; unknown parts are None."""

    status: str | None = None
    category: str | None = None
    code: str | None = None
    failure: str | None = None
    failed_step: str | None = None

    def __str__(self) -> str:
        if self.category is not None or self.code is not None:
            return f"{self.category or '?'} ({self.code})" if self.code is not None else f"{self.category}"
        if self.status is None:
            return "anything"
        where = f" at {self.failed_step}" if self.failed_step is not None else ""
        return f"{self.status}{where}" + (f" ({self.failure})" if self.failure is not None else "")


class Changed(msgspec.Struct, frozen=True):
    """One difference, as text that is safe to show."""

    name: str
    before: str
    after: str


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that changed.

    reached, unreached: steps newly reached, and no longer reached, in the order of their run
    """

    before: Ending
    after: Ending
    outcome_changed: bool = False
    reached: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()
    failure: Changed | None = None
    meta: tuple[Changed, ...] = ()
    decisions: tuple[Changed, ...] = ()
    risks: tuple[Changed, ...] = ()
    outputs: tuple[Changed, ...] = ()
    commands: tuple[Changed, ...] = ()

    @property
    def is_none(self) -> bool:
        """Whether nothing changed."""
        listed = (self.reached, self.unreached, self.meta, self.decisions, self.risks, self.outputs, self.commands)
        return not (self.outcome_changed or self.failure or any(listed))


def ending_of(seen: RunObservation) -> Ending:
    """Return how a run ended."""
    outcome, failure = seen.outcome, seen.failure
    return Ending(
        seen.status,
        outcome.category if outcome is not None else None,
        masked(outcome.code) if outcome is not None else None,
        failure.kind if failure is not None else None,
        seen.failed_step,
    )


def changes(before: RunObservation, after: RunObservation, expected: Expectations | None = None) -> Changes:
    """Return what changed from the first run to the second.

    expected: the test of a trace: it also expects commands that the trace does not have
    """
    first, second = ending_of(before), ending_of(after)
    commands = tuple(_command_changes(before, after))
    told = {path for path in before.calls if any(each.name.startswith(path) for each in commands)}
    both = [step for step in before.visited if step in after.visited]
    outputs = ((step, before.by_step.get(step, {}), after.by_step.get(step, {})) for step in both)
    return Changes(
        before=first,
        after=second,
        outcome_changed=(first.status, first.category, first.code) != (second.status, second.category, second.code),
        reached=tuple(_only(after.visited, before.visited)),
        unreached=tuple(_only(before.visited, after.visited)),
        failure=_failure(before, after),
        meta=tuple(_values("", _meta(before), _meta(after))) if before.outcome and after.outcome else (),
        decisions=(*_decision_changes(before.decisions, after.decisions), *_rule_changes(before, after, expected)),
        risks=tuple(_decision_changes(before.risks, after.risks)),
        outputs=tuple(change for step, old, new in outputs for change in _values(f"{step}.", old, new)),
        commands=(*commands, *_expected_commands(expected, after, told)),
    )


def changes_since(expected: Expectations | None, after: RunObservation) -> Changes:
    """Return what differs from a test; what the test does not mention cannot have changed."""
    second = ending_of(after)
    failure = Changed("failure", NOTHING, _why(after)) if after.failure is not None else None
    if expected is None or not expects(expected):
        changed = second.status != COMPLETED
        return Changes(
            before=Ending(COMPLETED), after=second, outcome_changed=changed, failure=failure if changed else None
        )
    first = Ending(expected.expected_status, expected.expected_outcome, expected.expected_code)
    pairs = ((first.status, second.status), (first.category, second.category), (first.code, second.code))
    changed = any(old is not None and old != new for old, new in pairs)
    return Changes(
        before=first,
        after=second,
        outcome_changed=changed,
        failure=_unexpected_failure(expected, after) or (failure if changed else None),
        reached=tuple(name for name in expected.must_not_reach if after.is_reached(name)),
        unreached=tuple(name for name in expected.must_reach if not after.is_reached(name)),
        meta=tuple(_unmatched(expected.expected_meta, lambda name: (name in _meta(after), _meta(after).get(name)))),
        decisions=tuple(_expected_decisions(expected, after)),
        risks=tuple(_expected_risks(expected.expected_risk, after)),
        outputs=tuple(_unmatched(expected.expected_outputs, after.output)),
        commands=tuple(_expected_commands(expected, after)),
    )


def _only(these: Mapping[str, None], others: Mapping[str, None]) -> Iterator[str]:
    """Yield the steps that one run visited and the other did not; unnamed steps are left to their effects."""
    for name in these:
        base = name.partition("[")[0]
        # An iteration is not listed if its step is.
        if name not in others and "#" not in name and (base == name or base in others):
            yield name


def _failure(before: RunObservation, after: RunObservation) -> Changed | None:
    old, new = _why(before), _why(after)
    return Changed("failure", old, new) if old != new else None


def _unexpected_failure(expected: Expectations, after: RunObservation) -> Changed | None:
    unmet = next(failure_differences(expected, after), None)
    return Changed("failure", unmet.expected, _why(after)) if unmet is not None else None


def _why(seen: RunObservation) -> str:
    if seen.failure is None:
        return NOTHING
    where = f" at `{seen.failed_step}`" if seen.failed_step is not None else ""
    message = printable(masked(seen.failure.message))
    return f"{seen.failure.kind}{where}: {message if len(message) <= _MAX_MESSAGE else message[:_MAX_MESSAGE] + '…'}"


def _meta(seen: RunObservation) -> Mapping[str, Any]:
    return seen.outcome.meta if seen.outcome is not None else {}


def _values(prefix: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Changed]:
    for name in dict.fromkeys((*before, *after)):
        old, new = masked(before.get(name)), masked(after.get(name))
        if (name in before) != (name in after) or not _same(old, new):
            yield Changed(
                f"{prefix}{name}",
                _shown(old) if name in before else NOTHING,
                _shown(new) if name in after else NOTHING,
            )


def _same(old: Any, new: Any, depth: int = _MAX_DEPTH) -> bool:
    """Compare as JSON: `true` is not 1; a value too large for a trace line is compared by its digest there."""
    if depth <= 0:
        return False
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return old.keys() == new.keys() and all(_same(each, new[name], depth - 1) for name, each in old.items())
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        return len(old) == len(new) and all(_same(*pair, depth - 1) for pair in zip(old, new, strict=True))
    if isinstance(old, bool) == isinstance(new, bool) and bool(old == new):
        return True
    return _is_digest_of(old, new) or _is_digest_of(new, old)


def _is_digest_of(text: Any, value: Any) -> bool:
    if not isinstance(text, str) or not (text.startswith("[") and text.endswith("]") and " bytes, sha256:" in text):
        return False
    try:
        encoded = _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return text == f"[{len(encoded)} bytes, {digest(encoded)}]"


def _shown(value: Any) -> str:
    try:
        return shown(value)
    except GertError:
        return "`…`"  # nested too deeply to show


def _decision_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Changed]:
    """Yield changed decisions on steps that both runs reached."""
    changed = {name for name in before if name in after and before[name] != after[name]}
    for name in before:
        base = name.partition("[")[0]
        if name in changed and (base == name or base not in changed):
            yield Changed(name, before[name].word, after[name].word)


def _rule_changes(before: RunObservation, after: RunObservation, expected: Expectations | None) -> Iterator[Changed]:
    """Yield what rules require of steps by now; a trace does not have it, and its test may."""
    if before.program is None:
        yield from _expected_rules(expected, after)
        return
    for name in (name for name in before.decisions if name in after.decisions and "[" not in name):
        old, new = before.rules_on(name), after.rules_on(name)
        if old is not None and new is not None:
            for setting, was, now in different_settings(settings_of(old), settings_of(new)):
                yield Changed(f"{name}.{setting}", was, now)


def _expected_decisions(expected: Expectations | None, seen: RunObservation) -> Iterator[Changed]:
    for step, want in expected.expected_decisions.items() if expected is not None else ():
        word, decided = as_map(want).get(DECISION), seen.decision_on(step)
        if decided is not None and word not in (None, decided[0].word):
            yield Changed(step, word, decided[0].word)
    yield from _expected_rules(expected, seen)


def _expected_rules(expected: Expectations | None, seen: RunObservation) -> Iterator[Changed]:
    """Yield unmet expectations of what rules require; a step that was not reached is told as that."""
    for step, want in expected.expected_decisions.items() if expected is not None else ():
        rules = seen.rules_on(step) if seen.decision_on(step) is not None else None
        for setting, was, now in unmet_settings(as_map(want), rules) if rules is not None else ():
            yield Changed(f"{step}.{setting}", was, now)


def _expected_risks(expected: Mapping[str, str], seen: RunObservation) -> Iterator[Changed]:
    for step, word in expected.items():
        decided = seen.decision_on(step)
        if decided is not None and decided[1].word != word:
            yield Changed(step, word, decided[1].word)


def _command_changes(before: RunObservation, after: RunObservation) -> Iterator[Changed]:
    """Yield changed commands at places that both runs reached."""
    for path in (path for path in before.calls if path in after.calls):
        old, new = before.calls[path], after.calls[path]
        if len(old) != len(new):
            yield Changed(path, f"{len(old)} calls", f"{len(new)} calls")
        for one, other in zip(old, new, strict=False):
            was, now = one.command(before.program), other.command(after.program)
            yield from _part_changes(path, masked(comparable(one, was, now)), masked(comparable(other, now, was)))


def _part_changes(path: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Changed]:
    for part in dict.fromkeys((*was, *now)):
        if (part in was) != (part in now) or not _same(was.get(part), now.get(part)):
            old, new = shown_pair(command_text(was.get(part)), command_text(now.get(part)))
            name = path if part == ARGV else f"{path}.{part}"
            yield Changed(name, old if part in was else NOTHING, new if part in now else NOTHING)


def _expected_commands(
    expected: Expectations | None, seen: RunObservation, told: Collection[str] = ()
) -> Iterator[Changed]:
    """Yield unmet expectations of commands, except at the paths in `told`; a step that did not run is told as that."""
    for step, want in expected.expected_commands.items() if expected is not None else ():
        calls = seen.commands(step)
        if calls and not any(call.path in told for call, _ in calls):
            for each in command_differences(step, want, seen):
                yield Changed(each.name.partition(".")[2], each.expected, each.found)


def _unmatched(expected: Mapping[str, Any], find: Callable[[str], tuple[bool, Any]]) -> Iterator[Changed]:
    for name, want in expected.items():
        is_there, found = find(name)
        if not is_there:
            yield Changed(name, _shown(want), NOTHING)
        elif not matches(want, masked(found)):
            yield Changed(name, _shown(want), _shown(masked(found)))
