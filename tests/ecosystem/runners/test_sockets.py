"""What the system sees of a runner: no listening socket, and no connection but the one that the policy allows."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.runners.bench import PUBLIC, Bench, bench
from tests.ecosystem.runners.vendors import Asked, Handler, Vendor
from tests.ecosystem.surfaces.cli.workbench import environment
from tests.needs import missing

from gert.kernel.foundation.canonical import digest

PROGRAM = """
import json, os, socket
s = socket.socket(socket.AF_UNIX); s.connect(os.environ["GERT_GATEWAY"])
s.sendall(b"GET /ping/hi HTTP/1.1\\r\\nhost: vendor.test\\r\\n\\r\\n")
while s.recv(65536): pass
print(json.dumps({"path": "done"}))
"""
CONNECT = re.compile(r"\b(connect|sendto|bind|listen)\((\d+)(?:, (.*?))?\) +=")
SOCKET = re.compile(r"\bsocket\((AF_\w+), (\S+),")


def watched(made: Bench, served: Vendor, file: Path) -> tuple[str, list[str]]:
    """Run `gert-runner` under strace, and look at its sockets with ss while the vendor has its request."""
    seen: list[str] = []
    answer = Vendor(0).answer

    def look(asked: Asked, handler: Handler) -> Any:
        for command in (["ss", "-H", "-ltunp"], ["ss", "-H", "-tunp"]):
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            seen.extend(f"{command[2]} {line}" for line in said.splitlines() if "python" in line)
        return answer(asked, handler)

    served.answer = look
    log = made.root.parent / "strace.log"
    runner = [sys.executable, "-I", "-m", "gert.ecosystem.surfaces.runner", "run", "--plan", str(file)]
    runner += ["--runner-id", "local", "--secret-ref", made.ref, "--ttl-seconds", "900"]
    runner += ["--scope", "test:ping", "--scope", "test:more"]
    trace = [
        "strace",
        "-f",
        "-qq",
        "-e",
        "trace=socket,connect,bind,listen,sendto",
        "-e",
        "signal=none",
        "-o",
        str(log),
    ]
    ran = subprocess.run(
        [*trace, *runner], cwd=made.root, env=environment(PUBLIC), capture_output=True, text=True, check=False
    )
    if "ptrace" in ran.stderr and "permitted" in ran.stderr:
        missing("ptrace", "strace may not trace here")
    assert ran.returncode == 0, ran.stderr
    return log.read_text(), seen


def check(log: str, seen: list[str], port: int) -> None:
    families = {family for family, _ in SOCKET.findall(log)}
    assert families <= {"AF_INET", "AF_UNIX", "AF_NETLINK"}
    internet = [(call, given) for call, _, given in CONNECT.findall(log) if "sin_port" in given or "sin6_port" in given]
    assert internet, "the vendor was connected to"
    for call, given in internet:
        assert call == "connect", f"{call}({given})"
        assert f"htons({port})" in given
        assert '"127.0.0.1"' in given
    assert not [given for call, _, given in CONNECT.findall(log) if call in ("listen", "bind") and "AF_INET" in given]
    pids = {f"pid={pid}," for pid in re.findall(r"^(\d+) ", log, re.MULTILINE)}
    own = [line for line in seen if any(pid in line for pid in pids)]
    assert [line for line in own if line.startswith("-ltunp")] == []
    assert own, "the connection to the vendor was seen"
    assert [line for line in own if f"127.0.0.1:{port}" not in line] == []


@pytest.mark.needs("strace", "ss")
def test_a_declared_request_connects_once_and_listens_nowhere(tmp_path: Path) -> None:
    with bench(tmp_path / "project") as (made, served):
        log, seen = watched(made, served, made.authorized())
        check(log, seen, served.port)
        assert "listen(" not in log
        assert len(served.asked) == 1


@pytest.mark.needs("strace", "ss", "bwrap")
def test_a_program_has_no_connection_of_its_own(tmp_path: Path) -> None:
    with bench(tmp_path / "project") as (made, served):
        made.write("skills/run.py", PROGRAM)
        made.skill(
            http=None,
            program={
                "argv": ["python3", "/skill/run.py"],
                "files": {"run.py": digest(PROGRAM.encode())},
                "headers": {"authorization": "Bearer {{ .secret.token }}"},
            },
        )
        log, seen = watched(made, served, made.authorized())
        check(log, seen, served.port)
        # The gateway listens on a Unix socket in a private folder, and nowhere else.
        listened = [line for line in log.splitlines() if "bind(" in line]
        assert listened
        assert all("AF_UNIX" in line and "gert-gw-" in line for line in listened if "AF_NETLINK" not in line)
        assert len(served.asked) == 1
