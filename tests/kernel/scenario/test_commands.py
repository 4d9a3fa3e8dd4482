"""The commands of a run: rendered from the tool file, named like steps, and compared word by word."""

from typing import Any

import pytest
import yaml
from tests.kernel.scenario.plays import END, call, drive, expectations, scenario, setup

from gert.kernel.engine.run import run
from gert.kernel.runbook.document import load
from gert.kernel.runbook.program import Program, ToolLookup
from gert.kernel.scenario.commands import shown_pair
from gert.kernel.scenario.expect import differences
from gert.kernel.scenario.observed import RunObservation
from gert.kernel.scenario.recorded_test import recorded_test
from gert.kernel.scenario.script import Script
from gert.kernel.scenario.update import updates

INPUTS = {"key": {"type": "any", "default": "k"}}
PROCESS: dict[str, Any] = {"argv": ["t", "GET", "{{ .key }}"], "stdin": "in {{ .key }}", "env": {"A": "{{ .key }}"}}
WORDS: dict[str, Any] = {"argv": PROCESS["argv"]}
SERVER: dict[str, Any] = {"transport": "mcp", "connect": "https://example.com/mcp"}
LOOP: dict[str, Any] = {"for_each": {"as": "each", "over": ["a", "b"]}, "inputs": {"key": "{{ .each }}"}}


def seen(*steps: dict[str, Any], action: dict[str, Any] = PROCESS, **meta: Any) -> RunObservation:
    """What a run of these steps did; every call of the tool `t` succeeds."""
    tool = {
        "apiVersion": "tool/v0",
        "meta": {"name": "t", **meta},
        "contract": {"effects": [], "writes": [], "inputs": INPUTS},
        "actions": {"go": action},
    }
    book = {"apiVersion": "kernel/v0", "meta": {"name": "b"}, "tools": ["t"], "steps": [*steps, END]}
    lookup = ToolLookup("t", (), "t.tool.yaml", load(yaml.safe_dump(tool).encode(), kind="tool"))
    made = Program(load(yaml.safe_dump(book).encode(), kind="runbook").model, {"t": lookup})
    script, found = Script(scenario(tool_responses={"t": {}}), made), RunObservation((), made)
    drive(run(setup(made)), script, found)
    return found


def unmet(found: RunObservation, commands: Any) -> list[str]:
    return [str(each) for each in differences(expectations(expected_commands=commands), found, [])]


@pytest.mark.parametrize(
    "commands",
    [
        {"s": {"argv": ["t", "GET", "k"]}},
        {"s": {"stdin": "in k"}},
        {"s": {"argv": ["t", "GET", "k"], "stdin": "/^in/", "env": {"A": "k"}}},
        {"s": [{"argv": ["t", "/^G.T$/", "k"]}]},
    ],
    ids=str,
)
def test_a_command_that_is_expected(commands: Any) -> None:
    assert unmet(seen(call("s")), commands) == []


@pytest.mark.parametrize(
    "commands", [{"s": ["t", "GET", "k"]}, {"s": ["t", "/^G.T$/", "k"]}, {"s": [["t", "GET", "k"]]}]
)
def test_words_alone_are_the_whole_command(commands: Any) -> None:
    assert unmet(seen(call("s"), action=WORDS), commands) == []
    assert unmet(seen(call("s"), action={**WORDS, "cwd": "/"}), commands) == [
        "expected_commands.s.cwd: expected `none`, found `/`"
    ]


@pytest.mark.parametrize(
    ("commands", "told"),
    [
        ({"s": ["t", "GET"]}, "expected_commands.s: expected `t GET`, found `t GET k`"),
        ({"s": ["t", "DEL", "k"]}, "expected_commands.s: expected `t DEL k`, found `t GET k`"),
        ({"s": {"stdin": "out"}}, "expected_commands.s.stdin: expected `out`, found `in k`"),
        ({"s": {"cwd": "/srv"}}, "expected_commands.s.cwd: expected `/srv`, found none"),
        ({"s": ["t", "GET", "k"]}, "expected_commands.s.stdin: expected `none`, found `in k`"),
        ({"s": {"env": {}}}, 'expected_commands.s.env: expected `{}`, found `{"A":"k"}`'),
        ({"s": [["t"], ["t"]]}, "expected_commands.s: expected 2 commands, found 1"),
        ({"never": ["t", "x"]}, "expected_commands.never: expected `t x`, found that it was not run"),
    ],
    ids=str,
)
def test_a_command_that_differs_is_told_with_what_was_found(commands: Any, told: str) -> None:
    assert unmet(seen(call("s")), commands)[0] == told


