"""Asking a service for answers while a run waits: now and then, less often where it fails, each answer taken once."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec

from gert.ecosystem.approvals.responses import ResponseMessage
from gert.ecosystem.approvals.tickets import Tickets, TicketView
from gert.ecosystem.host.channels.callbacks import Refused, put_signed
from gert.ecosystem.host.run.notifications import HEADERS
from gert.ecosystem.notify.addresses import expand, is_loopback, url_problem
from gert.errors import GertError, InputError
from gert.kernel.foundation.canonical import sha256_hex

EVERY: Final = 2.0
LONGEST_PAUSE: Final = 60.0
ATTEMPT_SECONDS: Final = 5.0
MOST_READ: Final = 64 * 1024
MOST_TICKETS: Final = 100
"""How many open tickets are asked about in one round: first those that were not asked about for longest."""
MOST_ANSWERS: Final = 50
_NOTHING_YET: Final = (204, 404)
_MOST_SEEN: Final = 10_000


class _Status(msgspec.Struct):
    """What a service says about a ticket; the answers to it, as they would come as callbacks."""

    status: str = "pending"
    responses: list[ResponseMessage] = []


class _Failed(Exception):
    """The service did not say anything that can be used; in our words, since its own may hold an address."""


class _Unreachable(_Failed):
    """The service did not say anything at all, and will hardly do so about the next ticket."""


class Poll:
    """Asks one service about every open ticket."""

    def __init__(self, template: str, environ: Mapping[str, str], tickets: Tickets, every: float = EVERY) -> None:
        self._template = template
        self._environ = environ
        self._tickets = tickets
        self._every = every
        self._noted: set[tuple[str, str]] = set()
        self._seen: set[tuple[str, str]] = set()
        self._asked: dict[str, int] = {}
        self._rounds = 0

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Ask for as long as it is entered."""
        self._address("x")  # what cannot be asked at all is said at once
        asking = asyncio.create_task(self._ask_on())
        try:
            yield
        finally:
            asking.cancel()
            await asyncio.wait({asking})

    async def _ask_on(self) -> None:
        pause = self._every
        while True:
            try:
                fine = await self.round()
            except Exception:
                # Not even a note could be made of it, and whoever waits would wait for what nobody asks any more.
                fine = False
            pause = self._every if fine else min(pause * 2, LONGEST_PAUSE)
            await asyncio.sleep(pause)

    async def round(self) -> bool:
        """Ask once about every open ticket; whether the service did its part."""
        try:
            views = await self._tickets.all("pending")
        except GertError:
            return False
        fine = True
        for view in self._in_turn(views):
            try:
                await self._take(view, await self._fetched(view.id))
            except _Failed as problem:
                fine = False
                await self._note(view.id, str(problem))
                if isinstance(problem, _Unreachable):
                    break
            except GertError as problem:
                await self._note(view.id, problem.message)
            except Exception as problem:
                # A bug of ours. The words of an error may hold an address; what kind it is holds none.
                fine = False
                await self._note(view.id, f"asking failed: {type(problem).__name__}")
        return fine

    def _in_turn(self, views: list[TicketView]) -> Iterator[TicketView]:
        """Nobody's ticket stands before the others for ever, whether there are many or one never gets an answer."""
        self._rounds += 1
        self._asked = {view.id: self._asked.get(view.id, 0) for view in views}
        for view in sorted(views, key=lambda each: self._asked[each.id])[:MOST_TICKETS]:
            self._asked[view.id] = self._rounds
            yield view

    async def _take(self, view: TicketView, answers: list[ResponseMessage]) -> None:
        known = {each.response.signature for each in view.responses}
        # All of an answer: one that was refused may be put right and keep its signature.
        marked = {(view.id, sha256_hex(msgspec.json.encode(said))): said for said in answers}
        fresh = [each for each in marked.items() if each[0] not in self._seen and each[1].signature not in known]
        for mark, said in fresh[:MOST_ANSWERS]:
            if len(self._seen) >= _MOST_SEEN:
                raise _Failed("the service says something else each time")
            became = await put_signed(self._tickets, view.id, said)
            # Not before: one that could not be recorded is taken the next time.
            self._seen.add(mark)
            if isinstance(became, Refused):
                await self._note(view.id, f"an answer was not taken: {became.why}")

    async def _fetched(self, ticket_id: str) -> list[ResponseMessage]:
        data = await self._get(self._address(ticket_id))
        if data is None:
            return []
        try:
            said = msgspec.json.decode(data)
            # One answer by itself will do.
            if isinstance(said, dict) and "approved" in said:
                return [msgspec.convert(said, ResponseMessage)]
            return msgspec.convert(said, _Status).responses
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
            raise _Failed("the service did not say anything that can be read") from None

    async def _get(self, url: str) -> bytes | None:
        """What the service says, bounded in size and time; nothing where it has nothing to say yet."""
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
                        raise _Failed(f"the service said more than {MOST_READ} bytes")
        except (TimeoutError, httpx2.TimeoutException):
            raise _Unreachable(f"the service did not answer within {ATTEMPT_SECONDS:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError):
            # Also what is wrong with a proxy that the environment names.
            raise _Unreachable("the service cannot be reached") from None
        return bytes(data)

    def _address(self, ticket_id: str) -> str:
        url = expand(self._template, self._environ).text.replace("{ticket_id}", ticket_id)
        refused = url_problem(url)
        if refused is not None:
            raise InputError(f"the `status_url` cannot be asked: {refused}")
        return url

    async def _note(self, ticket_id: str, text: str) -> None:
        """Write it down once for each ticket, however often it happens."""
        if (ticket_id, text) in self._noted:
            return
        self._noted.add((ticket_id, text))
        with suppress(GertError):
            await self._tickets.note(ticket_id, f"http: {text}")
