"""When a gate passes, and what its tool is given."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from gert.agent import ToolGate
from gert.errors import InputError
from gert.kernel.agent.loop.gates import check_gate, gate_arguments, gate_passes


class Draft(BaseModel):
    text: str
    parts: list[int]


DRAFT = Draft(text="hello", parts=[1, 2])


@pytest.mark.parametrize(
    ("gate", "result", "passes"),
    [
        pytest.param({}, True, True, id="a bare true"),
        pytest.param({}, False, False, id="a bare false"),
        pytest.param({}, 1, False, id="1 is not true"),
        pytest.param({}, "passed", False, id="a text says nothing"),
        pytest.param({}, None, False, id="nothing says nothing"),
        pytest.param({}, {"passed": True}, True, id="passed"),
        pytest.param({}, {"pass": True}, True, id="pass"),
        pytest.param({}, {"ok": True}, True, id="ok"),
        pytest.param({}, {"success": True}, True, id="success"),
        pytest.param({}, {"ok": True, "passed": False}, False, id="a false flag is not outvoted"),
        pytest.param({}, {"passed": False, "exit_code": 0}, False, id="nor by an exit code"),
        pytest.param({}, {"success": 3, "exit_code": 0}, True, id="a count is not a flag"),
        pytest.param({}, {"status": "SUCCESS"}, True, id="a good status"),
        pytest.param({}, {"status": "failed", "exit_code": 0}, False, id="a bad status"),
        pytest.param({}, {"exit_code": 0}, True, id="exit code 0"),
        pytest.param({}, {"exit_code": False}, False, id="false is not 0"),
        pytest.param({}, {"exit_code": 1}, False, id="exit code 1"),
        pytest.param({}, {}, False, id="an empty object says nothing"),
        pytest.param({"pass_json_path": "a.b[1]"}, {"a": {"b": [False, True]}}, True, id="a path"),
        pytest.param({"pass_json_path": "$.a"}, {"a": 1}, False, id="true is expected at a path"),
        pytest.param({"pass_json_path": "$.b"}, {"a": True}, False, id="a path that leads nowhere"),
        pytest.param({"pass_json_path": "n", "pass_if_equals_json": "0"}, {"n": 0}, True, id="another value"),
        pytest.param({"pass_json_path": "n", "pass_if_equals_json": "0"}, {"n": False}, False, id="of its type"),
        pytest.param({"pass_if_equals_json": '"fine"'}, "fine", True, id="a value without a path"),
    ],
)
def test_when_a_gate_passes(gate: dict[str, Any], result: Any, passes: bool) -> None:
    assert gate_passes(ToolGate(tool="t", **gate), json.dumps(result)) is passes


def schema(*required: str, **properties: str) -> str:
    return json.dumps({"properties": {name: {"type": kind} for name, kind in properties.items()}, "required": required})


@pytest.mark.parametrize(
    ("given", "declared", "arguments"),
    [
        pytest.param("{}", schema(), {}, id="a tool without parameters gets none"),
        pytest.param('{"x":1}', schema(x="integer"), {"x": 1}, id="what the gate says"),
        pytest.param(
            "{}", schema(candidate="object"), {"candidate": {"text": "hello", "parts": [1, 2]}}, id="`candidate`"
        ),
        pytest.param(
            "{}",
            schema(candidate="string"),
            {"candidate": '{"parts":[1,2],"text":"hello"}'},
            id="as text where text is",
        ),
        pytest.param(
            "{}", schema("text", text="s", parts="a"), {"text": "hello", "parts": [1, 2]}, id="its own fields"
        ),
        pytest.param("{}", schema("other", text="s", parts="a", other="s"), {}, id="not if it needs more"),
        pytest.param(
            '{"a":"{{candidate.text}}","b":["{{ .candidate.parts[1] }}"],"c":"{{candidate}}"}',
            schema(),
            {"a": "hello", "b": [2], "c": {"text": "hello", "parts": [1, 2]}},
            id="references at any depth keep their type",
        ),
        pytest.param('{"a":"{{candidate.none}}"}', schema(), {"a": None}, id="a part that is not there"),
        pytest.param('{"a":"{{ other }}"}', schema(), {"a": "{{ other }}"}, id="other braces are text"),
    ],
)
def test_what_the_tool_of_a_gate_is_given(given: str, declared: str, arguments: dict[str, Any]) -> None:
    assert json.loads(gate_arguments(ToolGate(tool="t", arguments_json=given), DRAFT, declared)) == arguments


@pytest.mark.parametrize(
    "gate",
    [
        pytest.param({"arguments_json": "{"}, id="arguments that are not JSON"),
        pytest.param({"arguments_json": "[]"}, id="arguments that are no object"),
        pytest.param({"pass_if_equals_json": "yes"}, id="an expectation that is not JSON"),
    ],
)
def test_a_gate_that_cannot_be_read_is_refused(gate: dict[str, str]) -> None:
    with pytest.raises(InputError, match="gate `t`"):
        check_gate(ToolGate(tool="t", **gate))  # type: ignore[arg-type]
