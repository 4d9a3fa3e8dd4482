"""Every command that prints a result with --json has a shape, and prints nothing else."""

import json
from typing import Any

import click
import jsonschema_rs
import pytest
from tests.ecosystem.surfaces.cli.commands.test_for_scripts import every_command
from tests.ecosystem.surfaces.cli.json_results import check
from tests.ecosystem.surfaces.cli.workbench import Project, note

from gert.ecosystem.surfaces.cli.main import group
from gert.ecosystem.surfaces.cli.results import LINES, RESULTS, result_schema

SCENARIO = {"inputs": {}, "tool_responses": {"one": {"stdout": "noted one"}}}


def command_of(words: list[str]) -> click.Command:
    found: click.Command = group
    for word in words:
        assert isinstance(found, click.Group)
        inner = found.get_command(click.Context(found), word)
        assert inner is not None
        found = inner
    return found


def test_every_command_with_json_has_a_shape_and_only_those() -> None:
    with_json = {
        " ".join(words) for words in every_command() if any("--json" in each.opts for each in command_of(words).params)
    }
    assert with_json == RESULTS.keys()
    assert RESULTS.keys() > LINES


@pytest.mark.parametrize("command", RESULTS)
def test_a_schema_allows_no_other_keys(command: str) -> None:
    schema = result_schema(command)
    jsonschema_rs.meta.validate(schema)
    for name, each in schema["$defs"].items():
        assert each["additionalProperties"] is False, name
        assert each["description"], name


TOUR = [
    "version",
    "validate .",
    "validate broken.yaml",
    "explain book.yaml",
    "test book.yaml --coverage",
    "diff book.yaml",
    "scenario list book.yaml",
    "scenario show first --runbook book.yaml",
    "scenario demote first --runbook book.yaml",
    "scenario promote first --runbook book.yaml",
    "scenario new book.yaml second",
    "tool list",
    "tool show note",
    "tool check note",
    "tool try note go --var word=x",
    "exec book.yaml",
    "exec book.yaml --mode dry-run",
    "exec book.yaml --detach",
    "rerun last --from one",
    "run list",
    "run show last",
    "run status last",
    "run tail last",
    "run cost",
    "run diff last last",
    "run verify-ledger",
    "run verify last",
    "run summaries last",
    "run artifacts last",
    "logs last",
    "trace verify last",
    "trace show last",
    "outcomes",
    "approvals list",
    "keys list",
    "keys new --alg ed25519 --out new.key",
    "models prices",
    "skill list",
    "runner list",
    "runner doctor",
    "runner recover",
    "input list",
    "policy explain some.policy.yaml --runbook book.yaml",
    "init made",
]


def test_a_tour_of_commands_prints_the_shapes(project: Project) -> None:
    project.runbook(note("one"))
    project.write("broken.yaml", "apiVersion: kernel/v0\nmeta: {name: b}\nsteps: [{id: a, type: nope}]\n")
    project.write("scenarios/book/first/scenario.yaml", SCENARIO)
    project.write("scenarios/book/first/test.yaml", {"expected_outcome": "resolved"})
    policy = {"apiVersion": "policy/v0", "meta": {"name": "p"}, "governance": {"rules": [{"default": "allow"}]}}
    project.write("some.policy.yaml", policy)
    for words in TOUR:
        ran = project.gert(*words.split(), "--json")  # which checks what is printed
        assert ran.out, f"{words}: {ran.err}"
        assert not ran.out.startswith('{"error"'), f"{words}: {ran.out}"


@pytest.mark.parametrize("command", ["exec", "run list", "logs"])
def test_an_error_has_its_shape_after_any_command(command: str) -> None:
    error: dict[str, Any] = {"code": "usage", "message": "m", "hint": None, "exit_code": 2}
    check(command, {"error": error})
    for wrong in ({"error": {**error, "more": 1}}, {"error": {**error, "code": "oops"}}, {"error": error, "x": 1}):
        with pytest.raises(AssertionError, match="does not have"):
            check(command, json.loads(json.dumps(wrong)))
