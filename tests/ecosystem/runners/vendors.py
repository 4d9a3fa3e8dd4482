"""A vendor on this machine: a TLS server that speaks the documented shapes, and misbehaves where it is told to."""

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import trustme

DOMAINS = ("api.openai.com", "api.anthropic.com", "slack.com", "api.github.com", "events.pagerduty.com", "vendor.test")


@cache
def authority() -> trustme.CA:
    return trustme.CA()


@cache
def certificate(*names: str) -> trustme.LeafCert:
    return authority().issue_cert(*names)


@dataclass(frozen=True)
class Asked:
    """A request as the vendor got it."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Vendor:
    """A running server.

    answer: makes a response of a request: status, headers, body; or handles the connection itself and returns None
    """

    port: int
    asked: list[Asked] = field(default_factory=list)
    answer: Callable[[Asked, "Handler"], tuple[int, dict[str, str], bytes] | None] = field(default=lambda a, h: ok(a))
    connections: int = 0


def ok(asked: Asked) -> tuple[int, dict[str, str], bytes]:
    """What the vendors say, in their documented shapes."""
    shape = SHAPES.get(asked.path.split("?")[0])
    if shape is None and asked.path.startswith("/repos/"):
        shape = 201, {"id": 4711, "html_url": "https://github.com/o/r/issues/1#issuecomment-4711", "body": "x"}
    status, document = shape if shape is not None else (200, {"ok": True, "path": asked.path})
    return status, {"content-type": "application/json"}, json.dumps(document).encode()


SHAPES: Mapping[str, tuple[int, Any]] = {
    "/v1/chat/completions": (
        200,
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": "gpt-5",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "pong"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10},
        },
    ),
    "/v1/messages": (
        200,
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5",
            "content": [{"type": "text", "text": "pong"}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 9, "output_tokens": 1},
        },
    ),
    "/api/chat.postMessage": (
        200,
        {"ok": True, "channel": "C123", "ts": "1503435956.000247", "message": {"text": "x"}},
    ),
    "/v2/enqueue": (202, {"status": "success", "message": "Event processed", "dedup_key": "k1"}),
}


class Handler(BaseHTTPRequestHandler):
    vendor: Vendor
    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        self.vendor.connections += 1
        with suppress(OSError, ssl.SSLError):
            super().handle()

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, self.path, headers, body)
        self.vendor.asked.append(asked)
        said = self.vendor.answer(asked, self)
        self.close_connection = True
        if said is None:
            return
        status, more, data = said
        self.send_response(status)
        for name, value in {"content-length": str(len(data)), **more}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _any

    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client that hangs up is part of many tests."""


@contextmanager
def vendor(*names: str) -> Iterator[Vendor]:
    """Serve on any free port, as these names (default: every vendor)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate(*(names or DOMAINS)).configure_cert(context)

    class Bound(Handler):
        """The handler of this server."""

    with _Server(("127.0.0.1", 0), Bound) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        made = Bound.vendor = Vendor(server.server_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()


def write_ca(folder: Path) -> Path:
    path = folder / "ca.pem"
    path.write_bytes(authority().cert_pem.bytes())
    return path


def forever(asked: Asked, handler: Handler) -> None:
    """Send a response without end."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
    block = b"x" * 65536
    with suppress(OSError):
        while True:
            handler.wfile.write(block)


def never(asked: Asked, handler: Handler) -> None:
    """Take the request and say nothing."""
    time.sleep(5)
