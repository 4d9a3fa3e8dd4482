"""The test of a recorded scenario: it expects what the run did, and stays short enough to read."""

from collections.abc import Iterator
from typing import Any, Final

from gert.errors import GertError
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runbook.documents.expectations import ALONE
from gert.kernel.runbook.documents.steps import AssertStep
from gert.kernel.runbook.program import Program
from gert.kernel.runbook.validate.domain.files.scenario_file import step_of
from gert.kernel.runbook.writer import OneLine
from gert.kernel.scenario.commands import ARGV, PREVIEW, Command, ToolCall, as_written
from gert.kernel.scenario.decisions import written_decision
from gert.kernel.scenario.expect import literal
from gert.kernel.scenario.observed import RunObservation
from gert.kernel.template import render_text

_MOST_COMMANDS: Final = 50
_LONGEST: Final = 2000


def recorded_test(seen: RunObservation, description: str) -> dict[str, Any]:
    """Return the test document that expects what happened; it runs by default once it is promoted."""
    outcome = seen.outcome
    document = {
        "description": description,
        "golden": False,
        "expected_status": seen.status,
        "expected_outcome": outcome.category if outcome is not None else None,
        "expected_code": outcome.code if outcome is not None else None,
        "expected_meta": {name: literal(value) for name, value in outcome.meta.items() if _is_short(value)}
        if outcome is not None
        else {},
        "expected_failure": _failure(seen),
        "must_reach": [name for name in seen.visited if _is_step(name)],
        "expected_decisions": dict(_decisions(seen)),
        "expected_commands": _commands(seen),
    }
    return {name: value for name, value in document.items() if value not in (None, [], {})}


def _is_step(name: str) -> bool:
    """Return whether a name is the id of a step, and not its position or one of its items."""
    return "#" not in name and not name.endswith("]")


def _decisions(seen: RunObservation) -> Iterator[tuple[str, Any]]:
    """Yield the decisions that need an approval, deny, or have limits, with what the rules require."""
    for name, verdict in seen.decisions.items():
        written = written_decision(verdict.word, seen.rules_on(name))
        if _is_step(name) and written != Verdict.ALLOW.word:
            yield name, written


def _failure(seen: RunObservation) -> dict[str, str]:
    """Return where and why the run failed; the message only if the runbook has it, as gert may word its own anew."""
    if seen.failure is None or seen.status == "cancelled":
        return {}
    step = seen.failed_step or ""
    where = {"step": step} if step and "#" not in step.rpartition("/")[2] else {}
    message = seen.failure.message
    is_own = seen.failure.kind == "assertion" and _has_messages(step, seen.program)
    why = {"message": literal(message)} if is_own and message and _is_short(message) else {}
    return {**where, "kind": seen.failure.kind, **why}


def _has_messages(name: str, program: Program | None) -> bool:
    """Return whether the runbook says why each assertion of a step fails."""
    step = program.by_id.get(step_of(name)) if program is not None else None
    return isinstance(step, AssertStep) and all(each.message is not None for each in step.assert_)


def _commands(seen: RunObservation) -> dict[str, Any]:
    """Return the commands of a run as a test expects them, by step.

    Of a run with very many commands, those that write come first.
    """
    by_step: dict[str, list[ToolCall]] = {}
    for call in (call for calls in seen.calls.values() for call in calls):
        by_step.setdefault(call.step_id.partition("[")[0], []).append(call)
    found: list[tuple[bool, str, list[Command]]] = []
    for step, each in by_step.items():
        found += ((writes, name, commands) for name, writes, commands in _by_name(step, each, seen.program))
    kept: set[str] = set()
    left = _MOST_COMMANDS
    for _, name, commands in sorted(found, key=lambda entry: not entry[0]):
        if len(commands) <= left:
            kept.add(name)
            left -= len(commands)
    written = {name: [_written(each) for each in commands] for _, name, commands in found if name in kept}
    return {name: each[0] if len(each) == 1 else each for name, each in written.items()}


def _by_name(step: str, calls: list[ToolCall], program: Program | None) -> Iterator[tuple[str, bool, list[Command]]]:
    """Yield the commands of a step by its id where it has one place or one command, else by path."""
    commands = [(call, _expectable(call.command(program))) for call in calls]
    if not all(any(map(_is_short, command.values())) for _, command in commands):
        return
    writes = any(call.writes for call in calls)
    first = commands[0][1]
    if all(command == first for _, command in commands):
        yield step, writes, [first]
        return
    by_path: dict[str, list[Command]] = {}
    for call, command in commands:
        by_path.setdefault(call.path, []).append(command)
    for path, each in by_path.items():
        yield step if len(by_path) == 1 else path, writes, each


def _written(command: Command) -> Any:
    kept = {part: value for part, value in command.items() if _is_short(value)}
    exact = literal(ALONE | kept if ARGV in kept and len(kept) == len(command) else kept)
    for part in (ARGV, PREVIEW):
        if part in exact and not any("\n" in word for word in exact[part]):
            exact[part] = OneLine(exact[part])
    return as_written(exact)


def _is_short(value: Any) -> bool:
    try:
        return len(render_text(value)) <= _LONGEST
    except GertError:
        return False  # nested too deeply to be written


def _expectable(command: Command | None) -> Command:
    return {name: value for name, value in (command or {}).items() if name != "server"}
