"""Witnesses of sealed heads: a file that only grows, or a server that takes them and gives them back."""

import asyncio
import os
from typing import Final, Protocol

from gert.ecosystem.notify.addresses import is_loopback, shown, url_problem
from gert.ecosystem.notify.webhooks import post
from gert.errors import TraceError, UsageError
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import Head
from gert.kernel.ledger.witness import WitnessedHead, decode_witnessed, encode_witnessed, missing_head

_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_HEADERS: Final = {"Content-Type": "application/x-ndjson"}
_MOST_BYTES: Final = 256 << 20
_READ_SECONDS: Final = 20.0


class Witness(Protocol):
    """Keeps sealed heads outside the ledger.

    problem: why it does not have all of them
    """

    problem: str | None

    async def add(self, head: Head) -> None:
        """Add a head; TraceError where that fails and the witness is required."""

    async def flush(self) -> None:
        """Make everything that was added durable; TraceError where that fails and the witness is required."""


def witness_at(where: str, *, required: bool) -> Witness:
    """The witness at a path or a URL; UsageError where nothing can be sent there."""
    if not is_url(where):
        return FileWitness(where, required=required)
    if (why := url_problem(where)) is not None:
        raise UsageError(f"the witness cannot be `{shown(where)}`: {why}")
    return UrlWitness(where, required=required)


def is_url(where: str) -> bool:
    """Whether a witness is named by a URL; otherwise it is a file."""
    return "://" in where


class _Reporting:
    def __init__(self, name: str, *, required: bool) -> None:
        self._name = name
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

    def __init__(self, path: str, *, required: bool) -> None:
        super().__init__(path, required=required)
        self._path = path
        self._fd = -1

    async def add(self, head: Head) -> None:
        """Write one line; several processes may write to the file at once."""
        line = encode_witnessed(head)
        try:
            if self._fd < 0:
                self._fd = os.open(self._path, _FLAGS, 0o600)
            if os.write(self._fd, line) != len(line):
                self._failed("no space is left")
        except OSError as error:
            self._failed((error.strerror or str(error)).lower())

    async def flush(self) -> None:
        """Wait for the disk."""
        if self._fd < 0:
            return
        try:
            await asyncio.to_thread(os.fsync, self._fd)
        except OSError as error:
            self._failed((error.strerror or str(error)).lower())
        finally:
            os.close(self._fd)
            self._fd = -1


class UrlWitness(_Reporting):
    """A server that heads are posted to, several at once while an earlier post is under way."""

    def __init__(self, url: str, *, required: bool) -> None:
        super().__init__(shown(url), required=required)
        self._url = url
        self._waiting: list[bytes] = []
        self._posting: asyncio.Task[None] | None = None

    async def add(self, head: Head) -> None:
        """Post a head; where the witness is required, wait until the server has it."""
        self._waiting.append(encode_witnessed(head))
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


async def read_witness(where: str) -> list[WitnessedHead]:
    """Every head that a witness has; UsageError where it cannot be read."""
    data = await _get(where) if is_url(where) else _read(where)
    try:
        return decode_witnessed(data)
    except ValueError as error:
        raise UsageError(f"the witness `{shown(where) if is_url(where) else where}` cannot be read: {error}") from None


async def find_missing(ledger: Ledger, run_id: str, witnessed: list[WitnessedHead]) -> str | None:
    """Why the ledger lacks a head of a run that a witness has; None where it has them all."""
    heads = [each for each in witnessed if each.run_id == run_id]
    lines = await ledger.lines_at(run_id, sorted({each.count for each in heads}))
    return missing_head(await ledger.head(run_id), heads, lines)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_BYTES)
    except OSError as error:
        raise UsageError(f"the witness `{path}` cannot be read: {(error.strerror or str(error)).lower()}") from None


async def _get(url: str) -> bytes:
    import httpx2

    if (why := url_problem(url)) is not None:
        raise UsageError(f"the witness cannot be `{shown(url)}`: {why}")
    local = httpx2.AsyncHTTPTransport() if is_loopback(httpx2.URL(url).host) else None
    data = bytearray()
    try:
        async with (
            asyncio.timeout(_READ_SECONDS),
            httpx2.AsyncClient(transport=local, follow_redirects=False) as client,
            client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response,
        ):
            if response.status_code != 200:
                raise UsageError(
                    f"the witness `{shown(url)}` cannot be read: the server answered {response.status_code}"
                )
            async for chunk in response.aiter_raw():
                data += chunk
                if len(data) > _MOST_BYTES:
                    raise UsageError(f"the witness `{shown(url)}` cannot be read: it is too large")
    except (TimeoutError, httpx2.TransportError, httpx2.StreamError) as error:
        raise UsageError(f"the witness `{shown(url)}` cannot be read ({type(error).__name__})") from None
    return bytes(data)
