"""Inputs of a replay: the scenario's, then defaults; nobody is asked, and a secret has no value."""

from typing import Any

import pytest
from tests.kernel.scenario.plays import program, scenario

from gert.errors import InputError
from gert.kernel.engine.inputs import GivenInput
from gert.kernel.foundation.secret_refs import secret_ref
from gert.kernel.scenario.inputs import SOURCE, replayed_inputs

ENV = {"input_answers": {"i": "e"}}


def resolved(declared: dict[str, Any], given: dict[str, GivenInput] | None = None, **sections: Any) -> Any:
    made = program(inputs={"i": declared, "other": {"type": "string", "default": "o"}})
    return replayed_inputs(made.runbook.meta.inputs, scenario(**sections), given)


@pytest.mark.parametrize(
    ("declared", "sections", "value"),
    [
        pytest.param({"type": "string", "required": True}, {"inputs": {"i": "v"}}, "v", id="given"),
        pytest.param({"type": "string", "required": True}, {"inputs": {"i": 1.10}}, "1.1", id="text of a number"),
        pytest.param({"type": "int", "required": True}, {"inputs": {"i": "7"}}, 7, id="a number in text"),
        pytest.param({"type": "string", "default": "d"}, {}, "d", id="a default"),
        pytest.param({"type": "string", "default": "d"}, {"inputs": {"i": "v"}}, "v", id="not the default"),
        pytest.param({"type": "string", "from": "env/X"}, {"input_answers": {"i": "e"}}, "e", id="environment"),
        pytest.param({"type": "string", "from": "file/x"}, {"input_answers": {"i": "f"}}, "f", id="file"),
        pytest.param({"type": "string", "from": "prompt"}, {"input_answers": {"i": "p"}}, "p", id="prompt"),
        pytest.param({"type": "string", "from": "provider/a.b"}, {"input_answers": {"i": "r"}}, "r", id="provider"),
        pytest.param(
            {"type": "string", "from": "env/X"},
            {"inputs": {"i": "v"}, "input_answers": {"i": "e"}},
            "v",
            id="given wins",
        ),
        pytest.param({"type": "string", "from": "env/X", "default": "d"}, {}, "d", id="a default where none is found"),
        pytest.param({"type": "list", "required": True}, {"inputs": {"i": [1, "a"]}}, [1, "a"], id="a list"),
    ],
)
def test_values_that_are_found(declared: dict[str, Any], sections: dict[str, Any], value: Any) -> None:
    found = resolved(declared, **sections)
    assert found.values["i"] == value
    assert found.secrets == {}
    assert list(found.values) == ["i", "other"]


@pytest.mark.parametrize(
    ("declared", "sections"),
    [
        pytest.param({"type": "string", "required": True}, {}, id="nothing"),
        pytest.param(
            {"type": "string", "required": True}, {"input_answers": {"i": "v"}}, id="a recorded answer of a prompt"
        ),
        pytest.param({"type": "string", "required": True, "from": "env/PATH"}, {}, id="not from this environment"),
        pytest.param({"type": "string", "required": True, "from": "file//etc/passwd"}, {}, id="not from a file"),
        pytest.param({"type": "int", "required": True}, {"inputs": {"i": "x"}}, id="another type"),
        pytest.param({"type": "int", "max": 3}, {"inputs": {"i": 4}}, id="too much"),
        pytest.param({"type": "string", "enum": ["a"]}, {"inputs": {"i": "b"}}, id="not one of them"),
        pytest.param({"type": "string", "pattern": "^a$"}, {"inputs": {"i": "b"}}, id="does not match"),
        pytest.param({"type": "string", "pattern": "^a$", "from": "env/X"}, {"input_answers": {"i": "b"}}, id="nor it"),
        pytest.param({"type": "string"}, {"inputs": {"gone": "x"}}, id="not declared"),
    ],
)
def test_values_that_are_missing_or_do_not_fit(declared: dict[str, Any], sections: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        resolved(declared, **sections)


def test_a_value_that_is_missing_belongs_into_the_scenario() -> None:
    with pytest.raises(InputError) as raised:
        resolved({"type": "string", "required": True})
    assert raised.value.hint == "write the value under `inputs` of the scenario"


SECRET = {"type": "string", "secret": True}


@pytest.mark.parametrize(
    ("declared", "sections", "is_there"),
    [
        pytest.param({**SECRET, "required": True}, {}, True, id="required"),
        pytest.param({**SECRET, "required": True, "pattern": "^x+$", "min": 9}, {}, True, id="with terms"),
        pytest.param({**SECRET, "type": "int", "required": True}, {}, True, id="a number"),
        pytest.param({**SECRET, "required": True, "from": "env/HOME"}, {}, True, id="from the environment"),
        pytest.param(SECRET, {}, False, id="one that need not be there"),
        pytest.param(SECRET, {"inputs": {"i": "[REDACTED]"}}, True, id="one that was given"),
        pytest.param({**SECRET, "from": "env/X"}, {"input_answers": {"i": "[REDACTED]"}}, True, id="one found"),
        pytest.param(SECRET, {"inputs": {"i": "in clear"}}, True, id="one in clear is not handed on"),
    ],
)
def test_a_secret_is_a_reference_and_nothing_else(
    declared: dict[str, Any], sections: dict[str, Any], is_there: bool
) -> None:
    found = resolved(declared, **sections)
    assert ("i" in found.values) is is_there
    if is_there:
        assert found.values["i"] == secret_ref("i")
    assert "in clear" not in repr(found)


def test_what_the_caller_gives_wins() -> None:
    found = resolved({"type": "string"}, {"i": GivenInput("caller", "cli")}, inputs={"i": "scenario"})
    assert (found.values["i"], found.sources["i"]) == ("caller", "cli")
    assert resolved({"type": "string"}, inputs={"i": "scenario"}).sources["i"] == SOURCE


def test_a_reference_cannot_be_smuggled_in() -> None:
    found = resolved({"type": "string"}, inputs={"i": "a\ufffdb"})
    assert found.values["i"] == "a\ufffdb"
    given = resolved({"type": "string"}, {"i": GivenInput(secret_ref("other"), "cli")})
    assert given.values["i"] != secret_ref("other")
