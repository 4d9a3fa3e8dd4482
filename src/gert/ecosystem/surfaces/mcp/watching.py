"""Tells clients what changed: the list of resources, and traces of runs that they subscribed to.

A client of the protocol with sessions is told on its connection; one of the protocol without is told over the bus, on
the stream that it opened with `subscriptions/listen`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    EmptyResult,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from gert.ecosystem.host.operations.access import Access
from gert.errors import GertError
from gert.kernel.foundation.names import is_run_id

TRACES: Final = "gert://traces/"
MOST_TRACES: Final = 100
"""Traces that are watched at the same time."""
MOST_CLIENTS: Final = 100
"""Clients that are told, of each trace and of the list."""
_LOOK: Final = 1.0
_IDLE: Final = 50
"""How much longer than a look at the folder the pause after it is, where the folder is large."""

Context = ServerRequestContext[Any, Any]


class Watching:
    """Watches the served folder and the traces that clients subscribed to."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus, max_subscriptions=MOST_CLIENTS)
        self._sessions: dict[str, ServerSession] = {}
        self._subscribers: dict[str, dict[str, ServerSession]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def remember(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Middleware: keep the connection of a client that has to be told there; the oldest gives way."""
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS and ctx.method != "initialize":
            key = _connection(ctx)
            self._sessions.pop(key, None)
            self._sessions[key] = ctx.session
            while len(self._sessions) > MOST_CLIENTS:
                del self._sessions[next(iter(self._sessions))]
        return await call_next(ctx)

    async def subscribe(self, ctx: Context, params: SubscribeRequestParams) -> EmptyResult:
        """Watch a trace for a client of the protocol with sessions."""
        uri = str(params.uri)
        subscribers = self._watch(uri)
        if len(subscribers) >= MOST_CLIENTS:
            raise MCPError(code=INVALID_PARAMS, message="too many clients watch this trace")
        subscribers[_connection(ctx)] = ctx.session
        return EmptyResult()

    async def unsubscribe(self, ctx: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        """Stop telling this client; others are still told."""
        subscribers = self._subscribers.get(str(params.uri), {})
        subscribers.pop(_connection(ctx), None)
        return EmptyResult()

    async def listen(self, ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Tell a client of the protocol without sessions, on the stream of this request."""
        for uri in params.notifications.resource_subscriptions or ():
            if str(uri).startswith(TRACES):
                self._watch(str(uri))
        return await self._listen(ctx, params)

    @asynccontextmanager
    async def lifespan(self, _: Any) -> AsyncIterator[dict[str, Any]]:
        """Watch while the server serves."""
        watching = asyncio.get_running_loop().create_task(self._watch_list())
        try:
            yield {}
        finally:
            tasks = [watching, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _watch(self, uri: str) -> dict[str, ServerSession]:
        """Watch a trace, and return the clients to tell of it."""
        run_id = uri.removeprefix(TRACES)
        if not uri.startswith(TRACES) or not is_run_id(run_id):
            raise MCPError(code=INVALID_PARAMS, message="only traces of runs can be watched")
        if uri not in self._tasks:
            if len(self._tasks) >= MOST_TRACES:
                raise MCPError(code=INVALID_PARAMS, message=f"more than {MOST_TRACES} traces are watched")
            self._subscribers[uri] = {}
            self._tasks[uri] = asyncio.get_running_loop().create_task(self._follow(uri, run_id))
        return self._subscribers[uri]

    async def _follow(self, uri: str, run_id: str) -> None:
        """Tell each time the trace has grown, until the run ends."""
        seen = 0
        try:
            while True:
                count, ended = await asyncio.to_thread(_length, self._access, run_id)
                if count > seen:
                    seen = count
                    await self._tell(self._subscribers[uri], lambda session: session.send_resource_updated(uri))
                    await self._bus.publish(ResourceUpdated(uri=uri))
                if ended:
                    return
                await asyncio.sleep(_LOOK)
        finally:
            self._tasks.pop(uri, None)
            self._subscribers.pop(uri, None)

    async def _watch_list(self) -> None:
        """Tell when a runbook or tool is added, removed or changed."""
        catalogue = self._access.catalogue
        loop = asyncio.get_running_loop()
        known, took = await asyncio.to_thread(catalogue.fingerprint), 0.0
        while True:
            await asyncio.sleep(max(_LOOK, took * _IDLE))
            began = loop.time()
            found = await asyncio.to_thread(catalogue.fingerprint)
            took = loop.time() - began
            if found != known:
                known = found
                await self._tell(self._sessions, lambda session: session.send_resource_list_changed())
                await self._bus.publish(ResourcesListChanged())

    async def _tell(self, sessions: dict[str, ServerSession], tell: Callable[[ServerSession], Awaitable[None]]) -> None:
        """Tell each client; one that takes nothing in a moment is forgotten."""
        for key, session in list(sessions.items()):
            told = False
            with suppress(Exception):  # whatever a transport raises for a client that is gone
                async with asyncio.timeout(_LOOK):
                    await tell(session)
                    told = True
            if not told:
                sessions.pop(key, None)


def _connection(ctx: Context) -> str:
    """What tells connections apart: the session over HTTP; on stdio there is one."""
    headers = getattr(ctx.request, "headers", None)
    return str(headers.get("mcp-session-id", "")) if headers is not None else ""


def _length(access: Access, run_id: str) -> tuple[int, bool]:
    """How many events a run has, and whether no more will come."""
    from gert.ecosystem.host.runs.listing import Runs

    try:
        with Runs(access.place) as runs:
            entry = runs.whole_entry(run_id)
            if entry.started_with is None or not access.contains(entry.started_with.file):
                return 0, True  # of another folder: as if it were not there
            return entry.events, entry.status not in ("running", "waiting")
    except GertError:
        return 0, True
