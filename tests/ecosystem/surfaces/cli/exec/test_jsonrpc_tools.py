"""Tools whose program keeps running and is called over JSON-RPC (kernel-v0 §12)."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.runners import program
from tests.ecosystem.surfaces.cli.workbench import Project, call, completed, is_alive, of_type

SERVER = """
def fault(code, message):
    return {"jsonrpc": "2.0", "id": call["id"], "error": {"code": code, "message": message}}
def note(word):
    with open(os.environ["EFFECTS"], "a") as file: file.write(word + "\\n")
for line in sys.stdin:
    call = json.loads(line)
    if "id" not in call: continue
    method, params = call["method"], call["params"]
    answer = {"jsonrpc": "2.0", "id": call["id"], "result": None}
    note(method)
    if method == "pid": answer["result"] = {"said": os.getpid()}
    elif method == "echo": answer["result"] = {"said": params}
    elif method == "bare": answer["result"] = "just text"
    elif method == "argv": answer["result"] = {"said": sys.argv[1:]}
    elif method == "env": answer["result"] = {"said": sorted(n for n in ("MINE", "THEIRS") if n in os.environ)}
    elif method == "deep": answer["result"] = {"a": {"b": [1, {"c": "found"}]}}
    elif method == "refuse": answer = fault(40, "not in this state")
    elif method == "crash":
        print("out of memory", file=sys.stderr); sys.exit(9)
    elif method == "crash_once":
        if len(open(os.environ["EFFECTS"]).read().split()) == 1: sys.exit(9)
        answer["result"] = {"said": "the second time"}
    else: answer = fault(-32601, "unknown method")
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path / "project")
    program(project.root / "server", SERVER)
    tool(project)
    return project


def tool(project: Project, *, outputs: Any = None, inputs: Any = None, args: Any = (), **more: Any) -> None:
    """The tool `srv`, with an action for every method of the server."""
    path = {"said": {"from": "json", "path": "a.b[1].c"}}
    names = ("pid", "echo", "argv", "env", "refuse", "crash", "crash_once", "unheard_of")
    project.write(
        "tools/srv.tool.yaml",
        {
            "apiVersion": "tool/v0",
            "meta": {"name": "srv", "transport": "jsonrpc", "binary": str(project.root / "server"), "args": list(args)},
            "contract": {
                "effects": ["network"],
                "writes": [],
                "idempotent": True,
                "inputs": inputs or {},
                "outputs": outputs if outputs is not None else {"said": {"type": "any"}},
                **more.pop("contract", {}),
            },
            "actions": {
                **{name: {} for name in names},
                "named": {"method": "echo"},
                "bare": {"method": "bare"},
                "deep": {"method": "deep", "extract": path if outputs is None else {}},
            },
            **more,
        },
    )


def ran(project: Project, *steps: dict[str, Any], code: int = 0, **environ: str) -> dict[str, dict[str, Any]]:
    project.runbook(*steps, tools=["srv"])
    project.exec(EFFECTS=str(project.effects), **environ).ended(code)
    return {each["id"]: completed(project.run().events(), each["id"]) for each in steps}


def step(name: str, action: str | None = None, **more: Any) -> dict[str, Any]:
    return call(name, "srv", action=action or name, scope=name, **more)


def test_inputs_are_parameters_and_the_result_holds_the_outputs(project: Project) -> None:
    tool(project, inputs={"host": {"type": "string"}, "port": {"type": "int", "default": 80}})
    a, b = step("echo", inputs={"host": "a"}), step("named", inputs={"host": "b"})
    found = ran(project, a, b, step("bare"), step("deep"))
    assert [each["outputs"]["said"] for each in found.values()] == [
        {"host": "a", "port": 80}, {"host": "b", "port": 80}, "just text", "found",
    ]  # fmt: skip


def test_one_process_with_fixed_arguments_serves_the_run_and_ends_with_it(project: Project) -> None:
    tool(project, args=["--region", "eu"])
    found = ran(project, step("one", "pid"), step("two", "pid"), step("three", "argv"))
    one, two, arguments = (each["outputs"]["said"] for each in found.values())
    assert (one == two, arguments) == (True, ["--region", "eu"])
    assert not is_alive(one)


