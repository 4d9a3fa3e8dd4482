"""Scenario and test files: what they name exists in the runbook they belong to."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from gert.kernel.foundation.names import suggestion
from gert.kernel.foundation.text import PLACEHOLDER, shorten
from gert.kernel.runbook.documents.contract import InputBlock
from gert.kernel.runbook.documents.expectations import Expectations
from gert.kernel.runbook.documents.scenario import Scenario
from gert.kernel.runbook.documents.steps import ExtensionStep, ManualStep, Step, ToolStep
from gert.kernel.runbook.finding import Finding, Path, error, note, warning
from gert.kernel.runbook.places import Place, is_index, is_place, places_of, segments_of
from gert.kernel.runbook.program import Program
from gert.kernel.runbook.validate.domain.evidence import check_pattern
from gert.kernel.runbook.validate.domain.tools import literal_objection

REGEX_ENDS: Final = "/"
EVIDENCE_KEYS: Final = ("by", "reject", "failure", "redacted", "duration")
"""Keys allowed next to evidence; a step's own evidence of that name takes precedence."""
_UNNAMED: Final = re.compile("[a-z]+#[0-9]+")
_ITEM: Final = re.compile(r"\[[^\]]*\]")
PROCESS_KEYS: Final = frozenset({"argv", "stdin", "env", "cwd"})
"""What is expected of a command that starts a process; other calls have `call` and `arguments`."""
IGNORED_KEYS: Final = frozenset({"description", "tags", "golden", "extensions"})


def scenario_file(scenario: Scenario, program: Program | None) -> Iterator[Finding]:
    """D60: the steps, tools and inputs of answers exist. D62: answers fit them."""
    if program is None:
        return
    inputs = program.runbook.meta.inputs
    for section in ("inputs", "input_answers"):
        for name, value in getattr(scenario, section).items():
            path: Path = (section, name)
            if name not in inputs:
                yield _unknown("input", name, inputs, path)
            elif inputs[name].secret:
                continue
            elif value == PLACEHOLDER:
                # It was secret when it was recorded: the next run would record its value.
                message = f"the input `{name}` is `{PLACEHOLDER}`, and the runbook does not declare it secret"
                yield error("D62", path, message, "mark it `secret: true`, or give the scenario a value")
            elif (why := literal_objection(value, inputs[name].parameter())) is not None:
                yield error("D62", path, f"the input `{name}`: {why}")
    yield from _missing_inputs(scenario, inputs)
    steps = program.by_id
    for key in scenario.tool_responses:
        tool, _, action = key.partition(":")
        lookup = program.tool_names.get(tool)
        if not _is_step(key, steps) and lookup is None:
            yield _unknown("step or tool", key, [*steps, *program.tool_names], ("tool_responses", key))
        elif action and lookup is not None and lookup.tool is not None and action not in lookup.tool.actions:
            yield _unknown(f"action of `{tool}`", action, lookup.tool.actions, ("tool_responses", key))
    kinds = (("extension_responses", ExtensionStep, "extension"), ("evidence", ManualStep, "manual"))
    for section, model, word in kinds:
        for key in getattr(scenario, section):
            step = steps.get(step_of(key))
            if step is None and _is_step(key, steps):
                continue
            if step is None:
                yield _unknown("step", key, steps, (section, key))
            elif not isinstance(step, model):
                message = f"`{key}` is a `{step.type}` step, not a `{word}` step"
                yield error("D60", (section, key), message, on_key=True)
    for key, given in scenario.evidence.items():
        step = steps.get(step_of(key))
        if isinstance(step, ManualStep):
            for entry in given if isinstance(given, list | tuple) else (given,):
                yield from _evidence(key, entry, step)
    for key, given in scenario.approvals.items():
        for block in given if isinstance(given, list | tuple) else (given,):
            says = block.responses or block.expired or block.failure or not block.submitted
            if block.approved is None and not says:
                message = f"the response to the approval of `{key}` neither approves nor rejects"
                yield warning(
                    "D62", ("approvals", key), message, "use `approved: true`, `responses`, or `expired: true`"
                )
    for section in ("approvals", "previews"):
        for key in getattr(scenario, section):
            if not _is_step(key, steps):
                yield _unknown("step", key, steps, (section, key))


