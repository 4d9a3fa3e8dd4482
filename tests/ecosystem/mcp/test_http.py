"""Calls of MCP tools over streamable HTTP: both eras, TLS, headers, limits, and servers that misbehave."""

import asyncio
import gzip
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvicorn
from tests.ecosystem.mcp import sdk_server
from tests.ecosystem.mcp.calls import call, finished, mcp_tool, transport
from tests.ecosystem.mcp.http_server import Answer, HttpServer, Reply, answered, fine, http_server

from gert.ecosystem.host.config.mcp_endpoints import endpoint_of
from gert.ecosystem.tools.mcp.endpoint import Endpoint
from gert.kernel.engine.requests import ToolAnswer

NOT_IDEMPOTENT = {"idempotent": False, "effects": ["x"], "writes": ["x"]}
OUT = {"out": {"type": "string"}}


def answer(how: Answer = fine, *, calls: int = 1, contract: Any = None, meta: Any = None, **options: Any) -> Any:
    """Call a raw server; return the last answer, and the server."""

    async def work() -> tuple[ToolAnswer, HttpServer]:
        async with http_server(how) as server, transport(**options) as made:
            tool = mcp_tool(
                server.url, outputs=OUT, contract=contract, meta=meta, secrets=[{"env": "TOKEN", "required": False}]
            )
            found = [await call(made, tool, {"text": "x"}) for _ in range(calls)]
            return found[-1], server

    return finished(work)


@asynccontextmanager
async def sdk_over_http() -> AsyncIterator[str]:
    """The server of the SDK, on a free port."""
    app = sdk_server.server.streamable_http_app()
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="on"))
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        await task


def test_the_current_protocol_over_http() -> None:
    async def work() -> tuple[ToolAnswer, str]:
        async with sdk_over_http() as url, transport() as made:
            add = mcp_tool(url, action={"mcp_tool": "add"}, outputs={"result": {"type": "int"}})
            found = await call(made, add, {"a": 40})
            return found, next(iter(made._sessions)).protocol

    found, protocol = finished(work)
    assert (found.outputs, protocol) == ({"result": 42}, "2026-07-28")


def test_the_previous_protocol_over_http() -> None:
    found, server = answer(calls=3)
    assert (found.outputs, server.sessions, len(server.calls)) == ({"out": "fine"}, 1, 3)
    assert server.headers[-1].get("mcp-session-id") == "s1"


def test_an_answer_may_be_a_stream_of_events() -> None:
    def streamed(message: Any) -> Reply:
        body = b"event: message\ndata: " + fine(message).body + b"\n\n"
        return Reply(body, content_type="text/event-stream")

    assert answer(streamed)[0].outputs == {"out": "fine"}


# --- headers and addresses


def test_headers_take_secrets_from_the_environment_and_no_log_has_them(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    headers = {"Authorization": "Bearer ${TOKEN}", "X-Team": "search"}
    found, server = answer(meta={"headers": headers}, environment={"TOKEN": "s3cr3t-value"}, hides=("s3cr3t-value",))
    assert found.failure is None
    sent = server.headers[-1]
    assert (sent["authorization"], sent["x-team"], sent["accept-encoding"]) == (
        "Bearer s3cr3t-value",
        "search",
        "identity",
    )
    assert "s3cr3t" not in caplog.text + repr(found)


@pytest.mark.parametrize(
    ("url", "environ", "hosts", "why"),
    [
        pytest.param("https://mcp.example.com/mcp", {}, (), None, id="https"),
        pytest.param("http://localhost:8/mcp", {}, (), None, id="this machine"),
        pytest.param("http://[::1]:8/mcp", {}, (), None, id="this machine, IPv6"),
        pytest.param("http://mcp.internal/mcp", {}, (), "must be https", id="plain http to another machine"),
        pytest.param("http://mcp.internal/mcp", {}, ("mcp.internal",), None, id="a host that is allowed"),
        pytest.param("http://mcp.internal:81/mcp", {}, ("mcp.internal:80",), "must be https", id="on another port"),
        pytest.param("http://localhost.evil.example/mcp", {}, (), "must be https", id="a name that only looks local"),
        pytest.param("http://127.0.0.1@evil.example/mcp", {}, (), "must be https", id="a user that looks like a host"),
        pytest.param("https://me:pw@mcp.example.com/", {}, (), "user or password", id="a password in the URL"),
        pytest.param("https://mcp.example.com/${KEY}", {"KEY": "k"}, (), None, id="a secret in the URL"),
        pytest.param("https://mcp.example.com/${KEY}", {}, (), "`KEY` is not set", id="a secret that is not set"),
        pytest.param("https://mcp.example.com/${GERT_KEY}", {"GERT_KEY": "k"}, (), "gert's own", id="a key of gert"),
        pytest.param("https://mcp.example.com/${KEY}", {"KEY": "a b"}, (), "invalid character", id="a strange secret"),
    ],
)
def test_which_servers_may_be_reached(url: str, environ: dict[str, str], hosts: Any, why: str | None) -> None:
    found = endpoint_of(mcp_tool(url), environ, hosts)
    assert isinstance(found, Endpoint) if why is None else why in str(found)


def test_a_refused_address_is_not_reached() -> None:
    async def work() -> ToolAnswer:
        async with transport() as made:
            found: ToolAnswer = await call(made, mcp_tool("http://mcp.internal/mcp"))
            return found

    failure = finished(work).failure
    assert failure is not None
    assert "must be https" in failure.message


@pytest.mark.parametrize("trusted", [True, False], ids=["a trusted certificate", "an unknown certificate"])
def test_certificates_are_verified(trusted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if trusted:
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))

    async def work() -> ToolAnswer:
        async with http_server(context=context) as server, transport() as made:
            found: ToolAnswer = await call(made, mcp_tool(server.url, outputs=OUT))
            return found

    found = finished(work)
    if trusted:
        assert found.outputs == {"out": "fine"}
    else:
        assert found.failure is not None
        assert "cannot be reached: its certificate cannot be verified" in found.failure.message


