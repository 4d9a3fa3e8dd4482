"""What operations return is what their schemas promise, and what `--json` of the commands prints has the same names."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from tests.ecosystem.surfaces.mcp.conftest import QUICK, Served, drive
from tests.ecosystem.surfaces.mcp.test_mcp import ENDED, until

from gert.ecosystem.host.operations.editor_table import EDITOR_OPERATIONS
from gert.ecosystem.host.operations.table import OPERATIONS, perform
from gert.ecosystem.surfaces.serve.service import reference

ROOT = Path(__file__).resolve().parents[4]
SCENARIO = {
    "runbooks/scenarios/quick/hello/scenario.yaml": "tool_responses: {say: {stdout: hello}}\n",
    "runbooks/scenarios/quick/hello/test.yaml": "expected_outcome: resolved\nexpected_code: ok\n",
}


def fits(name: str, said: Any) -> None:
    """The schema of an operation accepts this, and each key at the top is one that it names."""
    schema = EDITOR_OPERATIONS[name].output_schema
    jsonschema_rs.validator_for(schema).validate(said)
    unknown = _unknown(schema, said)
    assert not unknown, f"{name}: {unknown}"


def _unknown(schema: Any, said: Any, at: str = "") -> list[str]:
    """Keys that a schema does not name, at every depth where it names any."""
    if isinstance(said, list) and isinstance(schema.get("items"), dict):
        return [found for each in said for found in _unknown(schema["items"], each, at)]
    if not isinstance(said, dict):
        return []
    options = [each for each in schema.get("anyOf", ()) if each.get("type") == "object"]
    known = (options[0] if options else schema).get("properties")
    if not known:
        inner = schema.get("additionalProperties")
        pairs = said.items() if isinstance(inner, dict) else ()
        return [found for key, each in pairs for found in _unknown(inner, each, f"{at}.{key}")]
    here = [f"{at}.{key}" for key in said if key not in known]
    return here + [found for key, each in said.items() if key in known for found in _unknown(known[key], each, key)]


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


def gert(served: Served, *words: str) -> Any:
    """What a command prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "gert", *words, "--json"],
        cwd=served.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 1, 3), done.stderr
    return json.loads(done.stdout)


def rows(name: str) -> Any:
    """The schema of the rows that an operation lists."""
    keys = EDITOR_OPERATIONS[name].output_schema["properties"]
    [listed] = [each for key, each in keys.items() if "items" in each and key != "untrusted"]
    return listed["items"]


def test_the_commands_print_the_same_names(served: Served) -> None:
    for path, text in SCENARIO.items():
        served.write(path, text)
    state = str(served.root.parent / "state")
    fits("validate", gert(served, "validate", "runbooks"))
    fits("explain", gert(served, "explain", "runbooks/writes.yaml"))
    fits("test", gert(served, "test", "runbooks"))
    tools = EDITOR_OPERATIONS["list_tools"].output_schema["properties"]["tools"]
    assert not _unknown(tools, gert(served, "tool", "list")["tools"])
    gert(served, "exec", "runbooks/writes.yaml", "--var", "text=x", "--detach", "--state-dir", state, "--quiet")
    listed = gert(served, "run", "list", "--state-dir", state)
    jsonschema_rs.validator_for({"type": "array", "items": rows("list_runs")}).validate(listed)
    assert not _unknown({"items": rows("list_runs")}, listed)
    tickets = gert(served, "approvals", "list", "--state-dir", state)
    jsonschema_rs.validator_for({"type": "array", "items": rows("list_approvals")}).validate(tickets)
    answered = gert(served, "reject", tickets[0]["ticket_id"], "--as", "kim", "--state-dir", state)
    fits("answer_approval", answered)
    done = gert(served, "exec", "runbooks/quick.yaml", "--state-dir", state, "--quiet")
    jsonschema_rs.validator_for(EDITOR_OPERATIONS["exec"].output_schema).validate(done)


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
