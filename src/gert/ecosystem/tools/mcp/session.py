"""One session with an MCP server: opened once, used for many calls, and closed by the task that opened it.

The SDK speaks both eras of the protocol: it asks `server/discover` first and falls back to `initialize`. Its session is
held by a task of its own, because its scopes must be left by the task that entered them, and calls come from any task.
gert offers no sampling, elicitation or roots, so the SDK refuses requests for them.
"""

import asyncio
import math
import time
from collections.abc import Mapping
from typing import Any, Final

from mcp import Client
from mcp.types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    InputRequiredResult,
    PaginatedRequestParams,
    ToolListChangedNotification,
)
from mcp.types import Tool as ListedTool
from msgspec.structs import replace
from pydantic import TypeAdapter

from gert._version import __version__
from gert.ecosystem.tools.mcp.links import Link
from gert.ecosystem.tools.mcp.problems import is_closing, rpc_error
from gert.ecosystem.tools.mcp.quiet import quiet
from gert.ecosystem.tools.mcp.results import CallResult
from gert.errors import InputError, RpcError, RpcFault, RpcLost
from gert.kernel.foundation.names import listing
from gert.kernel.foundation.text import plain_line
from gert.kernel.runbook.mcp_tools import HINTS, ServerTool, shown

MAX_PAGES: Final = 50
MAX_TOOLS: Final = 2000
LIST_SECONDS: Final = 60.0
"""How old the list of tools may be when a tool is called."""

CLOSE_SECONDS: Final = 8.0
_CLOSING_SECONDS: Final = 1.0
"""How long a session takes to find out why its connection ended."""

_RESULT: Final[TypeAdapter[CallToolResult | InputRequiredResult]] = TypeAdapter(CallToolResult | InputRequiredResult)


