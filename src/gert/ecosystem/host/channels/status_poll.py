"""Polls a service for responses while a run waits; it backs off where that fails, and posts each response once."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec

from gert.ecosystem.approvals.responses import ResponseMessage
from gert.ecosystem.approvals.tickets import Tickets, TicketView
from gert.ecosystem.host.channels.callbacks import Refused, post_signed
from gert.ecosystem.host.run.notifications import HEADERS
from gert.ecosystem.notify.addresses import expand, url_problem
from gert.errors import GertError, InputError
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.hosts import is_loopback

EVERY: Final = 2.0
LONGEST_PAUSE: Final = 60.0
ATTEMPT_SECONDS: Final = 5.0
MOST_READ: Final = 64 * 1024
MOST_TICKETS: Final = 100
"""Open tickets that are polled in one round, those that were polled least recently first."""
MOST_RESPONSES: Final = 50
_NOTHING_YET: Final = (204, 404)
_MOST_SEEN: Final = 10_000


class _Status(msgspec.Struct):
    """The status of a ticket at a service, with responses in the form of callbacks."""

    status: str = "pending"
    responses: list[ResponseMessage] = []


class _Failed(Exception):
    """The service gave no valid reply; the message is gert's own, since the service's may contain an address."""


class _Unreachable(_Failed):
    """The service did not reply; other tickets are not polled in this round."""


class StatusPoll:
    """Polls one service for every open ticket."""

    def __init__(self, template: str, environ: Mapping[str, str], tickets: Tickets, every: float = EVERY) -> None:
        self._template = template
        self._environ = environ
        self._tickets = tickets
        self._every = every
        self._noted: set[tuple[str, str]] = set()
        self._seen: set[tuple[str, str]] = set()
        self._polled: dict[str, int] = {}
        self._rounds = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Poll until the context is left."""
        self._address("x")  # an invalid URL is reported at once
        polling = asyncio.create_task(self._poll_on())
        try:
            yield
        finally:
            polling.cancel()
            await asyncio.wait({polling})

    async def _poll_on(self) -> None:
        pause = self._every
        while True:
            try:
                fine = await self.round()
            except Exception:
                # Even the note failed. Polling must continue, or the run would wait for nothing.
                fine = False
            pause = self._every if fine else min(pause * 2, LONGEST_PAUSE)
            await asyncio.sleep(pause)

    async def round(self) -> bool:
        """Poll once for every open ticket; False if the service failed."""
        try:
            views = await self._tickets.all("pending")
        except GertError:
            return False
        fine = True
        for view in self._in_turn(views):
            try:
                await self._post(view, await self._fetch(view.id))
            except _Failed as problem:
                fine = False
                await self._note(view.id, str(problem))
                if isinstance(problem, _Unreachable):
                    break
            except GertError as problem:
                await self._note(view.id, problem.message)
            except Exception as problem:
                # A bug. The message of an error may contain an address; its type does not.
                fine = False
                await self._note(view.id, f"polling failed: {type(problem).__name__}")
        return fine

    def _in_turn(self, views: list[TicketView]) -> Iterator[TicketView]:
        """The tickets to poll in this round: every ticket gets its turn, however many are open."""
        self._rounds += 1
        self._polled = {view.id: self._polled.get(view.id, 0) for view in views}
        for view in sorted(views, key=lambda each: self._polled[each.id])[:MOST_TICKETS]:
            self._polled[view.id] = self._rounds
            yield view

    async def _post(self, view: TicketView, responses: list[ResponseMessage]) -> None:
        known = {each.response.signature for each in view.responses}
        # By its whole content: a refused response may be corrected and keep its signature.
        marked = {(view.id, sha256_hex(msgspec.json.encode(said))): said for said in responses}
        fresh = [each for each in marked.items() if each[0] not in self._seen and each[1].signature not in known]
        for mark, said in fresh[:MOST_RESPONSES]:
            if len(self._seen) >= _MOST_SEEN:
                raise _Failed("the service sends other responses each time")
            result = await post_signed(self._tickets, view.id, said)
            # Only now: a response that could not be recorded is posted in the next round.
            self._seen.add(mark)
            if isinstance(result, Refused):
                await self._note(view.id, f"a response was refused: {result.why}")

    async def _fetch(self, ticket_id: str) -> list[ResponseMessage]:
        data = await self._get(self._address(ticket_id))
        if data is None:
            return []
        try:
            said = msgspec.json.decode(data)
            # A single response is accepted, too.
            if isinstance(said, dict) and "approved" in said:
                return [msgspec.convert(said, ResponseMessage)]
            return msgspec.convert(said, _Status).responses
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
            raise _Failed("the reply of the service cannot be read") from None

    async def _get(self, url: str) -> bytes | None:
        """The reply of the service, limited in size and time; None where it has no response yet."""
        import httpx2

        local = httpx2.AsyncHTTPTransport() if is_loopback(httpx2.URL(url).host) else None
        data = bytearray()
        try:
            async with (
                asyncio.timeout(ATTEMPT_SECONDS),
                httpx2.AsyncClient(transport=local, timeout=ATTEMPT_SECONDS, follow_redirects=False) as client,
                client.stream("GET", url, headers={**HEADERS, "Accept-Encoding": "identity"}) as response,
            ):
                if response.status_code in _NOTHING_YET:
                    return None
                if response.status_code != 200:
                    raise _Failed(f"the service answered {response.status_code}")
                async for chunk in response.aiter_raw():
                    data += chunk
                    if len(data) > MOST_READ:
                        raise _Failed(f"the reply of the service is longer than {MOST_READ} bytes")
        except (TimeoutError, httpx2.TimeoutException):
            raise _Unreachable(f"the service did not answer within {ATTEMPT_SECONDS:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError):
            # This includes errors of a proxy that the environment names.
            raise _Unreachable("the service cannot be reached") from None
        return bytes(data)

    def _address(self, ticket_id: str) -> str:
        url = expand(self._template, self._environ).text.replace("{ticket_id}", ticket_id)
        refused = url_problem(url)
        if refused is not None:
            raise InputError(f"the `status_url` cannot be used: {refused}")
        return url

    async def _note(self, ticket_id: str, text: str) -> None:
        """Note a problem once for each ticket."""
        if (ticket_id, text) in self._noted:
            return
        self._noted.add((ticket_id, text))
        with suppress(GertError):
            await self._tickets.note(ticket_id, f"http: {text}")
