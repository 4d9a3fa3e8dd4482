"""The addresses of the pages: where the server listens, the URLs of tickets, and which host names are accepted."""

import re
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from gert.ecosystem.host.channels.page_tokens import FormTokens, LinkTokens
from gert.ecosystem.notify.addresses import url_problem
from gert.errors import InputError, UsageError
from gert.kernel.foundation.hosts import is_loopback
from gert.kernel.foundation.text import printable

_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):([0-9]{1,5})\Z")
_PORTS: Final = {"http": 80, "https": 443}
_LOCAL: Final = ("localhost", "127.0.0.1", "[::1]")


class Listen(NamedTuple):
    """An address to listen at."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    @property
    def is_everywhere(self) -> bool:
        """Whether it is every address of this machine."""
        return self.host in ("0.0.0.0", "::")  # noqa: S104 - recognized, not chosen


def parse_listen(text: str) -> Listen:
    """Read `HOST:PORT`."""
    found = _ADDRESS.match(text)
    if found is None or int(found[3]) > 65535:
        raise UsageError(f"`{printable(text)}` is not an address to listen at", hint="write for example 127.0.0.1:8765")
    return Listen(found[1] or found[2], int(found[3]))


class PageUrls:
    """The URLs of the pages of one folder of tickets.

    listen: the address the server listens at, if there is one
    base_url: the public address, if it is another one
    """

    def __init__(self, folder: str, listen: Listen | None = None, base_url: str | None = None) -> None:
        self.links = LinkTokens(folder)
        self.forms = FormTokens()
        self.listen = listen
        self._base_url = base_url.rstrip("/") if base_url else None
        refused = _url_problem(base_url) if base_url else None
        if refused is not None:
            raise InputError(f"the `base_url` is invalid: {refused}")

    @property
    def base(self) -> str | None:
        """The beginning of every link; None without a server."""
        if self._base_url is not None:
            return self._base_url
        if self.listen is None or not self.listen.port:
            return None
        # A link needs one address: the loopback one of the same IP version.
        local = self.listen._replace(host="::1" if self.listen.host == "::" else "127.0.0.1")
        return f"http://{local if self.listen.is_everywhere else self.listen}"

    @property
    def is_secure(self) -> bool:
        """Whether the public address is https."""
        return (self.base or "").startswith("https://")

    def page_url(self, ticket_id: str) -> str | None:
        """The page of a ticket; anyone with this URL can respond."""
        return None if self.base is None else f"{self.base}/t/{ticket_id}?k={self.links.token(ticket_id)}"

    def look_url(self, ticket_id: str) -> str | None:
        """The page of a ticket without a form, for approvers who respond in a channel that identifies them."""
        return None if self.base is None else f"{self.base}/t/{ticket_id}?k={self.links.look(ticket_id)}"

    def callback_url(self, ticket_id: str) -> str | None:
        """The URL for signed responses; it contains no secret."""
        return None if self.base is None else f"{self.base}/callback/{ticket_id}"

    def proof(self, challenge: str) -> str:
        """Proves that these tickets are served at this address."""
        return self.links.proof(challenge, _where(self.listen))

    def proofs(self, challenge: str) -> set[str]:
        """The proofs that a server at this address may give: it may listen at this address, or at all addresses."""
        if self.listen is None or not self.links.is_there:
            return set()
        anywhere = "::" if ":" in self.listen.host else "0.0.0.0"  # noqa: S104 - recognized, not chosen
        places = (self.listen, self.listen._replace(host=anywhere))
        return {self.links.proof(challenge, _where(place)) for place in places}

    def accepts_host(self, host: str | None) -> bool:
        """Whether a `Host` is ours: another site whose name resolves to us must not act for a user's browser."""
        if not host or len(host) > 255:
            return False
        return any(self._is_named(host.lower(), scheme) for scheme in _PORTS)

    def is_origin(self, origin: str) -> bool:
        """Whether an `Origin` is one of our pages: the same name over http may belong to another site."""
        scheme, _, host = origin.partition("://")
        return scheme in _PORTS and len(host) <= 255 and self._is_named(host.lower(), scheme)

    def _is_named(self, host: str, scheme: str) -> bool:
        if host in self._names(scheme):
            return True
        # A name can resolve to any address; an address cannot be redirected.
        listen = self.listen if scheme == "http" else None
        return listen is not None and listen.is_everywhere and _is_address(host, listen.port)

    def _names(self, scheme: str) -> set[str]:
        names: set[str] = set()
        found = urlsplit(self._base_url or "")
        if found.scheme == scheme:
            bare = f"[{found.hostname}]" if ":" in (found.hostname or "") else found.hostname or ""
            names |= _spelled(bare, found.port or _PORTS[found.scheme], _PORTS[found.scheme])
        if self.listen is not None and scheme == "http":
            bare = str(self.listen).lower().rpartition(":")[0]
            for name in {bare, *_LOCAL} if self.listen.is_local or self.listen.is_everywhere else {bare}:
                names |= _spelled(name, self.listen.port, _PORTS["http"])
        return names


def _url_problem(url: str) -> str | None:
    """Why a URL cannot be used as a public address."""
    try:
        return url_problem(url) if urlsplit(url).port != 0 else "the URL names no host"
    except ValueError:
        return "the URL cannot be read"


def _where(listen: Listen | None) -> str:
    """An address in its normal form."""
    if listen is None:
        return ""
    return str(listen._replace(host="127.0.0.1") if listen.host.lower() == "localhost" else listen).lower()


def _spelled(name: str, port: int, usual: int) -> set[str]:
    """A name with its port, and without it if that is the default."""
    return {f"{name}:{port}", name} if port == usual else {f"{name}:{port}"}


def _is_address(host: str, port: int) -> bool:
    name, _, said = host.rpartition(":")
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return said == str(port)
