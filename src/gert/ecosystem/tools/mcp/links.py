"""The two ways to an MCP server: a process that gert starts, and a URL. Both give the SDK a pair of streams."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final, Protocol

import httpx2
from mcp.client.streamable_http import streamable_http_client

from gert.ecosystem.rpc.child_peer import ChildPeer, Server
from gert.ecosystem.rpc.stderr import StderrTail
from gert.ecosystem.tools.mcp.endpoint import Endpoint
from gert.ecosystem.tools.mcp.pipes import Pipes
from gert.errors import RpcFault, RpcLost

_CONNECT_SECONDS: Final = 30.0
_MAX_STREAM: Final = 64 * 1024 * 1024
"""Bytes of one stream of events; each event is limited by itself."""
_EVENTS: Final = "text/event-stream"
_NOTIFICATION: Final = b'"method":"notifications/'
_MAX_HEAD: Final = 100


class Link(Protocol):
    """A way to a server; it is used once."""

    title: str
    stderr: StderrTail | None
    """What a process prints on standard error."""

    @property
    def lost(self) -> RpcLost | None:
        """Why it broke, where that is known."""

    @property
    def asked(self) -> list[str]:
        """The methods that the server called during the last call, where that is known."""

    def streams(self) -> Any:
        """Return the streams as an asynchronous context."""

    def printed(self, since: int) -> str:
        """Return what a process printed on standard error after a position of `stderr`."""

    def kill(self) -> bool:
        """Kill the server, and return whether there is a process to kill."""


class ProcessLink:
    """A server that is started."""

    def __init__(self, server: Server) -> None:
        self.title = server.title
        self._child = ChildPeer(server, self._connect)
        self._pipes.on_stray = self._child.stderr.feed
        self._broke: RpcLost | None = None
        self._is_stopped = False
        self.stderr: StderrTail | None = self._child.stderr

    def _connect(self, title: str, send: Callable[[bytes], bool], **given: Any) -> Pipes:
        self._pipes = Pipes(title, send, **given)
        return self._pipes

    @property
    def lost(self) -> RpcLost | None:
        """Why the connection ended, unless it was stopped here."""
        return self._broke if self._is_stopped else self._pipes.lost

    @property
    def asked(self) -> list[str]:
        """The methods that the server called lately."""
        return self._pipes.asked

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[Any]:
        """Start the process; it has ended, with everything it started, when the context is left."""
        await self._child.start()
        try:
            yield self._pipes.reader, self._pipes.writer
        finally:
            self._broke, self._is_stopped = self._pipes.lost, True
            await self._child.stop()

    def printed(self, since: int) -> str:
        """Return what it printed on standard error after a position."""
        return self._child.printed(since)

    def kill(self) -> bool:
        """Kill it and its descendants."""
        self._child.kill()
        return True


class UrlLink:
    """A server with a URL, over streamable HTTP."""

    stderr: StderrTail | None = None

    def __init__(self, title: str, endpoint: Endpoint, limit: int) -> None:
        self.title = title
        self.lost: RpcLost | None = None
        self.asked: list[str] = []
        self._endpoint = endpoint
        self._limit = limit

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[Any]:
        """Open an HTTP client of its own."""
        try:
            opened = _client(self._endpoint, self._limit)
        except Exception:  # its message contains the proxy's address, which may contain a password
            hint = "check HTTPS_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR"
            raise RpcFault(
                "the proxy or the certificates that the environment sets cannot be used", hint=hint
            ) from None
        async with (
            opened as client,
            streamable_http_client(self._endpoint.url, http_client=client, max_sse_event_size=self._limit) as streams,
        ):
            yield streams

    def printed(self, since: int) -> str:
        """Nothing is printed here."""
        return ""

    def kill(self) -> bool:
        """Nothing runs here."""
        return False


def _client(endpoint: Endpoint, limit: int) -> httpx2.AsyncClient:
    """Return a client that verifies certificates, keeps no cookies, and reads bounded, uncompressed answers."""

    async def hurried(request: httpx2.Request) -> None:
        # No caller waits for the answer to a notification, or to the end of a session.
        if request.method == "DELETE" or _NOTIFICATION in request.content[:_MAX_HEAD]:
            request.extensions = {**request.extensions, "timeout": {**request.extensions["timeout"], "read": 2.0}}

    async def bounded(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise httpx2.DecodingError("the server compressed its answer although `identity` was requested")
        is_stream = response.headers.get("content-type", "").lower().startswith(_EVENTS)
        response.stream = _Bounded(response.stream, _MAX_STREAM if is_stream else limit)

    # A client with its own transport uses no proxy: requests to this machine do not leave it.
    local = httpx2.AsyncHTTPTransport() if endpoint.is_local else None
    return httpx2.AsyncClient(
        transport=local,
        headers={**endpoint.headers, "accept-encoding": "identity"},
        # A server may think for long; how long is decided by the timeout of the step.
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None),
        follow_redirects=False,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        event_hooks={"request": [hurried], "response": [bounded]},
    )


class _Bounded(httpx2.AsyncByteStream):
    """The body of a response up to a limit."""

    def __init__(self, stream: Any, limit: int) -> None:
        self._stream = stream
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        async for chunk in self._stream:
            read += len(chunk)
            if read > self._limit:
                raise httpx2.StreamError(f"the answer is longer than {self._limit} bytes")
            yield chunk

    async def aclose(self) -> None:
        """Close the response."""
        await self._stream.aclose()
