"""gert-mcp as a process on standard input and output: what it survives, and when it ends."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client
from tests.ecosystem.surfaces.line_client import LineClient
from tests.ecosystem.surfaces.mcp.conftest import LONG, QUICK, Served, drive
from tests.ecosystem.surfaces.mcp.test_mcp import ENDED, until

from gert.ecosystem.host.runs.listing import Runs

SERVER = [sys.executable, "-m", "gert.ecosystem.surfaces.mcp.main"]
CLIENT = {"name": "raw", "version": "1"}


class Raw(LineClient):
    """A client that writes lines, of the protocol with sessions."""

    def __init__(self, served: Served, *options: str) -> None:
        access = served.access()
        words = [*SERVER, "--root", access.root, "--state-dir", str(access.state_dir), *options]
        super().__init__(words, access.environ)

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while True:
            message = self.next()
            if wanted(message):
                return message
            self.told.append(message)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = self.begin(method, **params)
        return self.until(lambda each: each.get("id") == number)

    def start(self, **capabilities: Any) -> dict[str, Any]:
        said = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": CLIENT}
        answer = self.call("initialize", **said)["result"]
        self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        assert isinstance(answer, dict)
        return answer

    def tool(self, name: str, **arguments: Any) -> dict[str, Any]:
        said = self.call("tools/call", name=name, arguments=arguments)["result"]["structuredContent"]
        assert isinstance(said, dict)
        return said


@pytest.fixture
def raw(served: Served) -> Iterator[Raw]:
    made = Raw(served)
    yield made
    made.end()


def gated(served: Served) -> Path:
    """A runbook whose step goes on once a file is there."""
    gate = served.root.parent / "gate"
    script = f"until test -e {gate}; do sleep 0.2; done; echo"
    served.write("runbooks/soon.yaml", QUICK.replace("name: quick", "name: soon").replace("echo", script))
    return gate


def standing(served: Served, run_id: str) -> str:
    with Runs(served.access().place) as runs:
        return runs.whole_entry(run_id).status


def ends(served: Served, run_id: str) -> str:
    for _ in range(600):
        if standing(served, run_id) not in ("running", "waiting"):
            break
        time.sleep(0.1)
    return standing(served, run_id)


def test_a_closed_input_ends_the_server_and_not_its_run(served: Served, raw: Raw) -> None:
    gate = gated(served)
    raw.start()
    started = raw.tool("gert_exec", path="soon")
    assert started["status"] == "running"
    assert raw.close() == 0
    assert standing(served, started["run_id"]) == "running"
    gate.touch()
    assert ends(served, started["run_id"]) == "completed"


def test_a_server_that_is_killed_leaves_a_run_that_another_one_cancels(served: Served, raw: Raw) -> None:
    raw.start()
    started = raw.tool("gert_exec", path="long")
    raw.process.kill()
    raw.process.wait(60)
    other = Raw(served)
    other.start()
    assert other.tool("gert_run_status", run_id=started["run_id"])["status"] == "running"
    assert other.tool("gert_cancel", run_id=started["run_id"])["status"] == "cancelled"
    other.end()


@pytest.mark.skipif(os.name != "posix", reason="processes are reparented on POSIX")
def test_the_server_ends_when_its_parent_is_gone_and_its_input_stays_open(served: Served) -> None:
    """The pipe is also open in this process, so there is no end of input."""
    reading, writing = os.pipe()
    code = "import subprocess, sys, time; print(subprocess.Popen(sys.argv[1:]).pid, file=sys.stderr, flush=True)"
    access = served.access()
    parent = subprocess.Popen(
        [sys.executable, "-c", f"{code}; time.sleep(600)", *SERVER, "--root", access.root],
        stdin=reading,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert parent.stdout is not None
    assert parent.stderr is not None
    pid = int(parent.stderr.readline())
    said = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
    os.write(writing, json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": said}).encode() + b"\n")
    assert b"serverInfo" in parent.stdout.readline()
    parent.kill()
    parent.wait(60)
    for _ in range(600):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            break
        status = Path(f"/proc/{pid}/stat")
        if status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.1)
    else:
        os.kill(pid, 9)
        raise AssertionError("the server outlived its parent")
    parent.stdout.close()
    parent.stderr.close()
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"nonsense", id="no JSON"),
        pytest.param(b'{"jsonrpc":"2.0"}', id="no message"),
        pytest.param(b"[" * 100_000, id="JSON that is 100,000 deep"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b'{"a":' * 5000, id="a deep object"),
        pytest.param(
            b'{"jsonrpc":"2.0","id":99,"method":"tools/call","params":{"name":"gert_exec","arguments":{"path":"quick",'
            b'"vars":{"word":' + b"[" * 900 + b"]" * 900 + b"}}}}",
            id="deep inputs",
        ),
        pytest.param(b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"ping"}', id="a huge id"),
        pytest.param(b"\xff\xfe\x00", id="no UTF-8"),
        pytest.param(b'{"jsonrpc":"2.0","id":5,"method":"' + b"x" * 100_000 + b'"}', id="a long method"),
        pytest.param(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}', id="a cancel"),
    ],
)
def test_bad_lines_do_not_end_the_server(served: Served, raw: Raw, line: bytes) -> None:
    raw.start()
    raw.send(line)
    assert raw.tool("gert_validate", path="runbooks")["valid"] is True


def test_a_client_that_takes_no_answers_and_leaves_mid_run_loses_nothing(served: Served) -> None:
    """The SDK's client over stdio gives up while it waits; the run goes on, and the next client finds it."""
    gate = gated(served)
    access = served.access()
    words = ["-m", SERVER[2], "--root", access.root, "--state-dir", str(access.state_dir)]
    server = StdioServerParameters(command=sys.executable, args=words, env=dict(access.environ))

    async def work() -> None:
        said = {"path": "soon", "request_id": "mine"}
        async with Client(server, read_timeout_seconds=60) as client:
            started = (await client.call_tool("gert_exec", said)).structured_content
            with pytest.raises(Exception, match=r"(?i)timed? ?out"):
                await client.call_tool(
                    "gert_run_status", {"run_id": started["run_id"], "wait_seconds": 20}, read_timeout_seconds=0.5
                )
        gate.touch()
        async with Client(server) as client:
            again = (await client.call_tool("gert_exec", said)).structured_content
            assert again["run_id"] == started["run_id"]
            assert (await until(client, started["run_id"], *ENDED))["status"] == "completed"

    drive(work)


