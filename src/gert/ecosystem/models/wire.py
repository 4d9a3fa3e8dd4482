"""Requests to a vendor over HTTP: timed, retried, bounded, to one host only, and without a key in any error."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from gert._version import __version__
from gert.ecosystem.models import errors
from gert.ecosystem.models.connections import Connections, unconnected
from gert.ecosystem.models.conversation import encoded
from gert.ecosystem.models.fold import Fold, folded
from gert.ecosystem.models.keys import Key, checked_base_url
from gert.ecosystem.models.limits import Limits
from gert.ecosystem.models.prices import Tokens
from gert.ecosystem.models.retry import with_retries
from gert.ecosystem.models.text_stream import Listener, Unheard
from gert.errors import ModelError, ModelPermanentError, ModelTimeoutError

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

_MOST_OF_AN_ERROR: Final = 64 * 1024
_SECONDS_FOR_AN_ERROR: Final = 10.0
_SECONDS_FOR_THE_REST: Final = 10.0


class Exchange(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One question in a vendor's words: where it goes, and how what comes back is read, whole or in pieces.

    tokens: what an answer used, also where nothing else of it can be read
    streamed: more fields where it is to come in pieces
    """

    path: str
    body: Mapping[str, object]
    read: Callable[[dict[str, Any]], T]
    tokens: Callable[[object], Tokens | None]
    fold: Callable[[], Fold]
    streamed: Mapping[str, object] = {}


class Wire:
    """One vendor's address, and the connections to it."""

    def __init__(
        self,
        base_url: str,
        key: Key,
        limits: Limits,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.base_url = str(checked_base_url(base_url))
        self.limits = limits
        self.redactor = key.redactor()
        self.connections = Connections(self.base_url, limits)
        self._sleep = sleep

    def __repr__(self) -> str:
        return f"Wire({self.base_url})"

    async def close(self) -> None:
        """Close the connections of the running loop."""
        await self.connections.close()

    async def ask(
        self,
        exchange: Exchange[T],
        headers: Mapping[str, str],
        extra: Mapping[str, object],
        listener: Listener | None = None,
    ) -> T:
        """Post, again where that may help, tell a listener the answer's text as it arrives, and read the answer.

        A server that does not stream is taken at its word: its JSON is the answer, and nothing is told before.
        """
        # Also where it is false: there are servers that stream unless they are told not to.
        more = {"stream": False} if listener is None else {**exchange.streamed, "stream": True}
        content = encoded({**extra, **exchange.body, **more})
        limits = self.limits
        seconds = limits.timeout_seconds if listener is None else limits.stream_seconds
        most = limits.max_response_bytes if listener is None else limits.max_stream_bytes
        patience = min(_SECONDS_FOR_THE_REST, limits.timeout_seconds / 2)

        async def attempt() -> T:
            asking = self._answering(exchange.path, headers, content, seconds)
            async with asking as response, aclosing(_chunks(response, most)) as chunks:
                if listener is None:
                    said: dict[str, Any] | bytes = b"".join([chunk async for chunk in chunks])
                else:
                    said = await folded(chunks, exchange.fold(), listener, patience, limits.max_response_bytes)
            return exchange.read(_object(said, response) if isinstance(said, bytes) else said)

        def may_repeat(failure: ModelError) -> bool:
            # A question that is not answered in time may be answered and paid for all the same, and would be again.
            return not isinstance(failure, ModelTimeoutError) and (listener is None or not listener.told)

        try:
            return await with_retries(attempt, limits, self._sleep, may_repeat)
        except Unheard as unheard:
            problem = unheard.problem
        raise problem  # here, where nothing of ours is its context

    @asynccontextmanager
    async def _answering(
        self, path: str, headers: Mapping[str, str], content: bytes, seconds: float
    ) -> AsyncIterator["httpx2.Response"]:
        import httpx2

        sent = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Accept-Encoding": "identity",  # a small answer must not become a large one here
            "User-Agent": f"gert/{__version__}",
            **headers,
        }
        client = self.connections.here()  # before the time runs: to set one up is not the server's fault
        limit = asyncio.timeout(seconds)
        # Causes are cut off: a library's error carries the request, and that carries the key.
        try:
            async with limit, client.stream("POST", self.base_url + path, content=content, headers=sent) as r:
                if not 200 <= r.status_code < 300:
                    raise errors.of_status(r.status_code, await _start_of(r, limit), r.headers, self.redactor)
                yield r
        except httpx2.ConnectTimeout as problem:
            raise unconnected(problem) from None
        except (TimeoutError, httpx2.TimeoutException):
            within = seconds if limit.expired() else self.limits.timeout_seconds
            raise ModelTimeoutError(f"the model did not answer within {within:g}s", category="timeout") from None
        except (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol, httpx2.InvalidURL):
            raise ModelPermanentError("the request to the model cannot be sent", category="request") from None
        except (httpx2.TransportError, httpx2.StreamError, httpx2.DecodingError) as problem:
            raise unconnected(problem) from None


async def _chunks(response: "httpx2.Response", most: int) -> AsyncGenerator[bytes, None]:
    read = 0
    async for chunk in response.aiter_bytes():
        read += len(chunk)
        if read > most:
            raise errors.too_large(most)
        yield chunk


def _content_type(response: "httpx2.Response") -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _object(data: bytes, response: "httpx2.Response") -> dict[str, Any]:
    """An answer's JSON object; a page for people is a wrong address, and anything else may be an accident."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if _content_type(response) == "text/html":
            raise ModelPermanentError(
                "the model's server answered with a web page", category="malformed", hint="check the base URL"
            ) from None
        raise errors.malformed("the model's server answered with something that is not JSON") from None
    if not isinstance(value, dict):
        raise errors.malformed("the model's server answered with JSON that is not an object")
    return value


async def _start_of(response: "httpx2.Response", limit: asyncio.Timeout) -> bytes:
    """As much of an error's body as is worth reading; where it breaks off or stalls, the status says enough."""
    import httpx2

    data = bytearray()
    now = asyncio.get_running_loop().time()
    try:
        # At most half of what is left, so that there is time to tell it.
        async with asyncio.timeout_at(min(now + _SECONDS_FOR_AN_ERROR, (now + (limit.when() or now)) / 2)):
            async for chunk in response.aiter_bytes():
                data += chunk
                if len(data) >= _MOST_OF_AN_ERROR:
                    break
    except (TimeoutError, httpx2.RequestError, httpx2.StreamError):
        pass
    return bytes(data[:_MOST_OF_AN_ERROR])
