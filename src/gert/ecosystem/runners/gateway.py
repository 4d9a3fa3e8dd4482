"""The gateway of a sandboxed program: HTTP on a Unix socket in, requests under the network policy out.

The program speaks plain HTTP and never sees the secret: the gateway puts it in, checks host, method, size and number,
and keeps what was asked and answered for the artifacts.
"""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import h11
import msgspec

from gert.ecosystem.runners.wire import Meter, Outgoing, Reach, Received, RefusedResponse, send
from gert.errors import Refused
from gert.kernel.governance.network import NetworkPolicy
from gert.kernel.runner.request import MAX_BODY

_CHUNK: Final = 64 * 1024
_MAX_HEAD: Final = 32 * 1024
_MOST_CONNECTIONS: Final = 16
_HOP: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
)

_OURS: Final = frozenset({"host", "content-length", "accept-encoding", "range", "if-range"})
"""Headers that the program does not choose: a part of a response could hold a part of the secret."""

Mask = Callable[[bytes, bool], bytes]
"""Removes the secret from bytes; the second argument says whether they were cut off."""


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a program and how it ended; neither holds the secret.

    body: of the request, as the program sent it
    """

    method: str
    host: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    received: Received | None = None
    refusal: Refused | None = None


class Gateway:
    """Answers the requests of one program.

    headers: set on every request, with the secret in them; a program cannot set them itself
    mask: removes the secret from what a vendor repeats, before the program sees it
    """

    def __init__(
        self,
        policy: NetworkPolicy,
        reach: Reach,
        meter: Meter,
        headers: tuple[tuple[str, str], ...],
        mask: Mask,
    ) -> None:
        self._policy = policy
        self._reach = reach
        self._meter = meter
        self._headers = headers
        self._mask = mask
        self._open: set[asyncio.Task[None] | None] = set()
        self.exchanges: list[Exchange] = []

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Serve on a socket in a folder of its own that only this user can enter."""
        with tempfile.TemporaryDirectory(prefix="gert-gw-") as folder:
            path = os.path.join(folder, "gateway.sock")
            server = await asyncio.start_unix_server(self._connected, path, limit=_CHUNK)
            os.chmod(path, 0o666)  # noqa: S103 - the program is another user in its namespace; the folder is private
            try:
                yield path
            finally:
                server.close()
                await self._end()

    async def _end(self) -> None:
        """End what is under way: nothing leaves once the program has ended."""
        tasks = {task for task in self._open if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._open.add(task)
        try:
            if len(self._open) <= _MOST_CONNECTIONS:
                await self._converse(reader, writer)
        except (h11.ProtocolError, OSError, EOFError):
            pass  # the program left, or does not speak HTTP: it gets no answer
        except asyncio.CancelledError:
            pass  # the program has ended
        finally:
            self._open.discard(task)
            with suppress(OSError, RuntimeError):
                writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD)
        asked = await _read(peer, reader)
        if asked is None:
            return
        # What is asked is kept before it leaves: a program may be ended while it waits.
        at, exchange = len(self.exchanges), self._exchange(*asked)
        self.exchanges.append(exchange)
        if exchange.refusal is None:
            exchange = self.exchanges[at] = await self._forwarded(exchange)
        writer.write(_answer(peer, exchange, self._mask))
        await writer.drain()

    def _exchange(self, head: h11.Request, body: bytes) -> Exchange:
        ours = {name for name, _ in self._headers} | _HOP | _OURS
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers)
        # A port or another form of the host is another host.
        host = next((value for name, value in headers if name == "host"), "").removesuffix(":443")
        kept = tuple(pair for pair in headers if pair[0] not in ours)
        asked = Exchange(
            method=head.method.decode("ascii"), host=host, target=head.target.decode("latin-1"), headers=kept, body=body
        )
        if not asked.target.startswith("/"):
            refusal = Refused("network/policy", "a request names its host in `Host`, and only the path in its target")
            return msgspec.structs.replace(asked, refusal=refusal)
        return asked

    async def _forwarded(self, asked: Exchange) -> Exchange:
        outgoing = Outgoing(
            method=asked.method, host=asked.host, target=asked.target, headers=(*asked.headers, *self._headers),
            body=asked.body, secret_headers=frozenset(name for name, _ in self._headers),
        )  # fmt: skip
        try:
            return msgspec.structs.replace(asked, received=await send(outgoing, self._policy, self._reach, self._meter))
        except RefusedResponse as refusal:
            return msgspec.structs.replace(asked, received=refusal.received, refusal=refusal)
        except Refused as refusal:
            return msgspec.structs.replace(asked, refusal=refusal)


async def _read(peer: h11.Connection, reader: asyncio.StreamReader) -> tuple[h11.Request, bytes] | None:
    head: h11.Request | None = None
    body = bytearray()
    while True:
        event = peer.next_event()
        if event is h11.NEED_DATA:
            if peer.they_are_waiting_for_100_continue:
                raise EOFError
            peer.receive_data(await reader.read(_CHUNK))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > MAX_BODY:
                raise EOFError
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            return head, bytes(body)
        else:
            return None


def _answer(peer: h11.Connection, exchange: Exchange, mask: Mask) -> bytes:
    """Return what the program is told: the response of the vendor, or why there is none."""
    if exchange.received is None or exchange.refusal is not None:
        refusal = exchange.refusal or Refused("network/policy", "the request was refused")
        body = msgspec.json.encode({"rule": refusal.rule, "message": refusal.message})
        status, headers = 403, [("content-type", b"application/json")]
    else:
        received = exchange.received
        body, status = mask(received.body, received.is_cut), received.status
        headers = [(name, mask(value.encode(), False)) for name, value in received.headers if name not in _HOP]
        headers = [pair for pair in headers if pair[0] not in ("content-length", "set-cookie")]
        headers += [("x-gert-cut", b"true")] if received.is_cut else []
    headers += [("content-length", str(len(body)).encode()), ("connection", b"close")]
    lines = [(name.encode("latin-1"), value) for name, value in headers]
    pieces = [peer.send(h11.Response(status_code=status, headers=lines)), peer.send(h11.Data(data=body))]
    pieces.append(peer.send(h11.EndOfMessage()))
    return b"".join(each or b"" for each in pieces)
