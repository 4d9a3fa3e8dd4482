"""Posting to a webhook: a bounded number of attempts, within a bounded time, and nothing of the answer kept.

Errors are told in our own words. What a library or a server says may repeat the address, and that holds a secret.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from gert.ecosystem.notify.addresses import is_loopback, objection

if TYPE_CHECKING:
    import httpx2

ATTEMPTS: Final = 3
ATTEMPT_SECONDS: Final = 5.0
TOTAL_SECONDS: Final = 20.0
LONGEST_WAIT: Final = 5.0
FIRST_WAIT: Final = 0.5
MOST_READ: Final = 64 * 1024
_DRAIN_SECONDS: Final = 1.0
_TRY_AGAIN: Final = frozenset({408, 425, 429})


class Delivery(msgspec.Struct, frozen=True):
    """What became of a notice.

    status_code: the last answer, if there was one
    error: why it was not delivered, without anything secret
    """

    delivered: bool
    attempts: int
    status_code: int | None = None
    error: str | None = None


class _Tried(msgspec.Struct, frozen=True):
    """One attempt: how it ended, and when another one makes sense."""

    status_code: int | None = None
    error: str | None = None
    again_after: float | None = None


async def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    attempts: int = ATTEMPTS,
    timeout: float = ATTEMPT_SECONDS,
    total: float = TOTAL_SECONDS,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    on_attempt: Callable[[], object] = lambda: None,
) -> Delivery:
    """Post, again where that may help; any 2xx is a delivery. It raises nothing but a cancellation.

    on_attempt: called before each attempt, for whoever wants to know how many there were when it was cancelled
    """
    refused = objection(url)
    if refused is not None:
        return Delivery(False, 0, error=refused)
    tried, made = _Tried(), 0
    try:
        async with asyncio.timeout(total), _client(url, timeout) as client:
            while made < attempts:
                made += 1
                on_attempt()
                tried = await _attempt(client, url, body, headers, timeout)
                if tried.again_after is None or made == attempts:
                    break
                await sleep(min(max(tried.again_after, FIRST_WAIT * 2 ** (made - 1)), LONGEST_WAIT))
    except TimeoutError:
        tried = _Tried(tried.status_code, tried.error or f"not delivered within {total:g}s")
    except Exception as problem:  # a notice that cannot be sent is never a reason for more than a line in the record
        tried = _Tried(tried.status_code, f"it could not be sent ({type(problem).__name__})")
    return Delivery(tried.error is None and made > 0, made, tried.status_code, tried.error)


def _client(url: str, timeout: float) -> "httpx2.AsyncClient":
    import httpx2

    # With a transport of its own a client uses no proxy: what is meant for this machine does not leave it.
    local = httpx2.AsyncHTTPTransport() if is_loopback(httpx2.URL(url).host) else None
    return httpx2.AsyncClient(transport=local, timeout=timeout, follow_redirects=False)


async def _attempt(
    client: "httpx2.AsyncClient", url: str, body: bytes, headers: Mapping[str, str], timeout: float
) -> _Tried:
    import httpx2

    try:
        async with asyncio.timeout(timeout) as limit:
            # Not compressed: a small answer must not become a large one here.
            sent = {"Accept-Encoding": "identity", **headers}
            async with client.stream("POST", url, content=body, headers=sent) as response:
                limit.reschedule(None)
                tried = _judged(response.status_code, response.headers.get("Retry-After"))
                await _drain(response)
                return tried
    except (TimeoutError, httpx2.TimeoutException):
        return _Tried(error=f"no answer within {timeout:g}s", again_after=0.0)
    except (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol, httpx2.InvalidURL):
        return _Tried(error="it is not a request that can be sent")
    except httpx2.TransportError as problem:
        return _Tried(error=_why(problem), again_after=0.0)


def _judged(status: int, retry_after: str | None) -> _Tried:
    if 200 <= status < 300:
        return _Tried(status)
    if 300 <= status < 400:
        # Where it leads is not said and not followed: the notice was meant for this address.
        return _Tried(status, f"the server answered {status}, and redirects are not followed")
    error = f"the server answered {status}"
    if status in _TRY_AGAIN or status >= 500:
        return _Tried(status, error, again_after=_seconds(retry_after))
    return _Tried(status, error)


def _seconds(retry_after: str | None) -> float:
    """How long a server wants to be left alone; a date is not worth a clock where five seconds are the most."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return float(text) if len(text) < 6 else LONGEST_WAIT
    return LONGEST_WAIT if text else 0.0


async def _drain(response: "httpx2.Response") -> None:
    """Read a little of the answer, out of politeness: the status is known, so nothing here matters."""
    import httpx2

    read = 0
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for chunk in response.aiter_raw():
                read += len(chunk)
                if read >= MOST_READ:
                    return
    except (TimeoutError, httpx2.TransportError, httpx2.StreamError):
        return


def _why(problem: BaseException) -> str:
    """An error of the connection by its kind alone."""
    import httpx2

    cause: BaseException | None = problem
    for _ in range(10):
        if cause is None:
            break
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "the server's certificate does not hold"
        if isinstance(cause, ssl.SSLError):
            return "no secure connection could be made"
        if isinstance(cause, socket.gaierror):
            return "the host cannot be found"
        if isinstance(cause, ConnectionRefusedError):
            return "the connection was refused"
        cause = cause.__cause__ or cause.__context__
    if isinstance(problem, httpx2.ProxyError):
        return "the proxy refused"
    if isinstance(problem, httpx2.ConnectError):
        return "no connection could be made"
    return "the connection broke before an answer came"
