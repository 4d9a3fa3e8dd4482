"""Network policy: which requests may leave, and which addresses a name may stand for."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

import msgspec

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

HTTPS_PORT = 443


class NetworkPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What may leave a runner; a plan carries it in this form."""

    domains: tuple[str, ...]
    methods: tuple[str, ...]
    max_response_bytes: int
    redirects: bool = False
    max_requests: int = 1

    def wider_than(self, other: "NetworkPolicy") -> str | None:
        """Return what this policy allows beyond another one; None if it allows nothing more."""
        for what, mine, theirs in (("domain", self.domains, other.domains), ("method", self.methods, other.methods)):
            if more := sorted(set(mine) - set(theirs)):
                return f"the {what} `{more[0]}`"
        if self.max_response_bytes > other.max_response_bytes:
            return f"responses of {self.max_response_bytes} bytes"
        if self.max_requests > other.max_requests:
            return f"{self.max_requests} requests"
        return "redirects" if self.redirects and not other.redirects else None

    def objection(self, method: str, host: str) -> str | None:
        """Return why a request may not leave, or None."""
        if host not in self.domains:
            return f"the host `{host}` is not among the allowed domains"
        if method not in self.methods:
            return f"the method `{method}` is not among the allowed methods"
        return None


def read_network(text: str) -> Network | None:
    """Read a network such as `10.1.0.0/16`, or one address; None if it is neither."""
    try:
        return ip_network(text)
    except ValueError:
        return None


def read_address(text: str) -> tuple[Address, int] | None:
    """Read an address such as `10.1.2.3:8443` or `[::1]:8443`; the port is 443 when left out."""
    host, port = text, ""
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        host, port = (host, port.removeprefix(":")) if bracket else ("", "")
    elif ":" in text:
        host, _, port = text.partition(":")
    try:
        number = int(port) if port else HTTPS_PORT
        return (ip_address(host), number) if 0 < number < 65536 else None
    except ValueError:
        return None


def is_public(address: Address) -> bool:
    """Whether an address is on the public internet, also where IPv6 carries an IPv4 address."""
    for inner in _carried(address):
        if not is_public(inner):
            return False
    return address.is_global and not address.is_multicast and not any(_is_in(address, each) for each in _LOCAL)


def _carried(address: Address) -> list[Address]:
    """Return the IPv4 addresses that an IPv6 address stands for."""
    if not isinstance(address, IPv6Address):
        return []
    found: list[Address | None] = [address.ipv4_mapped, address.sixtofour]
    if address.teredo is not None:
        found += address.teredo
    if any(address in each for each in _CARRIERS):
        found.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return [each for each in found if each is not None]


# NAT64, IPv4-translated and IPv4-compatible addresses: an IPv4 address in the last 32 bits.
_CARRIERS = (IPv6Network("64:ff9b::/96"), IPv6Network("::ffff:0:0:0/96"), IPv6Network("::/96"))
# A network's own NAT64, and the site-local addresses of old, which Python takes for public.
_LOCAL = (IPv6Network("64:ff9b:1::/48"), IPv6Network("fec0::/10"))


def is_allowed(address: Address, private: tuple[Network, ...]) -> bool:
    """Whether an address may be connected to: it is public, or in a listed network."""
    return is_public(address) or any(_is_in(address, each) for each in private)


def _is_in(address: Address, network: Network) -> bool:
    return address.version == network.version and address in network
