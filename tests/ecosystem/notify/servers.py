"""A web server on this machine that answers as it is told, and keeps what it was sent."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

PATIENCE = 30.0


@dataclass
class Request:
    """What somebody sent."""

    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def said(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document


Answer = Callable[[socket.socket, "Server"], None]


def status(code: int, *headers: str, body: bytes = b"") -> Answer:
    """Answer with a status, and be done."""
    lines = [f"HTTP/1.1 {code} X", *headers, f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return raw("\r\n".join(lines).encode() + body)


def raw(data: bytes) -> Answer:
    """Answer with these bytes, and hang up."""
    return lambda connection, _: connection.sendall(data)


def silence(connection: socket.socket, server: "Server") -> None:
    """Never answer."""
    server.closing.wait(PATIENCE)


def drip(first: bytes, more: bytes = b"a") -> Answer:
    """Answer, and never come to an end of it."""

    def answer(connection: socket.socket, server: "Server") -> None:
        connection.sendall(first)
        while not server.closing.wait(0.02):
            connection.sendall(more)

    return answer


def flood(connection: socket.socket, server: "Server") -> None:
    """Answer with more than anyone wants to read."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n")
    while not server.closing.is_set():
        connection.sendall(b"x" * 65536)
        server.flooded += 65536


@dataclass
class Server:
    """Answers the first request with the first answer, and so on; the last one goes for all that follow."""

    answers: list[Answer]
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)
    flooded: int = 0

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def handle(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(PATIENCE)
            request = _read(connection)
            if request is None:
                return
            self.requests.append(request)
            self.answers[min(len(self.requests), len(self.answers)) - 1](connection, self)


def _read(connection: socket.socket) -> Request | None:
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = connection.recv(65536)
        if not chunk:
            return None
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65536)
    return Request(first.split(" ")[1], headers, body)


@contextmanager
def serving(*answers: Answer) -> Iterator[Server]:
    """A server, for as long as it is needed."""
    server = Server(list(answers))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.port = listener.getsockname()[1]
        threads: list[threading.Thread] = []

        def accept() -> None:
            with suppress(OSError):
                while not server.closing.is_set():
                    connection, _ = listener.accept()
                    threads.append(threading.Thread(target=server.handle, args=(connection,)))
                    threads[-1].start()

        acceptor = threading.Thread(target=accept)
        acceptor.start()
        try:
            yield server
        finally:
            server.closing.set()
            with suppress(OSError), socket.create_connection(("127.0.0.1", server.port)):
                pass  # wakes whoever waits for a connection
            acceptor.join(PATIENCE)
            for thread in threads:
                thread.join(PATIENCE)


@contextmanager
def replying(data: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A port where whatever is said first gets this reply: its number, and what was said."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def reply() -> None:
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    heard.append(connection.recv(65536))
                    connection.sendall(data)

        thread = threading.Thread(target=reply)
        thread.start()
        port = listener.getsockname()[1]
        yield port, heard
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as waker:
            waker.sendall(b"\n")
        thread.join(PATIENCE)


def closed_port() -> int:
    """A port nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
