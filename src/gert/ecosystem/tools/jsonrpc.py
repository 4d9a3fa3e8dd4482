"""The jsonrpc transport: a tool is a program that runs for the whole run, and an action is a call to it.

The parameters of a call are the inputs of the step. The result is an object with the outputs. Where the contract
declares one output only, it may be that output itself; where the action declares `extract`, outputs are read from it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from gert.ecosystem.rpc import Answered, Server
from gert.ecosystem.tools.command import server_command
from gert.ecosystem.tools.server_calls import ServerCalls
from gert.ecosystem.tools.stdio import ProgramLocation, location_of, outdated_approval
from gert.errors import InputError
from gert.kernel.engine.extract import ParsedJson, ToolOutput, extract
from gert.kernel.engine.requests import CallPreview, CallTool, ToolAnswer
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.secret_refs import reveal_all
from gert.kernel.governance.contract import Contract
from gert.kernel.runbook.documents.tool import ActionBlock, Tool


def server_name(tool: str) -> str:
    """Return the name of the server of a tool."""
    return f"tool {tool}"


class JsonRpc:
    """Calls actions of programs that keep running, one for each tool."""

    def __init__(self, calls: ServerCalls) -> None:
        self._calls = calls
        self._context = calls.context
        self._known: dict[str, Server] = {}

    async def call(self, tool: Tool, action_name: str, action: ActionBlock, ask: CallTool | CallPreview) -> ToolAnswer:
        """Call an action; after a crash the program is started again, and an idempotent action is called again."""
        if isinstance(ask, CallPreview):
            return ToolAnswer(failure=Failure("transport", f"`{ask.tool}` cannot show what `{ask.action}` would do"))
        server = self._server(tool, ask.tool)
        if isinstance(server, Failure):
            return ToolAnswer(failure=server)
        if (outdated := outdated_approval(ask.approval, server.command)) is not None:
            return ToolAnswer(failure=outdated)
        try:
            inputs = reveal_all(ask.inputs, self._context.secrets)
        except InputError as problem:
            return ToolAnswer(failure=Failure("invalid_input", problem.message))

        def read(answered: Answered) -> ToolAnswer:
            return _answer(server, answered, action, ask.contract)

        method = action.method or action_name
        return await self._calls.call(server, method, inputs, ask, read, retries=ask.contract.idempotent)

    def locate(self, tool: Tool, action: ActionBlock, inputs: Mapping[str, Any]) -> ProgramLocation | None:
        """Return the program and folder of a tool; None if it cannot be started."""
        command = server_command(tool, self._context)
        return None if isinstance(command, Failure) else location_of(command)

    def kill_all(self) -> None:
        """The pool kills its servers."""

    async def close(self) -> None:
        """The pool stops its servers."""

    def _server(self, tool: Tool, name: str) -> Server | Failure:
        """Return the server of a tool; the command is the same for every call."""
        command = server_command(tool, self._context)
        if isinstance(command, Failure):
            return command
        known = self._known.get(name)
        if known is None or known.command.program != command.program:
            marks = self._calls.marks(server_name(name))
            known = self._known[name] = Server(
                name=server_name(name),
                title=f"the tool `{name}`",
                command=msgspec.structs.replace(command, environment={**command.environment, **marks}),
                redactor=self._calls.redactor,
                on_stderr=self._calls.listener(server_name(name)),
            )
        return known


def _answer(server: Server, answered: Answered, action: ActionBlock, contract: Contract) -> ToolAnswer:
    """Map a result to outputs."""
    result = answered.result
    if action.extract:
        text = msgspec.json.encode(result).decode()
        found = extract(
            action, contract.outputs, ToolOutput(exit_code=0, stdout=text, document=lambda: ParsedJson(result))
        )
        return ToolAnswer(outputs=found.outputs, stderr=answered.stderr, failure=found.failure)
    if isinstance(result, dict):
        return ToolAnswer(outputs=result, stderr=answered.stderr)
    if len(contract.outputs) == 1:
        return ToolAnswer(outputs={next(iter(contract.outputs)): result}, stderr=answered.stderr)
    if result is None:
        return ToolAnswer(stderr=answered.stderr)
    message = f"{server.title} answered with a value, and its contract declares {len(contract.outputs)} outputs"
    return ToolAnswer(stderr=answered.stderr, failure=Failure("extraction", f"{message}: expected an object of them"))
