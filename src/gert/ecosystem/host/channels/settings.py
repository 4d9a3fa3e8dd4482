"""The channels that settings name, ready for a run: which there are, and what they share."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from gert.ecosystem.approvals.port import Channel
from gert.ecosystem.approvals.tickets import Tickets, TicketView
from gert.ecosystem.host.channels.http import HttpChannel
from gert.ecosystem.host.channels.links import new_challenge
from gert.ecosystem.host.channels.slack import SlackChannel, slack_inbox
from gert.ecosystem.host.channels.slack_inbox import SlackInbox
from gert.ecosystem.host.channels.teams import TeamsChannel
from gert.ecosystem.host.channels.urls import Front, Listen, parse_listen
from gert.ecosystem.host.config.settings import Settings
from gert.errors import GertError, UsageError

if TYPE_CHECKING:
    from gert.ecosystem.host.channels.server import Site

FOLDER: Final = "approvals"
"""Where the secret of the pages is kept, in the state directory."""

AGAIN: Final = 1.0
"""Seconds after which a run that waits looks again whether it has to serve by itself."""


class PageChannel:
    """Serves the page, callbacks and Slack's buttons while a run waits; it tells nobody by itself."""

    name = "page"

    def __init__(self, front: Front, slack: SlackInbox | None = None, again: float = AGAIN) -> None:
        self._front = front
        self._slack = slack
        self._again = again

    async def announce(self, view: TicketView) -> str | None:
        """The other channels carry the link."""
        return None

    @asynccontextmanager
    async def listening(self, tickets: Tickets) -> AsyncIterator[None]:
        """Serve; where a server for the same tickets is there already, it will do for as long as it is."""
        from gert.ecosystem.host.channels.server import Site

        site = Site(self._front, tickets, self._slack)
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(site.serving())
            except UsageError:
                served = await is_served(self._front)
                # Where it has just ended, the address is free.
                await stack.enter_async_context(self._standing_by(site) if served else site.serving())
            yield

    @asynccontextmanager
    async def _standing_by(self, site: "Site") -> AsyncIterator[None]:
        """Take over when the other server ends: it may be another run's, which does not wait as long as this one."""
        over = asyncio.Event()
        standing_by = asyncio.create_task(self._take_over(site, over))
        try:
            yield
        finally:
            over.set()
            await asyncio.wait({standing_by})
            if not standing_by.cancelled():
                standing_by.exception()  # the page is a help; the responses are in the ledger

    async def _take_over(self, site: "Site", over: asyncio.Event) -> None:
        while not over.is_set():
            with suppress(UsageError):
                async with site.serving():
                    await over.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._again):
                    await over.wait()


def front_for(settings: Settings, state: str, listen: Listen | None = None) -> Front:
    """Where the page of a ticket is found; `listen` is where somebody chose to listen."""
    said = settings.approvals
    chosen = listen if listen is not None else parse_listen(said.listen) if said is not None and said.listen else None
    return Front(os.path.join(state, FOLDER), chosen, said.base_url if said is not None else None)


def channels_for(
    settings: Settings, environ: Mapping[str, str], state: str, front: Front | None = None
) -> list[Channel]:
    """The channels for the runs of a state directory; what is wrong with one shows when it is used."""
    said = settings.approvals
    if said is None:
        return []
    front = front if front is not None else front_for(settings, state)
    channels: list[Channel] = []
    if said.http is not None:
        channels.append(HttpChannel(said.http, environ, front))
    if said.slack is not None:
        channels.append(SlackChannel(said.slack, environ, front))
    if said.teams is not None:
        channels.append(TeamsChannel(said.teams, environ, front))
    if front.listen is not None:
        channels.insert(0, PageChannel(front, inbox_for(settings, environ, front)))
    return channels


def inbox_for(settings: Settings, environ: Mapping[str, str], front: Front) -> SlackInbox | None:
    """Where Slack's buttons lead to; none where something is missing, which the channel itself says."""
    if settings.approvals is None or settings.approvals.slack is None:
        return None
    try:
        return slack_inbox(settings.approvals.slack, environ, front)
    except GertError:
        return None


async def is_served(front: Front) -> bool:
    """Whether a server for the very same tickets listens at the address."""
    import httpx2

    challenge = new_challenge()
    try:
        async with (
            asyncio.timeout(2.0),
            httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(), timeout=2.0) as client,
            client.stream("GET", f"http://{front.listen}/healthz?c={challenge}") as response,
        ):
            said = bytearray()
            async for chunk in response.aiter_raw():
                said += chunk
                if len(said) > 1024:
                    return False
            # What it is called, anybody has heard who asked before.
            return any(proof.encode() in said for proof in front.proofs(challenge))
    except (OSError, ValueError, httpx2.HTTPError, httpx2.InvalidURL, GertError):
        return False
