"""A run whose gert was killed while a server worked: servers are started again, and nothing happens twice unasked."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.runners import extension, program
from tests.ecosystem.surfaces.cli.workbench import Project, completed, finish, is_alive, until

# Writes down every call; the word `wait` blocks as long as the file `hold` is there.
WORK = """
def work(word):
    with open(ROOT + "/effects", "a") as file: file.write(f"{word}\\n")
    with open(ROOT + "/pid", "w") as file: file.write(str(os.getpid()))
    while word == "wait" and os.path.exists(ROOT + "/hold"): time.sleep(0.01)
    return {"said": word}
"""
EXTENSION = WORK + "serve(lambda params: {'outputs': work(params['inputs']['word'])})\n"
SERVER = (
    WORK
    + """
for line in sys.stdin:
    call = json.loads(line)
    if "id" in call:
        print(json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": work(call["params"]["word"])}), flush=True)
"""
)


EITHER = pytest.mark.parametrize("project", ["extension", "jsonrpc"], indirect=True)
MOSTLY = pytest.mark.parametrize(
    "project", ["extension", pytest.param("jsonrpc", marks=pytest.mark.soak)], indirect=True
)


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    project = Project(tmp_path / "project")
    (project.root / "kind").write_text(request.param)
    source = EXTENSION if request.param == "extension" else SERVER
    program(project.root / "server", f"ROOT = {str(project.root)!r}\n{source}")
    return project


def killed(project: Project, *, idempotent: bool) -> str:
    """A run of three steps, killed in the second; the id of the run."""
    contract = {
        "effects": ["network"], "writes": ["x"], "idempotent": idempotent,
        "inputs": {"word": {"type": "string", "required": True}}, "outputs": {"said": {"type": "string"}},
    }  # fmt: skip
    kind = (project.root / "kind").read_text()
    if kind == "jsonrpc":
        meta = {"name": "srv", "transport": "jsonrpc", "binary": str(project.root / "server")}
        tool = {"apiVersion": "tool/v0", "meta": meta, "contract": contract, "actions": {"work": {}}}
        project.write("tools/srv.tool.yaml", tool)

    def step(name: str, word: str) -> dict[str, Any]:
        if kind == "extension":
            return extension(name, "./server", inputs={"word": word}, contract=contract, scope=name)
        return {"id": name, "type": "tool", "tool": "srv", "inputs": {"word": word}, "scope": name}

    steps = [step("one", "first"), step("two", "wait"), step("three", "last")]
    project.runbook(*steps, tools=["srv"] if kind == "jsonrpc" else [])
    (project.root / "hold").touch()
    gert = project.start()
    until(lambda: project.noted() == ["first", "wait"])
    gert.send_signal(signal.SIGKILL)
    finish(gert)
    return project.run().id


def server_pid(project: Project) -> int:
    return int((project.root / "pid").read_text())


def release(project: Project) -> None:
    """Let the server that was left finish; it exits at the end of its input."""
    (project.root / "hold").unlink()
    until(lambda: not is_alive(server_pid(project)))


@MOSTLY
def test_an_idempotent_call_is_made_again_by_a_new_process(project: Project) -> None:
    run = killed(project, idempotent=True)
    first = server_pid(project)
    release(project)
    project.gert("resume", "--run", run).ended(0)
    assert project.noted() == ["first", "wait", "wait", "last"]
    assert server_pid(project) != first
    assert completed(project.run().events(), "two")["outputs"] == {"said": "wait"}
    project.verifies()


@EITHER
def test_any_other_call_is_not_repeated_until_the_operator_says_so(project: Project) -> None:
    run = killed(project, idempotent=False)
    release(project)
    refused = project.gert("resume", "--run", run).ended(3)
    assert "outcome of `two` is unknown" in refused.err
    assert project.noted() == ["first", "wait"]
    said = ("--reconcile", "two=success", "--reconcile-output", "two.said=it happened")
    project.gert("resume", "--run", run, *said).ended(0)
    assert project.noted() == ["first", "wait", "last"]
    assert completed(project.run().events(), "two")["outputs"] == {"said": "it happened"}


@MOSTLY
def test_a_server_that_outlived_gert_is_found_before_anything_is_called(project: Project) -> None:
    run = killed(project, idempotent=True)
    refused = project.gert("resume", "--run", run).ended(3)
    assert (
        f"`two` is still running, and the gert that started it has ended: process {server_pid(project)}" in refused.err
    )
    assert project.noted() == ["first", "wait"]
    os.kill(server_pid(project), signal.SIGKILL)
    (project.root / "hold").unlink()
    until(lambda: not is_alive(server_pid(project)))
    project.gert("resume", "--run", run).ended(0)
    assert project.noted() == ["first", "wait", "wait", "last"]
