"""Where a notice goes: `${NAME}` references filled in, the address checked, and a form of it that can be shown."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from gert.errors import InputError

OURS: Final = "GERT_"
MAX_URL: Final = 4096

_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,255})\}")
_AUTHORITY: Final = re.compile(r"\A([A-Za-z][A-Za-z0-9+.-]*://)?([^/?#]*)([^?#]*)")


class Expanded(msgspec.Struct, frozen=True):
    """A text with its references filled in, and the values that were: they are secrets."""

    text: str
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Expanded({len(self.secrets)} secrets)"


def expand(text: str, environ: Mapping[str, str]) -> Expanded:
    """Fill in `${NAME}` from the environment, once: a value that looks like a reference stays as it is."""
    pieces = _REFERENCE.split(text)
    if any("${" in literal for literal in pieces[::2]):
        raise InputError("`${` does not begin a reference", hint="write `${NAME}` with the name of a variable")
    for name in pieces[1::2]:
        if name.startswith(OURS):
            # Nor does a tool ever get these: our keys are nobody else's.
            raise InputError(f"the variable `{name}` is gert's own and is not sent")
        if not environ.get(name, "").strip():
            raise InputError(f"the environment variable `{name}` is not set")
    values = [environ[name].strip() for name in pieces[1::2]]
    pieces[1::2] = values
    return Expanded("".join(pieces), tuple(values))


def with_stand_ins(url: str) -> str:
    """An address whose host can be read although variables are not set; empty where one is in the scheme or host."""
    scheme, authority, rest = _AUTHORITY.match(url).groups("")  # type: ignore[union-attr]  # it matches any text
    host = authority.rpartition("@")[2]
    return "" if not scheme or "${" in host else f"{scheme}{host}{_REFERENCE.sub('x', rest)}"


def secret_references(text: str) -> list[str]:
    """The variables whose values an address or a key keeps to itself: all but those that name a host."""
    scheme, authority, _ = _AUTHORITY.match(text).groups("")  # type: ignore[union-attr]  # it matches any text
    host = authority.rpartition("@")[2] if scheme else ""
    return _REFERENCE.findall(text.replace(host, "", 1))


def shown(url: str) -> str:
    """An address before it is expanded, without user, query and fragment: what may be recorded."""
    scheme, authority, path = _AUTHORITY.match(url).groups("")  # type: ignore[union-attr]  # it matches any text
    return f"{scheme}{authority.rpartition('@')[2]}{path}"


def objection(url: str) -> str | None:
    """Why nothing is sent to an address, or None: `https` anywhere, `http` to this machine only.

    The address is read by whoever will connect to it: two readers may disagree about what is the host.
    """
    import httpx2

    # (1) Nothing in it ends a header early, or is read differently by somebody else.
    if len(url) > MAX_URL:
        return "the URL is too long"
    if not url.isascii() or not url.isprintable() or any(character in ' \\"<>^`{|}' for character in url):
        return "the URL holds a character that no URL has"
    try:
        address = httpx2.URL(url)
        port = address.port
    except (httpx2.InvalidURL, ValueError):
        return "the URL cannot be read"
    # (2) It leads somewhere.
    if not address.host or (port is not None and not 0 < port <= 65535):
        return "the URL names no host"
    # (3) What is on the way cannot be read by others.
    if address.scheme == "https" or (address.scheme == "http" and is_loopback(address.host)):
        return None
    return "only https is sent to, or http on this machine"


def destination(url: str) -> tuple[str, int]:
    """The host and port of an address, as whoever connects to it reads them; InputError where nothing can be sent."""
    import httpx2

    why = objection(url)
    if why is not None:
        raise InputError(why)
    address = httpx2.URL(url)
    host = f"[{address.host}]" if ":" in address.host else address.host
    return host.lower(), address.port or (443 if address.scheme == "https" else 80)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its very name or by its address in the usual spelling."""
    from ipaddress import ip_address

    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
