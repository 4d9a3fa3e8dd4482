"""A small web server with limits on what it reads, how long it waits, and how many connections it serves.

A connection carries one request and is closed. A client that sends slowly, too much, or no valid request gets an error
if it still reads, and makes no other client wait: where the limit is reached, its connection is closed.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import parse_qsl

import h11
import msgspec

from gert.ecosystem.host.channels.connections import Connection, Connections, Phase, network
from gert.errors import UsageError

METHODS: Final = ("GET", "POST")
_CHUNK: Final = 4 * 1024
_LINGER_SECONDS: Final = 0.5
_LINGER_BYTES: Final = 256 * 1024
_ANSWER_FIELDS: Final = 64
_PACKING: Final = 8
"""Bytes that are read for each byte a body may have: at worst, each byte comes in a chunk of its own."""
_REASONS: Final = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 409: "Conflict", 413: "Content Too Large", 415: "Unsupported Media Type",
    421: "Misdirected Request", 422: "Unprocessable Content", 431: "Request Header Fields Too Large",
    500: "Internal Server Error", 501: "Not Implemented", 503: "Service Unavailable",
}  # fmt: skip
# In every reply: nothing is cached, guessed, framed or loaded from elsewhere.
SAFE: Final = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    # Not `no-referrer`: a form would then be sent without its `Origin`.
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("X-Robots-Tag", "noindex, nofollow"),
)
BARE_POLICY: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits for one client.

    heading: seconds for the head of a request; request: for all of it; reply: to read the reply
    closing: seconds for replies under way when the server ends
    """

    head: int = 16 * 1024
    body: int = 64 * 1024
    heading: float = 5.0
    request: float = 10.0
    reply: float = 10.0
    closing: float = 2.5
    connections: int = 64


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request, whole; names of headers are in lower case."""

    method: str
    path: str
    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """The value of a header that occurs once; None where it is missing or ambiguous."""
        found = [value for key, value in self.headers if key == name]
        return found[0] if len(found) == 1 else None

    def query_field(self, name: str) -> str:
        """A field of the query."""
        return fields_of(self.query).get(name, "")


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to a request."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    policy: str = BARE_POLICY
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Request], Awaitable[Reply]]


def fields_of(form: str | bytes) -> dict[str, str]:
    """The fields of a form or a query; empty where one occurs twice, or there are too many."""
    try:
        text = form if isinstance(form, str) else form.decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_ANSWER_FIELDS, errors="strict")
    except (ValueError, UnicodeDecodeError):
        return {}
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else {}


def text_reply(status: int, text: str, headers: Iterable[tuple[str, str]] = ()) -> Reply:
    """A reply with one line of text."""
    return Reply(status=status, body=f"{text}\n".encode(), headers=tuple(headers))


def json_reply(status: int, document: object) -> Reply:
    """A reply with a JSON document."""
    return Reply(status=status, body=msgspec.json.encode(document), content_type="application/json")


class WebServer:
    """Serves one handler at one address, for as long as `serving` is entered."""

    def __init__(self, handler: Handler, limits: Limits | None = None) -> None:
        self._handler = handler
        self._limits = limits or Limits()
        self.connections = Connections(self._limits.connections)
        self._over = True

    @asynccontextmanager
    async def serving(self, host: str, port: int) -> AsyncIterator[int]:
        """Serve, and yield the port; requests that are being handled at the end still get their replies."""
        try:
            server = await asyncio.start_server(self._connected, host, port, limit=_CHUNK)
        except (OSError, OverflowError, UnicodeError) as problem:
            why = (getattr(problem, "strerror", None) or type(problem).__name__).lower()
            raise UsageError(
                f"cannot listen at `{host}:{port}`: {why}", hint="choose another port with --listen"
            ) from None
        self._over = False
        try:
            yield int(server.sockets[0].getsockname()[1])
        finally:
            # A connection that was just accepted is not in the list yet.
            self._over = True
            server.close()
            await self._end([each for each in self.connections if each.phase is Phase.IDLE], 0)
            await self._end(list(self.connections), self._limits.closing)

    async def _end(self, connections: list[Connection], patience: float) -> None:
        tasks = {each.task for each in connections}
        if tasks and patience:
            _, tasks = await asyncio.wait(tasks, timeout=patience)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._limits.closing)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task, peer = asyncio.current_task(), writer.get_extra_info("peername")
        connection = None
        if task is not None and not self._over:
            connection = self.connections.admit(task, network(peer[0]) if peer else "", writer.transport)
        if connection is None:
            writer.transport.abort()
            return
        try:
            await self._exchange(reader, writer, connection)
        except (OSError, TimeoutError, asyncio.CancelledError):
            # The client is gone, or reads too slowly. A cancellation ends this connection, or the whole server.
            writer.transport.abort()
        finally:
            self.connections.remove(connection)
            writer.close()

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: Connection
    ) -> None:
        # `drain` returns only when everything is sent.
        writer.transport.set_write_buffer_limits(high=0)
        try:
            received = await self._receive(reader, writer)
        except TimeoutError:
            received = text_reply(408, "the request took too long")
        if received is None:
            return
        connection.phase = Phase.HANDLING
        reply = received if isinstance(received, Reply) else await self._handle(received)
        connection.phase = Phase.REPLYING
        async with asyncio.timeout(self._limits.reply):
            writer.write(_written(reply))
            await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        connection.phase = Phase.IDLE
        await _linger(reader)

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request | Reply | None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.head)
        since = asyncio.get_running_loop().time()
        async with asyncio.timeout(min(self._limits.heading, self._limits.request)) as patience:
            return await _read(
                connection, reader, writer, self._limits, lambda: patience.reschedule(since + self._limits.request)
            )

    async def _handle(self, request: Request) -> Reply:
        if request.method not in METHODS:
            return text_reply(405, "only GET and POST are allowed", [("Allow", ", ".join(METHODS))])
        try:
            return await self._handler(request)
        except Exception:
            # The reason is not for clients, and an error never counts as an approval.
            return text_reply(500, "the request could not be handled")


async def _read(
    connection: h11.Connection,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    limits: Limits,
    on_head: Callable[[], object],
) -> Request | Reply | None:
    """The request, or the reply to one that is invalid; None where the client sent nothing."""
    head: h11.Request | None = None
    body, most, taken = bytearray(), limits.body, 0
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as problem:
            return text_reply(problem.error_status_hint, "the request cannot be read")
        if event is h11.NEED_DATA:
            if connection.they_are_waiting_for_100_continue:
                writer.write(connection.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            data = await reader.read(_CHUNK)
            if not data and head is None and not connection.trailing_data[0]:
                return None
            taken += len(data)
            if taken > limits.head + _PACKING * most:
                return text_reply(413, f"expected at most {most} bytes")
            connection.receive_data(data)
        elif isinstance(event, h11.Request):
            head = event
            on_head()
            if _declared(event) > most:
                return text_reply(413, f"expected at most {most} bytes")
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > most:
                return text_reply(413, f"expected at most {most} bytes")
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            return _request(head, bytes(body))
        else:
            return None


def _declared(head: h11.Request) -> int:
    """The declared length of a body; h11 has checked its form."""
    return max((int(value) for name, value in head.headers if name == b"content-length"), default=0)


def _request(head: h11.Request, body: bytes) -> Request | Reply:
    try:
        target = head.target.decode("ascii")
    except UnicodeDecodeError:
        return text_reply(400, "the request cannot be read")
    path, _, query = target.partition("?")
    if not path.startswith("/"):
        return text_reply(400, "the request cannot be read")
    headers = tuple((name.decode("ascii"), value.decode("latin-1")) for name, value in head.headers)
    return Request(method=head.method.decode("ascii"), path=path, query=query, headers=headers, body=body)


def _written(reply: Reply) -> bytes:
    lines = [
        f"HTTP/1.1 {reply.status} {_REASONS.get(reply.status, 'Reply')}",
        f"Content-Type: {reply.content_type}",
        f"Content-Length: {len(reply.body)}",
        "Connection: close",
        f"Content-Security-Policy: {reply.policy}",
        *(f"{name}: {value}" for name, value in (*SAFE, *reply.headers)),
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + reply.body


async def _linger(reader: asyncio.StreamReader) -> None:
    """Read a little more before closing: after a reset, a client may never see the reply."""
    read = 0
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(_LINGER_SECONDS):
            while read < _LINGER_BYTES:
                data = await reader.read(_CHUNK)
                if not data:
                    return
                read += len(data)
