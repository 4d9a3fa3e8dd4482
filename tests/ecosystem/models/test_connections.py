"""Connections: what is kept of them, who shares them, and what becomes of them when a call ends otherwise."""

import asyncio
import gzip
import json
import socket
import ssl
import sys
import threading
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from tests.ecosystem.models.vendors import GOOD, VERDICT, adapter_for, ask, asked, chunks, completion, http, streamed
from tests.ecosystem.notify.servers import Answer, Server, drip, raw, serving, silence

from gert.ecosystem.models.limits import Limits
from gert.errors import ModelError, ModelPermanentError, ModelTimeoutError, ModelTransientError

GOOD_COMPLETION = http(200, completion(GOOD))


# --- a status whose body does not come


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(
            raw(b"HTTP/1.1 429 X\r\nRetry-After: 7\r\nContent-Length: 99\r\n\r\n{"), id="a body that breaks off"
        ),
        pytest.param(
            drip(b"HTTP/1.1 429 X\r\nRetry-After: 7\r\nContent-Length: 9999\r\n\r\n{", b" "),
            id="a body that never ends",
        ),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_a_status_counts_whatever_becomes_of_its_body(answer: Answer, streaming: bool) -> None:
    limits = Limits(timeout_seconds=1, stream_seconds=1, max_retries=0)
    on_token = (lambda _: None) if streaming else None
    with serving(answer) as server, pytest.raises(ModelError) as caught:
        asked(adapter_for("chat", server.url(""), limits=limits), ask("chat"), on_token)
    assert (caught.value.category, caught.value.retry_after) == ("rate_limit", 7)


def test_a_compressed_answer_is_bounded_too() -> None:
    data = gzip.compress(b" " * 50_000_000)
    limits = Limits(timeout_seconds=15, max_retries=0, max_response_bytes=100_000)
    with serving(http(200, data, "Content-Encoding: gzip")) as server, pytest.raises(ModelPermanentError) as caught:
        asked(adapter_for("chat", server.url(""), limits=limits), ask("chat"))
    assert caught.value.category == "too_large"


def test_no_cookie_is_kept() -> None:
    async def run(url: str) -> None:
        async with adapter_for("chat", url) as adapter:
            for _ in range(2):
                await adapter.complete(ask("chat"))

    with serving(http(200, completion(GOOD), "Set-Cookie: follows=you; Path=/")) as server:
        asyncio.run(run(server.url("")))
    assert ["cookie" in sent.headers for sent in server.requests] == [False, False]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTPS_PROXY", "nonsense://user:hunter2@127.0.0.1:1"),
        ("HTTPS_PROXY", "http://user:hunter2@[::1"),
        ("SSL_CERT_FILE", "/nowhere/hunter2.pem"),
    ],
)
def test_an_unusable_proxy_or_certificate_setting_is_a_configuration_error(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ModelPermanentError) as caught:
        asked(adapter_for("chat", "https://models.invalid/v1"), ask("chat"))
    assert caught.value.category == "configuration"
    assert "hunter2" not in f"{caught.value} {caught.value!r} {caught.value.__cause__!r}"


def self_signed(folder: Path) -> ssl.SSLContext:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "both.pem").write_bytes(made.sign(key, SHA256()).public_bytes(Encoding.PEM) + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "both.pem")
    return context


def test_an_untrusted_certificate_is_reported_and_not_retried(tmp_path: Path) -> None:
    context, accepted = self_signed(tmp_path), 0

    def accept(listener: socket.socket) -> None:
        nonlocal accepted
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                accepted += 1
                with connection, suppress(OSError):
                    context.wrap_socket(connection, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        thread = threading.Thread(target=accept, args=(listener,))
        thread.start()
        limits = Limits(timeout_seconds=10, max_retries=2, initial_backoff_seconds=0)
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ModelPermanentError, match="certificate") as caught:
            asked(adapter_for("chat", url, limits=limits), ask("chat"))
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes whoever waits for a connection
    thread.join(10)
    assert (caught.value.category, accepted) == ("configuration", 1)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_question_that_may_be_answered_and_paid_for_is_not_put_again(streaming: bool) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    limits = Limits(timeout_seconds=0.2, stream_seconds=1, max_retries=2)
    with serving(silence, GOOD_COMPLETION) as server:
        adapter = adapter_for("chat", server.url(""), limits=limits, sleep=sleep)
        with pytest.raises(ModelTimeoutError):
            asked(adapter, ask("chat"), (lambda _: None) if streaming else None)
    assert waits == []


