"""Tokens of the pages: one per ticket in its link, and one per form that was shown.

Both are signed. The key of the links is a file that only its owner can read; a user who can read it can also read and
answer the tickets themselves.
"""

import base64
import os
import secrets
import stat
from collections import OrderedDict
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from gert.errors import IntegrityError, TraceError
from gert.kernel.foundation.canonical import canonical
from gert.kernel.foundation.signature import HMAC_SHA256, Key, Keys, Signature, parse_key, sign, verify
from gert.kernel.foundation.text import os_reason

KEPT_IN: Final = "page.key"
SECRET_BYTES: Final = 32
FORM_AGE: Final = timedelta(hours=12)
"""How long a page may be looked at before its buttons stop working."""

_MOST_USED: Final = 10_000
_LONGEST: Final = 300
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class LinkTokens:
    """The link tokens of one folder; its key is created for the first link."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._key: Key | None = None

    def make(self) -> None:
        """Create the key, if there is none."""
        self._made()

    def token(self, ticket_id: str) -> str:
        """The token in the link to a ticket's page."""
        return sign(self._made(), _about("page", ticket_id)).value

    def fits(self, ticket_id: str, token: str) -> bool:
        """Whether a token is the one of the link to a ticket's page."""
        return self.is_there and _holds(self._secret(), token, _about("page", ticket_id))

    def look(self, ticket_id: str) -> str:
        """The token of a link that shows the page without a form."""
        return sign(self._made(), _about("look", ticket_id)).value

    def shows(self, ticket_id: str, token: str) -> bool:
        """Whether a token may show the page of a ticket."""
        return self.is_there and any(_holds(self._secret(), token, _about(to, ticket_id)) for to in ("page", "look"))

    @property
    def is_there(self) -> bool:
        """Whether the folder exists; it is not created here."""
        return self._key is not None or os.path.isdir(self._folder)

    @property
    def mark(self) -> str:
        """An identifier of this folder that reveals nothing else about it."""
        return sign(self._secret(), _about("folder")).value[:16]

    def proof(self, challenge: str, address: str) -> str:
        """Proves that a server has the key of this folder; bound to the challenge and the address."""
        return sign(self._secret(), _about("proof", challenge, address)).value

    def _made(self) -> Key:
        if not self.is_there:
            try:
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
            except OSError as problem:
                raise _not_kept(self._folder, problem) from None
        return self._secret()

    def _secret(self) -> Key:
        if self._key is None:
            self._key = _as_key(_kept(self._folder))
        return self._key


class FormTokens:
    """Tokens for forms: bound to a ticket, its request and a browser; each can be used once.

    The key and the list of used tokens both live as long as the process, so no token outlives the list.
    """

    def __init__(self) -> None:
        self._key = _as_key(secrets.token_bytes(SECRET_BYTES))
        self._used: OrderedDict[str, str] = OrderedDict()

    def token(self, ticket_id: str, request_hash: str, browser: str, now: datetime) -> str:
        """A token for a form that is shown now."""
        once, moment = secrets.token_hex(16), str(int(now.timestamp()))
        mark = sign(self._key, _about("form", ticket_id, request_hash, browser, once, moment)).value
        return f"{once}.{moment}.{mark}"

    def fits(self, token: str, ticket_id: str, request_hash: str, browser: str, now: datetime) -> bool:
        """Whether a form was shown to this browser, about this, and not too long ago."""
        once, _, rest = token.partition(".")
        moment, _, mark = rest.partition(".")
        if not browser or not (moment.isascii() and moment.isdigit() and len(moment) < 16):
            return False
        fresh = abs(now.timestamp() - int(moment)) <= FORM_AGE.total_seconds()
        return fresh and _holds(self._key, mark, _about("form", ticket_id, request_hash, browser, once, moment))

    def use(self, token: str) -> bool:
        """Use a token that fits; False where it was used before."""
        once = token.partition(".")[0]
        if once in self._used:
            return False
        self._used[once] = ""
        while len(self._used) > _MOST_USED:
            # A form that old is refused by the ticket, which was answered.
            self._used.popitem(last=False)
        return True

    def release(self, token: str) -> None:
        """Let a token be used again: its response was not recorded."""
        self._used.pop(token.partition(".")[0], None)

    def set_result(self, token: str, result: str) -> None:
        """Keep the result of the response that a token was used for."""
        once = token.partition(".")[0]
        if once in self._used:
            self._used[once] = result

    def result(self, token: str) -> str:
        """The result of the response that a token was used for."""
        return self._used.get(token.partition(".")[0], "")


def new_browser() -> str:
    """A random id for a browser."""
    return secrets.token_urlsafe(24)


def new_challenge() -> str:
    """A random challenge, never used before."""
    return secrets.token_urlsafe(24)


def _about(*words: str) -> bytes:
    return canonical(list(words))


def _holds(key: Key, token: str, message: bytes) -> bool:
    if not token or len(token) > _LONGEST or not token.isascii():
        return False
    try:
        verify(Keys([key]), Signature(HMAC_SHA256, key.id, token), message)
    except IntegrityError:
        return False
    return True


def _as_key(secret: bytes) -> Key:
    return parse_key("base64:" + base64.b64encode(secret).decode(), "page")


def _kept(folder: str) -> bytes:
    """Read the key of a folder, or create it."""
    path = os.path.join(folder, KEPT_IN)
    try:
        with suppress(FileNotFoundError):
            return _read(path)
        _make(path)
        return _read(path)
    except OSError as problem:
        raise _not_kept(path, problem) from None


def _not_kept(path: str, problem: OSError) -> TraceError:
    why = os_reason(problem)
    return TraceError(f"the key of the pages `{path}` cannot be used: {why}")


def _read(path: str) -> bytes:
    with open(path, "rb", opener=lambda name, _: os.open(name, _FLAGS)) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise TraceError(f"`{path}` is not a regular file")
        if os.name == "posix" and found.st_uid not in (os.geteuid(), os.stat(os.path.dirname(path)).st_uid):
            raise TraceError(f"`{path}` belongs to another user, who could respond as any approver")
        if os.name == "posix" and found.st_mode & 0o077:
            raise TraceError(f"other users can read `{path}` and respond as any approver", hint=f"chmod 600 {path}")
        secret = file.read(SECRET_BYTES + 1)
    if len(secret) != SECRET_BYTES:
        raise TraceError(f"`{path}` is not a key", hint="remove it; links that were sent stop working")
    return secret


def _make(path: str) -> None:
    """Create the key, unless another process has created it meanwhile."""
    temporary = f"{path}.{secrets.token_hex(8)}"
    try:
        with open(temporary, "wb", opener=lambda name, _: os.open(name, _NEW, 0o600)) as file:
            file.write(secrets.token_bytes(SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
