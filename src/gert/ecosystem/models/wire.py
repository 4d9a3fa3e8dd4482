"""HTTP requests to one vendor: with timeouts, retries and size limits, and without the key in any error."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from gert._version import __version__
from gert.ecosystem.models import errors
from gert.ecosystem.models.connections import Connections, connection_error
from gert.ecosystem.models.conversation import encoded
from gert.ecosystem.models.fold import Fold, fold_stream
from gert.ecosystem.models.keys import Key, checked_base_url
from gert.ecosystem.models.limits import Limits
from gert.ecosystem.models.prices import Tokens
from gert.ecosystem.models.retry import with_retries
from gert.ecosystem.models.text_stream import ListenerFailed, TokenStream
from gert.errors import ModelError, ModelPermanentError, ModelTimeoutError

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

_MAX_ERROR_BYTES: Final = 64 * 1024
_ERROR_SECONDS: Final = 10.0
_USAGE_SECONDS: Final = 10.0


class Exchange(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One request in a vendor's format, and how its answer is read, whole or streamed.

    tokens: reads the usage of an answer, even if the rest cannot be read
    streamed: extra fields of a streamed request
    """

    path: str
    body: Mapping[str, object]
    read: Callable[[dict[str, Any]], T]
    tokens: Callable[[object], Tokens | None]
    fold: Callable[[], Fold]
    streamed: Mapping[str, object] = {}


class Wire:
    """A client of one vendor's base URL."""

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

    async def post(
        self,
        exchange: Exchange[T],
        headers: Mapping[str, str],
        extra: Mapping[str, object],
        stream: TokenStream | None = None,
    ) -> T:
        """Post a request with retries, stream the answer's text, and read the answer.

        If the server does not stream, its JSON is the answer, and no text is streamed.
        """
        # `stream` is sent even if false: some servers stream by default.
        more = {"stream": False} if stream is None else {**exchange.streamed, "stream": True}
        content = encoded({**extra, **exchange.body, **more})
        limits = self.limits
        seconds = limits.timeout_seconds if stream is None else limits.stream_seconds
        most = limits.max_response_bytes if stream is None else limits.max_stream_bytes
        patience = min(_USAGE_SECONDS, limits.timeout_seconds / 2)

        async def attempt() -> T:
            asking = self._response(exchange.path, headers, content, seconds)
            async with asking as response, aclosing(_chunks(response, most)) as chunks:
                if stream is None:
                    body: dict[str, Any] | bytes = b"".join([chunk async for chunk in chunks])
                else:
                    body = await fold_stream(chunks, exchange.fold(), stream, patience, limits.max_response_bytes)
            return exchange.read(_object(body, response) if isinstance(body, bytes) else body)

        def may_repeat(failure: ModelError) -> bool:
            # A request that timed out may still be answered and paid for; a retry would be paid again.
            return not isinstance(failure, ModelTimeoutError) and (stream is None or not stream.started)

        try:
            return await with_retries(attempt, limits, self._sleep, may_repeat)
        except ListenerFailed as unheard:
            problem = unheard.problem
        raise problem  # outside the handler, so that it has no context

    @asynccontextmanager
    async def _response(
        self, path: str, headers: Mapping[str, str], content: bytes, seconds: float
    ) -> AsyncIterator["httpx2.Response"]:
        import httpx2

        sent = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Accept-Encoding": "identity",  # a small answer must not expand to a large one
            "User-Agent": f"gert/{__version__}",
            **headers,
        }
        client = self.connections.client()  # before the timeout starts: creating a client is not the server's delay
        limit = asyncio.timeout(seconds)
        # `from None`: a library's error carries the request, and that carries the key.
        try:
            async with limit, client.stream("POST", self.base_url + path, content=content, headers=sent) as r:
                if not 200 <= r.status_code < 300:
                    raise errors.of_status(r.status_code, await _start_of(r, limit), r.headers, self.redactor)
                yield r
        except httpx2.ConnectTimeout as problem:
            raise connection_error(problem) from None
        except (TimeoutError, httpx2.TimeoutException):
            within = seconds if limit.expired() else self.limits.timeout_seconds
            raise ModelTimeoutError(f"the model did not answer within {within:g}s", category="timeout") from None
        except (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol, httpx2.InvalidURL):
            raise ModelPermanentError("the request to the model cannot be sent", category="request") from None
        except (httpx2.TransportError, httpx2.StreamError, httpx2.DecodingError) as problem:
            raise connection_error(problem) from None


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
    """Decode an answer's JSON object; a web page means a wrong base URL, other content may be a glitch."""
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
    """Read the beginning of an error's body; if it breaks off or stalls, the status is enough."""
    import httpx2

    data = bytearray()
    now = asyncio.get_running_loop().time()
    try:
        # At most half of the remaining time, so that the error can still be reported.
        async with asyncio.timeout_at(min(now + _ERROR_SECONDS, (now + (limit.when() or now)) / 2)):
            async for chunk in response.aiter_bytes():
                data += chunk
                if len(data) >= _MAX_ERROR_BYTES:
                    break
    except (TimeoutError, httpx2.RequestError, httpx2.StreamError):
        pass
    return bytes(data[:_MAX_ERROR_BYTES])
