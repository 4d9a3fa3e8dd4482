"""Posting: what counts as delivered, what is tried again, what is given up, and that it always ends."""

import asyncio
from typing import Any

import pytest
from tests.ecosystem.notify.servers import Answer, closed_port, drip, flood, raw, replying, serving, silence, status

from gert.ecosystem.notify import webhooks
from gert.ecosystem.notify.webhooks import Delivery, post

HEADERS = {"Content-Type": "application/json"}
OK = status(200)
CANARY = "c4nary-s3cret"


def posted(url: str, **more: Any) -> tuple[Delivery, list[float]]:
    """Post, without waiting between attempts; and how long it would have waited."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    return asyncio.run(post(url, b'{"a":1}', HEADERS, **{"sleep": sleep, **more})), waits


def test_what_is_sent() -> None:
    with serving(OK) as server:
        delivery, _ = posted(server.url("/hook?x=1"))
    assert delivery == Delivery(True, 1, 200)
    (request,) = server.requests
    assert (request.target, request.body) == ("/hook?x=1", b'{"a":1}')
    assert request.headers["content-type"] == "application/json"
    assert request.headers["accept-encoding"] == "identity"
    assert "cookie" not in request.headers


@pytest.mark.parametrize(
    ("answers", "expected", "waits"),
    [
        pytest.param([status(204)], Delivery(True, 1, 204), [], id="no content is fine"),
        pytest.param([status(500), OK], Delivery(True, 2, 200), [0.5], id="an error of the server is tried again"),
        pytest.param(
            [status(503), status(502), OK], Delivery(True, 3, 200), [0.5, 1.0], id="twice, with a longer wait"
        ),
        pytest.param(
            [status(500)], Delivery(False, 3, 500, "the server answered 500"), [0.5, 1.0], id="and then given up"
        ),
        pytest.param([status(408), OK], Delivery(True, 2, 200), [0.5], id="408 is tried again"),
        pytest.param([status(425), OK], Delivery(True, 2, 200), [0.5], id="425 is tried again"),
        pytest.param([status(429, "Retry-After: 3"), OK], Delivery(True, 2, 200), [3.0], id="a wish to wait is heard"),
        pytest.param([status(503, "Retry-After: 86400"), OK], Delivery(True, 2, 200), [5.0], id="up to five seconds"),
        pytest.param([status(503, "Retry-After: -9"), OK], Delivery(True, 2, 200), [5.0], id="odd wishes are not read"),
        pytest.param([status(503, "Retry-After: 0"), OK], Delivery(True, 2, 200), [0.5], id="nor is one for haste"),
        pytest.param(
            [status(503, "Retry-After: Wed, 21 Oct 2065 07:28:00 GMT"), OK],
            Delivery(True, 2, 200),
            [5.0],
            id="a date is as long as we wait",
        ),
        pytest.param([status(400)], Delivery(False, 1, 400, "the server answered 400"), [], id="400 is an answer"),
        pytest.param([status(401)], Delivery(False, 1, 401, "the server answered 401"), [], id="401 is an answer"),
        pytest.param([status(404)], Delivery(False, 1, 404, "the server answered 404"), [], id="404 is an answer"),
        pytest.param([raw(b""), OK], Delivery(True, 2, 200), [0.5], id="a server that hangs up at once is tried again"),
        pytest.param(
            [raw(b"HTTP/1.1 200")],
            Delivery(False, 3, None, "the connection broke before an answer arrived"),
            [0.5, 1.0],
            id="a status that is cut is none",
        ),
        pytest.param(
            [raw(b"SSH-2.0-OpenSSH\r\n")],
            Delivery(False, 3, None, "the connection broke before an answer arrived"),
            [0.5, 1.0],
            id="what is no web server",
        ),
        pytest.param(
            [raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")],
            Delivery(True, 1, 200),
            [],
            id="an answer that breaks off after its status has been given",
        ),
        pytest.param(
            [raw(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope")],
            Delivery(True, 1, 200),
            [],
            id="a body that is not what it says does not matter",
        ),
    ],
)
def test_what_becomes_of_it(answers: list[Answer], expected: Delivery, waits: list[float]) -> None:
    with serving(*answers) as server:
        assert posted(server.url()) == (expected, waits)
    assert len(server.requests) == expected.attempts


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_where_it_leads_is_not_said(code: int) -> None:
    with serving(OK) as other, serving(status(code, f"Location: {other.url(f'/{CANARY}')}")) as server:
        delivery, _ = posted(server.url())
    assert delivery == Delivery(False, 1, code, f"the server answered {code}, and redirects are not followed")
    assert not other.requests


def test_a_connection_that_is_refused() -> None:
    delivery, waits = posted(f"http://127.0.0.1:{closed_port()}/{CANARY}")
    assert delivery == Delivery(False, 3, None, "the connection was refused")
    assert waits == [0.5, 1.0]


def test_a_host_that_is_not_there() -> None:
    delivery, _ = posted(f"https://{CANARY}.invalid/", attempts=1)
    assert (delivery.delivered, delivery.attempts) == (False, 1)
    assert CANARY not in (delivery.error or "")


def test_no_secure_connection_to_a_server_that_speaks_plainly() -> None:
    with replying(b"HTTP/1.1 400 Bad Request\r\n\r\n") as (port, heard):
        delivery, _ = posted(f"https://127.0.0.1:{port}/{CANARY}", attempts=1)
    assert delivery == Delivery(False, 1, None, "the TLS handshake failed")
    assert CANARY.encode() not in heard[0]


@pytest.mark.parametrize(
    "url",
    ["http://example.com/", "http://127.0.0.1@example.com/", "http://localhost.example.com", "https://a\nb/", ""],
)
def test_an_address_that_is_refused_is_not_tried(url: str) -> None:
    delivery, _ = posted(url)
    assert (delivery.delivered, delivery.attempts, delivery.status_code) == (False, 0, None)
    assert delivery.error


# --- servers that take their time


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(silence, id="says nothing"),
        pytest.param(drip(b"HTTP/1.1 200 OK\r\nX-Slow: "), id="drips its headers"),
        pytest.param(drip(b"", b"H"), id="drips its status"),
    ],
)
def test_a_server_that_never_answers_is_given_up(answer: Answer) -> None:
    with serving(answer) as server:
        delivery, _ = posted(server.url(), timeout=0.2, attempts=2)
    assert delivery == Delivery(False, 2, None, "no answer within 0.2s")


def test_all_attempts_together_are_bounded() -> None:
    with serving(silence) as server:
        delivery, _ = posted(server.url(), timeout=60.0, total=0.3)
    assert delivery == Delivery(False, 1, None, "not delivered within 0.3s")


def test_so_are_the_waits_between_them() -> None:
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(600)

    with serving(status(503, "Retry-After: 5")) as server:
        delivery, _ = posted(server.url(), total=2.0, sleep=sleep)
    assert delivery == Delivery(False, 1, 503, "the server answered 503")


def test_a_slow_body_does_not_take_back_a_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "_DRAIN_SECONDS", 0.1)
    with serving(drip(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")) as server:
        assert posted(server.url())[0] == Delivery(True, 1, 200)


def test_of_a_huge_body_little_is_read() -> None:
    with serving(flood) as server:
        assert posted(server.url())[0] == Delivery(True, 1, 200)
        server.closing.set()
    # What the system buffers on the way was sent, and not read by us.
    assert server.flooded < 100_000_000


def test_a_cancellation_is_let_through_and_attempts_were_told() -> None:
    begun: list[None] = []

    async def give_up(url: str) -> None:
        task = asyncio.create_task(post(url, b"", {}, on_attempt=lambda: begun.append(None)))
        while not begun:
            await asyncio.sleep(0.005)
        task.cancel()
        await task

    with serving(silence) as server, pytest.raises(asyncio.CancelledError):
        asyncio.run(give_up(server.url()))
    assert len(begun) == 1


# --- proxies


def test_what_is_meant_for_this_machine_goes_through_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(status(500)) as proxy, serving(OK) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url(""))
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        assert posted(server.url())[0] == Delivery(True, 1, 200)
        assert posted(server.url().replace("127.0.0.1", "localhost"))[0].delivered
    assert not proxy.requests


def test_everything_else_goes_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with replying(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n") as (port, heard):
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        delivery, _ = posted("https://hooks.example.com/x", attempts=1)
    assert delivery == Delivery(False, 1, None, "the proxy refused")
    assert heard[0].startswith(b"CONNECT hooks.example.com:443 ")
