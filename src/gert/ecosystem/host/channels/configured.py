"""The channels that settings name, ready for a run: which there are, and what they share."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from gert.ecosystem.approvals.port import Channel
from gert.ecosystem.approvals.ticket_file import TicketFile
from gert.ecosystem.approvals.tickets import Tickets
from gert.ecosystem.host.approvals import FOLDER
from gert.ecosystem.host.channels.front import Front, Listen, parse_listen
from gert.ecosystem.host.channels.http import HttpChannel
from gert.ecosystem.host.channels.links import new_challenge
from gert.ecosystem.host.channels.slack import SlackChannel, slack_inbox
from gert.ecosystem.host.channels.slack_inbox import SlackInbox
from gert.ecosystem.host.channels.teams import TeamsChannel
from gert.ecosystem.host.settings import Settings
from gert.errors import GertError, UsageError


class PageChannel:
    """Serves the page, callbacks and Slack's buttons while a run waits; it tells nobody by itself."""

    name = "page"

    def __init__(self, front: Front, slack: SlackInbox | None = None) -> None:
        self._front = front
        self._slack = slack

    async def announce(self, ticket: TicketFile) -> str | None:
        """The other channels carry the link."""
        return None

    @asynccontextmanager
    async def listening(self, tickets: Tickets) -> AsyncIterator[None]:
        """Serve; where a server for the same tickets is there already, it will do."""
        from gert.ecosystem.host.channels.server import Site

        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(Site(self._front, tickets, self._slack).serving())
            except UsageError:
                if not await is_served(self._front):
                    raise
            yield


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
            return front.links.proof(challenge).encode() in said
    except (TimeoutError, httpx2.HTTPError, GertError):
        return False
