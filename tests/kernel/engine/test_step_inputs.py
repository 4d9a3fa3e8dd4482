"""What a step hands over: spread, rendered, completed and checked; nothing that does not fit gets through."""

from typing import Any

import pytest
import yaml

from gert.errors import GertError, InputError
from gert.kernel.engine.clock import Clock
from gert.kernel.engine.frame import Frame, LaneContext, Run, Setup
from gert.kernel.engine.state import State
from gert.kernel.engine.step_inputs import error_line, inputs_for
from gert.kernel.events.runbook import RunStart
from gert.kernel.foundation.globs import Visibility
from gert.kernel.foundation.secret_refs import secret_ref
from gert.kernel.runbook.document import load
from gert.kernel.runbook.documents.steps import ToolStep
from gert.kernel.runbook.program import Program, ToolLookup
from gert.kernel.template.unknown import UNKNOWN, is_unknown

END = {"type": "end", "outcome": {"category": "resolved", "code": "x"}}
TYPES = {name: {"type": name} for name in ("string", "int", "float", "bool", "list", "object", "any")}


def handed(
    inputs: dict[str, Any] | None = None,
    declared: dict[str, Any] | None = None,
    *,
    names: dict[str, Any] | None = None,
    state: State | None = None,
    spread: Any = None,
    deny: list[str] | None = None,
    assumption: Any = None,
) -> dict[str, Any]:
    """The inputs a step hands over, given the names it sees."""
    tool = {
        "apiVersion": "tool/v0",
        "meta": {"name": "t"},
        "contract": {"effects": [], "inputs": declared or {}},
        "actions": {"go": {"argv": ["t"]}},
    }
    step: dict[str, Any] = {"id": "a", "type": "tool", "tool": "t", "inputs": inputs or {}}
    if spread is not None:
        step["inputs_from"] = spread
    book = {"apiVersion": "kernel/v0", "meta": {"name": "b"}, "tools": ["t"], "steps": [step, END]}
    lookup = ToolLookup("t", (), "t.tool.yaml", load(yaml.safe_dump(tool).encode(), kind="tool"))
    program = Program(load(yaml.safe_dump(book).encode(), kind="runbook").model, {"t": lookup})
    started = RunStart(runbook="b", runbook_hash="h", mode="real", actor="alice", host="h", gert_version="g")
    setup = Setup(program=program, run_id="r", started=started)
    run = Run(setup)
    run.assumption = assumption
    made = state if state is not None else State(names or {})
    frame = Frame(LaneContext(run=run, state=made, clock=Clock()), "a", "a", "a")
    if deny is not None:
        frame = frame.with_view(Visibility(None, deny), run.actor)
    first = program.runbook.steps[0]
    assert isinstance(first, ToolStep)
    plan = run.plan(first)
    assert plan is not None
    return inputs_for(first, frame, plan)


# --- rendering and types


@pytest.mark.parametrize(
    ("inputs", "given"),
    [
        pytest.param({"x": "plain"}, "plain", id="text as it is"),
        pytest.param({"x": "{{ .n }}"}, 7, id="a value keeps its type"),
        pytest.param({"x": "n={{ .n }}"}, "n=7", id="mixed text is text"),
        pytest.param({"x": ["{{ .n }}", {"y": "{{ .l }}"}]}, [7, {"y": [1, 2]}], id="templates at every depth"),
        pytest.param({"x": 1.5}, 1.5, id="a number as it is"),
        pytest.param({"x": "{{ .l }}"}, [1, 2], id="a list"),
    ],
)
def test_inputs_are_rendered(inputs: dict[str, Any], given: Any) -> None:
    assert handed(inputs, names={"n": 7, "l": [1, 2]}) == {"x": given}