def test_a_model_may_think_for_minutes() -> None:
    """As both vendors' own clients let it."""
    limits = Limits()
    assert limits.timeout_seconds >= 600
    assert limits.stream_seconds >= limits.timeout_seconds > 10 * limits.connect_seconds


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a full queue refuses, or has no end")
def test_a_server_that_accepts_no_connection_times_out_early_and_is_retried() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as queue:
        for _ in range(8):  # until nobody else is let in
            before = queue.enter_context(socket.socket())
            before.setblocking(False)
            before.connect_ex(listener.getsockname())
        limits = Limits(timeout_seconds=60, connect_seconds=0.2, max_retries=1)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ModelTransientError, match="cannot connect") as caught:
            asked(adapter_for("chat", url, limits=limits, sleep=sleep), ask("chat"))
    assert (caught.value.category, len(waits)) == ("connection", 1)


def test_as_many_are_asked_at_once_as_ask() -> None:
    many = 130
    everybody = threading.Event()

    def answer(connection: socket.socket, server: Server) -> None:
        if len(server.requests) >= many:
            everybody.set()
        everybody.wait(10)
        GOOD_COMPLETION(connection, server)

    async def run(url: str) -> list[Any]:
        limits = Limits(timeout_seconds=5, max_retries=0)
        async with adapter_for("chat", url, limits=limits) as adapter:
            results = await asyncio.gather(
                *(adapter.complete(ask("chat")) for _ in range(many)), return_exceptions=True
            )
        return [getattr(result, "output", result) for result in results]

    with serving(answer) as server:
        assert asyncio.run(run(server.url(""))) == [VERDICT] * many


def kept_alive(connection: socket.socket, server: Server) -> None:
    body = json.dumps(completion(GOOD)).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    server.closing.wait(10)


def test_two_loops_do_not_take_each_others_connections_away() -> None:
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    with serving(kept_alive) as server:
        adapter = adapter_for("chat", server.url(""))

        async def used() -> httpx2.AsyncClient:
            assert (await adapter.complete(ask("chat"))).output == VERDICT
            client: httpx2.AsyncClient = adapter._wire.connections.client()
            return client

        clients = [loop.run_until_complete(used()) for loop in (first, second)]
        assert clients[0] is not clients[1]
        for loop in (first, second):
            loop.run_until_complete(adapter.close())
            loop.close()
    assert all(client.is_closed for client in clients)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_call_that_is_cancelled_hangs_up(streaming: bool) -> None:
    hung_up = threading.Event()

    def answer(connection: socket.socket, server: Server) -> None:
        kind = "text/event-stream" if streaming else "application/json"
        try:
            connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: 99\r\n\r\n".encode())
            said = connection.recv(1)
        except ConnectionError:
            said = b""  # as it is when what was sent has not been read yet
        if not said:
            hung_up.set()

    async def run(server: Server) -> None:
        async with adapter_for("chat", server.url("")) as adapter:
            asking = adapter.complete_streaming(ask("chat"), print) if streaming else adapter.complete(ask("chat"))
            call = asyncio.create_task(asking)
            while not server.requests:
                await asyncio.sleep(0.01)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await asyncio.to_thread(hung_up.wait, 10), "also while the adapter stays open"

    with serving(answer) as server:
        asyncio.run(run(server))


def test_a_call_whose_adapter_is_closed_under_it_is_an_error_of_the_port() -> None:
    async def run(server: Server) -> None:
        adapter = adapter_for("chat", server.url(""))
        call = asyncio.create_task(adapter.complete(ask("chat")))
        while not server.requests:
            await asyncio.sleep(0.01)
        await adapter.close()
        with pytest.raises(ModelTransientError):
            await call

    with serving(drip(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", b" ")) as server:
        asyncio.run(run(server))


@pytest.mark.parametrize(
    "error",
    [httpx2.ConnectError("mine"), httpx2.ReadTimeout("mine"), ModelTransientError("mine"), TimeoutError("mine")],
    ids=lambda error: type(error).__name__,
)
def test_what_a_listener_raises_is_the_listeners(error: Exception) -> None:
    def listener(_: str) -> None:
        raise error

    with serving(streamed(*chunks(GOOD))) as server, pytest.raises(type(error)) as caught:
        asked(adapter_for("chat", server.url("")), ask("chat"), listener)
    assert caught.value is error
