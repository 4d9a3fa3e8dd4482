"""A runbook as a tool of an agent: its inputs are the arguments, its outcome the result, its approvals a pause."""

import asyncio
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import reduce
from operator import or_
from typing import Any, Final

import msgspec
from pydantic import BaseModel

from gert.ecosystem.host.agent.governance import PolicyFileMiddleware
from gert.ecosystem.host.agent.input_model import given_inputs, input_model
from gert.ecosystem.host.agent.runbook_run import RunbookRun, place_of
from gert.ecosystem.host.agent.tool_pack import secret_inputs
from gert.ecosystem.host.background.launch import run_id_for
from gert.ecosystem.host.config.ledger_location import Database, ledger_of
from gert.ecosystem.host.config.machine.user import user_name
from gert.ecosystem.host.policy.explain_runbook import explained_steps
from gert.ecosystem.host.run.options import RunOptions
from gert.ecosystem.host.run.prepare import Prepared
from gert.ecosystem.process.descendants import MARK
from gert.ecosystem.process.environment import DEPTH, started_by, starting
from gert.ecosystem.tools.functions import LocalToolRegistry
from gert.errors import DocumentError, GertError, InputError, ToolPermanentError, ToolSuspended, UsageError
from gert.kernel.agent.middleware.base import PreparedToolRequest
from gert.kernel.agent.middleware.conditions import Conditions
from gert.kernel.agent.ports.tool import ToolExecutionContext, ToolExecutionResult
from gert.kernel.agent.types.api import TenantContext
from gert.kernel.engine.inputs import PROMPT, GivenInput
from gert.kernel.engine.run import secret_names
from gert.kernel.events.agent import RunSummary
from gert.kernel.foundation.canonical import canonical, sha256_hex
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps
from gert.kernel.foundation.principal import Principal
from gert.kernel.governance.decide import ALLOWED, Decision
from gert.kernel.governance.parameter import Parameter
from gert.kernel.governance.risk import Risk
from gert.kernel.governance.rules import Limits
from gert.kernel.governance.verdict import Verdict
from gert.kernel.ledger.build_batch import Entry
from gert.kernel.runbook.documents.runbook import Runbook

LINK: Final = "runbook_run"
"""The type of the summary that names the run of a runbook, recorded with the request of the call."""
MOST_LEVELS: Final = 4
_SOURCE: Final = "agent"
_UNNAMED: Final = re.compile(r"[^A-Za-z0-9_-]")


