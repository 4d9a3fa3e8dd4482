"""The DSN of a Postgres ledger; its password is never shown."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from gert.errors import UsageError
from gert.kernel.foundation.redaction import Redactor

FROM_ENVIRONMENT: Final = "env:"
_SCHEMES: Final = ("postgres", "postgresql")
_SHOWN: Final = ("host", "port", "dbname")
"""The parameters of a DSN that may be shown."""


class Dsn:
    """A DSN and its parts that may be shown.

    value: the DSN itself, for connecting
    given: the command-line argument that names it again, without its password
    name: the DSN without its password
    passwords: the parts that are never shown
    """

    def __init__(self, value: str, given: str | None = None) -> None:
        parts = _split(value)
        self.value = value
        self.name = _shown(parts)
        self.given = given if given is not None else self.name
        self.passwords = tuple(_passwords(parts))
        self._redactor = Redactor(self.passwords)

    @property
    def variable(self) -> str | None:
        """The environment variable that holds it, if there is one."""
        return self.given.removeprefix(FROM_ENVIRONMENT) if self.given.startswith(FROM_ENVIRONMENT) else None

    def masked(self, text: str) -> str:
        """Remove the password from a text."""
        return str(self._redactor.text(text).value)

    def __repr__(self) -> str:
        return f"Dsn({self.name})"


def read_dsn(text: str, environ: Mapping[str, str]) -> Dsn:
    """Read a DSN: the text itself, or `env:NAME` for a variable that holds it.

    Every user of a machine can read command lines; only the owner can read the variables of a process.
    """
    if not text.startswith(FROM_ENVIRONMENT):
        return Dsn(text)
    name = text.removeprefix(FROM_ENVIRONMENT)
    if not environ.get(name):
        raise UsageError(f"`{name}` does not hold a DSN", hint="set it to postgresql://user@host/database")
    return Dsn(environ[name], text)


def _split(value: str) -> SplitResult:
    try:
        parts = urlsplit(value)
        known = parts.scheme in _SCHEMES and (parts.port is None or parts.port > 0)
    except ValueError:
        known = False
    if not known:
        # The text is not repeated: any part of it may be the password.
        raise UsageError(
            "invalid DSN",
            hint="expected postgresql://user@host:5432/database, or env:NAME for a variable that holds it",
        )
    return parts


def _shown(parts: SplitResult) -> str:
    user, _, place = parts.netloc.rpartition("@")
    name = user.partition(":")[0]
    settings = "&".join(f"{key}={value}" for key, value in parse_qsl(parts.query) if key in _SHOWN)
    where = f"{name}@{place}" if name else place
    return f"postgresql://{where}{parts.path}" + (f"?{settings}" if settings else "")


def _passwords(parts: SplitResult) -> list[str]:
    userinfo = parts.netloc.rpartition("@")[0].partition(":")[2]
    hidden = [value for key, value in parse_qsl(parts.query) if key not in _SHOWN and "pass" in key.lower()]
    return [each for each in (userinfo, unquote(userinfo), *hidden) if each]
