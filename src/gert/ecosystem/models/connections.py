"""Connections to one server: one client per event loop, without cookies, and without a proxy to this machine."""

import asyncio
from typing import TYPE_CHECKING

from gert.ecosystem.models.limits import Limits
from gert.errors import ModelError, ModelPermanentError, ModelTransientError
from gert.kernel.foundation.hosts import is_loopback

if TYPE_CHECKING:
    import httpx2


class Connections:
    """HTTP clients by event loop; each is used and closed in the loop that created it."""

    def __init__(self, base_url: str, limits: Limits) -> None:
        self._base_url = base_url
        self._limits = limits
        self._clients: dict[asyncio.AbstractEventLoop, httpx2.AsyncClient] = {}

    def client(self) -> "httpx2.AsyncClient":
        """Return the client of the running loop."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            for gone in [each for each in list(self._clients) if each.is_closed()]:
                self._clients.pop(gone, None)  # its connections cannot be closed any more
            client = self._clients[loop] = self._create()
        return client

    async def close(self) -> None:
        """Close the client of the running loop; another request opens a new one."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def _create(self) -> "httpx2.AsyncClient":
        from http.cookiejar import CookieJar, DefaultCookiePolicy

        import httpx2

        # Callers limit their concurrency: a request that waited for a free connection would look like a slow answer.
        pool = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
        address = httpx2.URL(self._base_url)
        try:
            # A client with its own transport uses no proxy: requests to this machine do not leave it.
            # Without https no certificates are loaded.
            is_here, is_secret = is_loopback(address.host), address.scheme == "https"
            return httpx2.AsyncClient(
                transport=httpx2.AsyncHTTPTransport(limits=pool, verify=is_secret) if is_here else None,
                limits=pool,
                timeout=httpx2.Timeout(self._limits.timeout_seconds, connect=self._limits.connect_seconds),
                follow_redirects=False,
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            )
        except Exception:  # its message contains the proxy's address, which may contain a password
            raise ModelPermanentError(
                "cannot connect with the proxy and certificates that the environment sets",
                category="configuration",
                hint="check HTTPS_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR",
            ) from None


def connection_error(problem: Exception) -> ModelError:
    """Convert a connection failure to a model error; an untrusted certificate is permanent."""
    import httpx2

    if not isinstance(problem, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError):
        return ModelTransientError("the connection to the model's server broke", category="connection")
    if "CERTIFICATE_VERIFY_FAILED" in str(problem):
        return ModelPermanentError(
            "the certificate of the model's server cannot be verified",
            category="configuration",
            hint="check the base URL; for a private certificate authority set SSL_CERT_FILE",
        )
    return ModelTransientError("cannot connect to the model's server", category="connection")
