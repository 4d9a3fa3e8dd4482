"""Extension runners: programs that execute a step and are called over JSON-RPC (ecosystem-v0 §6.3)."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from gert.ecosystem.process.command import Command
from gert.ecosystem.process.environment import environment_for
from gert.ecosystem.rpc import Answered, Peer, Server
from gert.ecosystem.rpc.runner import PROTOCOL_VERSION
from gert.ecosystem.tools.command import encoded
from gert.ecosystem.tools.runners import Runners, is_own_agent, program_name
from gert.ecosystem.tools.server_calls import ServerCalls
from gert.ecosystem.tools.stdio import ProgramLocation, location_of, outdated_approval
from gert.errors import InputError, RpcFault, RpcLost
from gert.kernel.engine.exit_reason import exit_message, reason_line
from gert.kernel.engine.requests import CallExtension, ToolAnswer
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.names import is_run_id, is_safe_name
from gert.kernel.foundation.principal import Principal, parse_principal
from gert.kernel.foundation.secret_refs import masked, reveal_all
from gert.kernel.foundation.text import one_line

START_TIMEOUT: Final = 30.0
"""Seconds that a runner has to answer `initialize`."""


def server_name(extension: str) -> str:
    """Return the name of the server of an extension."""
    return f"extension {extension}"


_MAX_CODE: Final = 2**31
_MOST_OUTPUTS: Final = 1000


class AgentWaits(Exception):
    """Raised where the agent of a step waits for people, and is called again when they have answered."""

    def __init__(self, ticket_id: str) -> None:
        super().__init__(f"the agent waits for the ticket `{ticket_id}`")
        self.ticket_id = ticket_id


class Extensions:
    """Calls the runners of one run; each is started on first use and reused.

    runners: finds the program of an extension
    own: the secrets that the runbook declares
    call: what the runner for agents receives about the run, with variables of gert: it is gert itself
    """

    def __init__(
        self,
        calls: ServerCalls,
        *,
        runners: Runners,
        own: Iterable[str],
        call: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._calls = calls
        self._call = call
        self._runners = runners
        self._environment = encoded(environment_for(own, calls.context.environment, calls.context.withheld))
        self._known: dict[str, Server] = {}

    async def call(self, ask: CallExtension) -> ToolAnswer:
        """Execute a step in its extension."""
        server = self._server(ask.extension)
        if isinstance(server, Failure):
            return ToolAnswer(failure=server)
        if (outdated := outdated_approval(ask.approval, server.command)) is not None:
            return ToolAnswer(failure=outdated)
        is_agent = is_own_agent(server.command.program)
        if is_agent and masked(ask.inputs) != ask.inputs:
            # A model would see it, and the ledger would hold it.
            message = "an agent may not be given a secret input; name its variable under `secrets` of a tool or runbook"
            return ToolAnswer(failure=Failure("invalid_input", message))
        try:
            inputs = reveal_all(ask.inputs, self._calls.context.secrets)
        except InputError as problem:
            return ToolAnswer(failure=Failure("invalid_input", problem.message))
        params = {"inputs": inputs, "vars": masked(ask.view), "contract": ask.contract.full()}
        if is_agent:
            # Other runners get what the protocol says; some take nothing else.
            params["call"] = {**self._call(), "id": ask.key, "path": ask.path}
        read = _answer_or_wait if is_agent else _answer
        return await self._calls.call(server, "execute", params, ask, lambda answered: read(server, answered))

    def locate(self, extension: str) -> ProgramLocation | None:
        """Return the program and folder of a runner; None if there is none."""
        server = self._server(extension)
        return None if isinstance(server, Failure) else location_of(server.command)

    def is_durable(self, extension: str) -> bool:
        """Whether a call that did not end is continued, not repeated, when it is made again."""
        program = self._runners.find(extension)
        return isinstance(program, str) and is_own_agent(program)

    def _server(self, extension: str) -> Server | Failure:
        known = self._known.get(extension)
        if known is not None and os.access(known.command.program, os.X_OK):
            return known
        program = self._runners.find(extension)
        if isinstance(program, Failure):
            message = f"there is no runner for the extension `{extension}`: {program.message}"
            return Failure(program.kind, message)
        name = server_name(extension)
        title = f"the extension `{extension}`"
        server = self._known[extension] = Server(
            name=name,
            title=title,
            command=Command(
                name=program_name(extension),
                program=program,
                arguments=(),
                environment={**self._environment, **self._calls.marks(name)},
                folder=self._calls.context.working,
            ),
            redactor=self._calls.redactor,
            greet=lambda peer: initialize(peer, title),
            farewell="shutdown",
            on_stderr=self._calls.listener(name),
        )
        return server


async def initialize(peer: Peer, title: str) -> Principal | None:
    """Greet a runner; return the principal it declares, if it does."""
    try:
        result = await peer.call("initialize", {"protocol_version": PROTOCOL_VERSION}, timeout=START_TIMEOUT)
    except RpcFault as fault:
        raise RpcLost(f"{title} refused `initialize` ({fault.code}): {fault.message}", sent=False) from None
    try:
        return greeting_of(result)
    except InputError as problem:
        raise RpcLost(f"{title} broke the protocol: `initialize`: {problem.message}", sent=False) from None


def greeting_of(result: Any) -> Principal | None:
    """Read the answer to `initialize`; InputError if it is not one."""
    if not isinstance(result, dict):
        raise InputError("expected an object with `capabilities`")
    if not isinstance(result.get("capabilities"), dict):
        raise InputError("expected `capabilities` to be an object")
    version = result.get("protocol_version", PROTOCOL_VERSION)
    if version != PROTOCOL_VERSION:
        raise InputError(
            f"expected `protocol_version` to be `{PROTOCOL_VERSION}`, found `{one_line(str(version), 40)}`"
        )
    declared = result.get("principal")
    principal = parse_principal(declared) if declared is not None else None
    if principal is not None and principal.kind == "human":
        # Only a person's own channel says that a person acted.
        raise InputError("expected the kind of `principal` to be `agent` or `system`, found `human`")
    return principal


def execution_of(result: Any) -> tuple[dict[str, Any], int, str]:
    """Read the answer to `execute`: outputs, exit code, standard error; InputError if it is not one."""
    if not isinstance(result, dict):
        raise InputError("expected an object with `outputs`")
    outputs, code, stderr = result.get("outputs", {}), result.get("exit_code", 0), result.get("stderr", "")
    if not isinstance(outputs, dict):
        raise InputError("expected `outputs` to be an object")
    if len(outputs) > _MOST_OUTPUTS:
        # Each one that the contract does not declare is an event.
        raise InputError(f"expected at most {_MOST_OUTPUTS} outputs, found {len(outputs)}")
    if isinstance(code, bool) or not isinstance(code, int) or abs(code) > _MAX_CODE:
        raise InputError("expected `exit_code` to be a whole number of at most 32 bits")
    if not isinstance(stderr, str):
        raise InputError("expected `stderr` to be text")
    child = result.get("child_run_id")
    if child is not None and not (isinstance(child, str) and is_run_id(child)):
        raise InputError("expected `child_run_id` to be the id of a run")
    return outputs, code, stderr


def _answer_or_wait(server: Server, answered: Answered) -> ToolAnswer:
    ticket_id = answered.result.get("waits_for") if isinstance(answered.result, dict) else None
    if isinstance(ticket_id, str) and is_safe_name(ticket_id):
        raise AgentWaits(ticket_id)
    return _answer(server, answered)


def _answer(server: Server, answered: Answered) -> ToolAnswer:
    try:
        outputs, code, said = execution_of(answered.result)
    except InputError as problem:
        message = f"{server.title} broke the protocol: `execute`: {problem.message}"
        return ToolAnswer(stderr=answered.stderr, failure=Failure("transport", message))
    # Masked before it is cut: half a secret would not be found.
    reason = server.redactor.text(reason_line(said)).value
    failure = Failure("exit_code", exit_message(server.title, code, reason)) if code else None
    stderr = f"{answered.stderr}{said}" if said else answered.stderr
    child = answered.result.get("child_run_id")
    return ToolAnswer(
        outputs=outputs,
        exit_code=code,
        stderr=stderr,
        failure=failure,
        principal=answered.greeting,
        child_run_id=None if child is None or server.redactor.text(child).masked else child,
    )
