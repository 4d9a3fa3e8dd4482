"""Public MCP servers: imported, validated, driven from a runbook, governed, recorded, and replayed without them."""

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, call, completed, of_type
from tests.interop.packages import npm_packages, python_packages

pytestmark = pytest.mark.interop

TIME = ("mcp-server-time==2025.9.25", "mcp==1.30.0")
GIT = ("mcp-server-git==2026.10.19", "mcp==2.3.0")
NPM = ("@modelcontextprotocol/server-filesystem@2026.8.31", "@modelcontextprotocol/server-everything@2026.8.31")
GOVERNANCE = {
    "rules": [
        {"effects": ["unknown"], "action": "require-approval"},
        {"risk": "low", "action": "allow"},
        {"default": "require-approval"},
    ]
}


@dataclass
class Case:
    """A server, a step that reads, a step that writes, and what must hold before and after the approval."""

    place: str
    protocol: str
    read: dict[str, Any] | None
    write: dict[str, Any]
    sees: Callable[[dict[str, Any]], bool] = lambda _: True
    happened: Callable[[], bool] = lambda: False
    stop: Callable[[], object] = field(default=lambda: None)


def time_server(folder: Path) -> Iterator[Case]:
    programs = python_packages("time-2025.9.25", *TIME)
    yield Case(
        place=f"{programs}/mcp-server-time --local-timezone UTC",
        protocol="2025-11-25",
        read=None,
        write={
            "action": "convert_time",
            "inputs": {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
        },
        sees=lambda outputs: "21:00" in outputs["text"],
    )


def git_server(folder: Path) -> Iterator[Case]:
    programs = python_packages("git-2026.10.19", *GIT)
    for words in (["init", "-q"], ["config", "user.email", "a@example.com"], ["config", "user.name", "a"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    (folder / "file").write_text("x")
    subprocess.run(["git", "-C", str(folder), "add", "file"], check=True)

    def committed() -> bool:
        log = subprocess.run(
            ["git", "-C", str(folder), "log", "--format=%s"], capture_output=True, text=True, check=False
        )
        return log.stdout.splitlines() == ["by gert"]

    yield Case(
        place=f"{programs}/mcp-server-git --repository {folder}",
        protocol="2026-07-28",
        read={"action": "git_status", "inputs": {"repo_path": str(folder)}},
        write={"action": "git_commit", "inputs": {"repo_path": str(folder), "message": "by gert"}},
        sees=lambda outputs: "file" in outputs["text"],
        happened=committed,
    )


def file_server(folder: Path) -> Iterator[Case]:
    programs = npm_packages("npm-2026.8.31", *NPM)
    (folder / "in").write_text("hello\n")
    yield Case(
        place=f"{programs}/mcp-server-filesystem {folder}",
        protocol="2025-11-25",
        read={"action": "read_text_file", "inputs": {"path": str(folder / "in")}},
        write={"action": "write_file", "inputs": {"path": str(folder / "out"), "content": "日本\n"}},
        sees=lambda outputs: outputs["content"] == "hello\n",
        happened=lambda: (folder / "out").exists() and (folder / "out").read_text() == "日本\n",
    )


def everything(folder: Path) -> Iterator[Case]:
    programs = npm_packages("npm-2026.8.31", *NPM)
    yield _everything(f"{programs}/mcp-server-everything")


def everything_over_http(folder: Path) -> Iterator[Case]:
    programs = npm_packages("npm-2026.8.31", *NPM)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (folder / "log").open("w")
    server = subprocess.Popen(
        [str(programs / "mcp-server-everything"), "streamableHttp"], env={**os.environ, "PORT": str(port)}, stderr=log
    )
    try:
        for _ in range(200):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        case = _everything(f"http://127.0.0.1:{port}/mcp")
        case.stop = server.kill
        yield case
    finally:
        server.kill()
        server.wait()
        log.close()


def _everything(place: str) -> Case:
    return Case(
        place=place,
        protocol="2025-11-25",
        read={"action": "get-structured-content", "inputs": {"location": "Chicago"}},
        write={"action": "toggle-simulated-logging"},
        sees=lambda outputs: isinstance(outputs["temperature"], int | float) and bool(outputs["conditions"]),
    )


SERVERS = {
    "mcp-server-time": time_server,
    "mcp-server-git": git_server,
    "server-filesystem": file_server,
    "server-everything": everything,
    "server-everything over HTTP": everything_over_http,
}


@pytest.fixture(params=[pytest.param(server, id=name) for name, server in SERVERS.items()])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    folder = tmp_path / "world"
    folder.mkdir()
    yield from request.param(folder)


@pytest.mark.needs("npm", "node", "git")
def test_a_public_server(case: Case, tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    imported = project.gert("tool", "import", "--mcp", case.place, "--name", "server", "--json").ended(0).said
    assert imported["protocol"] == case.protocol
    project.gert("validate", "--strict", "tools/server.tool.yaml").ended(0)
    project.gert("tool", "check", "server").ended(0)
    steps = [{**call(name, "server"), **step} for name, step in (("read", case.read), ("write", case.write)) if step]
    project.runbook(*steps, tools=["server"], governance=GOVERNANCE)

    project.exec("--detach").ended(0)
    run = project.run()
    [(ticket, request)] = run.requests().items()
    assert request["command"]["call"] == case.write["action"]
    assert case.place.startswith(request["command"].get("connect", "").removeprefix("stdio"))
    assert not case.happened()
    project.gert("approve", ticket, "--as", "ann").ended(0)
    project.gert("resume", "--run", run.id).ended(0)
    project.verifies(run)
    seen = completed(run.events(), "read" if case.read else "write")["outputs"]
    assert case.sees(seen), seen
    assert case.happened() or case.happened is Case.happened
    assert of_type(run.events(), "contract_violation") == []

    project.gert("scenario", "new", "book.yaml", "one", "--run", run.id).ended(0)
    case.stop()
    if not case.place.startswith("http"):
        file = project.root / "tools/server.tool.yaml"
        file.write_text(file.read_text().replace(case.place.split(" ")[0], "/no/such/server"))
    replayed = project.exec("--mode", "replay", "--scenario", "one", "--json").ended(0).said
    assert json.dumps(replayed["outcome"]) == json.dumps({"category": "resolved", "code": "done"})
