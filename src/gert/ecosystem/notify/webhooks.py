"""Post to a webhook: a limited number of attempts within a limited time; the answer is not kept.

Errors have gert's own messages: those of a library or a server may repeat the address, which contains a secret.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from gert.ecosystem.notify.addresses import url_problem
from gert.kernel.foundation.hosts import is_loopback

if TYPE_CHECKING:
    import httpx2

ATTEMPTS: Final = 3
ATTEMPT_SECONDS: Final = 5.0
TOTAL_SECONDS: Final = 20.0
LONGEST_WAIT: Final = 5.0
FIRST_WAIT: Final = 0.5
MAX_READ: Final = 64 * 1024
_DRAIN_SECONDS: Final = 1.0
_RETRIED: Final = frozenset({408, 425, 429})


class Delivery(msgspec.Struct, frozen=True):
    """The result of a delivery.

    status_code: that of the last answer, if any
    error: why it was not delivered, without secrets
    """

    delivered: bool
    attempts: int
    status_code: int | None = None
    error: str | None = None


class _Attempt(msgspec.Struct, frozen=True):
    """One attempt: how it ended, and after how long a retry makes sense."""

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
    """Post with retries; any 2xx is a delivery. Only a cancellation is raised.

    on_attempt: called before each attempt, so that a caller that is cancelled knows how many there were
    """
    refused = url_problem(url)
    if refused is not None:
        return Delivery(False, 0, error=refused)
    tried, made = _Attempt(), 0
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
        tried = _Attempt(tried.status_code, tried.error or f"not delivered within {total:g}s")
    except Exception as problem:  # a failed notification must not fail the run
        tried = _Attempt(tried.status_code, f"it could not be sent ({type(problem).__name__})")
    return Delivery(tried.error is None and made > 0, made, tried.status_code, tried.error)


def _client(url: str, timeout: float) -> "httpx2.AsyncClient":
    import httpx2

    # A client with its own transport uses no proxy: requests to this machine do not leave it.
    local = httpx2.AsyncHTTPTransport() if is_loopback(httpx2.URL(url).host) else None
    return httpx2.AsyncClient(transport=local, timeout=timeout, follow_redirects=False)


async def _attempt(
    client: "httpx2.AsyncClient", url: str, body: bytes, headers: Mapping[str, str], timeout: float
) -> _Attempt:
    import httpx2

    try:
        async with asyncio.timeout(timeout) as limit:
            # Not compressed: a small answer must not expand to a large one.
            sent = {"Accept-Encoding": "identity", **headers}
            async with client.stream("POST", url, content=body, headers=sent) as response:
                limit.reschedule(None)
                tried = _classified(response.status_code, response.headers.get("Retry-After"))
                await _drain(response)
                return tried
    except (TimeoutError, httpx2.TimeoutException):
        return _Attempt(error=f"no answer within {timeout:g}s", again_after=0.0)
    except (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol, httpx2.InvalidURL):
        return _Attempt(error="the request is invalid")
    except httpx2.TransportError as problem:
        return _Attempt(error=_reason(problem), again_after=0.0)


def _classified(status: int, retry_after: str | None) -> _Attempt:
    if 200 <= status < 300:
        return _Attempt(status)
    if 300 <= status < 400:
        # The target is neither shown nor followed: the notification is meant for this address.
        return _Attempt(status, f"the server answered {status}, and redirects are not followed")
    error = f"the server answered {status}"
    if status in _RETRIED or status >= 500:
        return _Attempt(status, error, again_after=_seconds(retry_after))
    return _Attempt(status, error)


def _seconds(retry_after: str | None) -> float:
    """Return the seconds a server asks to wait; a date counts as the maximum of five seconds."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return float(text) if len(text) < 6 else LONGEST_WAIT
    return LONGEST_WAIT if text else 0.0


async def _drain(response: "httpx2.Response") -> None:
    """Read the beginning of the answer, so that the connection closes cleanly; errors do not matter."""
    import httpx2

    read = 0
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for chunk in response.aiter_raw():
                read += len(chunk)
                if read >= MAX_READ:
                    return
    except (TimeoutError, httpx2.TransportError, httpx2.StreamError):
        return


def _reason(problem: BaseException) -> str:
    """Describe a connection error by its kind alone."""
    import httpx2

    cause: BaseException | None = problem
    for _ in range(10):
        if cause is None:
            break
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "the server's certificate cannot be verified"
        if isinstance(cause, ssl.SSLError):
            return "the TLS handshake failed"
        if isinstance(cause, socket.gaierror):
            return "the host cannot be found"
        if isinstance(cause, ConnectionRefusedError):
            return "the connection was refused"
        cause = cause.__cause__ or cause.__context__
    if isinstance(problem, httpx2.ProxyError):
        return "the proxy refused"
    if isinstance(problem, httpx2.ConnectError):
        return "the connection failed"
    return "the connection broke before an answer arrived"
