"""Serving all open tickets of a state directory until somebody ends it, for runs that do not wait themselves."""

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from gert.ecosystem.approvals.tickets import Tickets
from gert.ecosystem.host.approvals.ticket_ledger import TicketPlace, open_tickets
from gert.ecosystem.host.channels import ticket_summary
from gert.ecosystem.host.channels.server import Site
from gert.ecosystem.host.channels.settings import front_for
from gert.ecosystem.host.channels.slack import slack_inbox
from gert.ecosystem.host.channels.urls import Front, Listen, parse_listen
from gert.ecosystem.host.config.settings import settings_for
from gert.ecosystem.host.config.state_dir import state_dir
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.run.driver.signals import handle_signals
from gert.errors import GertError

DEFAULT_LISTEN: Final = "127.0.0.1:8765"
_EVERY: Final = 1.0
Problem = tuple[str, str | None]


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants served; `listen` goes before what is configured."""

    listen: Listen | None = None
    place: TicketPlace = TicketPlace()
    config: str | None = None


class Served(msgspec.Struct, frozen=True):
    """Where the server is, and whether Slack's buttons are heard."""

    address: str
    base_url: str
    slack: bool


async def serve(
    options: ServeOptions,
    environ: Mapping[str, str],
    on_start: Callable[[Served], object],
    on_ticket: Callable[[str, str, str], object],
    on_problem: Callable[[Problem], object],
    working: str | None = None,
) -> None:
    """Serve until Ctrl-C; `on_ticket` hears the id, page and title of each ticket that is open, once."""
    folder = working if working is not None else os.getcwd()
    workspace = Workspace(folder)
    settings = settings_for(workspace, folder, options.config, environ)
    state = state_dir(options.place.state_dir, workspace.project_root(folder), environ)
    front = front_for(settings, state, options.listen)
    if front.listen is None:
        front.listen = parse_listen(DEFAULT_LISTEN)
    slack = settings.approvals.slack if settings.approvals is not None else None
    # Here somebody reads what is missing: a server without what was configured is not started.
    inbox = slack_inbox(slack, environ, front) if slack is not None else None
    over = asyncio.Event()
    place = options.place if options.place.is_named else TicketPlace(state_dir=state)
    with handle_signals(lambda _: over.set(), over.is_set):
        async with (
            open_tickets(place, environ, to_post=True, create=True) as tickets,
            Site(front, tickets, inbox).serving(),
        ):
            on_start(Served(str(front.listen), front.base or "", inbox is not None))
            await _watch(tickets, front, over, on_ticket, on_problem)


async def _watch(
    tickets: Tickets,
    front: Front,
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
                on_ticket(view.id, front.page_url(view.id) or "", ticket_summary.title_of(view.ticket.request))
        try:
            async with asyncio.timeout(_EVERY):
                await over.wait()
        except TimeoutError:
            continue