@pytest.mark.parametrize(
    "commands",
    [
        {"s": ["t", "GET", "/^[ab]$/"]},
        {"s": [["t", "GET", "a"], ["t", "GET", "b"]]},
        {"s[0]": ["t", "GET", "a"], "s[1]": ["t", "GET", "b"]},
    ],
    ids=["one for every call", "one after the other", "by item"],
)
def test_the_calls_of_a_loop_are_expected_like_answers_are_given(commands: Any) -> None:
    assert unmet(seen(call("s", **LOOP), action=WORDS), commands) == []


def test_of_many_calls_that_differ_in_the_same_way_one_is_told() -> None:
    [told] = differences(expectations(expected_commands={"s": ["t"]}), seen(call("s", **LOOP)), [])
    assert (told.found, told.hint) == ("`t GET a`", "at `s[0]`")


def test_a_step_inside_a_loop_is_named_by_the_end_of_its_path() -> None:
    group = {"id": "all", "type": "group", "steps": [call("s", inputs={"key": "{{ .each }}"})]}
    found = seen({**group, "for_each": LOOP["for_each"]}, action=WORDS)
    assert unmet(found, {"all[0]/s": ["t", "GET", "a"], "all/s": ["t", "GET", "/./"]}) == []
    assert unmet(found, {"all[1]/s": ["t", "GET", "a"]}) != []


@pytest.mark.parametrize("renamed", [False, True], ids=["as declared", "renamed"])
def test_a_call_of_a_server_is_expected_by_name_and_arguments(renamed: bool) -> None:
    action = {"mcp_tool": "get_key", **({"mcp_arguments": {"key": "the-key"}} if renamed else {})}
    found = seen(call("s", inputs={"key": {"a": [1]}}), action=action, **SERVER)
    arguments = {"the-key" if renamed else "key": {"a": [1]}}
    assert unmet(found, {"s": {"call": "get_key", "arguments": arguments}}) == []
    assert unmet(found, {"s": {"call": "set_key"}}) == ["expected_commands.s.call: expected `set_key`, found `get_key`"]
    assert unmet(found, {"s": {"arguments": {}}}) != []
    assert recorded_test(found, "d")["expected_commands"] == {"s": {"call": "get_key", "arguments": arguments}}


def test_an_update_writes_what_is_run_now_and_keeps_what_holds() -> None:
    found = seen(call("s"), call("r", **LOOP), action=WORDS)
    expected = expectations(
        expected_commands={
            "s": ["t", "DEL", "k"],
            "r": {"argv": ["t", "x"]},
            "r[0]": ["t", "/./", "a"],
            "never": ["t"],
        }
    )
    assert updates(expected, found)["expected_commands"] == {
        "s": ["t", "GET", "k"],
        "r": [{"argv": ["t", "GET", "a"]}, {"argv": ["t", "GET", "b"]}],
        "r[0]": ["t", "/./", "a"],
    }


def test_a_recorded_test_passes_on_its_own_run() -> None:
    found = seen(call("s", inputs={"key": "/a/"}), call("r", **LOOP))
    made = recorded_test(found, "d")
    assert set(made["expected_commands"]) == {"s", "r[0]", "r[1]"}
    assert list(differences(expectations(**yaml.safe_load(yaml.safe_dump(_plain(made)))), found, [])) == []


def test_a_recording_leaves_out_long_parts_and_keeps_the_others() -> None:
    found = seen(call("s", inputs={"key": "k"}), action={"argv": ["t", "{{ .key }}"], "stdin": "x" * 3000})
    assert recorded_test(found, "d")["expected_commands"] == {"s": {"argv": ["t", "k"]}}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def test_the_difference_of_two_long_commands_is_shown() -> None:
    before, after = shown_pair("x" * 1000 + "a", "x" * 1000 + "b")
    assert before != after
    assert max(len(before), len(after)) < 250
