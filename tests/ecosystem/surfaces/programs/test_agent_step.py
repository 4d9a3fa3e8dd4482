"""An agent as a step of a runbook: `gert-ext-agent`, a real process, with a model server that counts what is paid."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, Recorded, completed, finish, note, of_type, until
from tests.ecosystem.surfaces.programs.model_server import Message, ModelServer, model_server, results

PRICE = {"prompt": 1.0, "completion": 1.0}
CONTRACT = {
    "effects": ["network", "files"],
    "writes": ["pod"],
    "outputs": {
        "verdict": {"type": "string", "enum": ["fixed", "broken"]},
        "agent_run_id": {"type": "string"},
        "cost_usd": {"type": "float"},
    },
}


def looks_then_fixes(messages: list[Message]) -> Any:
    """Look at a pod, restart it, answer."""
    seen = len(results(messages))
    if seen == 0:
        return [("look_go", {"word": "web-1"})]
    if seen == 1:
        return [("restart_go", {"word": "web-1"})]
    return {"verdict": "fixed"}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server(looks_then_fixes) as found:
        yield found


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with two tools, of which one writes."""
    project = Project(tmp_path / "project")
    project.note_tool("look")
    project.note_tool("restart", before="while test -e hold; do sleep 0.02; done", contract={
        "writes": ["pod"], "idempotent": False,
    })  # fmt: skip
    return project


def agent(server: ModelServer | None, *, contract: dict[str, Any] | None = None, **inputs: Any) -> dict[str, Any]:
    """A step that is an agent."""
    given = {
        "task": "fix web-1",
        "model": "test-model",
        "tools": ["look", "restart"],
        "price": PRICE,
        **({"provider": server.url} if server is not None else {}),
        **inputs,
    }
    kinds = {"str": "string", "list": "list", "dict": "object", "float": "float", "int": "int", "bool": "bool"}
    declared = {name: {"type": kinds[type(value).__name__]} for name, value in given.items()}
    return {
        "id": "fix",
        "type": "extension",
        "extension": "agent",
        "timeout": "60s",
        "contract": {**CONTRACT, **(contract or {}), "inputs": declared},
        "inputs": given,
    }


def agent_runs(project: Project) -> list[str]:
    with closing(sqlite3.connect(project.root / "runs" / "ledger.db")) as found:
        return [run_id for (run_id,) in found.execute("SELECT run_id FROM runs WHERE kind = 'agent'")]


def only(project: Project) -> Recorded:
    """The run of the runbook `book`."""
    [found] = [each for each in project.runs() if each.events()[0]["data"]["runbook"] == "book"]
    return found


def test_an_agent_works_on_a_step_and_is_linked_both_ways(project: Project, server: ModelServer) -> None:
    project.runbook(agent(server), tools=[])
    project.exec().ended(0)
    done = completed(only(project).events(), "fix")
    [run_id] = agent_runs(project)
    assert done["outputs"]["verdict"] == "fixed"
    assert done["outputs"]["agent_run_id"] == done["child_run_id"] == run_id
    assert done["outputs"]["cost_usd"] > 0
    assert project.noted() == ["web-1", "web-1"]
    assert len(server.asked) == 3
    shown = json.loads(project.gert("run", "summaries", run_id, "--type", "parent_run", "--json").ended(0).out)
    assert only(project).id in json.dumps(shown)
    document = json.loads(project.gert("run", "verify-ledger", "--json").ended(0).out)
    assert len(document["runs"]) == 2
    assert all(each["valid"] for each in document["runs"])


def test_a_recorded_step_replays_without_the_agent(project: Project, server: ModelServer) -> None:
    project.runbook(agent(server), tools=[])
    recorded = project.exec("--record", "scenarios/book/one").ended(0)
    assert "differs" not in recorded.out + recorded.err
    asked = len(server.asked)
    project.exec("--mode", "replay", "--scenario", "one").ended(0)
    assert len(server.asked) == asked