def test_file(expectations: Expectations, program: Program | None) -> Iterator[Finding]:
    """D61: expectations can be met: their steps exist and do not contradict each other."""
    if not any(getattr(expectations, name) for name in expectations.fields if name not in IGNORED_KEYS):
        yield warning("D61", (), "nothing is expected, so this test cannot fail")
    for name in sorted(set(expectations.must_reach) & set(expectations.must_not_reach)):
        path: Path = ("must_not_reach", expectations.must_not_reach.index(name))
        yield error("D61", path, f"`{name}` is in both `must_reach` and `must_not_reach`")
    for section in ("expected_outputs", "expected_meta"):
        for name, value in getattr(expectations, section).items():
            yield from _patterns(value, (section, name))
    failure = expectations.expected_failure
    if failure is not None:
        if expectations.expected_status == "completed" or expectations.expected_outcome is not None:
            yield error("D61", failure.path, "a run that completes has no failure", "remove `expected_failure`")
        if failure.message is not None:
            yield from _patterns(failure.message, failure.at("message"))
    for name, value in expectations.expected_decisions.items():
        if value == {}:
            yield error("D61", ("expected_decisions", name), f"nothing is expected of the decision about `{name}`")
    for name, value in expectations.expected_commands.items():
        yield from _patterns(value, ("expected_commands", name))
    from gert.kernel.events.runbook import EVENTS  # validation of other documents needs none of them

    known = frozenset(each.type for each in EVENTS)
    for index, event in enumerate(expectations.expected_events):
        kind = event.split(maxsplit=1)[0] if event.split() else event
        if kind not in known:
            hint = suggestion(kind, known) or "`docs/events.md` lists them"
            yield error("D61", ("expected_events", index), f"there is no event `{shorten(kind)}`", hint)
    if program is None:
        return
    places = list(places_of(program))
    for section in ("must_reach", "must_not_reach"):
        for index, name in enumerate(getattr(expectations, section)):
            yield from _named_step(name, (section, index), program, places)
    for section in ("expected_risk", "expected_decisions"):
        for name in getattr(expectations, section):
            yield from _named_step(name, (section, name), program, places)
    if failure is not None and failure.step is not None:
        yield from _named_step(failure.step, failure.at("step"), program, places)
    for name, value in expectations.expected_commands.items():
        path = ("expected_commands", name)
        unknown = list(_named_step(name, path, program, places))
        yield from unknown or _commands(program.by_id[step_of(name)], value, path, program)


def _patterns(value: Any, path: Path) -> Iterator[Finding]:
    """D61: a `/regular expression/` compiles, at any depth."""
    if isinstance(value, str) and len(value) > 2 and value[0] == value[-1] == REGEX_ENDS:
        yield from check_pattern("D61", value[1:-1], path)
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _patterns(each, path)


def _commands(step: Step, commands: Any, path: Path, program: Program) -> Iterator[Finding]:
    """D61: only a step that calls a tool has a command, and a command has the keys of the tool's transport."""
    if not isinstance(step, ToolStep):
        yield error("D61", path, f"`{step.id}` is a `{step.type}` step, and runs no command", on_key=True)
        return
    tool = program.tool_of(step)
    if tool is None:
        return
    is_process = tool.meta.transport == "stdio"
    for command in commands if isinstance(commands, list) else [commands]:
        strange = next((key for key in command if key != "preview" and (key in PROCESS_KEYS) != is_process), None)
        if strange is not None:
            message = f"`{strange}` does not apply: the tool of `{step.id}` is `{tool.meta.transport}`"
            process = "a list of words, or `argv`, `stdin`, `env`, `cwd` and `preview`"
            known = process if is_process else "`call`, `arguments` and `preview`"
            yield error("D61", path, message, f"use {known}", on_key=True)
        elif not command:
            yield error("D61", path, f"nothing is expected of the command of `{step.id}`", on_key=True)


