"""The routes of the approval server: pages of tickets, signed callbacks, Slack's buttons, and a health check."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from gert.ecosystem.approvals.tickets import Tickets
from gert.ecosystem.host.channels.callbacks import handle_callback
from gert.ecosystem.host.channels.page_urls import PageUrls
from gert.ecosystem.host.channels.slack_inbox import SlackInbox
from gert.ecosystem.host.channels.ticket_pages import TicketPages
from gert.ecosystem.host.channels.web_server import Limits, Reply, Request, WebServer, json_reply, text_reply
from gert.errors import UsageError
from gert.kernel.foundation.names import is_safe_name

_ROUTE: Final = re.compile(r"/(t|callback|slack|healthz)(?:/([A-Za-z0-9._-]{1,128}))?\Z")
_JSON: Final = "application/json"
Serve = Callable[[Request, str], Awaitable[Reply]]


class PageServer:
    """Serves the routes; every other path is a 404."""

    def __init__(self, urls: PageUrls, tickets: Tickets, slack: SlackInbox | None = None) -> None:
        self._urls = urls
        self._tickets = tickets
        self._slack = slack
        pages = TicketPages(urls, tickets)
        self._routes: dict[str, dict[str, Serve]] = {
            "t": {"GET": pages.show, "POST": pages.answer},
            "callback": {"POST": self._callback},
            "slack": {"POST": self._slack_action},
            "healthz": {"GET": self._health},
        }

    async def handle(self, request: Request) -> Reply:
        """Handle a request."""
        # First: a request under another host name was redirected here by another site.
        if not self._urls.accepts_host(request.header("host")):
            return text_reply(421, "this host name is not served here")
        found = _ROUTE.match(request.path)
        if found is None or not _is_route(found[1], found[2]):
            return text_reply(404, "not found")
        methods = self._routes[found[1]]
        serve = methods.get(request.method)
        if serve is None:
            return text_reply(405, "this method is not allowed here", [("Allow", ", ".join(methods))])
        return await serve(request, found[2] or "")

    @asynccontextmanager
    async def serving(self, limits: Limits | None = None) -> AsyncIterator[None]:
        """Serve at the configured address; a port of 0 is replaced by the one that was chosen."""
        listen = self._urls.listen
        if listen is None:
            raise UsageError(
                "there is no address to listen at", hint="set `approvals.listen`, or name one with --listen"
            )
        # Another process recognizes this server by the secret.
        self._urls.links.make()
        async with WebServer(self.handle, limits).serving(*listen) as port:
            self._urls.listen = listen._replace(port=port)
            yield

    async def _callback(self, request: Request, ticket_id: str) -> Reply:
        if (request.header("content-type") or "").partition(";")[0].strip().lower() != _JSON:
            return text_reply(415, f"expected {_JSON}")
        return await handle_callback(self._tickets, ticket_id, request.body)

    async def _slack_action(self, request: Request, _: str) -> Reply:
        if self._slack is None:
            return text_reply(404, "not found")
        return await self._slack.handle(request, self._tickets)

    async def _health(self, request: Request, _: str) -> Reply:
        if not self._urls.links.is_there:
            return json_reply(200, {"status": "ok"})
        challenge = request.query_field("c")
        proof = {"proof": self._urls.proof(challenge)} if challenge else {}
        return json_reply(200, {"status": "ok", "serves": self._urls.links.mark, **proof})


def _is_route(first: str, second: str | None) -> bool:
    if first == "healthz":
        return second is None
    if first == "slack":
        return second == "actions"
    return second is not None and is_safe_name(second)
