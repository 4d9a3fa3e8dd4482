"""Witnesses of sealed heads: a file that only grows, or a server that takes them and gives them back."""

import asyncio
import os
from collections.abc import Mapping
from typing import Final

from gert.ecosystem.host.config.keys.trace_keys import signing_key
from gert.ecosystem.host.config.ledger_location import Database, ledger_name
from gert.ecosystem.host.config.settings import Settings
from gert.ecosystem.notify.addresses import expand, shown, url_problem
from gert.ecosystem.notify.webhooks import post
from gert.errors import InputError, IntegrityError, TraceError, UsageError
from gert.kernel.foundation.hosts import is_loopback
from gert.kernel.foundation.signature import Key
from gert.kernel.foundation.text import os_reason
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Head
from gert.kernel.ledger.witness import Witness, Witnessed, decode_witnessed, encode_witnessed, missing_head

_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_HEADERS: Final = {"Content-Type": "application/x-ndjson"}
_MOST_BYTES: Final = 256 << 20
_READ_SECONDS: Final = 20.0


def witness_for(
    settings: Settings, environ: Mapping[str, str], database: Database, key: Key | None = None
) -> Witness | None:
    """The witness that settings name; UsageError where no key seals heads, or nothing can be sent there.

    database: the ledger whose heads it is given
    key: the key that seals heads, where it is not that of the environment
    """
    where, required = settings.witness, settings.witness_required
    if where is None:
        if required:
            raise UsageError("`ledger.witness_required` is set, and no witness is named", hint="set `ledger.witness`")
        return None
    if (key or signing_key(environ)) is None:
        raise UsageError(
            "a witness needs a signing key: without one, heads are not sealed",
            hint="set GERT_TRACE_SIGNING_KEY, or leave the witness out",
        )
    ledger = place_of(database)
    if is_url(where):
        return UrlWitness(shown(where), _address(where, environ), ledger, required=required)
    return FileWitness(where, ledger, required=required)


def place_of(database: Database) -> str:
    """A ledger as its witness names it: the same from every folder, and without a password."""
    return os.path.realpath(database) if isinstance(database, str) else ledger_name(database)


def is_url(where: str) -> bool:
    """Whether a witness is named by a URL; otherwise it is a file."""
    return "://" in where


def _address(where: str, environ: Mapping[str, str]) -> str:
    """The address that is used; what may be a secret has to come from a variable, since the rest is recorded."""
    if where != shown(where) and "${" not in where:
        raise UsageError(
            f"the witness `{shown(where)}` may not have a user or a query in its address, which is recorded",
            hint="take them from a variable: `https://example.com/heads?token=${NAME}`",
        )
    try:
        address = expand(where, environ).text
    except InputError as problem:
        raise UsageError(f"the witness `{shown(where)}`: {problem.message}", hint=problem.hint) from None
    if (why := url_problem(address)) is not None:
        raise UsageError(f"the witness cannot be `{shown(where)}`: {why}")
    return address


class _Reporting:
    def __init__(self, name: str, ledger: str, *, required: bool) -> None:
        self._name = name
        self._ledger = ledger
        self._required = required
        self.problem: str | None = None

    def _failed(self, why: str) -> None:
        self.problem = f"the witness `{self._name}` lacks heads of this run: {why}"
        if self._required:
            raise TraceError(
                f"the witness `{self._name}` cannot be written: {why}",
                hint="`ledger.witness_required` is set: no step is started without it",
            )


class FileWitness(_Reporting):
    """A file for its owner alone; a line is written at every append, and synced at waiting points and at the end."""

    def __init__(self, path: str, ledger: str, *, required: bool) -> None:
        super().__init__(path, ledger, required=required)
        self._path = path
        self._fd = -1
        self._is_torn = False

    async def add(self, head: Head) -> None:
        """Write one line; several processes may write to the file at once."""
        line = encode_witnessed(head, self._ledger)
        try:
            if self._fd < 0:
                self._fd = os.open(self._path, _FLAGS, 0o600)
                self._is_torn = _is_torn(self._path)
            # A process may have died while it wrote a line: the next one does not continue it.
            data = b"\n" + line if self._is_torn else line
            self._is_torn = os.write(self._fd, data) != len(data)
            if self._is_torn:
                self._failed("no space is left")
        except OSError as error:
            self._failed(os_reason(error))

    async def flush(self) -> None:
        """Wait for the disk."""
        if self._fd < 0:
            return
        try:
            await asyncio.to_thread(os.fsync, self._fd)
        except OSError as error:
            self._failed(os_reason(error))
        finally:
            os.close(self._fd)
            self._fd = -1


