"""A small web server for a few people: bounded in what it reads, how long it waits, and how many it serves.

A connection carries one request and is closed. Whoever sends slowly, sends too much or sends what is no request is
told so, if at all, and keeps nobody else waiting: where there is no room left, they give way.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import parse_qsl

import h11
import msgspec

from gert.ecosystem.host.channels.connections import Stage, Visit, Visitors, network
from gert.errors import UsageError

METHODS: Final = ("GET", "POST")
_CHUNK: Final = 4 * 1024
_LINGER_SECONDS: Final = 0.5
_LINGER_BYTES: Final = 256 * 1024
_ANSWER_FIELDS: Final = 64
_PACKING: Final = 8
"""How many bytes may come for each one that a body may hold: chunks are packed, at worst each byte by itself."""
_REASONS: Final = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 409: "Conflict", 413: "Content Too Large", 415: "Unsupported Media Type",
    421: "Misdirected Request", 422: "Unprocessable Content", 431: "Request Header Fields Too Large",
    500: "Internal Server Error", 501: "Not Implemented", 503: "Service Unavailable",
}  # fmt: skip
# What every answer says, whoever it is for: nothing is kept, guessed, framed or loaded from elsewhere.
SAFE: Final = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    # Not `no-referrer`: a form would then be sent without saying where it comes from.
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("X-Robots-Tag", "noindex, nofollow"),
)
BARE_POLICY: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one visitor may take.

    heading: seconds until the head of a request is there; request: until all of it is; reply: to take the answer
    closing: seconds that answers under way are given when the server ends
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
        """The value of a header that is there exactly once; said twice, nobody knows which is meant."""
        found = [value for key, value in self.headers if key == name]
        return found[0] if len(found) == 1 else None

    def asked(self, name: str) -> str:
        """A value of the query."""
        return fields_of(self.query).get(name, "")


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a visitor is told."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    policy: str = BARE_POLICY
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Request], Awaitable[Reply]]


def fields_of(form: str | bytes) -> dict[str, str]:
    """The fields of a form or a query; none where one comes twice or there are very many."""
    try:
        text = form if isinstance(form, str) else form.decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_ANSWER_FIELDS, errors="strict")
    except (ValueError, UnicodeDecodeError):
        return {}
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else {}


def said(status: int, text: str, headers: Iterable[tuple[str, str]] = ()) -> Reply:
    """A line of text."""
    return Reply(status=status, body=f"{text}\n".encode(), headers=tuple(headers))


def as_json(status: int, document: object) -> Reply:
    """A document for a machine."""
    return Reply(status=status, body=msgspec.json.encode(document), content_type="application/json")


class WebServer:
    """Serves one handler at one address, for as long as `serving` is entered."""

    def __init__(self, handler: Handler, limits: Limits | None = None) -> None:
        self._handler = handler
        self._limits = limits or Limits()
        self.visitors = Visitors(self._limits.connections)
        self._over = True

    @asynccontextmanager
    async def serving(self, host: str, port: int) -> AsyncIterator[int]:
        """Serve, and give the port; whoever is being answered when it ends, still gets the answer."""
        try:
            server = await asyncio.start_server(self._visited, host, port, limit=_CHUNK)
        except (OSError, OverflowError, UnicodeError) as problem:
            why = (getattr(problem, "strerror", None) or type(problem).__name__).lower()
            raise UsageError(
                f"nobody can listen at `{host}:{port}`: {why}", hint="choose another port with --listen"
            ) from None
        self._over = False
        try:
            yield int(server.sockets[0].getsockname()[1])
        finally:
            # Whoever was accepted and not begun with is not among the visitors yet.
            self._over = True
            server.close()
            await self._end([visit for visit in self.visitors if visit.stage is Stage.WAITING], 0)
            await self._end(list(self.visitors), self._limits.closing)

    async def _end(self, visits: list[Visit], patience: float) -> None:
        tasks = {visit.task for visit in visits}
        if tasks and patience:
            _, tasks = await asyncio.wait(tasks, timeout=patience)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._limits.closing)

    async def _visited(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task, peer = asyncio.current_task(), writer.get_extra_info("peername")
        visit = None
        if task is not None and not self._over:
            visit = self.visitors.admits(task, network(peer[0]) if peer else "", writer.transport)
        if visit is None:
            writer.transport.abort()
            return
        try:
            await self._conversation(reader, writer, visit)
        except (OSError, TimeoutError, asyncio.CancelledError):
            # Whoever went away, or was too slow to listen, is told nothing. A cancellation is the end of the server or
            # of this visit, and nobody else's business.
            writer.transport.abort()
        finally:
            self.visitors.leaves(visit)
            writer.close()

    async def _conversation(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, visit: Visit) -> None:
        # Nothing is left to be sent by nobody once the visit is over.
        writer.transport.set_write_buffer_limits(high=0)
        try:
            heard = await self._heard(reader, writer)
        except TimeoutError:
            heard = said(408, "the request took too long")
        if heard is None:
            return
        visit.stage = Stage.ANSWERED
        reply = heard if isinstance(heard, Reply) else await self._answered(heard)
        visit.stage = Stage.TOLD
        async with asyncio.timeout(self._limits.reply):
            writer.write(_written(reply))
            await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        visit.stage = Stage.WAITING
        await _linger(reader)

    async def _heard(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request | Reply | None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.head)
        since = asyncio.get_running_loop().time()
        async with asyncio.timeout(min(self._limits.heading, self._limits.request)) as patience:
            return await _read(
                connection, reader, writer, self._limits, lambda: patience.reschedule(since + self._limits.request)
            )

    async def _answered(self, request: Request) -> Reply:
        if request.method not in METHODS:
            return said(405, "only GET and POST are answered", [("Allow", ", ".join(METHODS))])
        try:
            return await self._handler(request)
        except Exception:
            # What went wrong is not a stranger's business, and never a yes.
            return said(500, "the request could not be answered")


async def _read(
    connection: h11.Connection,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    limits: Limits,
    on_head: Callable[[], object],
) -> Request | Reply | None:
    """The request, or what to say instead; nothing where nobody said anything."""
    head: h11.Request | None = None
    body, most, taken = bytearray(), limits.body, 0
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as problem:
            return said(problem.error_status_hint, "this is not a request that can be read")
        if event is h11.NEED_DATA:
            if connection.they_are_waiting_for_100_continue:
                writer.write(connection.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            data = await reader.read(_CHUNK)
            if not data and head is None and not connection.trailing_data[0]:
                return None
            taken += len(data)
            if taken > limits.head + _PACKING * most:
                return said(413, f"expected at most {most} bytes")
            connection.receive_data(data)
        elif isinstance(event, h11.Request):
            head = event
            on_head()
            if _declared(event) > most:
                return said(413, f"expected at most {most} bytes")
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > most:
                return said(413, f"expected at most {most} bytes")
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            return _request(head, bytes(body))
        else:
            return None


def _declared(head: h11.Request) -> int:
    """How long a body says it is; its form was checked by whoever read the head."""
    return max((int(value) for name, value in head.headers if name == b"content-length"), default=0)


def _request(head: h11.Request, body: bytes) -> Request | Reply:
    try:
        target = head.target.decode("ascii")
    except UnicodeDecodeError:
        return said(400, "this is not a request that can be read")
    path, _, query = target.partition("?")
    if not path.startswith("/"):
        return said(400, "this is not a request that can be read")
    headers = tuple((name.decode("ascii"), value.decode("latin-1")) for name, value in head.headers)
    return Request(method=head.method.decode("ascii"), path=path, query=query, headers=headers, body=body)


def _written(reply: Reply) -> bytes:
    lines = [
        f"HTTP/1.1 {reply.status} {_REASONS.get(reply.status, 'Answer')}",
        f"Content-Type: {reply.content_type}",
        f"Content-Length: {len(reply.body)}",
        "Connection: close",
        f"Content-Security-Policy: {reply.policy}",
        *(f"{name}: {value}" for name, value in (*SAFE, *reply.headers)),
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + reply.body


async def _linger(reader: asyncio.StreamReader) -> None:
    """Take a little of what still comes: hung up on at once, a visitor may never see the answer."""
    read = 0
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(_LINGER_SECONDS):
            while read < _LINGER_BYTES:
                data = await reader.read(_CHUNK)
                if not data:
                    return
                read += len(data)