# --- servers that misbehave


def giant(message: Any) -> Reply:
    return Reply(answered(message, {"content": [{"type": "text", "text": "x" * 3_000_000}]}))


def compressed(message: Any) -> Reply:
    return Reply(gzip.compress(fine(message).body), content_encoding="gzip")


def giant_event(message: Any) -> Reply:
    return Reply(b"data: " + giant(message).body + b"\n\n", content_type="text/event-stream")


def endless(message: Any) -> Reply:
    return Reply(b"x" * 3_000_000, end=False)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        pytest.param(giant, "longer than 1048576 bytes", id="a giant answer"),
        pytest.param(endless, "longer than 1048576 bytes", id="an answer without end"),
        pytest.param(giant_event, "the connection to the server of `t` broke", id="a giant event"),
        pytest.param(compressed, "compressed its answer", id="a compressed answer"),
        pytest.param(lambda _: Reply(b"<html>", content_type="text/html"), "Unexpected content type", id="a web page"),
        pytest.param(lambda _: Reply(b"{]"), "Failed to parse JSON", id="no JSON"),
        pytest.param(lambda _: Reply([1]), "Failed to parse JSON", id="no message"),
        pytest.param(lambda _: Reply(status="202 Accepted"), "202 Accepted", id="a promise instead of an answer"),
        pytest.param(lambda _: Reply(status="500 Oops"), "answered with an error", id="a status of failure"),
        pytest.param(lambda _: Reply(status="401 Unauthorized"), "answered with an error", id="not authorized"),
        pytest.param(
            lambda _: Reply(status="307 Moved", location="https://evil.example/"),
            "not followed",
            id="a redirect elsewhere",
        ),
        pytest.param(
            lambda m: Reply(answered(m, {"content": 7})), "that MCP does not allow", id="a result that is none"
        ),
        pytest.param(lambda _: None, "the connection to the server of `t` broke", id="a dropped connection"),
        pytest.param(
            lambda _: Reply(b": \n\n", content_type="text/event-stream"),
            "broke before it answered",
            id="a stream without an answer",
        ),
    ],
)
def test_misbehaviour(how: Answer, says: str) -> None:
    found, _ = answer(how)
    assert found.failure is not None
    assert (found.failure.kind, says in found.failure.message) == ("transport", True), found.failure


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(lambda _: Reply({"jsonrpc": "2.0", "id": 77, "result": {"content": []}}), id="another answer"),
        pytest.param(lambda _: Reply(end=False), id="the beginning of an answer"),
    ],
)
def test_silence_ends_when_the_driver_cancels_the_call(how: Answer) -> None:
    async def work() -> None:
        async with http_server(how) as server, transport() as made:
            pending = asyncio.create_task(call(made, mcp_tool(server.url)))
            await asyncio.wait({pending}, timeout=0.3)
            assert not pending.done()
            pending.cancel()
            await asyncio.wait({pending})

    finished(work)


# --- lost connections


@pytest.mark.parametrize(
    ("contract", "kind", "calls"),
    [
        pytest.param(None, None, 2, id="an idempotent call is made again, once"),
        pytest.param(NOT_IDEMPOTENT, "unknown_outcome", 1, id="a call that may have happened is not"),
    ],
)
def test_a_dropped_connection(contract: Any, kind: str | None, calls: int) -> None:
    dropped: list[Any] = []

    def once(message: Any) -> Reply | None:
        dropped.append(message)
        return None if len(dropped) == 1 else fine(message)

    found, server = answer(once, contract=contract)
    assert (found.failure.kind if found.failure else None, len(server.calls)) == (kind, calls)


def test_a_session_that_the_server_has_forgotten_is_opened_again_and_the_call_was_not_made() -> None:
    async def work() -> tuple[ToolAnswer, HttpServer]:
        async with http_server() as server, transport() as made:
            tool = mcp_tool(server.url, outputs=OUT, contract=NOT_IDEMPOTENT)
            await call(made, tool)
            server.forgotten.add("s1")
            return await call(made, tool), server

    found, server = finished(work)
    assert (found.outputs, server.sessions, len(server.calls)) == ({"out": "fine"}, 2, 2)


def test_a_server_that_is_not_there() -> None:
    async def work() -> ToolAnswer:
        async with http_server() as server:
            url = server.url
        async with transport() as made:
            found: ToolAnswer = await call(made, mcp_tool(url, contract=NOT_IDEMPOTENT))
            return found

    failure = finished(work).failure
    assert failure is not None
    assert (failure.kind, "cannot be reached: the connection" in failure.message) == ("transport", True), failure