def test_on_postgres_the_agent_records_in_the_ledger_of_the_runbook(
    project: Project, server: ModelServer, dsn: str
) -> None:
    project.runbook(agent(server), tools=[])
    project.exec("--dsn", "env:THE_DSN", THE_DSN=dsn).ended(0)
    listed = project.gert("run", "list", "--dsn", "env:THE_DSN", "--json", THE_DSN=dsn).ended(0)
    assert '"agent"' in listed.out
    assert '"runbook"' in listed.out
    assert not (project.root / "runs" / "ledger.db").exists()
    assert len(server.asked) == 3


@pytest.mark.parametrize("killed", ["gert", "gert and the runner"])
@pytest.mark.parametrize("moment", [1, 2, 3], ids=["at the first turn", "at the second turn", "at the last turn"])
def test_a_killed_runbook_resumes_its_agent_and_pays_nothing_twice(
    project: Project, server: ModelServer, moment: int, killed: str
) -> None:
    """A model call that was under way when the process died was not answered: it alone is asked again."""
    project.runbook(agent(server), tools=[])
    gert = project.start()
    answering = server.script

    def script(messages: list[Message]) -> Any:
        if len(server.asked) == moment:
            server.open.clear()
        return answering(messages)

    server.script = script
    until(lambda: len(server.asked) == moment)
    runner = _child_of(gert.pid)
    gert.send_signal(signal.SIGKILL)
    if killed != "gert":
        os.kill(runner, signal.SIGKILL)
    finish(gert)
    until(lambda: not _runs(runner))
    server.script = answering
    server.open.set()
    run = only(project)
    project.gert("resume", run.id).ended(0)
    assert completed(run.events(), "fix")["outputs"]["verdict"] == "fixed"
    assert project.noted() == ["web-1", "web-1"]
    assert len(server.asked) == 4, "three turns, and the one that was not answered"
    assert len(agent_runs(project)) == 1
    [reconciled] = of_type(run.events(), "step_reconciled")
    assert reconciled["data"]["automatic"] is True


def _child_of(pid: int) -> int:
    """The runner that gert started."""
    found: list[int] = []

    def look() -> bool:
        for each in Path("/proc").glob("[0-9]*/stat"):
            try:
                name, fields = each.parent.name, each.read_text().rpartition(")")[2].split()
                words = (each.parent / "cmdline").read_bytes()
            except OSError:
                continue
            if int(fields[1]) == pid and b"gert-ext-agent" in words:
                found.append(int(name))
        return bool(found)

    until(look)
    return found[0]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_call_in_doubt_is_not_repeated(project: Project, server: ModelServer) -> None:
    """Killed while a tool that is not idempotent works: the agent does not guess, and the step says why it failed."""
    project.runbook(agent(server), tools=[])
    (project.root / "hold").touch()
    gert = project.start()
    until(lambda: len(server.asked) == 2)
    until(lambda: b"restart_go" in _requested(project))
    runner = _child_of(gert.pid)
    for pid in (gert.pid, runner):
        os.kill(pid, signal.SIGKILL)
    finish(gert)
    until(lambda: not _runs(runner))
    (project.root / "hold").unlink()
    until(lambda: project.noted() == ["web-1", "web-1"])
    run = only(project)
    project.gert("resume", run.id, "--allow-running").ended(3)
    failure = completed(run.events(), "fix")["failure"]
    assert "unknown" in failure["message"]
    assert project.noted() == ["web-1", "web-1"]
    assert len(server.asked) == 2


def _requested(project: Project) -> bytes:
    with closing(sqlite3.connect(project.root / "runs" / "ledger.db")) as found:
        rows = found.execute("SELECT line FROM events WHERE run_id LIKE 'agent-%'").fetchall()
    return b"\n".join(line for (line,) in rows if b"tool_requested" in line)


