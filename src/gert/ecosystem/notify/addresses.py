"""The address of a webhook: expand `${NAME}` references, check it, and make a form that may be shown."""

import re
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from gert.errors import InputError
from gert.kernel.foundation.hosts import is_loopback

GERT_PREFIX: Final = "GERT_"
MAX_URL: Final = 4096

_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,255})\}")
_AUTHORITY: Final = re.compile(r"\A([A-Za-z][A-Za-z0-9+.-]*://)?([^/?#]*)([^?#]*)")


class Expanded(msgspec.Struct, frozen=True):
    """A text with its references expanded, and their values, which are secrets."""

    text: str
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Expanded({len(self.secrets)} secrets)"


def expand(text: str, environ: Mapping[str, str]) -> Expanded:
    """Expand `${NAME}` from the environment, once: a value that looks like a reference stays unchanged."""
    pieces = _REFERENCE.split(text)
    if any("${" in literal for literal in pieces[::2]):
        raise InputError("`${` does not begin a reference", hint="write `${NAME}` with the name of a variable")
    for name in pieces[1::2]:
        if name.startswith(GERT_PREFIX):
            # No tool gets these either: gert's keys are never sent.
            raise InputError(f"the variable `{name}` is gert's own and is not sent")
        if not environ.get(name, "").strip():
            raise InputError(f"the environment variable `{name}` is not set")
    values = [environ[name].strip() for name in pieces[1::2]]
    pieces[1::2] = values
    return Expanded("".join(pieces), tuple(values))


def with_placeholders(url: str) -> str:
    """Replace references by placeholders, so that the host can be read; empty if one is in the scheme or host."""
    scheme, authority, rest = _AUTHORITY.match(url).groups("")  # type: ignore[union-attr]  # it matches any text
    host = authority.rpartition("@")[2]
    return "" if not scheme or "${" in host else f"{scheme}{host}{_REFERENCE.sub('x', rest)}"


def secret_references(text: str) -> list[str]:
    """Return the variables of an address or key whose values are secret: all but those in the host."""
    scheme, authority, _ = _AUTHORITY.match(text).groups("")  # type: ignore[union-attr]  # it matches any text
    host = authority.rpartition("@")[2] if scheme else ""
    return _REFERENCE.findall(text.replace(host, "", 1))


def shown(url: str) -> str:
    """Return an unexpanded address without user, query and fragment, which may be recorded."""
    scheme, authority, path = _AUTHORITY.match(url).groups("")  # type: ignore[union-attr]  # it matches any text
    return f"{scheme}{authority.rpartition('@')[2]}{path}"


def url_problem(url: str, http_hosts: Collection[str] = ()) -> str | None:
    """Return why an address is refused, or None: `https` anywhere, `http` to this machine and to `http_hosts`.

    The HTTP library that connects also parses the address: two parsers may disagree about the host.
    """
    import httpx2

    # (1) No character ends a header early, or is parsed differently by another library.
    if len(url) > MAX_URL:
        return "the URL is too long"
    if not url.isascii() or not url.isprintable() or any(character in ' \\"<>^`{|}' for character in url):
        return "the URL contains an invalid character"
    try:
        address = httpx2.URL(url)
        port = address.port
    except (httpx2.InvalidURL, ValueError):
        return "the URL cannot be read"
    # (2) It has a host.
    if not address.host or (port is not None and not 0 < port <= 65535):
        return "the URL has no host"
    # (3) The connection is encrypted, or stays on this machine.
    host = f"[{address.host}]" if ":" in address.host else address.host
    is_allowed = is_loopback(address.host) or not {host, f"{host}:{port or 80}"}.isdisjoint(http_hosts)
    if address.scheme == "https" or (address.scheme == "http" and is_allowed):
        return None
    return "the URL must be https, or http on this machine"


def destination(url: str) -> tuple[str, int]:
    """Return the host and port of an address, as the HTTP library parses them; InputError if it is refused."""
    import httpx2

    why = url_problem(url)
    if why is not None:
        raise InputError(why)
    address = httpx2.URL(url)
    host = f"[{address.host}]" if ":" in address.host else address.host
    return host.lower(), address.port or (443 if address.scheme == "https" else 80)
