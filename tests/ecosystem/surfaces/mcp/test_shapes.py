"""What operations return is what their schemas promise, and commands print the same with `--json`."""

import json
from pathlib import Path
from typing import Any, get_type_hints

import jsonschema_rs
import pytest
from tests.ecosystem.surfaces.mcp.conftest import QUICK, Served, drive
from tests.ecosystem.surfaces.mcp.test_mcp import ENDED, until

from gert.ecosystem.host.operations.editor_table import EDITOR_OPERATIONS
from gert.ecosystem.host.operations.table import OPERATIONS, perform
from gert.ecosystem.host.shapes.approvals import AnswerOfSeveral
from gert.ecosystem.surfaces.cli.results import RESULTS
from gert.ecosystem.surfaces.serve.service import reference

ROOT = Path(__file__).resolve().parents[4]
SCENARIO = {
    "runbooks/scenarios/quick/hello/scenario.yaml": "tool_responses: {say: {stdout: hello}}\n",
    "runbooks/scenarios/quick/hello/test.yaml": "expected_outcome: resolved\nexpected_code: ok\n",
}


def fits(name: str, said: Any) -> None:
    """The schema of an operation accepts this; it has no other keys."""
    jsonschema_rs.validator_for(EDITOR_OPERATIONS[name].output_schema).validate(said)


def test_every_result_fits_its_schema(served: Served) -> None:
    for path, text in SCENARIO.items():
        served.write(path, text)
    detailed = QUICK.replace("name: quick", "name: detailed").replace(
        "code: ok", "code: ok, meta: {word: '{{ .word }}'}"
    )
    served.write("runbooks/detailed.yaml", detailed)
    seen: set[str] = set()

    async def call(name: str, **said: Any) -> Any:
        result = await perform(EDITOR_OPERATIONS[name], served.access(), said)
        fits(name, json.loads(json.dumps(result)))
        seen.add(name)
        return result

    async def work() -> None:
        await call("validate", path="runbooks")
        await call("validate", path="runbooks/quick.yaml", text="apiVersion: kernel/v0\nmeta: {name: x}\nsteps: 1\n")
        await call("list_runbooks", limit=1)
        await call("list_tools")
        await call("explain", path="writes")
        await call("step_contract", path="writes", step_id="change")
        await call("schema", type="tool")
        assert (await call("test", path="runbooks/quick.yaml"))["passed"] == 1
        await call("inputs", path="writes")
        dry = await call("exec", path="writes", vars={"text": "x"}, mode="dry-run")
        assert dry["reachable_outcomes"]
        await call("exec", path="quick", mode="replay", scenario="hello")
        await call("exec", path="detailed", mode="dry-run")
        done = await call("exec", path="quick", wait_seconds=20)
        await call("run_log", run_id=done["run_id"])
        await call("events", run_id=done["run_id"])
        waiting = await call("exec", path="writes", vars={"text": "x"}, wait_seconds=20)
        await call("run_status", run_id=waiting["run_id"])
        [ticket] = (await call("list_approvals"))["tickets"]
        await call("answer_approval", ticket_id=ticket["ticket_id"], verdict="reject", approver="kim")
        async with served.client() as client:
            await until(client, waiting["run_id"], *ENDED)
        long = await call("exec", path="long")
        await call("advance", run_id=long["run_id"])
        await call("evidence", run_id=long["run_id"], path="say", evidence={})
        await call("cancel", run_id=long["run_id"])
        await call("list_runs")

    drive(work)
    assert seen == EDITOR_OPERATIONS.keys() - {"resume"}  # which returns what `exec` returns
    assert EDITOR_OPERATIONS["resume"].output_schema == EDITOR_OPERATIONS["exec"].output_schema


@pytest.mark.parametrize(
    ("command", "operation", "key"),
    [
        ("validate", "validate", None),
        ("explain", "explain", None),
        ("test", "test", None),
        ("reject", "answer_approval", None),
        ("run list", "list_runs", "runs"),
        ("approvals list", "list_approvals", "tickets"),
    ],
)
def test_commands_print_what_operations_return(command: str, operation: str, key: str | None) -> None:
    """One shape has both: what commands print is checked against it wherever tests call them."""
    returned = get_type_hints(EDITOR_OPERATIONS[operation].call)["return"]
    first, *others = RESULTS[command]
    assert first == (returned if key is None else get_type_hints(returned)[key])
    assert others == ([list[AnswerOfSeveral]] if command == "reject" else [])  # to several tickets at once


@pytest.mark.parametrize("name", sorted(EDITOR_OPERATIONS))
def test_a_schema_says_something_about_every_result(name: str) -> None:
    schema = EDITOR_OPERATIONS[name].output_schema
    assert schema["type"] == "object"
    assert schema["properties"]
    assert schema["required"]
    assert "$ref" not in json.dumps(schema)


def test_the_published_schemas_are_those_of_this_version() -> None:
    """A change of a schema is a change of this file, which a reviewer sees."""
    kept = json.loads((ROOT / "docs" / "schemas" / "operations.json").read_text(encoding="utf-8"))
    assert kept == json.loads(json.dumps(reference())), "run `make docs`"


def test_tools_and_methods_have_the_same_schemas(served: Served) -> None:
    async def work() -> None:
        async with served.client() as client:
            tools = {each.name: each for each in (await client.list_tools()).tools}
        methods = reference()["methods"]
        for name in OPERATIONS:
            assert tools[f"gert_{name}"].input_schema == methods[f"gert/{name}"]["params"]
            assert tools[f"gert_{name}"].output_schema == methods[f"gert/{name}"]["result"]

    drive(work)