ASKS = {
    "apiVersion": "policy/v0",
    "meta": {"name": "ops"},
    "governance": {
        "rules": [
            {"writes": ["pod"], "effects": ["network"], "action": "allow"},
            {"writes": ["pod"], "action": "require-approval", "approvers": ["bob"]},
            {"default": "allow"},
        ]
    },
}
"""The step, which also has the effect `network`, is allowed; the restart itself needs Bob."""


def _ticket(project: Project) -> str:
    found: list[str] = []

    def look() -> bool:
        listed = project.gert("approvals", "list", "--json")
        # The ledger may just be created.
        found.extend(each["ticket_id"] for each in (json.loads(listed.out) if listed.code == 0 else ()))
        return bool(found)

    until(look)
    return found[0]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        pytest.param(["--policy", "ops.policy.yaml"], "approve", id="a policy of the run, approved"),
        pytest.param(["--policy", "ops.policy.yaml"], "reject", id="a policy of the run, rejected"),
        pytest.param(["--config", "strict.yaml"], "approve", id="a policy and a group of settings of the run"),
    ],
)
def test_the_step_waits_for_the_tickets_of_its_agent(
    project: Project, server: ModelServer, words: list[str], answer: str
) -> None:
    asks = json.loads(json.dumps(ASKS).replace('["bob"]', '["group:ops"]')) if "--config" in words else ASKS
    project.write("ops.policy.yaml", asks)
    project.write("strict.yaml", {"policies": ["ops.policy.yaml"], "groups": {"ops": ["bob"]}})
    project.runbook(agent(server), tools=[])
    gert = project.start(*words)
    ticket = _ticket(project)
    assert project.noted() == ["web-1"]
    project.gert(answer, ticket, "--as", "bob", "--reason", "looked at it").ended(0)
    finish(gert).ended(0)
    assert project.noted() == (["web-1", "web-1"] if answer == "approve" else ["web-1"])
    told = results(server.asked[-1])[-1]
    assert ("bob` rejected it: looked at it" in told) is (answer == "reject")


def test_an_agent_acts_through_a_runbook_whose_ticket_it_waits_for(project: Project, server: ModelServer) -> None:
    def script(messages: list[Message]) -> Any:
        return {"verdict": "fixed"} if results(messages) else [("restart-pod", {"pod": "web-1"})]

    server.script = script
    project.write("ops.policy.yaml", ASKS)
    step = {"id": "restart", "type": "tool", "tool": "restart", "inputs": {"word": "{{ .pod }}"}}
    project.runbook(step, name="restart-pod", tools=["restart"], inputs={"pod": {"type": "string", "required": True}})
    project.runbook(agent(server, tools=[], runbooks=["restart-pod.yaml"]), tools=[])
    gert = project.start("--policy", "ops.policy.yaml")
    ticket = _ticket(project)
    [inner] = [each for each in project.runs() if each.events()[0]["data"]["runbook"] == "restart-pod"]
    begun = inner.events()[0]["data"]
    assert begun["parent_run_id"] == agent_runs(project)[0]
    assert begun["principal"] == {"kind": "agent", "id": "book"}
    project.gert("approve", ticket, "--as", "bob").ended(0)
    finish(gert).ended(0)
    assert project.noted() == ["web-1"]
    assert '"code":"done"' in results(server.asked[-1])[0]


def test_a_run_that_is_killed_while_its_agent_waits_takes_the_answer_later(
    project: Project, server: ModelServer
) -> None:
    project.write("ops.policy.yaml", ASKS)
    project.runbook(agent(server), tools=[])
    gert = project.start("--policy", "ops.policy.yaml")
    ticket = _ticket(project)
    runner = _child_of(gert.pid)
    gert.send_signal(signal.SIGKILL)
    finish(gert)
    until(lambda: not _runs(runner))
    project.gert("approve", ticket, "--as", "bob").ended(0)
    project.gert("resume", only(project).id).ended(0)
    assert project.noted() == ["web-1", "web-1"]
    assert len(server.asked) == 3