class UrlWitness(_Reporting):
    """A server that heads are posted to, several at once while an earlier post is in flight."""

    def __init__(self, name: str, url: str, ledger: str, *, required: bool) -> None:
        super().__init__(name, ledger, required=required)
        self._url = url
        self._waiting: list[bytes] = []
        self._posting: asyncio.Task[None] | None = None

    async def add(self, head: Head) -> None:
        """Post a head; where the witness is required, wait until the server has it."""
        self._waiting.append(encode_witnessed(head, self._ledger))
        if self._required:
            await self._post()
        elif self._posting is None or self._posting.done():
            self._posting = asyncio.create_task(self._post())

    async def flush(self) -> None:
        """Wait until the server has everything, for a bounded time."""
        if self._posting is not None:
            await self._posting
        await self._post()

    async def _post(self) -> None:
        while self._waiting:
            body, self._waiting = b"".join(self._waiting), []
            delivery = await post(self._url, body, _HEADERS)
            if not delivery.delivered:
                self._failed(delivery.error or "it was not delivered")


async def read_witness(where: str, environ: Mapping[str, str]) -> Witnessed:
    """Everything a witness has; UsageError where it cannot be read, or is something else."""
    found = decode_witnessed(await _get(_address(where, environ), shown(where)) if is_url(where) else _read(where))
    if found.unreadable and not found.heads:
        raise UsageError(f"`{shown(where) if is_url(where) else where}` is not a witness: none of its lines is a head")
    return found


async def attach_witness(
    ledger: Ledger, run_id: str, database: Database, settings: Settings, environ: Mapping[str, str]
) -> None:
    """Add the next heads of a recorded run to its witness.

    A run that the witness has seen further is refused: its ledger was rolled back, and its next steps may be done.
    """
    ledger.witness = witness_for(settings, environ, database)
    where = settings.witness
    if where is None:
        return
    if is_url(where) or os.path.exists(where):
        missing = await find_missing(ledger, run_id, await read_witness(where, environ))
        if missing is not None:
            hint = "restore the newer ledger"
            raise IntegrityError(f"run `{run_id}` is not what was witnessed: {missing}", hint=hint)
    elif settings.witness_required:
        raise UsageError(f"the witness `{where}` is not there, and `witness_required` is set")


async def find_missing(ledger: Ledger, run_id: str, witnessed: Witnessed) -> str | None:
    """Why the ledger lacks a head of a run that a witness has; None where it has them all."""
    heads = [each for each in witnessed.heads if each.run_id == run_id]
    lines = await ledger.lines_at(run_id, sorted({each.count for each in heads}))
    return missing_head(await ledger.head(run_id), heads, lines)


def _is_torn(path: str) -> bool:
    """Whether the last line of a file has no end; of one that may not be read, that is not known."""
    try:
        with open(path, "rb") as file:
            return bool(file.seek(0, os.SEEK_END)) and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n"
    except OSError:
        return True


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"the witness `{path}` cannot be read: {os_reason(error)}") from None
    if len(data) > _MOST_BYTES:
        raise UsageError(f"the witness `{path}` cannot be read: it is too large")
    return data


async def _get(url: str, name: str) -> bytes:
    import httpx2

    local = httpx2.AsyncHTTPTransport() if is_loopback(httpx2.URL(url).host) else None
    data = bytearray()
    try:
        async with (
            asyncio.timeout(_READ_SECONDS),
            httpx2.AsyncClient(transport=local, follow_redirects=False) as client,
            client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response,
        ):
            if response.status_code != 200:
                raise UsageError(f"the witness `{name}` cannot be read: the server answered {response.status_code}")
            async for chunk in response.aiter_raw():
                data += chunk
                if len(data) > _MOST_BYTES:
                    raise UsageError(f"the witness `{name}` cannot be read: it is too large")
    except (TimeoutError, httpx2.TransportError, httpx2.StreamError) as error:
        raise UsageError(f"the witness `{name}` cannot be read ({type(error).__name__})") from None
    return bytes(data)
