"""Runbooks that call MCP servers: governed, recorded, resumed, replayed and refused."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.mcp.calls import RAW, lines, survivors
from tests.ecosystem.surfaces.cli.workbench import Project, Ran, call, completed, environment, of_type, until

READ = {"effects": ["store"], "writes": [], "idempotent": True}
WRITE = {"effects": ["store"], "writes": ["store"], "idempotent": False}
ASKS = {"rules": [{"writes": ["store"], "action": "require-approval"}, {"default": "allow"}]}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def server_tool(project: Project, mode: str, log: Path, contract: dict[str, Any] = READ, **more: Any) -> None:
    project.write(
        "tools/store.tool.yaml",
        {
            "apiVersion": "tool/v0",
            "meta": {
                "name": "store",
                "transport": "mcp",
                "connect": "stdio",
                "binary": RAW[0],
                "args": [*RAW[1:], mode, str(log)],
            },
            "contract": {
                **contract,
                "inputs": {"text": {"type": "string"}},
                "outputs": {"arguments": {"type": "object"}, "done": {"type": "int"}},
            },
            "actions": {"do": more.pop("action", {})},
            **more,
        },
    )


STEP = {**call("put", "store", action="do"), "inputs": {"text": "hello"}}


def without_the_sdk(project: Project, *words: str) -> Ran:
    """Run `gert` as an installation without the extra does."""
    code = (
        "import sys; sys.modules['mcp'] = None; sys.argv[0] = 'gert'; from gert.__main__ import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=project.root,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def test_a_run_is_recorded_verified_and_replayed_without_sdk_and_server(project: Project, log: Path) -> None:
    server_tool(project, "good", log)
    project.runbook(STEP, {**STEP, "id": "again"}, tools=["store"])
    project.exec("--record", "scenarios/book/one").ended(0)
    project.verifies()
    outputs = completed(project.run().events(), "put")["outputs"]
    assert outputs == {"arguments": {"text": "hello"}, "done": 1}
    assert (len(lines(log, "start")), lines(log, "call"), list(survivors(log))) == (1, ["", ""], [])
    said = project.gert("logs", project.run().id, "put").ended(0).out
    assert '{"text": "hello"}' in said
    assert 'called with {"text": "hello"}' in said
    (project.root / "tools/store.tool.yaml").write_text(
        (project.root / "tools/store.tool.yaml").read_text().replace(json.dumps(RAW[0]), '"no-such-server"')
    )
    replayed = without_the_sdk(project, "exec", "book.yaml", "--mode", "replay", "--scenario", "one").ended(0)
    assert "resolved: done" in replayed.out
    assert len(lines(log, "start")) == 1


def test_without_the_sdk_a_run_is_refused_before_its_first_step(project: Project, log: Path) -> None:
    server_tool(project, "good", log)
    project.runbook(
        {"id": "first", "type": "tool", "tool": "note", "inputs": {"word": "x"}}, STEP, tools=["note", "store"]
    )
    said = without_the_sdk(project, "exec", "book.yaml").ended(1)
    assert "whose transport is `mcp`" in said.err
    assert "pip install 'gert[mcp]'" in said.err
    assert (project.noted(), log.exists(), project.runs()) == ([], False, [])
    imported = without_the_sdk(project, "tool", "import", "--mcp", "server").ended(2)
    assert "pip install 'gert[mcp]'" in imported.err


def test_a_writing_tool_waits_for_approval_with_its_preview_and_runs_once(project: Project, log: Path) -> None:
    server_tool(project, "good", log, WRITE, action={"preview": {"mcp_tool": "plan"}})
    project.runbook(STEP, tools=["store"], governance=ASKS)
    project.exec("--detach").ended(0)
    run = project.run()
    [(ticket, request)] = run.requests().items()
    assert request["command"]["call"] == "do"
    assert request["command"]["arguments"][-1] == str(log)
    assert os.path.realpath(RAW[0]) == request["program"]
    assert request["preview"] == '{"text": "hello"}'
    assert (lines(log, "call"), list(survivors(log))) == ([""], [])
    project.gert("approve", ticket, "--as", "ann").ended(0)
    project.gert("resume", "--run", run.id).ended(0)
    assert len(lines(log, "call")) == 2
    assert completed(run.events(), "put")["status"] == "success"
    project.verifies(run)


def test_an_approval_binds_the_url(project: Project) -> None:
    project.write(
        "tools/store.tool.yaml",
        {
            "apiVersion": "tool/v0",
            "meta": {"name": "store", "transport": "mcp", "connect": "http://127.0.0.1:9/mcp"},
            "contract": WRITE,
            "actions": {"do": {}},
        },
    )
    project.runbook(call("put", "store", action="do"), tools=["store"], governance=ASKS)
    project.exec("--detach").ended(0)
    [request] = project.run().requests().values()
    assert request["command"] == {"transport": "mcp", "call": "do", "connect": "http://127.0.0.1:9/mcp"}
    assert request["program"] is None
    [ticket] = project.run().requests()
    assert "server:        http://127.0.0.1:9/mcp" in project.gert("approvals", "show", ticket).ended(0).out


def test_a_server_that_changed_since_the_import_is_refused(project: Project, log: Path) -> None:
    project.gert("tool", "import", "--mcp", " ".join([*RAW, "good", str(log)]), "--name", "store").ended(0)
    file = project.root / "tools/store.tool.yaml"
    project.runbook({**STEP, "inputs": {"text": "a"}}, tools=["store"])
    project.exec().ended(0)
    text = file.read_text()
    at = text.index("annotations: ", text.index("imported:"))
    file.write_text(text[:at] + text[at:].replace(text[at + 21 : at + 85], "0" * 64, 1))
    said = project.exec().ended(3)
    assert "changed since it was imported: its annotations" in said.out
    assert f"gert tool import --mcp '{' '.join(RAW)} good {log}' --name store" in said.out
    assert len(lines(log, "call")) == 1
    check = project.gert("tool", "check", "store").ended(1)
    assert "its annotations" in check.out
    project.gert("tool", "import", "--mcp", " ".join([*RAW, "good", str(log)]), "--name", "store").ended(0)
    project.exec().ended(0)


def test_a_silent_server_ends_with_the_timeout_and_leaves_no_process(project: Project, log: Path) -> None:
    server_tool(project, "silent-call", log)
    project.runbook({**STEP, "timeout": "500ms"}, tools=["store"])
    project.exec().ended(3)
    failure = completed(project.run().events(), "put")["failure"]
    assert (failure["kind"], failure["message"]) == ("timeout", "no answer within 500ms")
    assert list(survivors(log)) == []


def test_a_dry_run_starts_nothing_and_a_probe_only_reads(project: Project, log: Path) -> None:
    server_tool(project, "good", log, {**READ, "effects": ["network"]})
    project.runbook(STEP, tools=["store"])
    project.exec("--mode", "dry-run").ended(0)
    assert not log.exists()
    project.exec("--mode", "probe").ended(0)
    assert lines(log, "call") == [""]


def test_plain_http_to_another_machine_needs_a_setting(project: Project) -> None:
    project.write(
        "tools/store.tool.yaml",
        {
            "apiVersion": "tool/v0",
            "meta": {"name": "store", "transport": "mcp", "connect": "http://mcp.internal/mcp"},
            "contract": READ,
            "actions": {"do": {}},
        },
    )
    project.runbook(call("put", "store", action="do"), tools=["store"])
    said = project.exec().ended(1)
    assert "would reach `mcp.internal` by plain http" in said.err
    warned = project.gert("validate", "tools/store.tool.yaml").ended(0)
    assert "D50" in warned.out
    project.write("gert-project.yaml", {"name": "bench", "mcp_http_hosts": ["mcp.internal"]})
    assert project.gert("validate", "--strict", "tools/store.tool.yaml").ended(0).code == 0


@pytest.mark.parametrize(
    ("contract", "resumed", "calls"),
    [
        pytest.param(WRITE, 3, 1, id="a call that may have happened is not repeated"),
        pytest.param(READ, 0, 2, id="an idempotent call is made again, by a server that was started again"),
    ],
)
def test_resume_after_a_kill(project: Project, log: Path, contract: Any, resumed: int, calls: int) -> None:
    server_tool(project, "silent-call", log, contract)
    project.runbook(STEP, tools=["store"])
    running = project.start()
    until(lambda: lines(log, "call"))
    running.send_signal(signal.SIGKILL)
    running.communicate()
    until(lambda: not list(survivors(log)))
    server_tool(project, "good", log, contract)
    said = project.gert("resume", "--run", project.run().id, "--allow-changed").ended(resumed)
    assert len(lines(log, "call")) == calls
    if resumed:
        assert "outcome of `put` is unknown" in said.err
        project.gert("resume", "--run", project.run().id, "--allow-changed", "--reconcile", "success").ended(0)
        assert len(lines(log, "call")) == calls
    assert [each["data"]["choice"] for each in of_type(project.run().events(), "step_reconciled")] == [
        "success" if resumed else "retry"
    ]


def test_a_server_that_outlives_a_killed_gert_is_found(project: Project, log: Path) -> None:
    server_tool(project, "deaf-silent", log, READ)
    project.runbook(STEP, tools=["store"])
    running = project.start()
    until(lambda: lines(log, "call"))
    running.send_signal(signal.SIGKILL)
    running.communicate()
    said = project.gert("resume", "--run", project.run().id).ended(3)
    [pid] = survivors(log)
    assert f"process {pid}" in said.err
    os.kill(pid, signal.SIGKILL)


def test_a_process_that_claims_to_have_forgotten_its_session_is_not_called_again(project: Project, log: Path) -> None:
    server_tool(project, "forgets", log, WRITE)
    project.runbook(STEP, tools=["store"])
    project.exec().ended(3)
    assert lines(log, "call") == [""]


def test_an_approval_binds_a_host_that_a_variable_names(project: Project) -> None:
    project.write(
        "tools/store.tool.yaml",
        {
            "apiVersion": "tool/v0",
            "meta": {"name": "store", "transport": "mcp", "connect": "https://${STORE_HOST}/mcp"},
            "contract": WRITE,
            "actions": {"do": {}},
            "secrets": [{"env": "STORE_HOST"}],
        },
    )
    project.runbook(call("put", "store", action="do"), tools=["store"], governance=ASKS)
    project.exec("--detach", STORE_HOST="127.0.0.1:9").ended(0)
    run = project.run()
    [ticket] = run.requests()
    project.gert("approve", ticket, "--as", "ann").ended(0)
    project.gert("resume", "--run", run.id, STORE_HOST="127.0.0.1:7").ended(0)
    assert len(run.requests()) == 2
    assert of_type(run.events(), "step_complete") == []