def test_a_detached_run_ends_its_process_while_its_agent_waits(project: Project, server: ModelServer) -> None:
    project.write("ops.policy.yaml", ASKS)
    project.runbook(agent(server), tools=[])
    said = project.exec("--policy", "ops.policy.yaml", "--detach", "--json").ended(0).said
    run_id = said["run_id"]
    [pending] = said["pending"]
    assert said["status"] == "waiting"
    assert (pending["target"], pending["inputs"]) == ("restart_go", {"word": "web-1"})
    ticket = pending["ticket_id"]
    rows = json.loads(project.gert("run", "list", "--json").ended(0).out)
    [row] = [each for each in rows if each["run_id"] == run_id]
    assert (row["status"], row["tickets"]) == ("waiting", [ticket])
    before = only(project).events()
    assert before[-1]["type"] == "step_waiting"
    again = project.gert("resume", run_id, "--json").ended(0).said
    assert (again["status"], [each["ticket_id"] for each in again["pending"]]) == ("waiting", [ticket])
    assert only(project).events() == before, "a look at a run that waits is not recorded"
    assert len(server.asked) == 2
    assert "waits for approval" in project.gert("rerun", "--run", run_id, "--from", "fix").ended(2).err
    assert f"gert approve {ticket}" in project.gert("run", "show", run_id).ended(0).out
    told = project.gert("approve", ticket, "--as", "bob").ended(0).out
    assert f"gert resume {run_id}" in told
    project.gert("resume", run_id).ended(0)
    assert project.noted() == ["web-1", "web-1"]
    assert completed(only(project).events(), "fix")["outputs"]["verdict"] == "fixed"
    assert len(server.asked) == 3, "nothing is paid twice"
    project.gert("run", "verify-ledger").ended(0)


def test_a_detached_run_whose_agent_waits_can_be_abandoned(project: Project, server: ModelServer) -> None:
    project.write("ops.policy.yaml", ASKS)
    project.runbook(agent(server), tools=[])
    said = project.exec("--policy", "ops.policy.yaml", "--detach", "--json").ended(0).said
    run_id, ticket = said["run_id"], said["pending"][0]["ticket_id"]
    ended = project.gert("run", "abandon", run_id, "--reason", "not needed").ended(0).out
    assert f"closed 1 ticket: {ticket}" in ended
    assert json.loads(project.gert("approvals", "list", "--json").ended(0).out) == []
    assert "does not wait" in project.gert("approve", ticket, "--as", "bob").ended(1).out
    rows = json.loads(project.gert("run", "list", "--json").ended(0).out)
    assert {each["run_id"]: each["status"] for each in rows}[run_id] == "abandoned"
    assert project.noted() == ["web-1"]
    project.gert("run", "verify-ledger").ended(0)


@pytest.mark.parametrize("answered", [False, True], ids=["open", "answered"])
def test_with_a_run_the_runbook_that_its_agent_called_is_abandoned(
    project: Project, server: ModelServer, answered: bool
) -> None:
    server.script = lambda messages: {"verdict": "fixed"} if results(messages) else [("restart-pod", {"pod": "web-1"})]
    project.write("ops.policy.yaml", ASKS)
    step = {"id": "restart", "type": "tool", "tool": "restart", "inputs": {"word": "{{ .pod }}"}}
    project.runbook(step, name="restart-pod", tools=["restart"], inputs={"pod": {"type": "string", "required": True}})
    project.runbook(agent(server, tools=[], runbooks=["restart-pod.yaml"]), tools=[])
    said = project.exec("--policy", "ops.policy.yaml", "--detach", "--json").ended(0).said
    (ticket,) = [each["ticket_id"] for each in said["pending"]]
    if answered:
        project.gert("approve", ticket, "--as", "bob").ended(0)
    ended = project.gert("run", "abandon", said["run_id"], "--reason", "not needed", "--json").ended(0).said
    assert (ended["tickets"], ended.get("warning")) == ([ticket], None)
    project.gert("approve", ticket, "--as", "bob").ended(1)
    assert "no run is ready" in project.gert("resume", "--ready").ended(0).out
    assert project.noted() == []
    project.gert("run", "verify-ledger").ended(0)


