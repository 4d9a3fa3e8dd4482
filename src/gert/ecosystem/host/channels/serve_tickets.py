"""Serve the pages of all open tickets until interrupted, for runs that do not wait themselves."""

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from gert.ecosystem.approvals.tickets import Tickets
from gert.ecosystem.host.approvals.ticket_ledger import open_tickets
from gert.ecosystem.host.channels import ticket_summary
from gert.ecosystem.host.channels.channels_for import page_urls_for
from gert.ecosystem.host.channels.page_server import PageServer
from gert.ecosystem.host.channels.page_urls import Listen, PageUrls, parse_listen
from gert.ecosystem.host.channels.slack_channel import slack_inbox
from gert.ecosystem.host.config.settings import settings_for
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.run.driver.signals import handle_signals
from gert.ecosystem.host.runs.place import place_for
from gert.errors import GertError

DEFAULT_LISTEN: Final = "127.0.0.1:8765"
_EVERY: Final = 1.0
Problem = tuple[str, str | None]


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to serve; `listen` overrides the configured address."""

    listen: Listen | None = None
    state_dir: str | None = None
    db: str | None = None
    dsn: str | None = None
    config: str | None = None


class Served(msgspec.Struct, frozen=True):
    """The address of the server, and whether it accepts Slack's buttons."""

    address: str
    base_url: str
    slack: bool


async def serve_tickets(
    options: ServeOptions,
    environ: Mapping[str, str],
    on_start: Callable[[Served], object],
    on_ticket: Callable[[str, str, str], object],
    on_problem: Callable[[Problem], object],
) -> None:
    """Serve until Ctrl-C; `on_ticket` is called once for each open ticket, with its id, page and title."""
    folder = os.getcwd()
    workspace = Workspace(folder)
    settings = settings_for(workspace, folder, options.config, environ)
    place = place_for(options.state_dir, options.db, environ, options.dsn, folder)
    urls = page_urls_for(settings, place.state, options.listen)
    if urls.listen is None:
        urls.listen = parse_listen(DEFAULT_LISTEN)
    slack = settings.approvals.slack if settings.approvals is not None else None
    # A person reads the error here, so a server that lacks a configured secret is not started.
    inbox = slack_inbox(slack, environ, urls) if slack is not None else None
    over = asyncio.Event()
    with handle_signals(lambda _: over.set(), over.is_set):
        async with (
            open_tickets(place, environ, to_post=True, create=True) as tickets,
            PageServer(urls, tickets, inbox).serving(),
        ):
            on_start(Served(str(urls.listen), urls.base or "", inbox is not None))
            await _watch(tickets, urls, over, on_ticket, on_problem)


async def _watch(
    tickets: Tickets,
    urls: PageUrls,
    over: asyncio.Event,
    on_ticket: Callable[[str, str, str], object],
    on_problem: Callable[[Problem], object],
) -> None:
    shown: set[str] = set()
    complained: set[str] = set()

    def complain(problem: GertError) -> None:
        if problem.message not in complained:
            complained.add(problem.message)
            on_problem((problem.message, problem.hint))

    while not over.is_set():
        try:
            found = await tickets.all("pending", on_problem=complain)
        except GertError as problem:
            complain(problem)
            found = []
        for view in found:
            if view.id not in shown:
                shown.add(view.id)
                on_ticket(view.id, urls.page_url(view.id) or "", ticket_summary.title_of(view.ticket.request))
        try:
            async with asyncio.timeout(_EVERY):
                await over.wait()
        except TimeoutError:
            continue
