"""API keys and the base URLs they may be sent to."""

from typing import TYPE_CHECKING, Final

from gert.errors import InputError
from gert.kernel.foundation.hosts import is_loopback
from gert.kernel.foundation.redaction import Redactor

if TYPE_CHECKING:
    import httpx2

_SHORTEST: Final = 16


class Key:
    """An API key that its `repr` hides."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value.strip()
        if not self._value.isascii() or not self._value.isprintable():
            raise InputError("the API key contains a character that is not printable ASCII")

    def __repr__(self) -> str:
        return "Key(…)"

    def __bool__(self) -> bool:
        return bool(self._value)

    def reveal(self) -> str:
        """Return the key, for the request header."""
        return self._value

    def redactor(self) -> Redactor:
        """Return the redactor that masks the key in text."""
        return Redactor([self._value] if self._value else [])

    def answer_redactor(self) -> Redactor:
        """Return the redactor that masks the key in answers.

        Short keys are not masked there: servers without keys get a word such as `ollama`, which answers may contain.
        """
        return Redactor([self._value] if len(self._value) >= _SHORTEST else [])


def checked_base_url(url: str) -> "httpx2.URL":
    """Check a base URL: `https` anywhere, `http` to this machine only."""
    import httpx2

    try:
        address = httpx2.URL(url.strip().rstrip("/"))
        port = address.port
    except (httpx2.InvalidURL, ValueError, UnicodeError):
        raise InputError("the model's base URL cannot be read") from None
    # (1) It names a host and contains no secret: it may be shown.
    if not address.host or (port is not None and not 0 < port <= 65535):
        raise InputError("the model's base URL has no host")
    if address.userinfo or "?" in url or "#" in url:  # even an empty one: a path is appended
        raise InputError(
            "the model's base URL contains a user, a query or a fragment", hint="pass the key as `api_key`"
        )
    # (2) The connection is encrypted, or stays on this machine.
    if address.scheme != "https" and not (address.scheme == "http" and is_loopback(address.host)):
        raise InputError(
            f"expected the model's base URL to be https, or http on this machine, found `{address.scheme}://{address.host}`"
        )
    return address
