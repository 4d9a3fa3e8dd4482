"""The mcp transport: an action is a tool of an MCP server, which is connected once per run and reused.

A call that may have happened is not repeated: after a lost connection only idempotent actions are called again, once
(narrower than ecosystem-v0 §11). A tool that differs from what was imported is refused.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace

from gert.ecosystem.process.command import Command
from gert.ecosystem.rpc.peer import GRACE
from gert.ecosystem.tools.jsonrpc import server_name
from gert.ecosystem.tools.mcp.endpoint import Endpoint
from gert.ecosystem.tools.mcp.results import CallResult, answer_of
from gert.ecosystem.tools.mcp.servers import EndpointOf, link_to, server_of
from gert.ecosystem.tools.mcp.session import Session
from gert.ecosystem.tools.outputs import redacted_failure, redactor_for
from gert.ecosystem.tools.server_calls import ServerCalls
from gert.ecosystem.tools.stdio import DEFAULT_LIMIT, ProgramLocation, location_changed, location_of
from gert.errors import InputError, RpcError, RpcFault, RpcLost
from gert.kernel.engine.requests import CallPreview, CallTool, ToolAnswer
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.secret_refs import reveal_all
from gert.kernel.runbook.documents.tool import ActionBlock, Tool
from gert.kernel.runbook.mcp_tools import ServerTool, change_since_import, import_command, shown

Ask = CallTool | CallPreview
_LARGE: Final = 512 * 1024


class _Called(NamedTuple):
    """A call: the tool file, the name of the tool on the server, the action and the request."""

    tool: Tool
    name: str
    action: ActionBlock
    ask: Ask

    @property
    def may_repeat(self) -> bool:
        """Whether it may happen twice."""
        return self.ask.contract.idempotent or isinstance(self.ask, CallPreview)


class ChangedTool(RpcFault):
    """A tool of the server is not what was imported."""


class _Slot:
    """One server of the run, and its session."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = asyncio.Lock()
        self.session: Session | None = None
        self._tools: Mapping[str, ServerTool] = {}
        self._accepted: set[str] = set()

    def accept(self, tool: Tool, name: str, tools: Mapping[str, ServerTool]) -> ServerTool:
        """Return a tool of the server, unless it is missing or differs from what was imported; each list is checked."""
        if tools is not self._tools:
            self._tools, self._accepted = tools, set()
        if name not in self._accepted:
            change = change_since_import(tool, name, tools.get(name))
            if change is not None:
                raise ChangedTool(f"{change}; review the change and run `{import_command(tool)}`")
            if name not in tools:
                raise RpcFault(f"the server of `{tool.meta.name}` has no tool `{shown(name)}`")
            self._accepted.add(name)
        return tools[name]

    def printed(self) -> Callable[[], str]:
        """Return what gives, later, all that the server has printed on standard error from now on."""
        before = self.session
        tail = before.link.stderr if before is not None else None
        began = tail.position if tail is not None else 0

        def printed() -> str:
            now = self.session
            return now.link.printed(began if now is before else 0) if now is not None else ""

        return printed


