"""Connections to one server: each event loop has its own, none keeps a cookie, and to this machine none has a proxy."""

import asyncio
from typing import TYPE_CHECKING

from gert.ecosystem.models.keys import is_loopback
from gert.ecosystem.models.limits import Limits
from gert.errors import ModelError, ModelPermanentError, ModelTransientError

if TYPE_CHECKING:
    import httpx2


class Connections:
    """The connections of every loop that asks; they belong to the loop they were made in, and are closed in it."""

    def __init__(self, base_url: str, limits: Limits) -> None:
        self._base_url = base_url
        self._limits = limits
        self._clients: dict[asyncio.AbstractEventLoop, httpx2.AsyncClient] = {}

    def here(self) -> "httpx2.AsyncClient":
        """The client of the running loop."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            for gone in [each for each in list(self._clients) if each.is_closed()]:
                self._clients.pop(gone, None)  # nobody can close its connections any more
            client = self._clients[loop] = self._made()
        return client

    async def close(self) -> None:
        """Close those of the running loop; another request opens new ones."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def _made(self) -> "httpx2.AsyncClient":
        from http.cookiejar import CookieJar, DefaultCookiePolicy

        import httpx2

        # How many ask at once is for them to say: whoever waited here for a turn would seem to wait for an answer.
        pool = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
        address = httpx2.URL(self._base_url)
        try:
            # With a transport of its own a client uses no proxy: what is meant for this machine does not leave it.
            # Without https there is no certificate, so that nothing is loaded to verify one.
            is_here, is_secret = is_loopback(address.host), address.scheme == "https"
            return httpx2.AsyncClient(
                transport=httpx2.AsyncHTTPTransport(limits=pool, verify=is_secret) if is_here else None,
                limits=pool,
                timeout=httpx2.Timeout(self._limits.timeout_seconds, connect=self._limits.connect_seconds),
                follow_redirects=False,
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            )
        except Exception:  # whatever it is, its words hold the proxy's address, and that may hold a password
            raise ModelPermanentError(
                "no connection can be made with the proxy and certificates this environment names",
                category="configuration",
                hint="check HTTPS_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR",
            ) from None


def unconnected(problem: Exception) -> ModelError:
    """What a connection that fails comes to; a certificate that is not trusted now will not be in a second either."""
    import httpx2

    if not isinstance(problem, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError):
        return ModelTransientError("the connection to the model's server broke", category="connection")
    if "CERTIFICATE_VERIFY_FAILED" in str(problem):
        return ModelPermanentError(
            "the certificate of the model's server cannot be verified",
            category="configuration",
            hint="check the base URL, and where an authority of your own has signed it, SSL_CERT_FILE",
        )
    return ModelTransientError("no connection to the model's server could be made", category="connection")
