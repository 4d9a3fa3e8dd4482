"""Call servers that answer JSON-RPC, and turn what happens into answers: extensions and `jsonrpc` tools share this."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from gert.ecosystem.process.descendants import mark_for
from gert.ecosystem.process.own_process import prepare_for_tools
from gert.ecosystem.rpc import Answered, Server, Servers
from gert.ecosystem.tools.command import CommandContext
from gert.ecosystem.tools.outputs import Interrupted, redacted_failure, redactor_for
from gert.errors import InputError, RpcError, RpcFault, RpcTimeout
from gert.kernel.engine.requests import CallExtension, CallPreview, CallTool, ToolAnswer
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.redaction import Redactor

Call: TypeAlias = CallTool | CallPreview | CallExtension
Work: TypeAlias = Callable[[], Awaitable[ToolAnswer]]
Printed: TypeAlias = Callable[[], str]
Explain: TypeAlias = Callable[[RpcError | InputError], Failure]
Read: TypeAlias = Callable[[Answered], ToolAnswer]
OutputListener: TypeAlias = Callable[[str, str, str], None]

_PROTOCOL_ERRORS: Final = frozenset({-32700, -32600, -32601, -32602, -32603})
"""Error codes of JSON-RPC itself: the server did not understand the call, or has a bug."""


def server_mark(run_id: str, name: str) -> str:
    """Return the mark of the processes of a server, which can be derived again from the record of the run."""
    return mark_for(run_id, _key(name))


def _key(name: str) -> str:
    return f"server {name}"


class ServerCalls:
    """Calls the servers of one run.

    redactor: masks every secret of the environment and of inputs
    """

    def __init__(
        self,
        servers: Servers,
        context: CommandContext,
        redactor: Redactor,
        on_output: OutputListener | None = None,
    ) -> None:
        prepare_for_tools()
        self.context = context
        self.redactor = redactor
        self.on_output = on_output
        self._servers = servers
        self._active: dict[str, list[str]] = {}

    def marks(self, name: str) -> dict[bytes, bytes]:
        """Return the variable that marks the processes of a server."""
        return self.context.marks(_key(name))

    def listener(self, name: str) -> Callable[[str], None] | None:
        """Return what shows the standard error of a server, beside the latest call to it."""
        if self.on_output is None:
            return None
        shown, active = self.on_output, self._active.setdefault(name, [])

        def show(text: str) -> None:
            if active:
                shown(active[-1], "stderr", text)

        return show

    async def call(
        self, server: Server, method: str, params: Any, ask: Call, read: Read, *, retries: bool = False
    ) -> ToolAnswer:
        """Call a server and read its answer; when cancelled, notify the server or end it."""

        async def work() -> ToolAnswer:
            return read(await self._servers.call(server, method, params, retries=retries))

        printed, explain = self._servers.stderr(server.name), partial(_failure, server.title)
        return await self.attend(server.name, ask, work, printed, explain)

    async def attend(self, name: str, ask: Call, work: Work, printed: Printed, explain: Explain) -> ToolAnswer:
        """Do the work of a call to a server, and turn what happens into an answer.

        name: the server, whose standard error is shown beside the call
        printed: returns what the server has printed on standard error since the call began
        explain: returns why the call failed
        """
        redactor = redactor_for(self.redactor, ask)
        started = time.monotonic()
        with self._shown(name, ask):
            try:
                answer = await work()
            except asyncio.CancelledError:
                cut = ToolAnswer(stderr=printed(), failure=Failure("cancelled", "the call was cancelled"))
                raise Interrupted(_masked(cut, redactor)) from None
            except (RpcError, InputError) as problem:
                answer = ToolAnswer(stderr=printed(), failure=explain(problem))
        return replace(_masked(answer, redactor), duration=round(time.monotonic() - started, 3))

    def show(self, ask: Call, texts: Iterable[str]) -> None:
        """Show the text that a call answered with, unless an output is secret."""
        is_hidden = any(parameter.secret for parameter in ask.contract.outputs.values())
        if self.on_output is not None and not is_hidden:
            for text in texts:
                self.on_output(ask.path, "stdout", text)

    @contextmanager
    def _shown(self, name: str, ask: Call) -> Iterator[None]:
        """Show the standard error of the server beside this call, unless an input or output of it is secret."""
        active = self._active.setdefault(name, [])
        is_shown = not _hides(ask)
        if is_shown:
            active.append(ask.path)
        try:
            yield
        finally:
            if is_shown:
                active.remove(ask.path)


def _hides(ask: Call) -> bool:
    """Whether an input or output of a call is secret."""
    declared = (*ask.contract.inputs.values(), *ask.contract.outputs.values())
    return any(parameter.secret for parameter in declared)


def _masked(answer: ToolAnswer, redactor: Redactor) -> ToolAnswer:
    """Mask the secret inputs of the call in its answer, as output of a process is masked where it is read."""
    outputs, stderr = redactor.value(answer.outputs), redactor.text(answer.stderr)
    failure = redacted_failure(answer.failure, redactor) if answer.failure is not None else None
    masked = outputs.masked + stderr.masked
    return replace(
        answer, outputs=outputs.value, stderr=stderr.value, failure=failure, redacted=answer.redacted + masked
    )


def _failure(title: str, problem: RpcError | InputError) -> Failure:
    """Return why a call failed: the server refused it, or it was not answered properly."""
    if isinstance(problem, InputError):
        return Failure("invalid_input", problem.message)
    if isinstance(problem, RpcTimeout):
        return Failure("timeout", problem.message)
    if isinstance(problem, RpcFault):
        message = f"{title} answered with an error ({problem.code}): {problem.message}"
        return Failure("transport" if problem.code in _PROTOCOL_ERRORS else "tool_error", message)
    return Failure("transport", problem.message)
