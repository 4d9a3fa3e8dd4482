"""Requests to a vendor over HTTP: timed, retried, bounded, to one host only, and without a key in any error."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from gert._version import __version__
from gert.ecosystem.models import failures
from gert.ecosystem.models.conversation import encoded
from gert.ecosystem.models.keys import Key, checked_base_url, is_loopback
from gert.ecosystem.models.limits import Limits
from gert.ecosystem.models.retrying import with_retries
from gert.ecosystem.models.sse import Event, EventReader
from gert.errors import ModelPermanentError, ModelTimeoutError, ModelTransientError
from gert.kernel.agent.ports.model import OnToken

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

_MOST_OF_AN_ERROR = 64 * 1024


class Fold(Protocol):
    """Puts a streamed answer together, so that it reads like one that came whole."""

    done: bool

    def take(self, event: Event) -> str:
        """Take an event and give the text in it that may be shown; raises `ModelError` where it tells of one."""
        ...

    def answer(self) -> dict[str, Any]:
        """The whole answer."""
        ...


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
        self._sleep = sleep
        self._client: httpx2.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f"Wire({self.base_url})"

    async def close(self) -> None:
        """Close the connections; another request opens new ones."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()

    async def ask(self, path: str, headers: Mapping[str, str], body: object, read: Callable[[dict[str, Any]], T]) -> T:
        """Post, again where that may help, and read the answer's JSON object."""
        content = encoded(body)

        async def attempt() -> T:
            async with self._answering(path, headers, content, self.limits.timeout_seconds) as response:
                data = await self._read(response)
            return read(_object(data, response))

        return await with_retries(attempt, self.limits, self._sleep)

    async def ask_streaming(
        self,
        path: str,
        headers: Mapping[str, str],
        body: object,
        read: Callable[[dict[str, Any]], T],
        fold: Callable[[], Fold],
        on_token: OnToken,
    ) -> T:
        """Post, tell the answer's text as it arrives, and read all of the answer.

        A server that does not stream is taken at its word: its JSON is the answer, and nothing is told before.
        """
        content = encoded(body)
        told = False

        async def tell(text: str) -> None:
            nonlocal told
            told = True
            waiting = on_token(text)
            if isawaitable(waiting):
                await waiting

        async def attempt() -> T:
            async with self._answering(path, headers, content, self.limits.stream_seconds) as response:
                if _is_stream(response):
                    return read(await self._folded(response, fold(), tell))
                data = await self._read(response)
            return read(_object(data, response))

        return await with_retries(attempt, self.limits, self._sleep, lambda: not told)

    async def _folded(
        self, response: "httpx2.Response", folded: Fold, tell: Callable[[str], Awaitable[None]]
    ) -> dict[str, Any]:
        reader = EventReader()
        async with aclosing(self._chunks(response)) as chunks:
            async for chunk in chunks:
                for event in reader.feed(chunk):
                    text = folded.take(event)
                    if text:
                        await tell(text)
                    if folded.done:
                        return folded.answer()
        raise ModelTransientError("the model's answer ended before it was complete", category="connection")

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
        client = self._connected()  # before the time runs: to set one up is not the server's fault
        limit = asyncio.timeout(seconds)
        # Causes are cut off: a library's error carries the request, and that carries the key.
        try:
            async with limit, client.stream("POST", self.base_url + path, content=content, headers=sent) as r:
                if not 200 <= r.status_code < 300:
                    raise failures.of_status(r.status_code, await _start_of(r), r.headers, self.redactor)
                yield r
        except httpx2.TimeoutException:
            raise _too_late(self.limits.timeout_seconds) from None
        except TimeoutError:
            if not limit.expired():
                raise  # somebody else's, such as of whoever is told the tokens
            raise _too_late(seconds) from None
        except (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol, httpx2.InvalidURL):
            raise ModelPermanentError("the request to the model cannot be sent", category="request") from None
        except (httpx2.TransportError, httpx2.StreamError, httpx2.DecodingError) as problem:
            what = "no connection to the model's server could be made"
            if not isinstance(problem, httpx2.ConnectError | httpx2.ProxyError):
                what = "the connection to the model's server broke"
            raise ModelTransientError(what, category="connection") from None

    def _connected(self) -> "httpx2.AsyncClient":
        import httpx2

        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            # Connections belong to the loop they were made in; those of a loop that is gone are left to it.
            # With a transport of its own a client uses no proxy: what is meant for this machine does not leave it.
            local = httpx2.AsyncHTTPTransport() if is_loopback(httpx2.URL(self.base_url).host) else None
            self._client = httpx2.AsyncClient(
                transport=local, timeout=self.limits.timeout_seconds, follow_redirects=False
            )
            self._loop = loop
        return self._client

    async def _read(self, response: "httpx2.Response") -> bytes:
        return b"".join([chunk async for chunk in self._chunks(response)])

    async def _chunks(self, response: "httpx2.Response") -> AsyncGenerator[bytes, None]:
        most, read = self.limits.max_response_bytes, 0
        async for chunk in response.aiter_bytes():
            read += len(chunk)
            if read > most:
                raise ModelPermanentError(f"the model's answer is larger than {most} bytes", category="too_large")
            yield chunk


def _too_late(seconds: float) -> ModelTimeoutError:
    return ModelTimeoutError(f"the model did not answer within {seconds:g}s", category="timeout")


def _is_stream(response: "httpx2.Response") -> bool:
    return _content_type(response) == "text/event-stream"


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
        raise failures.malformed("the model's server answered with something that is not JSON") from None
    if not isinstance(value, dict):
        raise failures.malformed("the model's server answered with JSON that is not an object")
    return value


async def _start_of(response: "httpx2.Response") -> bytes:
    """As much of an error's body as is worth reading."""
    data = b""
    async for chunk in response.aiter_bytes():
        data += chunk
        if len(data) >= _MOST_OF_AN_ERROR:
            break
    return data[:_MOST_OF_AN_ERROR]