def test_beside_a_ticket_of_its_own_a_detached_run_waits_for_that_of_its_agent(
    project: Project, server: ModelServer
) -> None:
    asks = json.loads(json.dumps(ASKS))
    asks["governance"]["rules"].insert(0, {"writes": ["disk"], "action": "require-approval"})
    project.write("ops.policy.yaml", asks)
    project.note_tool("wipe", contract={"writes": ["disk"]})
    inner = {"id": "own", "type": "tool", "tool": "wipe", "inputs": {"word": "web-2"}, "scope": "own"}
    lanes = [{"label": "a", "steps": [agent(server)]}, {"label": "b", "steps": [inner]}]
    project.runbook({"id": "both", "type": "parallel", "branches": lanes}, tools=["wipe"])
    said = project.exec("--policy", "ops.policy.yaml", "--detach", "--json").ended(0).said
    assert len(said["pending"]) == 2
    for each in said["pending"]:
        project.gert("approve", each["ticket_id"], "--as", "bob").ended(0)
        last = project.gert("resume", said["run_id"], "--json").ended(0).said
    assert last["status"] == "completed"
    assert sorted(project.noted()) == ["web-1", "web-1", "web-2"]
    assert len(server.asked) == 3


def test_a_detached_run_waits_for_the_runbook_of_its_agent(project: Project, server: ModelServer) -> None:
    server.script = lambda messages: {"verdict": "fixed"} if results(messages) else [("restart-pod", {"pod": "web-1"})]
    project.write("ops.policy.yaml", ASKS)
    step = {"id": "restart", "type": "tool", "tool": "restart", "inputs": {"word": "{{ .pod }}"}}
    project.runbook(step, name="restart-pod", tools=["restart"], inputs={"pod": {"type": "string", "required": True}})
    project.runbook(agent(server, tools=[], runbooks=["restart-pod.yaml"]), note("after", "x"), tools=["note"])
    said = project.exec("--policy", "ops.policy.yaml", "--detach", "--json").ended(0).said
    [pending] = said["pending"]
    project.gert("approve", pending["ticket_id"], "--as", "bob").ended(0)
    project.gert("resume", said["run_id"]).ended(0)
    assert project.noted() == ["web-1", "x"]
    assert len(server.asked) == 2


def test_a_runbook_of_an_agent_outlives_a_killed_run_and_is_found_again(project: Project, server: ModelServer) -> None:
    server.script = lambda messages: {"verdict": "fixed"} if results(messages) else [("restart-pod", {"pod": "web-1"})]
    (project.root / "hold").touch()
    step = {"id": "restart", "type": "tool", "tool": "restart", "inputs": {"word": "{{ .pod }}"}}
    project.runbook(step, name="restart-pod", tools=["restart"], inputs={"pod": {"type": "string", "required": True}})
    project.runbook(agent(server, tools=[], runbooks=["restart-pod.yaml"]), tools=[])
    gert = project.start()
    until(lambda: len(project.runs()) == 2 and all(len(each.events()) > 1 for each in project.runs()))
    runner = _child_of(gert.pid)
    gert.send_signal(signal.SIGKILL)
    finish(gert)
    until(lambda: not _runs(runner))
    (project.root / "hold").unlink()
    project.gert("resume", only(project).id).ended(0)
    assert project.noted() == ["web-1"]
    assert len(server.asked) == 2
    assert len(project.runs()) == 2


def test_a_run_that_is_stopped_stops_its_agent(project: Project, server: ModelServer) -> None:
    server.open.clear()
    project.runbook(agent(server), tools=[])
    gert = project.start()
    until(lambda: len(server.asked) == 1)
    runner = _child_of(gert.pid)
    gert.send_signal(signal.SIGTERM)
    finish(gert)
    assert not _runs(runner)
    [end] = of_type(only(project).events(), "run_complete")
    assert end["data"]["status"] == "cancelled"
    assert project.noted() == []


