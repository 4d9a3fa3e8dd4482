"""Tool packs of an agent: the actions of a `*.tool.yaml` as tools, under the same rules as in runbooks."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pydantic import BaseModel

from gert.ecosystem.host.agent.governance import PolicyFileMiddleware
from gert.ecosystem.host.agent.input_model import given_inputs, input_model
from gert.ecosystem.host.config.ledger_location import Database
from gert.ecosystem.host.config.machine.platform import machine_id
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.llm.provider import API_KEY_ENV
from gert.ecosystem.host.run.options import RunOptions
from gert.ecosystem.host.run.prepare import Prepared
from gert.ecosystem.host.run.world.callers import Callers
from gert.ecosystem.host.run.world.sanitize import Sanitizer
from gert.ecosystem.tools.functions import LocalToolRegistry
from gert.ecosystem.tools.outputs import Interrupted
from gert.errors import (
    DocumentError,
    GertError,
    InputError,
    ToolPermanentError,
    ToolTransientError,
    ToolUnknownOutcomeError,
    UsageError,
)
from gert.kernel.agent.ports.tool import ToolExecutionContext
from gert.kernel.agent.safety.approvals import CallDetails, ProgramPlace
from gert.kernel.agent.safety.records import Call
from gert.kernel.engine.inputs import ResolvedInputs, binding_refusal
from gert.kernel.engine.outputs import check_outputs
from gert.kernel.engine.plan import expected_outputs, seconds_for
from gert.kernel.engine.requests import CallTool, Subject, ToolAnswer
from gert.kernel.engine.run import secret_names
from gert.kernel.engine.step_inputs import masked_inputs
from gert.kernel.events.runbook import Failure
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.foundation.secret_refs import secret_ref
from gert.kernel.governance.contract import Contract
from gert.kernel.governance.decide import ALLOWED, Decision, decide
from gert.kernel.governance.risk import risk_of
from gert.kernel.runbook.command import masked_call
from gert.kernel.runbook.documents.tool import RUNNER, ActionBlock, Tool

if TYPE_CHECKING:
    from gert.ecosystem.host.agent.skill_calls import SkillCalls

_MODEL_KEYS: Final = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")
_SHORTEST_KEY: Final = 16
"""A shorter one is a word such as `test`, which would be masked everywhere."""
_MOST_OPEN: Final = 16
"""Runs whose servers are kept between calls."""
_NOT_DONE: Final = frozenset(
    ("exit_code", "tool_error", "denied", "approval_outdated", "not_found", "missing_secret", "invalid_input")
)
"""Failures that a tool reports itself, or that prevent its start; after others it may have had its effect."""


class ToolPack:
    """The actions of one tool file, as tools of a kernel: pass it to `ArtanaKernel(packs=[…])`.

    policies: policy files and folders, in addition to those of the project and GERT_POLICY; the strictest verdict wins
    config: settings beside those of the project
    prefix: the beginning of the tools' names (default: the tool's name and `_`)
    actions: the actions to offer (default: all)
    secrets: the environment variable that each secret input is read from, by input; models never give or see them
    demands: what approvals must satisfy beyond the policies
    hidden: further variables that hold secrets: masked, and kept from the tool unless it declares them, as are the keys
        of models and the secrets of other packs of the kernel
    """

    def __init__(
        self,
        file: str,
        *,
        policies: Sequence[str] = (),
        config: str | None = None,
        prefix: str | None = None,
        actions: Sequence[str] | None = None,
        secrets: Mapping[str, str] | None = None,
        demands: Decision = ALLOWED,
        hidden: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        environ = os.environ if environ is None else environ
        self._prepared = _prepared(
            RunOptions(file=file, policies=tuple(policies), config=config), dict(secrets or {}), environ
        )
        self._prepared.hidden = frozenset((*_model_keys(environ), *hidden))
        self._inputs = secret_inputs(self._prepared, dict(secrets or {}), environ)
        self._redactor = self._prepared.redactor(self._inputs)
        ((_, lookup),) = self._prepared.program.lookups.items()
        if lookup.tool is None:
            raise DocumentError(f"`{file}` is not a tool file")
        self._tool: Tool = lookup.tool
        self._digest = lookup.document.digest if lookup.document is not None else ""
        self._calls = _RunCallers(self._prepared, self._inputs, self._redactor)
        start = prefix if prefix is not None else f"{self._tool.meta.name}_"
        self._actions = {f"{start}{name}".replace(".", "_"): name for name in self._chosen(actions)}
        self._skills = self._skill_calls()
        self.secret_variables = frozenset((*secret_names(self._prepared.program), *(secrets or {}).values()))
        """The variables that hold secrets of these tools."""
        self.contracts = {name: self._contract(action) for name, action in self._actions.items()}
        """The contract of each tool."""
        self.decisions: dict[str, Decision] = {
            name: decide(contract, self._prepared.floor.policies) | demands for name, contract in self.contracts.items()
        }
        """What the policies say about each tool."""
        self.middleware = PolicyFileMiddleware(self.decisions, self._prepared.groups, self._details)

    def register(
        self, port: LocalToolRegistry, lock: asyncio.Lock, database: Database | None, hidden: frozenset[str]
    ) -> None:
        """Register the tools; the kernel calls this. Tools that a rule serializes take turns with `lock`.

        hidden: the variables that hold secrets of other packs
        """
        # Executions of skills are recorded in the ledger of the agent.
        self._prepared.database = self._prepared.database or database
        self._prepared.hidden |= hidden
        self._redactor = self._prepared.redactor(self._inputs)
        self._calls = _RunCallers(self._prepared, self._inputs, self._redactor)
        self._skills = self._skill_calls()
        for name, action in self._actions.items():
            self._register(port, name, action, lock if self.decisions[name].serialize else nullcontext())

    async def close(self) -> None:
        """Stop the servers of the tools; the kernel calls this."""
        await self._calls.close()

    def _chosen(self, wanted: Sequence[str] | None) -> list[str]:
        known = self._tool.actions
        for name in wanted or ():
            if name not in known:
                raise InputError(f"the tool `{self._tool.meta.name}` has no action `{name}`", hint=", ".join(known))
        return list(known if wanted is None else wanted)

    def _skill_calls(self) -> "SkillCalls | None":
        if self._tool.meta.transport != RUNNER:
            return None
        from gert.ecosystem.host.agent.skill_calls import SkillCalls  # most packs call no skill

        return SkillCalls(self._prepared, [self._tool.actions[each] for each in self._actions.values()])

    def _contract(self, action: str) -> Contract:
        return self._prepared.program.contract_of_action(self._tool, self._tool.actions[action])

    def _register(
        self, port: LocalToolRegistry, name: str, action: str, turn: AbstractAsyncContextManager[Any]
    ) -> None:
        contract, block = self._contract(action), self._tool.actions[action]
        for each, parameter in contract.inputs.items():
            if parameter.secret and parameter.must_be_given and each not in self._inputs.secrets:
                hint = f"name the variable that holds it: secrets={{'{each}': 'NAME'}}, or leave the action out"
                raise InputError(f"the secret input `{each}` of `{name}` has no source", hint=hint)
        model = input_model(name, contract.inputs)

        async def call(arguments: Any, artana_context: ToolExecutionContext) -> Any:
            async with turn:
                return await self._call(action, contract, arguments, artana_context)

        call.__annotations__ = {"arguments": model, "artana_context": ToolExecutionContext}
        call.__doc__ = block.description or self._tool.meta.description or f"{self._tool.meta.name}: {action}"
        port.register(
            call,
            name=name,
            side_effect=_has_side_effect(contract),
            tool_version=self._version(block),
            risk_level=risk_of(contract).word,  # type: ignore[arg-type]
        )

    def _version(self, block: ActionBlock) -> str:
        if self._skills is not None:
            return self._skills.version(block, self._digest)
        return self._digest[:19].replace("sha256:", "") or "1.0.0"

    async def _call(
        self, action: str, contract: Contract, arguments: BaseModel, context: ToolExecutionContext
    ) -> dict[str, Any]:
        block = self._tool.actions[action]
        ask = CallTool(
            key=context.idempotency_key,
            path=action,
            step_id=action,
            timeout=seconds_for(block.timeout, answers=self._tool.answers),
            tool=self._tool.meta.name,
            action=action,
            inputs={**given_inputs(arguments), **self._secret_inputs(contract)},
            contract=contract,
        )
        answer = await self._answer(block, ask, context.run_id)
        expected = expected_outputs(contract, block, answers=self._tool.answers)
        outputs, violations = check_outputs(
            answer.outputs, contract.outputs, expected if answer.failure is None else frozenset(), action
        )
        failure = answer.failure
        if failure is None and violations and self._denies_violations(action):
            failure = Failure("contract_violation", violations[0][1])
        if failure is not None:
            raise _error(failure, contract)
        return outputs if contract.outputs else {"output": answer.stdout}

    async def _answer(self, block: ActionBlock, ask: CallTool, run_id: str) -> ToolAnswer:
        """Call the action as a runbook would, and redact what comes back."""
        intake = Sanitizer(self._redactor)
        async with self._calls.of(run_id) as callers:
            try:
                async with asyncio.timeout(ask.timeout):
                    if self._skills is not None:
                        answer = await self._skills.call(block, ask, run_id, self._decision(ask.action))
                    else:
                        transport = callers.transports[self._tool.meta.transport]
                        answer = await transport.call(self._tool, ask.action, block, ask)
            except Interrupted:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise asyncio.CancelledError from None
                answer = _timed_out(ask)
            except TimeoutError:
                answer = _timed_out(ask)
            except GertError as problem:
                answer = ToolAnswer(failure=Failure("transport", problem.message))
        return intake.take(answer, ask)

    async def _details(self, call: Call, arguments: Mapping[str, Any]) -> CallDetails:
        """Return what a call would do: its command or plan, and where its program is found."""
        action = self._actions[call.tool_name]
        block, contract = self._tool.actions[action], self._contract(action)
        given = given_inputs(input_model(call.tool_name, contract.inputs).model_validate(arguments))
        inputs = {**given, **self._secret_inputs(contract)}
        async with self._calls.of(call.run_id) as callers:
            found = callers.locate(Subject(inputs=inputs, tool=self._tool.meta.name, action=action))
        return CallDetails(
            contract=contract.full(),
            command=masked_call(self._tool, action, block, masked_inputs(inputs, contract)),
            program=None if found is None else ProgramPlace(found.program, found.folder, machine_id()),
            plan=None if self._skills is None else self._skills.plan(block, action, inputs, call.run_id),
        )

    def _secret_inputs(self, contract: Contract) -> dict[str, str]:
        return {name: secret_ref(name) for name in self._inputs.secrets if name in contract.inputs}

    def _denies_violations(self, action: str) -> bool:
        return self._decision(action).violations_deny

    def _decision(self, action: str) -> Decision:
        return next(self.decisions[name] for name, each in self._actions.items() if each == action)


def tool_pack(file: str, **options: Any) -> ToolPack:
    """Read a tool file, to be passed to `ArtanaKernel(packs=[…])`; options as of `ToolPack`."""
    return ToolPack(file, **options)


class _RunCallers:
    """The transports of each agent run: servers are shared by the calls of a run, and by no other run."""

    def __init__(self, prepared: Prepared, inputs: ResolvedInputs, redactor: Redactor) -> None:
        self._made = prepared, inputs, redactor
        self._open: dict[str, Callers] = {}
        self._used: dict[str, int] = {}

    def of(self, run_id: str) -> "_Use":
        """Return the transports of a run, for one call."""
        return _Use(self, run_id)

    async def take(self, run_id: str) -> Callers:
        """Make or find them; those of the run that is idle for longest are closed if there are too many."""
        found = self._open.pop(run_id, None)
        if found is None:
            prepared, inputs, redactor = self._made
            found = Callers(prepared, run_id, inputs, redactor, (), os.getcwd())
        self._open[run_id] = found
        self._used[run_id] = self._used.get(run_id, 0) + 1
        idle = [each for each in self._open if not self._used.get(each)]
        for each in idle[: max(len(self._open) - _MOST_OPEN, 0)]:
            await self._open.pop(each).close()
        return found

    def give_back(self, run_id: str) -> None:
        """A call has ended."""
        self._used[run_id] -= 1
        if not self._used[run_id]:
            del self._used[run_id]

    async def close(self) -> None:
        """Close all."""
        while self._open:
            _, callers = self._open.popitem()
            await callers.close()


class _Use:
    def __init__(self, owner: _RunCallers, run_id: str) -> None:
        self._owner, self._run_id = owner, run_id

    async def __aenter__(self) -> Callers:
        return await self._owner.take(self._run_id)

    async def __aexit__(self, *_: object) -> None:
        self._owner.give_back(self._run_id)


def _model_keys(environ: Mapping[str, str]) -> list[str]:
    """The variables that hold keys of models."""
    names = (*_MODEL_KEYS, environ.get(API_KEY_ENV, ""))
    return [name for name in names if len(environ.get(name, "")) >= _SHORTEST_KEY]


def _prepared(options: RunOptions, secrets: Mapping[str, str], environ: Mapping[str, str]) -> Prepared:
    """Prepare the calls of a tool as those of a runbook that has only this tool: the same settings, floor and rules."""
    path = os.path.abspath(options.file)
    if not os.path.isfile(path):
        raise UsageError(f"there is no file `{options.file}`")
    runbook = {
        "apiVersion": "kernel/v0",
        "meta": {
            "name": "tool-pack",
            "inputs": {
                name: {"type": "string", "secret": True, "required": False, "from": f"env/{variable}"}
                for name, variable in secrets.items()
            },
        },
        "tools": [f"./{os.path.basename(path)}"],
        "steps": [{"type": "end", "outcome": {"category": "resolved", "code": "none"}}],
    }
    beside = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.pack.yaml")
    workspace = Workspace(stored={beside: msgspec.json.encode(runbook)})
    return Prepared(msgspec.structs.replace(options, file=beside), environ, workspace)


def secret_inputs(prepared: Prepared, secrets: Mapping[str, str], environ: Mapping[str, str]) -> ResolvedInputs:
    """Read the secret inputs from the variables that the program names; refused where a policy denies it."""
    for name, variable in secrets.items():
        refusal = binding_refusal(f"env/{variable}", prepared.floor.policies)
        if refusal is not None:
            raise InputError(f"the secret input `{name}`: {refusal}")
        if not environ.get(variable):
            raise InputError(f"the secret input `{name}` is not set", hint=f"set the environment variable {variable}")
    values = {name: environ[variable] for name, variable in secrets.items()}
    return ResolvedInputs({name: secret_ref(name) for name in values}, {}, values)


def _has_side_effect(contract: Contract) -> bool:
    return contract.may_write or contract.hides_writes


def _timed_out(ask: CallTool) -> ToolAnswer:
    return ToolAnswer(failure=Failure("timeout", f"`{ask.action}` took longer than {ask.timeout:g} s"))


def _error(failure: Failure, contract: Contract) -> Exception:
    """The error of a call: what is known not to have happened, or that the outcome is unknown."""
    if failure.kind in _NOT_DONE:
        return ToolPermanentError(failure.message)
    if _has_side_effect(contract):
        return ToolUnknownOutcomeError(f"unknown outcome: {failure.message}")
    return (ToolTransientError if failure.kind in ("timeout", "transport") else ToolPermanentError)(failure.message)
