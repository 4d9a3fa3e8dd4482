"""Reading from a vendor: bounded in every direction, with errors that name no credential."""

import asyncio
import json
import socket
import ssl
import threading
from typing import Any

import pytest
import trustme
from tests.ecosystem.notify.servers import Answer, closed_port, drip, flood, raw, serving, silence, status

from gert.ecosystem.inputs.vendors.rest import MAX_BODY, Rest, VendorError, require_url

TOKEN = "token-0123456789"
FINE = status(200, body=b'{"ok": true}')


class Waits:
    """Passes time at once, and keeps how much."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def get(url: str, waits: Waits | None = None, timeout: float = 5.0) -> Any:
    async def read() -> Any:
        headers = {"Authorization": f"Token {TOKEN}"}
        rest = Rest("Vendor", url, headers, lambda body: body["error"]["message"], timeout=timeout, sleep=pass_time)
        async with rest:
            return await rest.get("/things", [("a[]", "1"), ("a[]", "ü&=")])

    pass_time = waits or Waits()
    return asyncio.run(read())


def test_a_resource_is_read_with_its_query_and_credentials() -> None:
    with serving(FINE) as server:
        assert get(server.url("/api")) == {"ok": True}
    [request] = server.requests
    assert request.target == "/api/things?a%5B%5D=1&a%5B%5D=%C3%BC%26%3D"
    assert request.headers["authorization"] == f"Token {TOKEN}"
    assert request.headers["accept-encoding"] == "identity"


def error(code: int, *headers: str, message: Any = None) -> Answer:
    body = b"" if message is None else json.dumps({"error": {"message": message}}).encode()
    return status(code, *headers, body=body)


@pytest.mark.parametrize(
    ("answers", "message", "waited"),
    [
        pytest.param(
            [error(401, message="Invalid token")],
            "Vendor does not accept the credentials (401): Invalid token",
            [],
            id="401",
        ),
        pytest.param([error(403)], "Vendor does not allow that (403)", [], id="403"),
        pytest.param([error(404, message="Not Found")], "Vendor has no such record (404): Not Found", [], id="404"),
        pytest.param([error(400, message=["no text"])], "Vendor answered 400", [], id="an error without words"),
        pytest.param(
            [error(400, message="\x1b[2J" + "x" * 1000)],
            "Vendor answered 400: \ufffd[2J" + "x" * 195 + "…",
            [],
            id="an error that is too long",
        ),
        pytest.param(
            [error(302, "Location: http://127.0.0.1/other")],
            "Vendor answered 302, and redirects are not followed",
            [],
            id="a redirect",
        ),
        pytest.param(
            [error(429, "Retry-After: 60")],
            "Vendor limits the rate of requests (429)",
            [],
            id="429, and too long to wait",
        ),
        pytest.param(
            [error(429, "Retry-After: Fri, 01 Jan 2100 00:00:00 GMT")],
            "Vendor limits the rate of requests (429)",
            [],
            id="429 until a date",
        ),
        pytest.param(
            [error(429, "Retry-After: 2")], "Vendor limits the rate of requests (429)", [2.0, 2.0], id="429 to the end"
        ),
        pytest.param([error(503)], "Vendor answered 503", [0.5, 1.0], id="503 to the end"),
        pytest.param([status(200, body=b"<html>")], "Vendor answered with something that is not JSON", [], id="a page"),
        pytest.param([status(200, body=b"\xff")], "Vendor answered with something that is not JSON", [], id="bytes"),
        pytest.param(
            [status(200, body=b"[" * 100_000)],
            "Vendor answered with something that is not JSON",
            [],
            id="endless nesting",
        ),
        pytest.param([flood], f"Vendor answered with more than {MAX_BODY} bytes", [], id="too much"),
        pytest.param([raw(b"")], "the connection to Vendor failed", [0.5, 1.0], id="it hangs up"),
        pytest.param([raw(b"nonsense\r\n\r\n")], "the connection to Vendor failed", [0.5, 1.0], id="no HTTP"),
    ],
)
def test_answers_that_do_not_count(answers: list[Answer], message: str, waited: list[float]) -> None:
    waits = Waits()
    with serving(*answers) as server, pytest.raises(VendorError) as raised:
        get(server.url("/"), waits)
    assert raised.value.message == message
    assert waits.seconds == waited
    assert len(server.requests) == len(waited) + 1
    assert TOKEN not in str(raised.value)


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([error(503), FINE], id="after an error of the server"),
        pytest.param([error(429, "Retry-After: 1"), FINE], id="after a pause that it asks for"),
        pytest.param([raw(b""), error(500), FINE], id="at the third attempt"),
    ],
)
def test_a_failure_that_passes_is_waited_for(answers: list[Answer]) -> None:
    with serving(*answers) as server:
        assert get(server.url("/")) == {"ok": True}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(silence, id="it never answers"),
        pytest.param(drip(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"), id="it answers byte by byte"),
    ],
)
def test_a_slow_vendor_is_given_up(answer: Answer) -> None:
    with serving(answer) as server, pytest.raises(VendorError, match=r"did not answer within 0\.1 s"):
        get(server.url("/"), timeout=0.1)
    assert len(server.requests) == 3


def test_a_port_without_a_server() -> None:
    with pytest.raises(VendorError, match="the connection to Vendor failed"):
        get(f"http://127.0.0.1:{closed_port()}/")


def test_a_certificate_that_cannot_be_verified_is_refused() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            try:
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        context.wrap_socket(connection, server_side=True).close()
            except (OSError, ssl.SSLError):
                return

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(VendorError, match="the certificate of Vendor cannot be verified"):
            get(f"https://127.0.0.1:{listener.getsockname()[1]}/")
        listener.close()
        thread.join(5)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        pytest.param("http://api.example.com", "must begin with https://", id="not encrypted"),
        pytest.param("ftp://api.example.com", "must begin with https://", id="another protocol"),
        pytest.param("https://", "must begin with https://", id="no host"),
        pytest.param("api.example.com", "must begin with https://", id="no scheme"),
        pytest.param("https://user:secret@api.example.com", "without user, query or fragment", id="a password"),
        pytest.param("https://api.example.com?key=1", "without user, query or fragment", id="a query"),
        pytest.param("https://\0", "is not a URL", id="not a URL"),
    ],
)
def test_addresses_that_are_refused(url: str, message: str) -> None:
    with pytest.raises(VendorError) as raised:
        require_url(url)
    assert message in raised.value.message
    assert "secret" not in raised.value.message


@pytest.mark.parametrize(
    "url", ["https://api.eu.pagerduty.com", "http://127.0.0.1:1/x", "http://localhost", "http://[::1]:1"]
)
def test_addresses_that_are_not(url: str) -> None:
    assert str(require_url(url)).startswith(url)
