"""Links that only those have who were told: a secret per ticket in the address, and one per form that was shown.

The secret behind both stays in the folder of the tickets, for its owner alone. Whoever can read it can read, and
answer, the tickets themselves.
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

KEPT_IN: Final = "page.key"
SECRET_BYTES: Final = 32
FORM_AGE: Final = timedelta(hours=12)
"""How long a page may be looked at before its buttons stop working."""

_MOST_USED: Final = 10_000
_LONGEST: Final = 300
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class Links:
    """The secrets of the pages of one folder of tickets; made when somebody is first given a link."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._key: Key | None = None

    def make(self) -> None:
        """Make the secret, where there is none yet."""
        self._made()

    def token(self, ticket_id: str) -> str:
        """What the address of a ticket's page ends with."""
        return sign(self._made(), _about("page", ticket_id)).value

    def fits(self, ticket_id: str, token: str) -> bool:
        """Whether somebody was given this link."""
        return self.is_there and _holds(self._secret(), token, _about("page", ticket_id))

    def look(self, ticket_id: str) -> str:
        """The same for people who may look, and answer elsewhere."""
        return sign(self._made(), _about("look", ticket_id)).value

    def shows(self, ticket_id: str, token: str) -> bool:
        """Whether somebody with this link may look."""
        return self.is_there and any(_holds(self._secret(), token, _about(to, ticket_id)) for to in ("page", "look"))

    @property
    def is_there(self) -> bool:
        """Whether there is a folder; looking does not make it."""
        return self._key is not None or os.path.isdir(self._folder)

    @property
    def mark(self) -> str:
        """What tells this folder from others, and tells nothing else about it."""
        return sign(self._secret(), _about("folder")).value[:16]

    def proof(self, challenge: str, address: str) -> str:
        """What only whoever serves this folder can say, and nobody can repeat elsewhere or to the next who asks."""
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


class Forms:
    """Tokens for forms: bound to a ticket, what it asks, and a browser; each is good once.

    The key lives as long as the process, and so does the memory of what was used: no token outlives that memory.
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
            # Whoever sends a form so old a second time is told by the ticket that it was answered.
            self._used.popitem(last=False)
        return True

    def release(self, token: str) -> None:
        """Let a token be used again: what it was used for was not recorded."""
        self._used.pop(token.partition(".")[0], None)

    def came_to(self, token: str, outcome: str | None = None) -> str:
        """What became of the answer that a form was used for; said, it is remembered."""
        once = token.partition(".")[0]
        if outcome is not None and once in self._used:
            self._used[once] = outcome
        return self._used.get(once, "")


def new_browser() -> str:
    """A value that tells one browser from another."""
    return secrets.token_urlsafe(24)


def new_challenge() -> str:
    """A value that nobody was asked about before."""
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
    """The secret of a folder; the first who needs it makes it."""
    path = os.path.join(folder, KEPT_IN)
    try:
        with suppress(FileNotFoundError):
            return _read(path)
        _make(path)
        return _read(path)
    except OSError as problem:
        raise _not_kept(path, problem) from None


def _not_kept(path: str, problem: OSError) -> TraceError:
    why = (problem.strerror or str(problem)).lower()
    return TraceError(f"the secret of the pages cannot be kept in `{path}`: {why}")


def _read(path: str) -> bytes:
    with open(path, "rb", opener=lambda name, _: os.open(name, _FLAGS)) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise TraceError(f"`{path}` is not a regular file")
        if os.name == "posix" and found.st_uid not in (os.geteuid(), os.stat(os.path.dirname(path)).st_uid):
            raise TraceError(f"`{path}` belongs to another user, who could answer in anybody's name")
        if os.name == "posix" and found.st_mode & 0o077:
            raise TraceError(f"others may read `{path}`, and so answer in anybody's name", hint=f"chmod 600 {path}")
        secret = file.read(SECRET_BYTES + 1)
    if len(secret) != SECRET_BYTES:
        raise TraceError(f"`{path}` does not hold a secret", hint="remove it; links that were sent stop working")
    return secret


def _make(path: str) -> None:
    """Make the secret, unless another process has made it meanwhile."""
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
