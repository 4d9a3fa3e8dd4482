"""What is served: the pages of tickets, signed callbacks, Slack's buttons, and whether anybody is there."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from gert.ecosystem.approvals.tickets import Tickets
from gert.ecosystem.host.channels.callbacks import called_back
from gert.ecosystem.host.channels.forms import Pages
from gert.ecosystem.host.channels.slack_inbox import SlackInbox
from gert.ecosystem.host.channels.urls import Front
from gert.ecosystem.host.channels.web import Limits, Reply, Request, WebServer, as_json, said
from gert.errors import UsageError
from gert.kernel.foundation.names import is_safe_name

_ROUTE: Final = re.compile(r"/(t|callback|slack|healthz)(?:/([A-Za-z0-9._-]{1,128}))?\Z")
_JSON: Final = "application/json"
Serve = Callable[[Request, str], Awaitable[Reply]]


class Site:
    """The routes; what is not among them is not there."""

    def __init__(self, front: Front, tickets: Tickets, slack: SlackInbox | None = None) -> None:
        self._front = front
        self._tickets = tickets
        self._slack = slack
        pages = Pages(front, tickets)
        self._routes: dict[str, dict[str, Serve]] = {
            "t": {"GET": pages.show, "POST": pages.answer},
            "callback": {"POST": self._callback},
            "slack": {"POST": self._slack_action},
            "healthz": {"GET": self._health},
        }

    async def handle(self, request: Request) -> Reply:
        """Answer a request."""
        # Before anything else: whoever calls us by another name was led here.
        if not self._front.is_called(request.header("host")):
            return said(421, "this is not served under that name")
        found = _ROUTE.match(request.path)
        if found is None or not _leads_somewhere(found[1], found[2]):
            return said(404, "there is nothing here")
        methods = self._routes[found[1]]
        serve = methods.get(request.method)
        if serve is None:
            return said(405, "this is not done so", [("Allow", ", ".join(methods))])
        return await serve(request, found[2] or "")

    @asynccontextmanager
    async def serving(self, limits: Limits | None = None) -> AsyncIterator[None]:
        """Serve at the address of the front; where any port will do, it learns which it is."""
        listen = self._front.listen
        if listen is None:
            raise UsageError(
                "there is no address to listen at", hint="set `approvals.listen`, or name one with --listen"
            )
        # Another process recognizes this server by the secret.
        self._front.links.make()
        async with WebServer(self.handle, limits).serving(*listen) as port:
            self._front.listen = listen._replace(port=port)
            yield

    async def _callback(self, request: Request, ticket_id: str) -> Reply:
        if (request.header("content-type") or "").partition(";")[0].strip().lower() != _JSON:
            return said(415, f"expected {_JSON}")
        return await called_back(self._tickets, ticket_id, request.body)

    async def _slack_action(self, request: Request, _: str) -> Reply:
        if self._slack is None:
            return said(404, "there is nothing here")
        return await self._slack.take(request, self._tickets)

    async def _health(self, request: Request, _: str) -> Reply:
        if not self._front.links.is_there:
            return as_json(200, {"status": "ok"})
        challenge = request.asked("c")
        proof = {"proof": self._front.proof(challenge)} if challenge else {}
        return as_json(200, {"status": "ok", "serves": self._front.links.mark, **proof})


def _leads_somewhere(first: str, second: str | None) -> bool:
    if first == "healthz":
        return second is None
    if first == "slack":
        return second == "actions"
    return second is not None and is_safe_name(second)
