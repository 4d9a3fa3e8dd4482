"""API keys and the addresses they may be sent to."""

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from gert.errors import InputError
from gert.kernel.foundation.redaction import Redactor

if TYPE_CHECKING:
    import httpx2

_SHORTEST: Final = 16


class Key:
    """An API key that does not show itself."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value.strip()
        if not self._value.isascii() or not self._value.isprintable():
            raise InputError("the API key holds a character that no key has")

    def __repr__(self) -> str:
        return "Key(…)"

    def __bool__(self) -> bool:
        return bool(self._value)

    def reveal(self) -> str:
        """The key itself, for the one header it belongs in."""
        return self._value

    def redactor(self) -> Redactor:
        """What takes the key out of texts."""
        return Redactor([self._value] if self._value else [])

    def answer_redactor(self) -> Redactor:
        """What takes the key out of answers.

        Servers without keys are given a word such as `ollama` for one, and that occurs in answers by chance.
        """
        return Redactor([self._value] if len(self._value) >= _SHORTEST else [])


def checked_base_url(url: str) -> "httpx2.URL":
    """The address requests go below: `https` anywhere, `http` to this machine only."""
    import httpx2

    try:
        address = httpx2.URL(url.strip().rstrip("/"))
        port = address.port
    except (httpx2.InvalidURL, ValueError, UnicodeError):
        raise InputError("the model's base URL cannot be read") from None
    # (1) It leads somewhere, and holds nothing secret: what is in it may be shown.
    if not address.host or (port is not None and not 0 < port <= 65535):
        raise InputError("the model's base URL names no host")
    if address.userinfo or "?" in url or "#" in url:  # also an empty one: a path is put behind it
        raise InputError("the model's base URL holds a user, a query or a fragment", hint="pass the key as `api_key`")
    # (2) What is on the way cannot be read by others.
    if address.scheme != "https" and not (address.scheme == "http" and is_loopback(address.host)):
        raise InputError(
            f"the model's base URL must be https, or http on this machine, and is `{address.scheme}://{address.host}`"
        )
    return address


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its very name or by its address in the usual spelling."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