@pytest.mark.parametrize(
    ("kind", "value", "given"),
    [
        pytest.param("string", 7, "7", id="a number as text"),
        pytest.param("string", True, "true", id="a boolean as text"),
        pytest.param("int", " 7 ", 7, id="text as a number"),
        pytest.param("int", 7.0, 7, id="a float without a fraction"),
        pytest.param("float", "0.5", 0.5, id="text as a float"),
        pytest.param("bool", "false", False, id="text as a boolean"),
        pytest.param("list", "[1]", [1], id="JSON as a list"),
        pytest.param("object", '{"a": 1}', {"a": 1}, id="JSON as an object"),
        pytest.param("any", "7", "7", id="anything stays"),
    ],
)
def test_values_are_brought_to_the_declared_type(kind: str, value: Any, given: Any) -> None:
    found = handed({kind: "{{ .v }}"}, TYPES, names={"v": value})[kind]
    assert (found, type(found)) == (given, type(given))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", "7.5"),
        ("int", "seven"),
        ("int", True),
        ("int", ""),
        ("float", "x"),
        ("bool", 2),
        ("bool", "maybe"),
        ("list", "a,b"),
        ("list", {"a": 1}),
        ("object", [1]),
        ("object", "text"),
        ("string", [1]),
        ("string", {"a": 1}),
    ],
)
def test_what_would_lose_something_is_refused(kind: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"the input `{kind}`: expected"):
        handed({kind: "{{ .v }}"}, TYPES, names={"v": value})


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        pytest.param({"type": "string", "enum": ["a", "b"]}, "c", id="not in the list"),
        pytest.param({"type": "string", "pattern": "^[a-z]+$"}, "A", id="not of the pattern"),
        pytest.param({"type": "string", "pattern": "^[a-z]+$"}, "a\nb; rm -rf", id="of the pattern only in part"),
        pytest.param({"type": "int", "min": 1}, 0, id="too small"),
        pytest.param({"type": "int", "max": 10}, "11", id="too large"),
        pytest.param({"type": "list", "max": 1}, [1, 2], id="too long"),
        pytest.param({"type": "int", "enum": [1, 2]}, 3, id="not one of the numbers"),
    ],
)
def test_what_breaks_its_bounds_is_refused(parameter: dict[str, Any], value: Any) -> None:
    with pytest.raises(InputError, match="the input `x`: "):
        handed({"x": "{{ .v }}"}, {"x": parameter}, names={"v": value})


def test_literal_text_is_checked_like_any_other() -> None:
    with pytest.raises(InputError, match="the input `x`"):
        handed({"x": "A"}, {"x": {"type": "string", "pattern": "^[a-z]+$"}})


# --- defaults and required inputs


def test_a_default_stands_in_for_what_is_not_given() -> None:
    assert handed({}, {"x": {"type": "int", "default": 3}}) == {"x": 3}


@pytest.mark.parametrize("template", ["{{ .missing }}", "{{ .nothing }}", "{{ .missing.deeper }}"])
def test_a_default_stands_in_for_a_template_that_leads_nowhere(template: str) -> None:
    assert handed({"x": template}, {"x": {"type": "int", "default": 3}}, names={"nothing": None}) == {"x": 3}


def test_what_is_given_wins_over_a_default_though_it_is_empty() -> None:
    assert handed({"x": ""}, {"x": {"type": "string", "default": "d"}}) == {"x": ""}
    assert handed({"x": False}, {"x": {"type": "bool", "default": True}}) == {"x": False}


@pytest.mark.parametrize("inputs", [{}, {"x": "{{ .missing }}"}], ids=["not given", "leading nowhere"])
def test_a_required_input_must_be_there(inputs: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="no value for the required input `x` of `t:go`"):
        handed(inputs, {"x": {"type": "string", "required": True}})


def test_an_input_that_is_not_declared_is_handed_over() -> None:
    assert handed({"extra": 1}, {"x": {"type": "int"}}) == {"extra": 1}


# --- spreading


def recorded() -> State:
    state = State({"conf": {"host": "a", "port": 1, "none": None}, "more": {"port": 2}, "text": "x"})
    state.set_record("probe", {"host": "b"}, {"status": "success", "exit_code": 0})
    state.set_jump_count("probe", 1)
    state.set_scoped(("round", "0"), {"host": "c"})
    return state


