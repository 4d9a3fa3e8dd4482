"""Requests leave here: the network policy is applied where the bytes go out, to the address that was checked.

Nothing between this module and the vendor's server decides: no proxy, no redirect unless the policy allows it, no
second lookup of the name, no encoding that could hide how long a response is.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import Final
from urllib.parse import urljoin, urlsplit

import h11
import msgspec

from gert.errors import Refused
from gert.kernel.governance.network import HTTPS_PORT, Address, Network, NetworkPolicy, is_allowed

_CHUNK: Final = 64 * 1024
_MAX_HEAD: Final = 64 * 1024
_MAX_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_OURS: Final = (
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "accept-encoding",
    "expect",
    "upgrade",
    "te",
)

Lookup = Callable[[str], Awaitable[Sequence[str]]]
"""Finds the addresses of a name."""


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """What this runner can reach, beside the policy of a plan.

    addresses: domains that are not looked up
    private: networks that are not public and may still be connected to
    """

    context: ssl.SSLContext
    addresses: Mapping[str, tuple[Address, int]] = msgspec.field(default_factory=dict)
    private: tuple[Network, ...] = ()
    lookup: Lookup | None = None


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A request with its secret in it; it must not be recorded."""

    method: str
    host: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""
    secret_headers: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"Outgoing({self.method} {self.host})"


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """A response, cut at the limit of the policy.

    url: where it comes from, after redirects
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    address: str
    is_cut: bool = False
    url: str = ""


class Meter:
    """Counts requests that began, which the policy limits, and messages whose first byte has left, for the record."""

    def __init__(self) -> None:
        self.begun = 0
        self.sent = 0


async def send(request: Outgoing, policy: NetworkPolicy, reach: Reach, meter: Meter) -> Received:
    """Send a request and read the response; Refused where the policy does not allow it, or it fails."""
    # Counted before anything is waited for: requests at the same time are no way around it.
    if meter.begun >= policy.max_requests:
        raise Refused("network/requests", f"expected at most {policy.max_requests} requests")
    meter.begun += 1
    first = request.host
    for _ in range(_MAX_REDIRECTS + 1):
        received = await _exchange(request, policy, reach, meter)
        if received.status not in _REDIRECTS:
            return msgspec.structs.replace(received, url=f"https://{request.host}{request.target}")
        request = _redirected(request, received, policy, first)
    raise Refused("network/redirect", f"the vendor redirected more than {_MAX_REDIRECTS} times")


def _redirected(request: Outgoing, received: Received, policy: NetworkPolicy, first: str) -> Outgoing:
    """Return the request a redirect asks for; the secret goes to the first host only."""
    location = next((value for name, value in received.headers if name == "location"), "")
    if not policy.redirects or request.method not in ("GET", "HEAD"):
        raise RefusedResponse(
            "network/redirect", "the vendor answered with a redirect, which is not followed", received
        )
    try:
        parts = urlsplit(urljoin(f"https://{request.host}{request.target}", location))
        port = parts.port
    except ValueError:
        raise RefusedResponse("network/redirect", "the vendor redirected to what is not a URL", received) from None
    if parts.scheme != "https" or port not in (None, HTTPS_PORT) or parts.username is not None:
        raise RefusedResponse("network/redirect", "the vendor redirected to what is not plain https", received)
    host = parts.hostname or ""
    kept = tuple(pair for pair in request.headers if host == first or pair[0] not in request.secret_headers)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not target.isascii() or any(character <= " " for character in target):
        raise RefusedResponse("network/redirect", "the vendor redirected to what is not a URL", received)
    # The body may hold the secret, and a redirected GET has no need of one.
    return msgspec.structs.replace(request, host=host, target=target, headers=kept, body=b"")


class RefusedResponse(Refused):
    """A response that is not used; it is kept for the artifacts."""

    def __init__(self, rule: str, message: str, received: Received) -> None:
        super().__init__(rule, message)
        self.received = received


async def _exchange(request: Outgoing, policy: NetworkPolicy, reach: Reach, meter: Meter) -> Received:
    # (1) The host and the method are allowed.
    objection = policy.objection(request.method, request.host)
    if objection is not None:
        raise Refused("network/policy", f"the request is refused: {objection}")
    # (2) The name stands for addresses that may be connected to; the connection goes to the one that was checked.
    address, port = await _address(request.host, reach)
    # (3) The server proves that it is the host.
    reader, writer = await _connect(request.host, address, port, reach.context)
    try:
        # (4) From here on the vendor may have the request.
        meter.sent += 1
        received = await _talk(request, policy.max_response_bytes, reader, writer, str(address))
    finally:
        writer.transport.abort()
    # (5) What is kept is what was sent: no other encoding than identity.
    encoding = next((value for name, value in received.headers if name == "content-encoding"), "identity")
    if encoding.strip().lower() not in ("", "identity"):
        raise RefusedResponse(
            "response/encoding", "the response is compressed although that was not accepted", received
        )
    return received


async def _address(host: str, reach: Reach) -> tuple[Address, int]:
    """Return the address to connect to; one address that may not be connected to refuses them all."""
    pinned = reach.addresses.get(host)
    if pinned is not None:
        found, port = [pinned[0]], pinned[1]
    else:
        found, port = await _looked_up(host, reach.lookup or look_up), HTTPS_PORT
    for address in found:
        if not is_allowed(address, reach.private):
            raise Refused("network/address", f"`{host}` stands for `{address}`, which is not a public address")
    return found[0], port


async def _looked_up(host: str, lookup: Lookup) -> list[Address]:
    try:
        # A zone (`fe80::1%eth0`) is dropped: such an address is not public anyway.
        found = [ip_address(text.partition("%")[0]) for text in dict.fromkeys(await lookup(host))]
    except (OSError, UnicodeError, ValueError):
        raise Refused("transport/lookup", f"the name `{host}` cannot be looked up") from None
    if not found:
        raise Refused("transport/lookup", f"the name `{host}` has no address")
    return found


async def look_up(host: str) -> Sequence[str]:
    """Ask the system for the addresses of a name, once."""
    import socket

    found = await asyncio.get_running_loop().getaddrinfo(host, HTTPS_PORT, type=socket.SOCK_STREAM)
    return [str(each[4][0]) for each in found]


async def _connect(
    host: str, address: Address, port: int, context: ssl.SSLContext
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        return await asyncio.open_connection(str(address), port, ssl=context, server_hostname=host, limit=_CHUNK)
    except ssl.SSLError as problem:
        reason = getattr(problem, "verify_message", "") or problem.reason or "the handshake failed"
        raise Refused("transport/tls", f"`{host}` does not prove who it is: {str(reason).lower()}") from None
    except OSError as problem:
        why = (problem.strerror or "no connection").lower()
        raise Refused("transport/connect", f"`{host}` cannot be reached: {why}") from None


async def _talk(
    request: Outgoing, limit: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str
) -> Received:
    peer = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD)
    try:
        writer.write(_encoded(peer, request))
        await writer.drain()
        return await _read(peer, reader, limit, address)
    except h11.RemoteProtocolError:
        raise Refused("transport/protocol", "the vendor did not answer with HTTP") from None
    except (ssl.SSLError, OSError, EOFError):
        raise Refused("transport/broken", "the connection broke before the response was complete") from None


def _encoded(peer: h11.Connection, request: Outgoing) -> bytes:
    headers = [(name, value) for name, value in request.headers if name not in _OURS]
    headers += [("host", request.host), ("accept-encoding", "identity"), ("connection", "close")]
    if request.body or request.method in ("POST", "PUT", "PATCH"):
        headers.append(("content-length", str(len(request.body))))
    try:
        lines = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers]
        head = h11.Request(method=request.method, target=request.target, headers=lines)
        pieces = [peer.send(head), peer.send(h11.Data(data=request.body)) if request.body else b""]
        pieces.append(peer.send(h11.EndOfMessage()))
    except (h11.LocalProtocolError, UnicodeEncodeError):
        # What the library says may hold the header, and so the secret.
        raise Refused("secret/form", "the secret, or another header of the request, cannot stand in a header") from None
    return b"".join(each or b"" for each in pieces)


async def _read(peer: h11.Connection, reader: asyncio.StreamReader, limit: int, address: str) -> Received:
    head: h11.Response | None = None
    body = bytearray()
    while True:
        event = peer.next_event()
        if event is h11.NEED_DATA:
            peer.receive_data(await reader.read(_CHUNK))
        elif isinstance(event, h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > limit:
                return _received(head, bytes(body[:limit]), address, is_cut=True)
        elif isinstance(event, h11.EndOfMessage):
            return _received(head, bytes(body), address)
        elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            raise EOFError


def _received(head: h11.Response | None, body: bytes, address: str, *, is_cut: bool = False) -> Received:
    if head is None:
        raise EOFError
    headers = tuple((name.decode("latin-1"), _header(value)) for name, value in head.headers)
    return Received(status=head.status_code, headers=headers, body=body, address=address, is_cut=is_cut)


def _header(value: bytes) -> str:
    """The text of a header: a secret in UTF-8 that is read as Latin-1 would not be found in it."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Return how servers are verified; Refused where the certificates cannot be read."""
    # Not `create_default_context`: with it, a variable of the environment makes the keys of a session readable.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if ca_file is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(cafile=ca_file)
    except (OSError, ssl.SSLError) as problem:
        why = (getattr(problem, "strerror", None) or "they are not certificates").lower()
        raise Refused("transport/tls", f"the certificates in `{ca_file}` cannot be read: {why}") from None
    context.set_alpn_protocols(["http/1.1"])
    return context
