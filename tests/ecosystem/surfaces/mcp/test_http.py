"""gert-mcp over HTTP: a real process on loopback, clients of both eras, and requests that must be refused."""

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from tests.ecosystem.surfaces.mcp.conftest import QUICK, TOOL, Served, drive

ANN = "ann-token-0123456789abcdef"
BOB = "bob-token-0123456789abcdef"
AUDIENCE = "gert"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "root", "version": "1"}},
}


@dataclass
class Endpoint:
    """A served folder and the port of its server."""

    port: int
    issuer: str = ""

    @asynccontextmanager
    async def client(self, token: str, mode: Any = "auto") -> AsyncIterator[Client]:
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http_client:
            transport = streamable_http_client(f"http://127.0.0.1:{self.port}/mcp", http_client=http_client)
            async with Client(transport, mode=mode) as client:
                yield client

    def post(self, body: Any = INITIALIZE, **headers: str) -> tuple[int, http.client.HTTPMessage, bytes]:
        said = {
            "Host": f"127.0.0.1:{self.port}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request("POST", "/mcp", data, {name: value for name, value in said.items() if value})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read(100_000)
        finally:
            connection.close()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _started(folder: Path, port: int, *options: str) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GERT_")}
    state = str(folder.parent / "state")
    server = [sys.executable, "-m", "gert.ecosystem.surfaces.mcp.main", "--root", str(folder), "--state-dir", state]
    process = subprocess.Popen(
        [*server, "--http", str(port), *options], env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    for _ in range(600):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return process
        if process.poll() is not None:
            break
        time.sleep(0.05)
    process.kill()
    raise AssertionError(f"gert-mcp did not listen: {process.communicate()[1].decode()}")


def _stopped(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    said = process.communicate(timeout=30)[1].decode()
    assert ANN not in said
    assert "Traceback" not in said


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Served(tmp_path_factory.mktemp("http") / "served")
    made.write("tools/sh.tool.yaml", TOOL)
    made.write("runbooks/quick.yaml", QUICK)
    return made.root


@pytest.fixture(scope="module")
def endpoint(folder: Path) -> Iterator[Endpoint]:
    """A server with two tokens in a file."""
    tokens = folder.parent / "tokens"
    tokens.touch(0o600)
    tokens.write_text(f"# tokens of agents\nann-agent {ANN}\nbob-agent {BOB}\n")
    port = _free_port()
    process = _started(folder, port, "--token-file", str(tokens))
    yield Endpoint(port)
    _stopped(process)


ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"])


@ERAS
def test_a_client_with_a_token_runs_a_runbook_as_the_subject_of_its_token(endpoint: Endpoint, mode: str) -> None:
    async def work() -> None:
        async with endpoint.client(ANN, mode) as client:
            said = {"path": "quick", "wait_seconds": 20}
            done = (await client.call_tool("gert_exec", said)).structured_content
            assert done["status"] == "completed"
            trace = (await client.read_resource(f"gert://traces/{done['run_id']}")).contents[0].text  # type: ignore[union-attr]
            principal = json.loads(trace.splitlines()[0])["principal"]
            assert principal == {"kind": "agent", "id": "ann-agent", "role": "verified by token"}

    drive(work)


def test_the_same_request_id_of_two_subjects_is_two_runs(endpoint: Endpoint) -> None:
    async def work() -> None:
        said = {"path": "quick", "request_id": "same", "wait_seconds": 20}
        async with endpoint.client(ANN) as ann, endpoint.client(BOB, "legacy") as bob:
            runs = [(await each.call_tool("gert_exec", said)).structured_content["run_id"] for each in (ann, bob, ann)]
        assert runs[0] == runs[2] != runs[1]

    drive(work)


REFUSED = [
    pytest.param({}, 401, id="no token"),
    pytest.param({"Authorization": f"Bearer {ANN}x"}, 401, id="a wrong token"),
    pytest.param({"Authorization": f"Bearer {ANN[:-1]}"}, 401, id="the beginning of a token"),
    pytest.param({"Authorization": "Bearer "}, 401, id="an empty token"),
    pytest.param({"Authorization": f"Basic {ANN}"}, 401, id="another scheme"),
    pytest.param({"Authorization": "Bearer ann-agent"}, 401, id="the subject as token"),
    pytest.param({"Authorization": "Bearer \xe9\xff"}, 401, id="a token that is not ASCII"),
    pytest.param({"Authorization": f"Bearer {ANN}", "Host": "evil.example"}, 421, id="a foreign host: DNS rebinding"),
    pytest.param({"Authorization": f"Bearer {ANN}", "Host": "127.0.0.1.evil.example:80"}, 421, id="a host that begins"),
    pytest.param({"Authorization": f"Bearer {ANN}", "Host": "127.0.0.1:1"}, 421, id="another port"),
    pytest.param({"Authorization": f"Bearer {ANN}", "Origin": "https://evil.example"}, 403, id="a foreign origin"),
    pytest.param({"Authorization": f"Bearer {ANN}", "Origin": "null"}, 403, id="the origin of a sandboxed page"),
    pytest.param({"Authorization": f"Bearer {ANN}", "Content_Type": "text/plain"}, 400, id="a form's content type"),
]


@pytest.mark.parametrize(("headers", "status"), REFUSED)
def test_requests_that_are_refused(endpoint: Endpoint, headers: dict[str, str], status: int) -> None:
    found, said, body = endpoint.post(**headers)
    assert found == status, body
    assert b"protocolVersion" not in body
    if status == 401:
        assert said["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    ("path", "status"), [("/mcp?access_token=" + ANN, 401), ("/", 404), ("/approvals", 404), ("/../etc/passwd", 404)]
)
def test_there_is_one_path_and_no_token_in_an_address(endpoint: Endpoint, path: str, status: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=60)
    connection.request("GET", path)
    assert connection.getresponse().status == status
    connection.close()


def test_a_body_that_is_too_large_is_refused_whether_its_length_is_declared_or_not(endpoint: Endpoint) -> None:
    token = f"Bearer {ANN}"
    assert endpoint.post(b" " * 1_100_000, Authorization=token)[0] == 413
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=60)
    headers = {"Authorization": token, "Content-Type": "application/json", "Accept": "application/json"}
    try:
        connection.request("POST", "/mcp", (b" " * 50_000 for _ in range(30)), headers, encode_chunked=True)
        assert connection.getresponse().status == 413
    except (BrokenPipeError, ConnectionResetError):
        pass  # refused before all of it was sent
    finally:
        connection.close()
    assert endpoint.post(Authorization=token)[0] == 200


def test_a_session_belongs_to_the_subject_that_opened_it(endpoint: Endpoint) -> None:
    status, headers, _ = endpoint.post(Authorization=f"Bearer {ANN}")
    assert status == 200
    session = headers["Mcp-Session-Id"]
    assert session
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
    stolen, _, body = endpoint.post(listing, Authorization=f"Bearer {BOB}", Mcp_Session_Id=session)
    assert stolen == 404, body
    assert endpoint.post(listing, Authorization=f"Bearer {ANN}", Mcp_Session_Id=session)[0] == 200


def test_a_client_does_not_cancel_the_run_of_another_subject(endpoint: Endpoint, folder: Path) -> None:
    Served(folder).write("runbooks/slow.yaml", QUICK.replace("name: quick", "name: slow").replace("echo", "sleep 60;"))

    async def work() -> None:
        async with endpoint.client(ANN) as ann, endpoint.client(BOB) as bob:
            run = {"run_id": (await ann.call_tool("gert_exec", {"path": "slow"})).structured_content["run_id"]}
            refused = await bob.call_tool("gert_cancel", run)
            assert json.loads(refused.content[0].text)["code"] == "not_yours"  # type: ignore[union-attr]
            assert (await bob.call_tool("gert_run_status", run)).structured_content["status"] == "running"
            assert (await ann.call_tool("gert_cancel", run)).structured_content["status"] == "cancelled"

    drive(work)


def test_a_question_is_asked_on_the_stream_of_its_request(endpoint: Endpoint, folder: Path) -> None:
    """A client that opened no other stream would wait for ever."""
    asking = QUICK.replace("name: quick", "name: asking").replace("default: hello", "required: true")
    Served(folder).write("runbooks/asking.yaml", asking)
    able = {**INITIALIZE, "params": {**INITIALIZE["params"], "capabilities": {"elicitation": {}}}}  # type: ignore[dict-item]
    token = f"Bearer {ANN}"
    session = endpoint.post(able, Authorization=token)[1]["Mcp-Session-Id"]
    endpoint.post(
        {"jsonrpc": "2.0", "method": "notifications/initialized"}, Authorization=token, Mcp_Session_Id=session
    )
    params = {"name": "gert_exec", "arguments": {"path": "asking"}}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=60)
    headers = {"Authorization": token, "Mcp-Session-Id": session, "Content-Type": "application/json"}
    connection.request("POST", "/mcp", json.dumps(call), {**headers, "Accept": "application/json, text/event-stream"})
    answer = connection.getresponse()
    lines = iter(answer.readline, b"")
    asked = next(json.loads(line[5:]) for line in lines if line.startswith(b"data:") and b"method" in line)
    assert asked["method"] == "elicitation/create"
    assert list(asked["params"]["requestedSchema"]["properties"]) == ["word"]
    connection.close()


# --- OAuth: a local issuer


KEY = ec.generate_private_key(ec.SECP256R1())
STRANGER = ec.generate_private_key(ec.SECP256R1())


class _Issuer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key()))
        body = json.dumps({"keys": [{**public, "kid": "one", "use": "sig", "alg": "ES256"}]}).encode()
        self.send_response(200 if self.path == "/.well-known/jwks.json" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def oauth(folder: Path) -> Iterator[Endpoint]:
    """A server that accepts tokens of a local issuer."""
    issuer = ThreadingHTTPServer(("127.0.0.1", 0), _Issuer)
    threading.Thread(target=issuer.serve_forever, daemon=True).start()
    url, port = f"http://127.0.0.1:{issuer.server_port}", _free_port()
    process = _started(folder, port, "--oauth-issuer", url, "--oauth-audience", AUDIENCE)
    yield Endpoint(port, url)
    _stopped(process)
    issuer.shutdown()
    issuer.server_close()


def _token(endpoint: Endpoint, key: Any = KEY, algorithm: str = "ES256", kid: str = "one", **changed: Any) -> str:
    now = int(time.time())
    claims = {"iss": endpoint.issuer, "aud": AUDIENCE, "sub": "carol", "exp": now + 600, "client_id": "app", **changed}
    kept = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(kept, key, algorithm=algorithm, headers={"kid": kid})


def test_a_signed_token_of_the_issuer_is_accepted_and_its_subject_recorded(oauth: Endpoint) -> None:
    async def work() -> None:
        async with oauth.client(_token(oauth)) as client:
            done = (await client.call_tool("gert_exec", {"path": "quick", "wait_seconds": 20})).structured_content
            trace = (await client.read_resource(f"gert://traces/{done['run_id']}")).contents[0].text  # type: ignore[union-attr]
            assert json.loads(trace.splitlines()[0])["principal"]["id"] == "carol"

    drive(work)


FORGED: dict[str, dict[str, Any]] = {
    "expired": {"exp": 1_000_000_000},
    "not yet valid": {"nbf": 9_000_000_000},
    "for another audience": {"aud": "other"},
    "for no audience": {"aud": None},
    "of another issuer": {"iss": "https://evil.example"},
    "without a subject": {"sub": None},
    "without an expiry": {"exp": None},
    "signed with another key": {"key": STRANGER},
    "of an unknown key id": {"kid": "two"},
    "with alg none": {"key": None, "algorithm": "none"},
    "signed with a shared secret": {"key": "x" * 40, "algorithm": "HS256"},
}


@pytest.mark.parametrize("change", [pytest.param(each, id=name) for name, each in FORGED.items()])
def test_tokens_that_are_refused(oauth: Endpoint, change: dict[str, Any]) -> None:
    status, headers, body = oauth.post(Authorization=f"Bearer {_token(oauth, **change)}")
    assert status == 401, body
    assert "resource_metadata" in headers["WWW-Authenticate"]


@pytest.mark.parametrize("token", ["x", "a.b.c", "..", "e30.e30.", ANN])
def test_what_is_no_token_is_refused(oauth: Endpoint, token: str) -> None:
    assert oauth.post(Authorization=f"Bearer {token}")[0] == 401


def test_a_client_finds_the_issuer_of_tokens(oauth: Endpoint) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", oauth.port, timeout=60)
    connection.request("GET", "/.well-known/oauth-protected-resource/mcp")
    said = json.loads(connection.getresponse().read())
    connection.close()
    assert [each.rstrip("/") for each in said["authorization_servers"]] == [oauth.issuer]


def test_an_issuer_that_does_not_answer_accepts_no_token(folder: Path) -> None:
    port = _free_port()
    issuer = f"http://127.0.0.1:{_free_port()}"
    process = _started(folder, port, "--oauth-issuer", issuer, "--oauth-audience", AUDIENCE)
    assert Endpoint(port).post(Authorization=f"Bearer {_token(Endpoint(port, issuer))}")[0] == 401
    _stopped(process)


# --- what the command refuses

BAD_STARTS = [
    pytest.param(["--http", "0.0.0.0:8765"], {"GERT_MCP_TOKEN": "x" * 30}, "loopback", id="an address others reach"),
    pytest.param(["--http", "8765"], {}, "bearer token", id="no token"),
    pytest.param(["--http", "8765"], {"GERT_MCP_TOKEN": "short"}, "at least", id="a short token"),
    pytest.param(["--http", "99999"], {"GERT_MCP_TOKEN": "x" * 30}, "HOST:PORT", id="no port"),
    pytest.param(["--http", "8765", "--oauth-issuer", "https://a.example"], {}, "audience", id="no audience"),
    pytest.param(["--http", "8765", "--token-file", "open"], {}, "can read", id="a file others can read"),
    pytest.param(["--http", "8765", "--token-file", "bad"], {}, "line 1", id="a line that is no token"),
    pytest.param(["--http", "8765", "--token-file", "same"], {}, "line 2", id="a token of two subjects"),
    pytest.param(["--http", "8765", "--token-file", "twice"], {}, "line 2", id="a subject with two tokens"),
]


@pytest.mark.parametrize(("options", "environment", "message"), BAD_STARTS)
def test_what_the_command_refuses_before_it_listens(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], environment: dict[str, str], message: str
) -> None:
    from gert.ecosystem.surfaces.mcp.main import command
    from gert.errors import UsageError

    (folder / "open").write_text(f"ann {ANN}")
    (folder / "open").chmod(0o644)
    (folder / "bad").touch(0o600)
    (folder / "bad").write_text("one two three")
    (folder / "same").touch(0o600)
    (folder / "same").write_text(f"ann {ANN}\nben {ANN}\n")
    (folder / "twice").touch(0o600)
    (folder / "twice").write_text(f"ann {ANN}\nann {ANN}x\n")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("GERT_MCP_TOKEN", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=message):
        command.main(options, standalone_mode=False)


def test_the_sdk_client_without_a_token_gets_an_error(endpoint: Endpoint) -> None:
    async def work() -> None:
        with pytest.raises((MCPError, ExceptionGroup, httpx2.HTTPStatusError)):
            async with endpoint.client("wrong-token-0123456789") as client:
                await client.list_tools()

    drive(work)