@pytest.mark.parametrize(
    ("spread", "given"),
    [
        pytest.param("conf", {"host": "a", "port": 1}, id="an object, without what is null"),
        pytest.param(["conf", "more"], {"host": "a", "port": 2}, id="later ones win"),
        pytest.param(["more", "conf"], {"host": "a", "port": 1}, id="in either order"),
        pytest.param("probe", {"host": "b"}, id="a record, without what gert says of it"),
        pytest.param("scope.round.0", {"host": "c"}, id="a scope"),
    ],
)
def test_objects_are_spread(spread: Any, given: dict[str, Any]) -> None:
    assert handed(state=recorded(), spread=spread) == given


def test_what_the_contract_asks_for_is_spread_though_it_is_what_gert_says() -> None:
    given = handed(declared={"status": {"type": "string"}}, state=recorded(), spread="probe")
    assert given == {"host": "b", "status": "success"}


def test_what_is_written_wins_over_what_is_spread() -> None:
    assert handed({"port": 9}, state=recorded(), spread="conf") == {"host": "a", "port": 9}


def test_what_is_spread_is_checked_too() -> None:
    with pytest.raises(InputError, match="the input `host`"):
        handed(declared={"host": {"type": "int"}}, state=recorded(), spread="conf")


@pytest.mark.parametrize("spread", ["nowhere", "text", "conf.host", "conf.nowhere", "step.nobody"])
def test_what_is_no_object_cannot_be_spread(spread: str) -> None:
    with pytest.raises(InputError, match=f"`inputs_from` names `{spread}`, which is not an object here"):
        handed(state=recorded(), spread=spread)


def test_spreading_changes_nothing_in_the_state() -> None:
    state = recorded()
    handed({"host": "z"}, state=state, spread="conf")
    assert state.root["conf"] == {"host": "a", "port": 1, "none": None}


def test_what_a_step_may_not_see_is_not_spread() -> None:
    assert handed(state=recorded(), spread="conf", deny=["conf.host"]) == {"port": 1}
    with pytest.raises(InputError):
        handed(state=recorded(), spread="conf", deny=["conf"])


# --- secrets and unknown values


@pytest.mark.parametrize("kind", ["int", "list", "bool"])
def test_a_reference_to_a_secret_is_not_judged_by_what_it_looks_like(kind: str) -> None:
    ref = secret_ref("token")
    assert handed({kind: "{{ .s }}"}, TYPES, names={"s": ref}) == {kind: ref}


def test_a_reference_to_a_secret_is_not_held_against_a_pattern() -> None:
    parameter = {"x": {"type": "string", "pattern": "^[a-z]{3}$"}}
    assert handed({"x": "{{ .s }}"}, parameter, names={"s": secret_ref("t")}) == {"x": secret_ref("t")}


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_something_unknown_is_of_every_type_and_stays_unknown(kind: str) -> None:
    given = handed({kind: "{{ .u }}"}, TYPES, names={"u": UNKNOWN}, assumption="dry_run")
    assert is_unknown(given[kind])


def test_text_made_with_something_unknown_is_unknown_and_shows_the_rest() -> None:
    given = handed({"x": "host {{ .u }}"}, names={"u": UNKNOWN}, assumption="dry_run")
    assert is_unknown(given["x"])
    assert given["x"] == "host (unknown)"


def test_something_unknown_cannot_be_spread_and_does_not_stop_the_dry_run() -> None:
    assert handed({"y": 1}, names={"u": UNKNOWN}, spread="u", assumption="dry_run") == {"y": 1}


def test_a_required_input_that_may_come_from_something_unknown_is_not_missed() -> None:
    given = handed(
        {"x": "{{ .u.deep }}"},
        {"x": {"type": "string", "required": True}},
        names={"u": UNKNOWN},
        assumption="dry_run",
    )
    assert is_unknown(given["x"])


def test_a_required_input_that_may_be_spread_from_something_unknown_is_not_missed() -> None:
    required = {"x": {"type": "string", "required": True}}
    given = handed(declared=required, names={"u": UNKNOWN}, spread="u", assumption="dry_run")
    assert given == {} or is_unknown(given["x"])


@pytest.mark.parametrize(
    ("error", "line"),
    [(InputError("m"), "m"), (InputError("m", hint="h"), "m (h)"), (GertError("m", hint=""), "m")],
)
def test_an_error_in_one_line(error: GertError, line: str) -> None:
    assert error_line(error) == line