GATE = {"tool": "look_go", "arguments": {"word": "gate"}, "path": "said", "equals": "fine"}


@pytest.mark.parametrize(
    ("changes", "contract", "why"),
    [
        pytest.param({"budget_usd": 0.000001}, {}, "has spent 0.000000 of 0.000001 USD", id="the budget"),
        pytest.param({"max_turns": 2}, {}, "no accepted answer after 2 turns", id="the turns"),
        pytest.param(
            {"gates": [GATE], "max_turns": 4},
            {},
            "the gate `look_go` did not pass",
            id="a gate",
        ),
        pytest.param({"price": {"prompt": 1.0}}, {}, "do not fit", id="a price without a part"),
        pytest.param({"colour": "red"}, {}, "unknown field `colour`", id="an input that it does not know"),
        pytest.param({"tools": ["../else.tool.yaml"]}, {}, "lies outside", id="a tool outside the project"),
        pytest.param({"runbooks": ["none.yaml"]}, {}, "there is no file `none.yaml`", id="a runbook that is not there"),
        pytest.param({}, {"writes": []}, "writes `pod`, which the contract", id="a tool that writes more"),
        pytest.param({}, {"effects": ["files"]}, "has the effect `network`", id="a model that is not declared"),
        pytest.param({}, {"effects": ["network"]}, "has the effect `files`", id="a tool with another effect"),
        pytest.param({}, {"outputs": {}}, "says nothing of the answer", id="no answer"),
        pytest.param({"provider": "echo"}, {}, "it calls no tools", id="a model that cannot"),
    ],
)  # fmt: skip
def test_why_a_step_fails(
    project: Project, server: ModelServer, changes: dict[str, Any], contract: dict[str, Any], why: str
) -> None:
    (project.root.parent / "else.tool.yaml").write_text((project.root / "tools" / "look.tool.yaml").read_text())
    project.runbook(agent(server, contract=contract, **changes), tools=[])
    project.exec().ended(3)
    done = completed(only(project).events(), "fix")
    assert done["status"] == "failed"
    assert why in done["failure"]["message"]
    assert len(project.noted()) <= 4


def test_a_model_without_a_price_is_refused(project: Project, server: ModelServer) -> None:
    step = agent(server)
    del step["inputs"]["price"]
    project.runbook(step, tools=[])
    project.exec().ended(3)
    assert (
        "price of the model `test-model` is unknown" in completed(only(project).events(), "fix")["failure"]["message"]
    )
    assert server.asked == []


def test_an_agent_sees_the_variables_that_the_step_may_see(project: Project, server: ModelServer) -> None:
    step = {**agent(server, show_vars=True), "visibility": {"allow": ["shown"]}}
    inputs = {name: {"type": "string", "required": True} for name in ("shown", "hidden")}
    project.runbook(step, tools=[], inputs=inputs)
    project.exec("--var", "shown=in-sight", "--var", "hidden=out-of-sight").ended(0)
    said = json.dumps(server.asked)
    assert "in-sight" in said
    assert "out-of-sight" not in said


def test_the_timeout_of_the_step_reaches_the_agent_and_its_runbooks(project: Project, server: ModelServer) -> None:
    server.script = lambda _: [("restart-pod", {"pod": "web-1"})]
    (project.root / "hold").touch()
    step = {"id": "restart", "type": "tool", "tool": "restart", "inputs": {"word": "{{ .pod }}"}}
    project.runbook(step, name="restart-pod", tools=["restart"], inputs={"pod": {"type": "string", "required": True}})
    made = {**agent(server, tools=[], runbooks=["restart-pod.yaml"]), "timeout": "8s"}
    project.runbook(made, tools=[])
    project.exec().ended(3)
    assert completed(only(project).events(), "fix")["failure"]["kind"] == "timeout"

    def inner() -> list[dict[str, Any]]:
        found = [each for each in project.runs() if each.id != only(project).id]
        return of_type(found[0].events(), "run_complete") if found else []

    until(lambda: bool(inner()))
    assert inner()[0]["data"]["status"] == "cancelled"
    assert project.noted() == []


