"""What calls programs for one run: the transports of its tools, its extensions, and the servers that they share."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gert.ecosystem.host.config.dsn import Dsn
from gert.ecosystem.host.config.machine.platform import platform
from gert.ecosystem.host.config.settings import secret_variables
from gert.ecosystem.host.config.supported import TRANSPORTS, Transport
from gert.ecosystem.host.run.observer import Observer
from gert.ecosystem.host.run.prepare import Prepared
from gert.ecosystem.process.environment import missing_secret, started_by, starting
from gert.ecosystem.rpc import Servers
from gert.ecosystem.tools.command import CommandContext
from gert.ecosystem.tools.extension import Extensions
from gert.ecosystem.tools.server_calls import ServerCalls
from gert.ecosystem.tools.stdio import ProgramLocation
from gert.kernel.engine.inputs import ResolvedInputs
from gert.kernel.engine.requests import Subject
from gert.kernel.engine.run import secret_names
from gert.kernel.events.runbook import Failure, RunStart
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.runbook.documents.tool import RUNNER, Tool
from gert.kernel.runbook.program import Program

if TYPE_CHECKING:
    from gert.ecosystem.host.embedding.tools import EmbeddedTool


class Callers:
    """Calls the programs of a run; only the transports that its tools use are made.

    working: the folder programs run in
    started: the run as its first event says it, for runners of extensions
    """

    def __init__(
        self,
        prepared: Prepared,
        run_id: str,
        inputs: ResolvedInputs,
        redactor: Redactor,
        observers: tuple[Observer, ...],
        working: str,
        started: RunStart | None = None,
    ) -> None:
        self._program = program = prepared.program
        self._servers = Servers()
        root = started.root_run_id if started is not None else started_by(prepared.environ).root_run_id
        self._environment = starting(prepared.environ, run_id, root)

        def printed(path: str, stream: str, text: str) -> None:
            for observer in observers:
                observer.printed(path, stream, text)

        context = CommandContext(
            # A gert that a tool calls says which run started its run.
            environment=self._environment,
            secrets=inputs.secrets,
            withheld=frozenset((*secret_names(program), *_secret_variables(program, inputs), *own_variables(prepared))),
            working=working,
            run_id=run_id,
            platform=platform(),
        )
        calls = ServerCalls(self._servers, context, redactor, printed if observers else None)
        tools = (lookup.tool for lookup in program.lookups.values())
        used = {tool.meta.transport for tool in tools if tool is not None}
        self.transports: dict[str, Transport] = {
            name: transport(calls, prepared.settings.mcp_http_hosts)
            for name, transport in TRANSPORTS.items()
            if name in used
        }
        self.embedded = _embedded(prepared, run_id, inputs, redactor)
        runners = prepared.runners(working)
        own = tuple(secret.env for secret in program.runbook.meta.secrets)
        self.extensions = Extensions(
            calls,
            runners=runners,
            own=own,
            call=lambda: {
                "run_id": run_id,
                "folder": runners.folders[0],
                "secrets": own,
                "detach": prepared.options.approvals == "detach",
                "variables": _agent_variables(prepared),
                **_facts(prepared, started),
            },
        )

    def locate(self, subject: Subject) -> ProgramLocation | None:
        """Return the program of a call, where one is started for it."""
        if subject.extension is not None:
            return self.extensions.locate(subject.extension)
        tool = self._called(subject)
        if tool is None:
            return None
        return self.transports[tool.meta.transport].locate(tool, tool.actions[subject.action], subject.inputs)

    def lacks(self, subject: Subject) -> Failure | None:
        """Return a failure for the first secret that a call requires and this process does not have."""
        tool = self._called(subject)
        if tool is None or tool.meta.transport == RUNNER:
            return None
        # What an action sets itself is not taken from this environment.
        own = dict.fromkeys(tool.actions[subject.action].env, "set")
        return missing_secret(tool, {**self._environment, **own})

    def _called(self, subject: Subject) -> Tool | None:
        """Return the tool of a call, where gert itself calls it."""
        lookup = self._program.tool_names.get(subject.tool) if subject.tool is not None else None
        tool = lookup.tool if lookup is not None else None
        if tool is None or tool.meta.transport not in self.transports or subject.tool in self.embedded:
            return None
        return tool

    def kill_all(self) -> None:
        """Kill everything that runs."""
        for transport in self.transports.values():
            transport.kill_all()
        self._servers.kill_all()

    async def close(self) -> None:
        """Stop the servers."""
        for transport in self.transports.values():
            await transport.close()
        await self._servers.close()


def _agent_variables(prepared: Prepared) -> dict[str, str]:
    from gert.ecosystem.host.run.world.agent_variables import agent_variables  # most runs have no agent

    return agent_variables(prepared)


def _facts(prepared: Prepared, started: RunStart | None) -> dict[str, Any]:
    """What a runner that starts runs of its own has to know: who started this one, and its floor."""
    if started is None:
        return {}
    return {
        "runbook": started.runbook,
        "actor": started.actor,
        "require_signed": started.require_signed or isinstance(prepared.database, Dsn),
        "by_agent": started.principal is not None,
        "policies": [os.path.abspath(each) for each in prepared.options.policies],
        "config": os.path.abspath(prepared.options.config) if prepared.options.config is not None else None,
    }


def _embedded(prepared: Prepared, run_id: str, inputs: ResolvedInputs, redactor: Redactor) -> "dict[str, EmbeddedTool]":
    """The tools that the embedding program calls itself."""
    executors = prepared.embedded_tools
    if not executors:
        return {}
    from gert.ecosystem.host.embedding.tools import EmbeddedTool  # most runs bring no parts

    given: dict[str, Any] = {"run_id": run_id, "secrets": inputs.secrets, "redactor": redactor}
    return {name: EmbeddedTool(executor, **given) for name, executor in executors.items()}


def _secret_variables(program: Program, inputs: ResolvedInputs) -> Iterator[str]:
    """The environment variables secret inputs come from; a tool gets them as inputs, or not at all."""
    for name in inputs.secrets:
        source = program.runbook.meta.inputs[name].from_
        if source is not None and source.startswith("env/"):
            yield source.removeprefix("env/")


def own_variables(prepared: Prepared) -> Iterator[str]:
    """Variables that tools do not get: the address of the ledger, secrets of notices and others, keys of providers."""
    yield from prepared.hidden
    yield from secret_variables(prepared.program.runbook.meta, prepared.settings)
    if isinstance(prepared.database, Dsn) and prepared.database.variable is not None:
        yield prepared.database.variable