class RunbookTool:
    """A runbook as a tool of a kernel: pass it to `ArtanaKernel(packs=[…])`.

    name: the name of the tool (default: the name of the runbook)
    root: the folder that the runbook must lie in, also behind links
    policies: policy files and folders, in addition to those of the project and GERT_POLICY; the strictest verdict wins
    config: settings beside those of the project
    secrets: the environment variable that each secret input is read from, by input; models never give or see them
    outputs: outputs of steps that are part of the result, as `STEP.NAME`, beside the outcome
    require_signed: approvals need a signature, even if no policy requires one
    actor: the person who runs the agent, who may not approve (default: the current user)
    hidden: variables that hold secrets of others: the runbook gets them only if it declares or binds them
    db, dsn: where the runs are recorded (default: in the ledger of the agent)
    """

    def __init__(
        self,
        file: str,
        *,
        name: str | None = None,
        root: str | None = None,
        policies: Sequence[str] = (),
        config: str | None = None,
        secrets: Mapping[str, str] | None = None,
        outputs: Sequence[str] = (),
        require_signed: bool = False,
        actor: str | None = None,
        hidden: Sequence[str] = (),
        db: str | None = None,
        dsn: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        self._options = RunOptions(
            file=_below(root, file),
            policies=tuple(os.path.abspath(each) for each in policies),
            config=os.path.abspath(config) if config is not None else None,
            actor=actor or user_name(),
            approvals="detach",
            require_signed=require_signed,
            db=os.path.abspath(db) if db is not None else None,
            dsn=dsn,
        )
        prepared = Prepared(self._options, self._environ)
        self._database: Database | None = prepared.database
        self._state = prepared.state
        self._runbook: Runbook = prepared.program.runbook
        self.secret_variables = frozenset(
            (*secret_names(prepared.program), *(secrets or {}).values(), *_bound(prepared))
        )
        """The variables that hold secrets of the runbook."""
        self._used = _used_variables(prepared)
        self._hide(hidden)
        self._version = _version(prepared)
        self._secrets = _secrets(prepared, dict(secrets or {}), self._environ)
        self._outputs = _checked_outputs(prepared, outputs)
        self.name = name if name is not None else _UNNAMED.sub("_", self._runbook.meta.name)[:64]
        steps = list(explained_steps(prepared.program, list(prepared.floor.policies)))
        self._risk = max((each.explanation.risk for each in steps), default=Risk.LOW)
        self._has_effects = any(each.contract.may_write or each.contract.hides_writes for each in steps)
        self.contracts = {f"{self.name}: {each.name}": each.contract for each in steps}
        """The contract of each step."""
        joined = reduce(or_, (each.explanation.decision for each in steps), ALLOWED)
        self.asks = joined.verdict is Verdict.REQUIRE_APPROVAL
        """Whether a step needs an approval."""
        self.decision = _decision(joined)
        """What the policies say about the call."""
        self.middleware = _LinkingMiddleware(self)
        self._open: dict[str, RunbookRun] = {}

    def register(
        self, port: LocalToolRegistry, lock: asyncio.Lock, database: Database | None, hidden: frozenset[str]
    ) -> None:
        """Register the tool; the kernel calls this. Runs that a rule serializes take turns with `lock`.

        hidden: the variables that hold secrets of other packs
        """
        self._hide(hidden)
        own = ledger_of(self._state)
        self._database = self._database or database or own
        place = place_of(self._database) if self._database != own else {"state_dir": self._state}
        self._options = msgspec.structs.replace(self._options, **place)
        turn: AbstractAsyncContextManager[Any] = lock if self.decision.serialize else nullcontext()
        model = input_model(self.name, _arguments(self._runbook))

        async def call(arguments: Any, artana_context: ToolExecutionContext) -> ToolExecutionResult:
            async with turn:
                return await self._call(arguments, artana_context)

        async def reconcile(context: ToolExecutionContext, _: dict[str, Any]) -> ToolExecutionResult | None:
            found = await self._run(context, {}).ending()
            return None if found is None else _succeeded(found)

        call.__annotations__ = {"arguments": model, "artana_context": ToolExecutionContext}
        call.__doc__ = self._runbook.meta.description or f"Run the runbook {self._runbook.meta.name}"
        port.register(
            call,
            name=self.name,
            side_effect=self._has_effects,
            tool_version=self._version[:12],
            risk_level=self._risk.word,  # type: ignore[arg-type]
            reconcile=reconcile,
            resumable=True,
        )

    def _hide(self, variables: Iterable[str]) -> None:
        for each in set(variables) - self._used - self.secret_variables:
            self._environ.pop(each, None)

    async def close(self) -> None:
        """Runs have processes of their own, and continue."""

    async def stop(self) -> None:
        """Stop the runs of calls that have not ended, in order."""
        for run in list(self._open.values()):
            await run.stop()

    def run_id_of(self, tenant_id: str, agent_run_id: str, key: str) -> str:
        """Return the id of the run that a step of an agent run starts."""
        return run_id_for(**_request(tenant_id, agent_run_id, key))

    def link(self, run_id: str, tenant: TenantContext, step_key: str) -> Entry:
        """Return the entry that names the run of a call."""
        facts = {
            "tool_name": self.name,
            "run_id": self.run_id_of(tenant.tenant_id, run_id, step_key),
            "runbook": self._runbook.meta.name,
            "runbook_hash": self._version,
        }
        return Entry(RunSummary(summary_type=LINK, summary_json=canonical_json_dumps(facts), step_key=step_key))

    async def _call(self, arguments: BaseModel, context: ToolExecutionContext) -> ToolExecutionResult:
        run = self._run(context, given_inputs(arguments))
        self._open[run.run_id] = run
        try:
            if not await run.exists():
                await self._start(run)
            found = await run.result()
        except ToolPermanentError:
            raise
        except GertError as problem:
            # It waits for people, or an operator has to look at it: the same step continues the same run.
            raise ToolSuspended(problem) from problem
        finally:
            if not _is_cancelled():
                self._open.pop(run.run_id, None)
        return _succeeded(found)

    async def _start(self, run: RunbookRun) -> None:
        """Start the run, if the runbook is what the agent and the policies were shown."""
        if int(self._environ.get(DEPTH) or 0) >= MOST_LEVELS:
            raise ToolPermanentError(f"agents and runbooks have started each other more than {MOST_LEVELS} times")
        try:
            if _version(Prepared(self._options, self._environ)) != self._version:
                raise ToolPermanentError(
                    f"the runbook `{self._runbook.meta.name}`, a tool or a policy of it was changed since it was "
                    "registered: create the kernel again"
                )
            await run.start()
        except (InputError, UsageError, DocumentError) as problem:
            if await run.exists():
                raise
            raise ToolPermanentError(problem.message) from problem

    def _run(self, context: ToolExecutionContext, inputs: Mapping[str, Any]) -> RunbookRun:
        given = {name: GivenInput(value, _SOURCE) for name, value in inputs.items()}
        options = msgspec.structs.replace(
            self._options, given={**given, **self._secrets}, principal=Principal("agent", context.tenant_id)
        )
        depth = int(self._environ.get(DEPTH) or 0) + 1
        environ = {name: value for name, value in self._environ.items() if name != MARK}
        return RunbookRun(
            self.name,
            options,
            # Without the mark of the call that started this agent: the run outlives it.
            {**starting(environ, context.run_id, started_by(environ).root_run_id), DEPTH: str(depth)},
            self._database or ledger_of(self._state),
            **_request(context.tenant_id, context.run_id, context.step_key or context.idempotency_key),
            runbook=self._runbook.meta.name,
            outputs=self._outputs,
        )


def runbook_tool(file: str, **options: Any) -> RunbookTool:
    """Read a runbook, to be passed to `ArtanaKernel(packs=[…])`; options as of `RunbookTool`."""
    return RunbookTool(file, **options)


class _LinkingMiddleware(PolicyFileMiddleware):
    """Applies the decision about a runbook, and records its run with the request of the call."""

    def __init__(self, tool: RunbookTool) -> None:
        super().__init__({tool.name: tool.decision}, {})
        self._tool = tool

    def why_allowed(self, found: Decision) -> str:
        """Return why a call may be made."""
        return "its run asks people where its steps need that" if self._tool.asks else super().why_allowed(found)

    async def prepare_tool_request(
        self, *, run_id: str, tenant: TenantContext, tool_name: str, arguments_json: str, step_key: str | None = None
    ) -> str | PreparedToolRequest:
        """Deny the call, or allow it with the id of its run."""
        prepared = await super().prepare_tool_request(
            run_id=run_id, tenant=tenant, tool_name=tool_name, arguments_json=arguments_json, step_key=step_key
        )
        if tool_name != self._tool.name or step_key is None or isinstance(prepared, str):
            return prepared
        linked = Conditions((self._tool.link(run_id, tenant, step_key),))
        return prepared.merge(PreparedToolRequest(arguments_json, conditions=linked))


def _decision(joined: Decision) -> Decision:
    """The decision about the call: a step that is denied denies it; what needs people is asked in the run itself."""
    if joined.verdict is Verdict.DENY or joined.limits.max_targets == 0:
        return joined
    return Decision(verdict=Verdict.ALLOW, rules=joined.rules, serialize=joined.serialize, limits=Limits())


def _arguments(runbook: Runbook) -> dict[str, Parameter]:
    """The inputs that a model may give; one that is read from a source may be left out, and none asks a terminal."""
    found: dict[str, Parameter] = {}
    for name, block in runbook.meta.inputs.items():
        parameter = block.parameter()
        is_asked = block.from_ == PROMPT and not parameter.has_default and not parameter.optional
        is_required = parameter.required if block.from_ is None else is_asked
        found[name] = msgspec.structs.replace(parameter, required=is_required)
    return found


def _secrets(prepared: Prepared, named: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, GivenInput]:
    declared = prepared.program.runbook.meta.inputs
    for name in named:
        if name not in declared or not declared[name].parameter().secret:
            raise InputError(f"the runbook has no secret input `{name}`")
    values = secret_inputs(prepared, named, environ).secrets
    for name, block in declared.items():
        parameter = block.parameter()
        if parameter.secret and parameter.must_be_given and name not in values and block.from_ in (None, PROMPT):
            hint = f"bind it with `from: env/NAME`, or name the variable that holds it: secrets={{'{name}': 'NAME'}}"
            raise InputError(f"the secret input `{name}` has no source", hint=hint)
    return {name: GivenInput(value, f"env/{named[name]}") for name, value in values.items()}


def _used_variables(prepared: Prepared) -> set[str]:
    """The variables that a runbook or its tools declare as secrets, or bind inputs to."""
    sources = (block.from_ or "" for block in prepared.program.runbook.meta.inputs.values())
    bound = {source.removeprefix("env/") for source in sources if source.startswith("env/")}
    return bound | set(secret_names(prepared.program))


def _bound(prepared: Prepared) -> Iterator[str]:
    """The variables that secret inputs are bound to."""
    for block in prepared.program.runbook.meta.inputs.values():
        if block.parameter().secret and (block.from_ or "").startswith("env/"):
            yield (block.from_ or "").removeprefix("env/")


def _checked_outputs(prepared: Prepared, names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name.rpartition(".")[0] not in prepared.program.by_id:
            raise InputError(f"expected `STEP.NAME` of a step of the runbook in `outputs`, found `{name}`")
    return tuple(names)


def _below(root: str | None, file: str) -> str:
    """The runbook's file; refused outside the root."""
    found = os.path.realpath(file if root is None else os.path.join(root, file))
    if root is not None and os.path.commonpath([os.path.realpath(root), found]) != os.path.realpath(root):
        raise UsageError(f"the runbook `{file}` lies outside `{root}`")
    return found


def _version(prepared: Prepared) -> str:
    """The digest of everything the runbook is made of: itself, its tools, skills and policies."""
    return sha256_hex(canonical({path: document.digest for path, document in sorted(prepared.documents.items())}))


def _request(tenant_id: str, agent_run_id: str, key: str) -> dict[str, str]:
    # No principal is of this kind: a client that names itself as the tenant does not get the id of a call.
    return {"request_id": sha256_hex(canonical([agent_run_id, key])), "caller": f"agent-call:{tenant_id}"}


def _succeeded(found: dict[str, Any]) -> ToolExecutionResult:
    return ToolExecutionResult("success", canonical_json_dumps(found), effect_id=found["run_id"])


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
