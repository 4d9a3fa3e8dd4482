"""The channels of a run, made from the settings."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from gert.ecosystem.approvals.port import Channel
from gert.ecosystem.approvals.tickets import Tickets, TicketView
from gert.ecosystem.host.channels.http_channel import HttpChannel
from gert.ecosystem.host.channels.page_tokens import new_challenge
from gert.ecosystem.host.channels.page_urls import Listen, PageUrls, parse_listen
from gert.ecosystem.host.channels.slack_channel import SlackChannel, slack_inbox
from gert.ecosystem.host.channels.slack_inbox import SlackInbox
from gert.ecosystem.host.channels.teams_channel import TeamsChannel
from gert.ecosystem.host.config.settings import Settings
from gert.errors import GertError, UsageError

if TYPE_CHECKING:
    from gert.ecosystem.host.channels.page_server import PageServer

FOLDER: Final = "approvals"
"""The folder of the key of the pages, in the state directory."""

RETRY_SECONDS: Final = 1.0
"""Seconds between attempts of a waiting run to serve the page itself."""


class PageChannel:
    """Serves the page, callbacks and Slack's buttons while a run waits; it sends nothing itself."""

    name = "page"

    def __init__(self, urls: PageUrls, slack: SlackInbox | None = None, retry: float = RETRY_SECONDS) -> None:
        self._urls = urls
        self._slack = slack
        self._retry = retry

    async def announce(self, view: TicketView) -> str | None:
        """Do nothing: the other channels send the link."""
        return None

    @asynccontextmanager
    async def listening(self, tickets: Tickets) -> AsyncIterator[None]:
        """Serve the page, or stand by while another server serves the same tickets."""
        from gert.ecosystem.host.channels.page_server import PageServer

        site = PageServer(self._urls, tickets, self._slack)
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(site.serving())
            except UsageError:
                served = await is_served(self._urls)
                # If the other server has just ended, the address is free.
                await stack.enter_async_context(self._standing_by(site) if served else site.serving())
            yield

    @asynccontextmanager
    async def _standing_by(self, site: "PageServer") -> AsyncIterator[None]:
        """Take over when the other server ends: it may belong to a run that ends before this one."""
        over = asyncio.Event()
        standing_by = asyncio.create_task(self._take_over(site, over))
        try:
            yield
        finally:
            over.set()
            await asyncio.wait({standing_by})
            if not standing_by.cancelled():
                standing_by.exception()  # a page that fails does not fail the run: responses are in the ledger

    async def _take_over(self, site: "PageServer", over: asyncio.Event) -> None:
        while not over.is_set():
            with suppress(UsageError):
                async with site.serving():
                    await over.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._retry):
                    await over.wait()


def page_urls_for(settings: Settings, state: str, listen: Listen | None = None) -> PageUrls:
    """The URLs of the pages; `listen` overrides the configured address."""
    said = settings.approvals
    chosen = listen if listen is not None else parse_listen(said.listen) if said is not None and said.listen else None
    return PageUrls(os.path.join(state, FOLDER), chosen, said.base_url if said is not None else None)


def channels_for(
    settings: Settings, environ: Mapping[str, str], state: str, urls: PageUrls | None = None
) -> list[Channel]:
    """The channels for the runs of a state directory; an invalid one fails when it is used."""
    said = settings.approvals
    if said is None:
        return []
    urls = urls if urls is not None else page_urls_for(settings, state)
    channels: list[Channel] = []
    if said.http is not None:
        channels.append(HttpChannel(said.http, environ, urls))
    if said.slack is not None:
        channels.append(SlackChannel(said.slack, environ, urls))
    if said.teams is not None:
        channels.append(TeamsChannel(said.teams, environ, urls))
    if urls.listen is not None:
        channels.insert(0, PageChannel(urls, inbox_for(settings, environ, urls)))
    return channels


def inbox_for(settings: Settings, environ: Mapping[str, str], urls: PageUrls) -> SlackInbox | None:
    """The handler of Slack's buttons; None where a secret is missing, which the channel reports."""
    if settings.approvals is None or settings.approvals.slack is None:
        return None
    try:
        return slack_inbox(settings.approvals.slack, environ, urls)
    except GertError:
        return None


async def is_served(urls: PageUrls) -> bool:
    """Whether a server for the same tickets listens at the address."""
    import httpx2

    challenge = new_challenge()
    try:
        async with (
            asyncio.timeout(2.0),
            httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(), timeout=2.0) as client,
            client.stream("GET", f"http://{urls.listen}/healthz?c={challenge}") as response,
        ):
            said = bytearray()
            async for chunk in response.aiter_raw():
                said += chunk
                if len(said) > 1024:
                    return False
            # Its identifier is no proof: any client can read that.
            return any(proof.encode() in said for proof in urls.proofs(challenge))
    except (OSError, ValueError, httpx2.HTTPError, httpx2.InvalidURL, GertError):
        return False