SECRET = "key-that-no-model-may-see"


def test_a_secret_input_never_reaches_an_agent(project: Project, server: ModelServer) -> None:
    secret = {"type": "string", "secret": True, "from": "env/POD_KEY"}
    project.runbook(agent(server, task="use {{ .key }}"), tools=[], inputs={"key": secret})
    project.exec(POD_KEY=SECRET).ended(3)
    assert "may not be given a secret input" in completed(only(project).events(), "fix")["failure"]["message"]
    assert server.asked == []


def test_tools_of_an_agent_get_neither_the_keys_of_gert_nor_the_secrets_of_the_runbook(
    project: Project, server: ModelServer
) -> None:
    """The runner is gert itself and has its keys; what it starts for the model has none of them."""
    project.script("spy", "env | sort; echo $SIDE_KEY", extract={"said": {"from": "stdout"}})

    def script(messages: list[Message]) -> Any:
        return {"verdict": "broken"} if results(messages) else [("spy_go", {})]

    server.script = script
    project.runbook(agent(server, tools=["spy"]), tools=[], secrets=[{"env": "SIDE_KEY"}])
    keys = {"GERT_APPROVAL_VERIFY_KEY": "a-key-of-thirty-two-characters-ok", "GERT_TRACE_SIGNING_KEY": "k" * 40}
    project.exec(**keys, SIDE_KEY=SECRET).ended(0)
    [told] = results(server.asked[-1])
    assert "PATH=" in told
    assert [word for word in told.split("\\n") if word.startswith("GERT_")] == [
        f"GERT_PARENT_RUN_ID={agent_runs(project)[0]}",
        f"GERT_ROOT_RUN_ID={only(project).id}",
    ]
    kept = (project.root / "runs" / "ledger.db").read_bytes()
    for value in (SECRET, *keys.values()):
        assert value.encode() not in kept
        assert value not in json.dumps(server.asked)
    project.gert("run", "verify-ledger", **keys).ended(0)


def test_a_runner_of_the_same_name_elsewhere_gets_no_variable_of_gert(project: Project, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "gert-ext-agent"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport os\nfrom gert.ext import run\n"
        "run(lambda step: {'verdict': ' '.join(sorted(n for n in os.environ if n.startswith('GERT_')))})\n"
    )
    program.chmod(0o755)
    contract = {"outputs": {"verdict": {"type": "string"}}}
    project.runbook(agent(None, contract=contract), tools=[])
    key = {
        "GERT_APPROVAL_VERIFY_KEY": "a-key-of-thirty-two-characters-ok",
        "PATH": f"{program.parent}:{os.environ['PATH']}",
    }
    project.exec(**key).ended(0)
    assert completed(only(project).events(), "fix")["outputs"]["verdict"] == "GERT_PARENT_RUN_ID"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process refuse inspection")
def test_the_runner_for_agents_cannot_be_inspected_by_its_tools() -> None:
    """Its tools run as the same user, and could read the variables that it does not pass on from its memory."""
    program = (
        "from gert.ecosystem.host.agent.agent_step import call_of, take_variables\n"
        "from gert.ecosystem.process.own_process import is_closed\n"
        "from gert.ecosystem.surfaces.programs import runners\n"
        "runners.run = lambda *_, **__: None\n"
        "runners.agent()\n"
        "facts = dict.fromkeys(('id', 'run_id', 'path', 'folder', 'runbook', 'actor'), 'x')\n"
        "take_variables(call_of({**facts, 'variables': {'GERT_LEDGER': 'postgresql://ann:secret@db/runs'}}))\n"
        "print(is_closed())\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout == "True\n"