class Session:
    """A session with one server."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.tools: Mapping[str, ServerTool] = {}
        self._listed_at = -math.inf
        self._listing = asyncio.Lock()
        self._client: Client | None = None
        self._ready = asyncio.Event()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._problem: RpcError | None = None
        self._calls = 0
        self._is_lost = False

    @property
    def is_usable(self) -> bool:
        """Whether it can be called."""
        return self._client is not None and self._ready.is_set() and self.link.lost is None and not self._is_lost

    @property
    def server(self) -> str | None:
        """The name and version that the server gives itself."""
        info = self._client.server_info if self._client is not None else None
        return plain_line(f"{info.title or info.name} {info.version}", 100) if info is not None else None

    @property
    def protocol(self) -> str:
        """The negotiated revision of the protocol."""
        return self._client.protocol_version if self._client is not None else ""

    @property
    def said(self) -> str:
        """The last line that a started server printed on standard error, to end a message with."""
        line = self.link.stderr.last_line if self.link.stderr is not None else ""
        return f": {line}" if line else ""

    async def open(self) -> None:
        """Connect, negotiate and list the tools; RpcError if that fails."""
        self._task = asyncio.create_task(self._serve())
        ready = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait({self._task, ready}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.close()
            raise
        finally:
            ready.cancel()
        if not self._ready.is_set():
            raise self._problem or RpcLost(f"{self.link.title} was stopped", sent=False)

    async def close(self) -> None:
        """End the session, and a process that was started for it; what does not end in time is cancelled."""
        if self._task is None:
            return
        self._stop.set()
        try:
            await asyncio.wait({self._task}, timeout=CLOSE_SECONDS if self._ready.is_set() else 0.0)
        finally:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)

    def kill(self) -> None:
        """End it at once; calls in flight fail."""
        if not self.link.kill() and self._task is not None:
            self._task.cancel()

    async def call(self, name: str, arguments: dict[str, Any]) -> CallResult:
        """Call a tool; RpcFault if the answer is no result, RpcLost if there is no answer."""
        request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments))
        self.link.asked.clear()
        self._calls += 1
        try:
            # Not `call_tool`: it checks results against the server's own schema, whose patterns may take for ever.
            with quiet():
                result = await self._session.send_request(request, _RESULT)
        except InputError:
            raise  # it was not sent
        except Exception as problem:
            raise await self._error(problem, sent=True) from None
        finally:
            self._calls -= 1
        if isinstance(result, InputRequiredResult):
            wanted = sorted({each.method for each in (result.input_requests or {}).values()})
            raise RpcFault(f"`{shown(name)}` asks for {', '.join(wanted) or 'a retry'}, which gert refuses")
        found = CallResult.of(result)
        if found.is_error and self.link.asked:
            refused = listing(map(shown, dict.fromkeys(self.link.asked)))
            return replace(found, text=f"{found.text}\n(gert refused its request {refused})")
        return found

    async def current_tools(self) -> Mapping[str, ServerTool]:
        """The tools of the server; the list is read again after a minute, and when the server says that it changed."""
        if time.monotonic() - self._listed_at > LIST_SECONDS:
            async with self._listing:
                if time.monotonic() - self._listed_at > LIST_SECONDS:
                    try:
                        with quiet():
                            await self._list()
                    except Exception as problem:
                        raise await self._error(problem, sent=False) from None
        return self.tools

    @property
    def _session(self) -> Any:
        if self._client is None:
            raise RpcLost(f"the connection to {self.link.title} has ended", sent=False, by_exit=True)
        return self._client.session

    async def _error(self, problem: Exception, *, sent: bool) -> RpcError:
        """Explain why a request failed; a session without a connection is not used again."""
        error = await self._explained(problem, sent=sent)
        self._is_lost = self._is_lost or isinstance(error, RpcLost)
        return error

    async def _explained(self, problem: Exception, *, sent: bool) -> RpcError:
        """Explain a problem; if the connection ended, the task of the session knows why."""
        if is_closing(problem) and self.link.lost is None and self._task is not None:
            alone = self._calls == 1
            await asyncio.wait({self._task}, timeout=_CLOSING_SECONDS)
            if isinstance(self._problem, RpcLost):
                unsent = alone and not self._problem.sent
                return RpcLost(self._problem.message, sent=sent and not unsent, by_exit=self._problem.by_exit)
        return rpc_error(problem, self.link, sent=sent)

    # --- the task of the session

    async def _serve(self) -> None:
        info = Implementation(name="gert", version=__version__)
        try:
            with quiet():
                streams = self.link.streams()
                async with Client(streams, cache=None, client_info=info, message_handler=self._noticed) as client:
                    self._client = client
                    await self._list()
                    self._ready.set()
                    await self._stop.wait()
        except Exception as problem:
            self._problem = rpc_error(problem, self.link, sent=self._ready.is_set())
        finally:
            self._client = None

    async def _noticed(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._listed_at = -math.inf

    async def _list(self) -> None:
        found: dict[str, ServerTool] = {}
        cursors: set[str] = set()
        params: PaginatedRequestParams | None = None
        while len(cursors) < MAX_PAGES and len(found) <= MAX_TOOLS:
            page = await self._session.list_tools(params=params)
            for tool in page.tools:
                if tool.name in found:
                    raise RpcFault(f"{self.link.title} lists the tool `{shown(tool.name)}` twice")
                found[tool.name] = _plain(tool)
            cursor = page.next_cursor
            if cursor is None:
                self.tools, self._listed_at = found, time.monotonic()
                return
            if cursor in cursors:
                break
            cursors.add(cursor)
            params = PaginatedRequestParams(cursor=cursor)
        raise RpcFault(f"{self.link.title} lists tools without end ({len(found)} so far)")


def _plain(tool: ListedTool) -> ServerTool:
    hints = tool.annotations.model_dump(by_alias=True) if tool.annotations is not None else {}
    return ServerTool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations={name: hints[name] for name in HINTS if isinstance(hints.get(name), bool)},
    )
