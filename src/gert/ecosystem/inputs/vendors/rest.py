"""Read JSON from a vendor's REST API: bounded in time, size and attempts; no redirects, certificates verified.

Errors have gert's own messages: those of a library may repeat an address or a header, which contains a credential.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import httpx2
import msgspec

from gert.errors import InputError
from gert.kernel.foundation.hosts import is_loopback
from gert.kernel.foundation.text import one_line

ATTEMPTS: Final = 3
ATTEMPT_SECONDS: Final = 10.0
FIRST_WAIT: Final = 0.5
LONGEST_WAIT: Final = 5.0
"""Seconds before another attempt; a vendor that asks for more is not asked again."""
MAX_BODY: Final = 4 * 1024 * 1024
_RETRIED: Final = frozenset({408, 425, 429})

Params: TypeAlias = Sequence[tuple[str, str]]


class VendorError(InputError):
    """A vendor did not answer as expected; `status` is the HTTP status, if there was one."""

    def __init__(self, message: str, *, status: int | None = None, again_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.again_after = again_after


class Rest:
    """Reads from one API; use it as a context, which keeps the connection open.

    vendor: what messages call it
    headers: sent with every request; they hold the credentials
    message_of: finds the vendor's own words in the body of an error
    """

    def __init__(
        self,
        vendor: str,
        base_url: str,
        headers: Mapping[str, str],
        message_of: Callable[[Any], object],
        *,
        timeout: float = ATTEMPT_SECONDS,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._vendor = vendor
        self._base = require_url(base_url)
        self._headers = {"Accept": "application/json", "Accept-Encoding": "identity", **headers}
        self._message_of = message_of
        self._timeout = timeout
        self._sleep = sleep
        # A client with its own transport uses no proxy: requests to this machine do not leave it.
        own = httpx2.AsyncHTTPTransport(verify=self._base.scheme == "https") if is_loopback(self._base.host) else None
        self._client = httpx2.AsyncClient(transport=own, timeout=timeout, follow_redirects=False)

    async def __aenter__(self) -> "Rest":
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def get(self, path: str, params: Params = ()) -> Any:
        """Return the JSON of a resource; VendorError where there is none."""
        made = 0
        while True:
            made += 1
            try:
                return await self._attempt(path, params)
            except VendorError as problem:
                wait = problem.again_after
                if wait is None or wait > LONGEST_WAIT or made == ATTEMPTS:
                    raise
            await self._sleep(max(wait, FIRST_WAIT * 2 ** (made - 1)))

    async def _attempt(self, path: str, params: Params) -> Any:
        url = self._base.copy_with(path=f"{self._base.path.rstrip('/')}{path}")
        try:
            async with (
                asyncio.timeout(self._timeout),
                self._client.stream("GET", url, params=list(params), headers=self._headers) as response,
            ):
                return self._read_response(response, await self._body(response))
        except (TimeoutError, httpx2.TimeoutException):
            raise VendorError(f"{self._vendor} did not answer within {self._timeout:g} s", again_after=0.0) from None
        except httpx2.TransportError as problem:
            raise self._no_connection(problem) from None

    async def _body(self, response: httpx2.Response) -> bytes:
        parts, size = [], 0
        async for part in response.aiter_raw():
            size += len(part)
            if size > MAX_BODY:
                raise VendorError(f"{self._vendor} answered with more than {MAX_BODY} bytes")
            parts.append(part)
        return b"".join(parts)

    def _read_response(self, response: httpx2.Response, body: bytes) -> Any:
        status = response.status_code
        try:
            found = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = None
            if 200 <= status < 300:
                raise VendorError(f"{self._vendor} answered with something that is not JSON", status=status) from None
        if 200 <= status < 300:
            return found
        raise VendorError(
            f"{self._vendor} {_words(status)}{self._error_detail(found)}",
            status=status,
            again_after=_wait(status, response.headers.get("Retry-After")),
        )

    def _error_detail(self, body: Any) -> str:
        try:
            said = self._message_of(body)
        except (TypeError, KeyError, AttributeError):
            return ""
        return f": {one_line(said, 200)}" if isinstance(said, str) and said.strip() else ""

    def _no_connection(self, problem: httpx2.TransportError) -> VendorError:
        cause: BaseException | None = problem
        for _ in range(10):
            if isinstance(cause, ssl.SSLCertVerificationError):
                return VendorError(f"the certificate of {self._vendor} cannot be verified")
            cause = cause.__cause__ or cause.__context__ if cause is not None else None
        return VendorError(f"the connection to {self._vendor} failed", again_after=0.0)


def require_url(text: str) -> httpx2.URL:
    """The address of an API: https, or http to this machine."""
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, TypeError):
        raise VendorError("the address of the API is not a URL") from None
    if url.userinfo or url.query or url.fragment:
        raise VendorError("the address of the API must be a plain URL, without user, query or fragment")
    if not url.host or not (url.scheme == "https" or (url.scheme == "http" and is_loopback(url.host))):
        raise VendorError(f"the address of the API must begin with https://, found `{one_line(text, 80)}`")
    return url


def _words(status: int) -> str:
    known = {401: "does not accept the credentials", 403: "does not allow that", 404: "has no such record"}
    if status == 429:
        return "limits the rate of requests (429)"
    if 300 <= status < 400:
        return f"answered {status}, and redirects are not followed"
    return f"{known[status]} ({status})" if status in known else f"answered {status}"


def _wait(status: int, retry_after: str | None) -> float | None:
    """How long to wait before another attempt; None if there is no sense in one."""
    if status not in _RETRIED and status < 500:
        return None
    text = (retry_after or "").strip()
    if not text:
        return 0.0
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else LONGEST_WAIT + 1