@pytest.mark.parametrize(
    ("action", "status", "kind", "message"),
    [
        pytest.param("refuse", "failed", "tool_error", "answered with an error (40): not in this state", id="an error"),
        pytest.param("unheard_of", "error", "transport", "(-32601): unknown method", id="a method it does not have"),
        pytest.param("crash", "error", "transport", "exited with 9: out of memory", id="a crash"),
    ],
)
def test_what_goes_wrong(project: Project, action: str, status: str, kind: str, message: str) -> None:
    found = ran(project, step(action, continue_on_fail=True), step("pid"))
    assert (found[action]["status"], found[action]["failure"]["kind"]) == (status, kind)
    assert message in found[action]["failure"]["message"]
    assert found["pid"]["status"] == "success"


@pytest.mark.parametrize("idempotent", [True, False])
def test_only_an_idempotent_action_is_called_again_after_a_crash(project: Project, idempotent: bool) -> None:
    tool(project, contract={"idempotent": idempotent})
    found = ran(project, step("crash_once", continue_on_fail=True))["crash_once"]
    assert project.noted() == ["crash_once"] * (2 if idempotent else 1)
    assert found["status"] == ("success" if idempotent else "error")
    assert found.get("outputs", {}) == ({"said": "the second time"} if idempotent else {})


def test_undeclared_outputs_are_stripped_and_every_declared_one_is_expected(project: Project) -> None:
    tool(project, outputs={"other": {"type": "string"}, "maybe": {"type": "string", "required": False}})
    assert ran(project, step("pid"))["pid"].get("outputs", {}) == {}
    kinds = [event["data"]["kind"] for event in of_type(project.run().events(), "contract_violation")]
    assert kinds == ["undeclared_output", "missing_output"]


def test_its_environment_has_its_own_secrets_only(project: Project) -> None:
    tool(project, secrets=[{"env": "MINE"}])
    project.tool("other", ["true"], secrets=[{"env": "THEIRS", "required": False}])
    project.runbook(step("env"), tools=["srv", "other"])
    project.exec(EFFECTS=str(project.effects), MINE="m1m1m1", THEIRS="t2t2t2").ended(0)
    assert completed(project.run().events(), "env")["outputs"] == {"said": ["MINE"]}


def test_a_program_that_is_missing_is_an_error_of_the_step(project: Project) -> None:
    (project.root / "server").unlink()
    found = ran(project, step("pid"), code=3)["pid"]
    assert (found["status"], found["failure"]["kind"]) == ("error", "not_found")


def test_an_approval_covers_the_call_and_the_program(project: Project) -> None:
    tool(project, inputs={"host": {"type": "string"}})
    asks = {"rules": [{"default": "require-approval"}]}
    project.runbook(step("echo", inputs={"host": "a"}), tools=["srv"], governance=asks)
    project.exec("--detach", EFFECTS=str(project.effects)).ended(0)
    (ticket,) = (run := project.run()).requests()
    asked = run.requests()[ticket]
    assert asked["program"] == str(project.root / "server")
    assert asked["command"] == {"transport": "jsonrpc", "call": "echo", "program": asked["program"]}
    project.gert("approve", ticket, "--as", "ada").ended(0)
    project.gert("resume", "--run", run.id, EFFECTS=str(project.effects)).ended(0)
    assert project.noted() == ["echo"]


def test_a_recorded_run_is_replayed_without_the_program(project: Project) -> None:
    project.runbook(step("pid"), step("deep"), step("refuse", continue_on_fail=True), tools=["srv"])
    project.exec("--record", "one", EFFECTS=str(project.effects)).ended(0)
    first = {name: completed(project.run().events(), name) for name in ("pid", "deep", "refuse")}
    (project.root / "server").unlink()
    project.exec("--mode", "replay", "--scenario", "one", "--trace", "t.jsonl").ended(0)
    events = [json.loads(line) for line in (project.root / "t.jsonl").read_text().splitlines()]
    for name, found in first.items():
        again = completed(events, name)
        assert [again.get(key) for key in ("status", "outputs", "failure")] == [
            found.get(key) for key in ("status", "outputs", "failure")
        ]
