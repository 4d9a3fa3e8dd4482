"""The methods of `gert serve`: the operations of gert, streams of events, and diagnostics that follow files.

A request that is cancelled is answered once, with -32800; cancelling a request is not cancelling a run. Progress is
sent only for a token that the client sent.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, get_type_hints

import msgspec

from gert.ecosystem.host.config.machine.version import version_line
from gert.ecosystem.host.operations.access import Access, Refused
from gert.ecosystem.host.operations.editor import Watch, stamp, watched
from gert.ecosystem.host.operations.editor_table import EDITOR_OPERATIONS
from gert.ecosystem.host.operations.run_status import Progress
from gert.ecosystem.host.operations.table import Operation, perform
from gert.ecosystem.host.shapes.documents import Finding
from gert.ecosystem.host.shapes.schema import schema_for
from gert.ecosystem.rpc.messages import INVALID_PARAMS, INVALID_REQUEST
from gert.ecosystem.rpc.peer import Peer
from gert.ecosystem.surfaces.serve.messages import (
    NOTIFICATIONS,
    PROTOCOL,
    Done,
    Follow,
    Following,
    Initialize,
    Initialized,
    Nothing,
    Reference,
    Unfollow,
    Unfollowed,
    Unwatch,
    Unwatched,
    Watching,
)
from gert.errors import RpcFault

PREFIX: Final = "gert/"
REFUSED: Final = -32000
OVERLOADED: Final = -32001
NOT_INITIALIZED: Final = -32002
MOST_CALLS: Final = 32
"""Calls that are performed at the same time."""
_LOOK: Final = 0.3
_FOLLOW_PAGE: Final = 500
_GOES_ON: Final = ("running", "waiting_for_person", "waiting_for_approval")


class Service:
    """Answers the requests of one editor."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._peer: Peer | None = None
        self._is_initialized = False
        self._calls = 0
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self.handlers: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "initialize": self._initialize,
            "shutdown": self._shutdown,
            **{f"{PREFIX}{name}": self._operation(each) for name, each in EDITOR_OPERATIONS.items()},
            "gert/follow": self._guarded(self._follow),
            "gert/unfollow": self._guarded(self._unfollow),
            "gert/watch": self._guarded(self._watch),
            "gert/unwatch": self._guarded(self._unwatch),
            "gert/methods": self._guarded(self._methods),
        }

    def connect(self, peer: Peer) -> None:
        """Send notifications to this client."""
        self._peer = peer

    async def close(self) -> None:
        """Stop every stream."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- requests

    async def _initialize(self, params: Any) -> Initialized:
        wanted = (params or {}).get("protocol_version", PROTOCOL) if isinstance(params, dict | None) else None
        if wanted != PROTOCOL:
            raise RpcFault(f"expected protocol version `{PROTOCOL}`", code=INVALID_PARAMS)
        self._is_initialized = True
        return {
            "protocol_version": PROTOCOL,
            "server": version_line(),
            "root": self._access.root,
            "methods": sorted(self.handlers),
            "notifications": sorted(NOTIFICATIONS),
        }

    async def _shutdown(self, params: Any) -> Done:
        """End every stream; the editor then closes the input."""
        await self.close()
        self._is_initialized = False
        return {}

    def _operation(self, operation: Operation) -> Callable[[Any], Awaitable[Any]]:
        async def call(params: dict[str, Any]) -> Any:
            token = params.pop("progress_token", None)

            async def report(progress: Progress) -> None:
                if token is not None:
                    said = {"token": token, "done": progress.done, "running": list(progress.running)}
                    self._notify("gert/progress", said)

            return await perform(operation, self._access, params, on_progress=report)

        return self._guarded(call)

    def _guarded(self, call: Callable[[dict[str, Any]], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        """Refuse calls before `initialize`, too many at once, and params that are no object."""

        async def guarded(params: Any) -> Any:
            if not self._is_initialized:
                raise RpcFault("call `initialize` first", code=NOT_INITIALIZED)
            if params is not None and not isinstance(params, dict):
                raise RpcFault("`params` must be an object", code=INVALID_REQUEST)
            if self._calls >= MOST_CALLS:
                raise RpcFault(f"more than {MOST_CALLS} calls at once", code=OVERLOADED, data={"retryable": True})
            self._calls += 1
            try:
                return await call(dict(params or {}))
            except Refused as refused:
                raise RpcFault(refused.message, code=REFUSED, data=refused.as_json()) from None
            finally:
                self._calls -= 1

        return guarded

    async def _methods(self, params: dict[str, Any]) -> Reference:
        """The schema of every method of this version."""
        return reference()

    # --- streams

    async def _follow(self, params: dict[str, Any]) -> Following:
        said = _read(params, Follow)
        run_id = self._access.require_run_id(said.run_id)
        await perform(EDITOR_OPERATIONS["run_status"], self._access, {"run_id": run_id})
        self._start("follow", run_id, self._stream(run_id, said.since))
        return {"run_id": run_id}

    async def _unfollow(self, params: dict[str, Any]) -> Unfollowed:
        return {"stopped": self._stop("follow", _read(params, Unfollow).run_id)}

    async def _stream(self, run_id: str, since: int) -> None:
        operation, told = EDITOR_OPERATIONS["events"], None
        while True:
            status = await perform(EDITOR_OPERATIONS["run_status"], self._access, {"run_id": run_id})
            said = {"run_id": run_id, "since": since, "limit": _FOLLOW_PAGE}
            page = await perform(operation, self._access, said)
            for event in page["events"]:
                self._notify("gert/event", {"run_id": run_id, "event": event})
            since = page["last"]
            if since >= page["total"] and status["status"] != told:
                told = status["status"]
                self._notify("gert/status", {"run_id": run_id, "status": told})
                if told not in _GOES_ON:
                    return
            await asyncio.sleep(_LOOK)

    async def _watch(self, params: dict[str, Any]) -> Watching:
        files = watched(self._access, _read(params, Watch))
        for path, file in files.items():
            self._start("watch", path, self._diagnose(path, file))
        return {"watching": sorted(name for kind, name in self._tasks if kind == "watch")}

    async def _unwatch(self, params: dict[str, Any]) -> Unwatched:
        return {"stopped": [path for path in _read(params, Unwatch).paths if self._stop("watch", path)]}

    async def _diagnose(self, path: str, file: str) -> None:
        """Send the findings of a file now, and again whenever it changes."""
        known: object = self
        while True:
            found = stamp(file)
            if found != known:
                known = found
                self._notify("gert/diagnostics", {"path": path, "findings": await self._findings(path)})
            await asyncio.sleep(_LOOK)

    async def _findings(self, path: str) -> list[Finding]:
        try:
            checked = await perform(EDITOR_OPERATIONS["validate"], self._access, {"path": path})
        except Refused as refused:
            where = {"rule": refused.code, "severity": "error", "path": "", "line": 1, "column": 1}
            return [{**where, "message": refused.message, "hint": refused.hint}]  # type: ignore[typeddict-item]
        return [finding for each in checked["files"] for finding in each["findings"]]

    def _start(self, kind: str, name: str, work: Any) -> None:
        self._stop(kind, name)
        task = self._tasks[kind, name] = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda ended: self._forget(kind, name, ended))

    def _forget(self, kind: str, name: str, ended: "asyncio.Task[None]") -> None:
        if self._tasks.get((kind, name)) is ended:
            del self._tasks[kind, name]
        if not ended.cancelled() and ended.exception() is not None:
            self._notify("gert/status", {"run_id": name, "status": "error", "message": str(ended.exception())})

    def _stop(self, kind: str, name: str) -> bool:
        task = self._tasks.pop((kind, name), None)
        if task is not None:
            task.cancel()
        return task is not None

    def _notify(self, method: str, params: dict[str, Any]) -> None:
        if self._peer is not None:
            self._peer.notify(method, params)


def _read(params: dict[str, Any], kind: type[Any]) -> Any:
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as problem:
        raise RpcFault(str(problem), code=INVALID_PARAMS) from None


OWN: Final[Mapping[str, tuple[type[msgspec.Struct], Callable[..., Any]]]] = {
    "initialize": (Initialize, Service._initialize),
    "shutdown": (Nothing, Service._shutdown),
    "gert/follow": (Follow, Service._follow),
    "gert/unfollow": (Unfollow, Service._unfollow),
    "gert/watch": (Watch, Service._watch),
    "gert/unwatch": (Unwatch, Service._unwatch),
    "gert/methods": (Nothing, Service._methods),
}
"""Methods that are no operations: the connection, and streams."""


def reference() -> Reference:
    """Every method with its parameters and result, and every notification: what the docs are generated from."""
    rows: dict[str, dict[str, Any]] = {
        name: {
            "description": ((call if kind is Nothing else kind).__doc__ or "").strip(),
            "params": schema_for(kind, closed=kind is not Initialize),
            "result": schema_for(get_type_hints(call)["return"]),
            "writes": False,
        }
        for name, (kind, call) in OWN.items()
    }
    for name, each in EDITOR_OPERATIONS.items():
        rows[f"{PREFIX}{name}"] = {
            "description": each.description,
            "params": each.input_schema,
            "result": each.output_schema,
            "writes": each.writes,
        }
    notes = {
        name: {"description": (kind.__doc__ or "").strip(), "params": schema_for(kind)}
        for name, kind in NOTIFICATIONS.items()
    }
    return {"protocol_version": PROTOCOL, "methods": rows, "notifications": notes}
