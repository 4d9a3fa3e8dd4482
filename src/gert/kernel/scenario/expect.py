"""Compares a run with the expectations of a test; a difference has what was expected, what was found, and a hint."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from gert.kernel.foundation.names import listing, suggestion
from gert.kernel.foundation.patterns import MAX_PATTERN, compile_pattern
from gert.kernel.foundation.text import printable
from gert.kernel.foundation.values import show
from gert.kernel.runbook.documents.expectations import Expectations
from gert.kernel.runbook.places import is_index
from gert.kernel.scenario.absent_items import absent_items
from gert.kernel.scenario.commands import ARGV, command_text, shown_pair
from gert.kernel.scenario.decisions import DECISION, as_map, unmet_settings
from gert.kernel.scenario.observed import RunObservation
from gert.kernel.template import render_text

COMPLETED: Final = "completed"
_EXPECTATIONS: Final = tuple(name for name in Expectations.fields if name.startswith(("expected_", "must_")))
_MAX_SHOWN: Final = 200
_BOTH_ENDS: Final = MAX_PATTERN // 5


class Difference(msgspec.Struct, frozen=True):
    """One expectation that was not met.

    name: the key of the expectation, and the entry in it
    """

    name: str
    expected: str
    found: str
    hint: str | None = None

    def __str__(self) -> str:
        return f"{self.name}: expected {self.expected}, found {self.found}"


def expects(expected: Expectations | None, without: Collection[str] = ()) -> bool:
    """Return whether a test expects anything, apart from the keys in `without`."""
    return any(getattr(expected, name, None) for name in _EXPECTATIONS if name not in without)


def differences(expected: Expectations | None, seen: RunObservation, missing: list[str]) -> Iterator[Difference]:
    """Yield every unmet expectation; without expectations, the run has to complete."""
    for message in missing:
        # Even if the run continued without: a test that omits answers does not test what it describes.
        yield Difference("scenario", "an answer to every request", message)
    if expected is None or not expects(expected):
        yield from _same("expected_status", COMPLETED, seen.status, _why(seen))
        return
    for rule in _RULES:
        yield from rule(expected, seen)


def _same(name: str, expected: str | None, found: str | None, hint: str | None = None) -> Iterator[Difference]:
    if expected is not None and expected != found:
        yield Difference(name, f"`{expected}`", f"`{found}`" if found is not None else "none", hint)


def _why(seen: RunObservation) -> str | None:
    """Return the failure of the run, as a hint."""
    if seen.failure is None:
        return None
    where = f"`{seen.failed_step}`: " if seen.failed_step else ""
    return f"{where}{seen.failure.message}"


def _status(expected: Expectations, seen: RunObservation) -> Iterator[Difference]:
    yield from _same("expected_status", expected.expected_status, seen.status, _why(seen))


def _outcome(expected: Expectations, seen: RunObservation) -> Iterator[Difference]:
    outcome = seen.outcome
    hint = _why(seen)
    if hint is None and seen.ends:
        hint = f"the run ended at `{next(reversed(seen.ends))}`"
    found = outcome.category if outcome is not None else None
    yield from _same("expected_outcome", expected.expected_outcome, found, hint)
    yield from _same("expected_code", expected.expected_code, outcome.code if outcome is not None else None, hint)


def failure_differences(expected: Expectations, seen: RunObservation) -> Iterator[Difference]:
    """Yield how the failure of the run differs."""
    want = expected.expected_failure
    if want is None:
        return
    found = seen.failure
    if found is None:
        yield Difference("expected_failure", "that the run fails", "that it did not", _route(seen))
        return
    yield from _same("expected_failure.kind", want.kind, found.kind, _why(seen))
    if want.step is not None and not seen.is_failed_at(want.step):
        yield from _same("expected_failure.step", want.step, seen.failed_step, _why(seen))
    if want.message is not None and not _contains(want.message, found.message):
        said = f"`{want.message}` in the message" if not _is_pattern(want.message) else _expected_text(want.message)
        yield Difference("expected_failure.message", said, shown(found.message), _why(seen))


def _contains(want: str, message: str) -> bool:
    return matches(want, message) if _is_pattern(want) else want in message


def _reached(expected: Expectations, seen: RunObservation) -> Iterator[Difference]:
    for name in expected.must_reach:
        if not seen.is_reached(name):
            yield Difference("must_reach", f"`{name}` to be reached", "that it was not reached", _route(seen))
    for name in expected.must_not_reach:
        if seen.is_reached(name):
            yield Difference("must_not_reach", f"`{name}` not to be reached", "that it was reached", _route(seen))
        elif absent := next((each for each in absent_items(name, seen.loops) if each.is_impossible), None):
            # It would pass, whatever the loop does.
            hint = f"name an item by its {'key' if is_index(absent.item) else 'index'}"
            wanted = f"`{name}` to be an item of `{absent.loop}`"
            yield Difference("must_not_reach", wanted, f"that {absent.found}", hint)


def absence_notes(expected: Expectations, seen: RunObservation) -> Iterator[str]:
    """Yield the items that must not be reached and that their loops did not have: perhaps they are misspelt."""
    for name in expected.must_not_reach:
        for absent in absent_items(name, seen.loops):
            if not absent.is_impossible:
                yield f"must_not_reach `{name}`: {absent}"


def _route(seen: RunObservation) -> str:
    steps = [name for name in seen.visited if not name.endswith("]")]
    shown = " → ".join(steps[-8:])
    return f"the run took {'… → ' if len(steps) > 8 else ''}{shown}" if steps else "no step ran"


def _outputs(expected: Expectations, seen: RunObservation) -> Iterator[Difference]:
    for name, want in expected.expected_outputs.items():
        is_there, found = seen.output(name)
        if not is_there:
            hint = suggestion(name, seen.outputs) or _names_hint(seen.outputs)
            yield Difference(f"expected_outputs.{name}", _expected_text(want), "no such output", hint)
        else:
            yield from _value(f"expected_outputs.{name}", want, found)


def _meta(expected: Expectations, seen: RunObservation) -> Iterator[Difference]:
    meta: Mapping[str, Any] = seen.outcome.meta if seen.outcome is not None else {}
    for name, want in expected.expected_meta.items():
        if name not in meta:
            yield Difference(f"expected_meta.{name}", _expected_text(want), "nothing", _names_hint(meta))
        else:
            yield from _value(f"expected_meta.{name}", want, meta[name])


def _names_hint(names: Mapping[str, Any]) -> str:
    return f"there are {listing(names, 10)}" if names else "there are none"


def _value(name: str, want: Any, found: Any) -> Iterator[Difference]:
    if matches(want, found):
        return
    is_text = not _is_pattern(want) and render_text(want) == render_text(found)
    yield Difference(name, _expected_text(want), shown(found), "the types differ" if is_text else None)


def matches(want: Any, found: Any) -> bool:
    """Return whether a value equals the expected one; `/…/` is a regular expression at any depth."""
    if _is_pattern(want):
        return compile_pattern(want[1:-1]).search(render_text(found)) is not None
    if isinstance(want, Mapping) and isinstance(found, Mapping):
        return want.keys() == found.keys() and all(matches(each, found[name]) for name, each in want.items())
    if isinstance(want, list) and isinstance(found, list):
        return len(want) == len(found) and all(map(matches, want, found))
    return isinstance(want, bool) == isinstance(found, bool) and bool(want == found)


def literal(value: Any) -> Any:
    """Return an expectation of exactly this value; text such as `/opt/c++/` would be read as a pattern."""
    if _is_pattern(value):
        return _exact_pattern(value)
    if isinstance(value, Mapping):
        return {name: literal(each) for name, each in value.items()}
    return [literal(each) for each in value] if isinstance(value, list) else value


def _exact_pattern(text: str) -> str:
    """Return a pattern for exactly this text; for one longer than a pattern may be, its beginning and end."""
    pattern = f"^{re.escape(text)}$"
    if len(pattern) > MAX_PATTERN:
        pattern = f"^{re.escape(text[:_BOTH_ENDS])}(?s:.*){re.escape(text[-_BOTH_ENDS:])}$"
    return f"/{pattern}/"


def shown(value: Any) -> str:
    """Format a value for a message: maps and lists as JSON, shortened."""
    if not isinstance(value, Mapping | list | tuple):
        return show(value)
    text = printable(render_text(value))
    return f"`{text}`" if len(text) <= _MAX_SHOWN else f"`{text[:_MAX_SHOWN]}…`"


def _is_pattern(want: Any) -> bool:
    return isinstance(want, str) and len(want) > 2 and want[0] == want[-1] == "/"


def _expected_text(want: Any) -> str:
    return f"something that matches `{want}`" if _is_pattern(want) else shown(want)


def _decisions(expected: Expectations, seen: RunObservation) -> Iterator[Difference]:
    for step, word in expected.expected_risk.items():
        found = seen.decision_on(step)
        said = found[1].word if found is not None else None
        yield from _same(f"expected_risk.{step}", word, said, _undecided_hint(found))
    for step, want in expected.expected_decisions.items():
        yield from _decision(step, want, seen)


def _decision(step: str, want: Any, seen: RunObservation) -> Iterator[Difference]:
    """Yield how the decision about a step differs; what rules require beside the verdict is not in a trace."""
    name, wanted, found = f"expected_decisions.{step}", as_map(want), seen.decision_on(step)
    if found is None:
        yield from _same(name, wanted.get(DECISION, "a decision"), None, _undecided_hint(found))
        return
    yield from _same(name, wanted.get(DECISION), found[0].word)
    rules = seen.rules_on(step)
    if rules is not None:
        hint = f"decided by {rules.rule}" if rules.rule else None
        for setting, before, after in unmet_settings(wanted, rules):
            yield Difference(f"{name}.{setting}", before, after, hint)


def _undecided_hint(found: object) -> str | None:
    return "there is no decision: the step was not reached" if found is None else None


def _commands(expected: Expectations, seen: RunObservation) -> Iterator[Difference]:
    for step, want in expected.expected_commands.items():
        yield from command_differences(step, want, seen)


def command_differences(step: str, want: Any, seen: RunObservation) -> Iterator[Difference]:
    """Yield how the commands of a step differ: one is expected of every call, a list of one call after the other."""
    name, found = f"expected_commands.{step}", seen.commands(step)
    if seen.program is None and (not found or any(command is None for _, command in found)):
        return  # a trace has only the commands that were approved
    if not found:
        yield Difference(name, _wanted_command(want), "that it was not run", _route(seen))
        return
    if isinstance(want, list) and len(want) != len(found):
        yield Difference(name, f"{len(want)} commands", f"{len(found)}", _route(seen))
    pairs = zip(want if isinstance(want, list) else [want] * len(found), found, strict=False)
    for wanted, (call, command) in pairs:
        for part, value in wanted.items():
            is_there, there = part in (command or {}), (command or {}).get(part)
            if matches(value, there) if is_there else value is None:
                continue
            before, after = shown_pair("none" if value is None else command_text(value), command_text(there))
            hint = f"at `{call.path}`" if len(found) > 1 else None
            yield Difference(name if part == ARGV else f"{name}.{part}", before, after if is_there else "none", hint)
            if not isinstance(want, list):
                return  # it is expected of every call, so the others say the same


def _wanted_command(want: Any) -> str:
    first = want[0] if isinstance(want, list) else want
    return shown_pair(text := command_text(first.get(ARGV, first)), text)[0]


def _events(expected: Expectations, seen: RunObservation) -> Iterator[Difference]:
    if seen.pending:
        kind, step = seen.pending[-1]
        wanted = f"the event `{kind}{f' {step}' if step else ''}`"
        before = len(expected.expected_events) - len(seen.pending)
        after = f"after `{expected.expected_events[before - 1]}`" if before else "in the run"
        yield Difference("expected_events", wanted, f"none {after}")


_RULES: Final[tuple[Callable[[Expectations, RunObservation], Iterator[Difference]], ...]] = (
    _status,
    _outcome,
    failure_differences,
    _reached,
    _outputs,
    _meta,
    _decisions,
    _commands,
    _events,
)