def _named_step(name: str, path: Path, program: Program, places: list[tuple[Place, ...]]) -> Iterator[Finding]:
    """D61: a step exists, and where it is said to be; otherwise a `must_not_reach` could not fail."""
    step = step_of(name)
    if step not in program.by_id:
        yield _unknown("step", name, program.by_id, path, rule="D61")
        return
    segments = segments_of(name)
    # Labels of arms may be any text; one with such characters cannot be told from a path.
    is_odd = any(character in each.name for place in places for each in place for character in "/[]%")
    if segments is None or is_odd:
        return
    on_key = not isinstance(path[-1], int)
    fitting = [place for place in places if is_place(segments, place)]
    if not fitting:
        [known] = [place for place in places if place[-1].name == step][:1] or [()]
        shown = "/".join(map(str, known))
        message = f"there is no step at `{shorten(name)}`"
        yield error("D61", path, message, f"`{step}` is at `{shown}`", on_key=on_key)
        return
    for (loop, item), place in zip(reversed(segments), reversed(fitting[0]), strict=False):
        if item is not None and is_index(item) and place.items == "KEY":
            # Keys may be numbers, so only a run can tell: `gert test` does.
            message = f"the items of `{loop}` have keys, so `{item}` is a key and not an index"
            yield note("D61", path, message, "name an item by its key")


def _missing_inputs(scenario: Scenario, inputs: Mapping[str, InputBlock]) -> Iterator[Finding]:
    """D62: every input has a value; a replay may still get one from its caller. A secret needs none there."""
    for name, block in inputs.items():
        wanted = block.parameter()
        is_open = wanted.required and not wanted.has_default and not block.secret
        if is_open and name not in scenario.inputs and name not in scenario.input_answers:
            path: Path = ("inputs",) if scenario.inputs else ()
            hint = f"add `{name}: VALUE` under `inputs`; `gert test` fails without it"
            yield warning("D62", path, f"no value for the required input `{name}`", hint, on_key=True)


def step_of(key: str) -> str:
    """Return the step of `step[index]`, `step[key]` or a path such as `outer[0]/step`."""
    return _ITEM.sub("", key).rpartition("/")[2]


def _evidence(key: str, entry: Mapping[str, Any], step: ManualStep) -> Iterator[Finding]:
    """D62: evidence has a name that the step requires, and the right kind of value."""
    wanted = {each.name: each for each in step.required_evidence}
    path: Path = ("evidence", key)
    for name, value in entry.items():
        piece = wanted.get(name)
        if piece is None:
            if name not in EVIDENCE_KEYS:
                hint = suggestion(name, wanted)
                yield warning("D62", path, f"`{key}` requires no evidence `{shorten(name)}`", hint)
        elif piece.kind == "text" and not (isinstance(value, str | int | float) and str(value).strip()):
            yield warning("D62", path, f"expected text for `{name}` of `{key}`")
        elif piece.kind == "checklist" and value is not True and sorted(map(str, _items(value))) != sorted(piece.items):
            yield warning("D62", path, f"expected `true` or all items of the checklist `{name}` of `{key}`")
    missing = next((name for name in wanted if name not in entry), None)
    if missing is not None and not entry.keys() & {"reject", "failure"}:
        yield warning("D62", path, f"no evidence `{missing}` for `{key}`", "use `reject` for a person who refuses")


def _items(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else ()


def _is_step(key: str, steps: Mapping[str, object]) -> bool:
    """Return whether a key names a step, by id or, if it has none, by type and position: `tool#2`."""
    name = step_of(key)
    return name in steps or _UNNAMED.fullmatch(name) is not None


def _unknown(what: str, name: str, known: Iterable[str], path: Path, rule: str = "D60") -> Finding:
    hint = suggestion(name, known)
    on_key = not isinstance(path[-1], int)
    return error(rule, path, f"the runbook has no {what} `{shorten(name)}`", hint, on_key=on_key)