class Mcp:
    """Calls tools of MCP servers.

    endpoint_of: returns the URL and headers of a tool, or why they are refused
    limit: bytes of one message, and of the text that is kept of a result
    grace: seconds for each way to stop a server
    """

    def __init__(
        self,
        calls: ServerCalls,
        endpoint_of: EndpointOf,
        limit: int = DEFAULT_LIMIT,
        grace: float = GRACE,
    ) -> None:
        self._calls = calls
        self._context = calls.context
        self._endpoint_of = endpoint_of
        self._limit = limit
        self._grace = grace
        self._entries: dict[Any, _Slot] = {}
        self._sessions: set[Session] = set()
        self._is_closed = False

    async def call(self, tool: Tool, action_name: str, action: ActionBlock, ask: Ask) -> ToolAnswer:
        """Call an action, or its preview; the server is connected first if it is not."""
        server = server_of(tool, self._context, self._endpoint_of)
        redactor = redactor_for(self._calls.redactor, ask)
        if isinstance(server, Failure):
            return ToolAnswer(failure=redacted_failure(server, redactor))
        reason = _outdated(ask, tool, server)
        if reason is not None:
            return ToolAnswer(failure=Failure("approval_outdated", reason))
        name = action.mcp_tool or action_name
        entry = self._entry(ask.tool, server)
        printed = entry.printed()
        called = _Called(tool, name, action, ask)

        async def work() -> ToolAnswer:
            result = await self._result(entry, server, called)
            shown: list[str] = []
            read = partial(
                answer_of, name, result, action, ask.contract, redactor, limit=self._limit, show=shown.append
            )
            # Much text is searched in a thread, so that other lanes are not blocked.
            answer = await asyncio.to_thread(read) if len(result.text) > _LARGE else read()
            self._calls.show(ask, shown)
            return replace(answer, stderr=printed())

        return await self._calls.attend(entry.name, ask, work, printed, partial(_failure, ask))

    def locate(self, tool: Tool, action: ActionBlock, inputs: Mapping[str, Any]) -> ProgramLocation | None:
        """Return where the server is: its program and folder, or its host where a variable names that."""
        server = server_of(tool, self._context, self._endpoint_of)
        return None if isinstance(server, Failure) else _place(tool, server)

    def kill_all(self) -> None:
        """End every connection at once, and kill the servers that were started."""
        for session in self._sessions:
            session.kill()

    async def close(self) -> None:
        """Close all connections at the same time; nothing of a server that was started runs when this returns."""
        self._is_closed = True
        sessions, self._sessions = self._sessions, set()
        await asyncio.gather(*(session.close() for session in sessions))

    # --- one call

    async def _result(self, entry: _Slot, server: Command | Endpoint, called: _Called) -> CallResult:
        """Call a tool; after a lost connection, once more, unless the call may have happened and is not idempotent."""
        arguments = self._arguments(called)
        try:
            return await self._called(entry, server, called, arguments)
        except RpcLost as lost:
            if self._is_closed or not lost.by_exit or (lost.sent and not called.may_repeat):
                raise
        return await self._called(entry, server, called, arguments)

    async def _called(
        self, entry: _Slot, server: Command | Endpoint, called: _Called, arguments: dict[str, Any]
    ) -> CallResult:
        session = await self._session(entry, server, called)
        found = entry.accept(called.tool, called.name, await session.current_tools())
        if isinstance(called.ask, CallPreview) and found.arguments:
            # A preview has the inputs of its action, and need not take all of them.
            arguments = {key: value for key, value in arguments.items() if key in found.arguments}
        return await session.call(called.name, arguments)

    def _arguments(self, called: _Called) -> dict[str, Any]:
        inputs = reveal_all(called.ask.inputs, self._context.secrets)
        return {called.action.mcp_arguments.get(name, name): value for name, value in inputs.items()}

    # --- servers

    def _entry(self, tool: str, server: Command | Endpoint) -> _Slot:
        """Return the entry of a server; a program that is found elsewhere now is another server."""
        place = server.program if isinstance(server, Command) else server.url
        key = (tool, place)
        if key not in self._entries:
            self._entries[key] = _Slot(f"{server_name(tool)} {len(self._entries)}")
        return self._entries[key]

    async def _session(self, entry: _Slot, server: Command | Endpoint, called: _Called) -> Session:
        """Return a usable session, after connecting if necessary."""
        if entry.session is not None and entry.session.is_usable:
            return entry.session
        async with entry.lock:
            if entry.session is not None and entry.session.is_usable:
                return entry.session
            await self._discard(entry)
            if self._is_closed:
                raise RpcLost(f"the server of `{called.tool.meta.name}` was stopped", sent=False)
            link = link_to(
                server,
                called.tool,
                self._calls.redactor,
                limit=self._limit,
                grace=self._grace,
                name=entry.name,
                marks=self._calls.marks(server_name(called.ask.tool)),
                on_stderr=self._calls.listener(entry.name),
            )
            session = entry.session = Session(link)
            self._sessions.add(session)
            await session.open()
            return session

    async def _discard(self, entry: _Slot) -> None:
        old, entry.session = entry.session, None
        if old is not None:
            self._sessions.discard(old)
            await old.close()


def _outdated(ask: Ask, tool: Tool, server: Command | Endpoint) -> str | None:
    """Return why an approval does not cover the server; a URL without variables is part of the approved request."""
    if not isinstance(ask, CallTool) or ask.approval is None or ask.approval.program is None:
        return None
    return location_changed(ask.approval, _place(tool, server))


def _place(tool: Tool, server: Command | Endpoint) -> ProgramLocation | None:
    """Return where a server is; of a URL with variables the host alone, because its path may hold a token."""
    if isinstance(server, Command):
        return location_of(server)
    if "${" not in (tool.meta.connect or ""):
        return None
    parts = urlsplit(server.url)
    return ProgramLocation(f"{parts.scheme}://{parts.netloc}", "")


def _failure(ask: Ask, problem: RpcError | InputError) -> Failure:
    """Return why a call has no result."""
    if isinstance(problem, InputError):
        return Failure("invalid_input", problem.message)
    if isinstance(problem, ChangedTool):
        return Failure("contract_violation", problem.message)
    if isinstance(problem, RpcLost) and problem.sent and isinstance(ask, CallTool) and not ask.contract.idempotent:
        return Failure("unknown_outcome", f"outcome of `{ask.tool}:{ask.action}` is unknown: {problem.message}")
    return Failure("transport", problem.message)