def test_a_client_with_sessions_is_told_when_the_list_of_resources_changes(served: Served, raw: Raw) -> None:
    assert raw.start()["capabilities"]["resources"] == {"subscribe": True, "listChanged": True}
    raw.call("resources/list")
    served.write("runbooks/new.yaml", QUICK.replace("name: quick", "name: new"))
    raw.until(lambda each: each.get("method") == "notifications/resources/list_changed")
    uris = [each["uri"] for each in raw.call("resources/list")["result"]["resources"]]
    assert "gert://runbooks/new" in uris


def test_a_client_with_sessions_is_told_when_a_trace_grows_until_it_unsubscribes(served: Served, raw: Raw) -> None:
    raw.start()
    served.write("runbooks/long.yaml", LONG)
    uri = {"uri": f"gert://traces/{raw.tool('gert_exec', path='long')['run_id']}"}
    raw.call("resources/subscribe", **uri)
    told = raw.until(lambda each: each.get("method") == "notifications/resources/updated")
    assert told["params"]["uri"] == uri["uri"]
    raw.call("resources/unsubscribe", **uri)
    raw.tool("gert_cancel", run_id=uri["uri"].rpartition("/")[2])


def test_a_question_is_asked_of_a_client_with_sessions_and_its_answer_gives_inputs(served: Served, raw: Raw) -> None:
    raw.start(elicitation={})
    number = raw.begin("tools/call", name="gert_exec", arguments={"path": "writes", "wait_seconds": 20})
    asked = raw.until(lambda each: each.get("method") == "elicitation/create")
    assert list(asked["params"]["requestedSchema"]["properties"]) == ["text"]
    content = {"text": "x", "approved": True, "approver": "kim"}
    answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": content}}
    raw.send(json.dumps(answer).encode())
    waiting = raw.until(lambda each: each.get("id") == number)["result"]["structuredContent"]
    assert waiting["status"] == "waiting_for_approval"
    raw.tool("gert_cancel", run_id=waiting["run_id"])


@pytest.mark.parametrize("option", ["--policy", "--root"])
def test_what_is_missing_is_refused_at_the_start(tmp_path: Path, option: str) -> None:
    words = [*SERVER, option, str(tmp_path / "missing")]
    ended = subprocess.run(words, input=b"", capture_output=True, check=False, timeout=60)
    assert ended.returncode == 2
    assert b"there is no" in ended.stderr
