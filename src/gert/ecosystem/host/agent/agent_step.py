"""A durable agent as a step of a runbook: what `gert-ext-agent` executes.

The agent records in the ledger of the runbook's run, under an id that follows from the call. Called again after a
crash, it replays what it did, and pays for nothing twice.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, field
from pydantic import BaseModel

from gert.ecosystem.host.agent.agent_tools import Pack, Root, gates_of, packs_of, require_within
from gert.ecosystem.host.agent.approvals import AgentApprovals
from gert.ecosystem.host.agent.input_model import input_model
from gert.ecosystem.host.agent.kernel import ArtanaKernel
from gert.ecosystem.host.agent.runbook_tool import RunbookTool
from gert.ecosystem.host.agent.stores import LedgerStore, PostgresStore, SQLiteStore
from gert.ecosystem.host.llm.provider import is_offline, port_of, provider_of
from gert.ecosystem.models.prices import Price
from gert.ecosystem.process.environment import LEDGER
from gert.ecosystem.process.own_process import protect_secrets
from gert.errors import ApprovalRequiredError, InputError, MaxIterationsExceeded, UsageError
from gert.kernel.agent.loop.agent import AutonomousAgent
from gert.kernel.agent.loop.context import IDENTITY, ContextBuilder
from gert.kernel.agent.loop.gates import AcceptanceSpec
from gert.kernel.agent.types.api import KernelPolicy, TenantContext
from gert.kernel.foundation.canonical import canonical, sha256_hex
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps
from gert.kernel.governance.parameter import Parameter

OWN_OUTPUTS: Final = ("agent_run_id", "cost_usd")
"""Outputs that the runner gives itself, if the contract declares them; all others are the agent's answer."""
PARENT: Final = "parent_run"
"""The type of the summary that names the run whose step the agent is."""
_GATE: Final = "agent_acceptance_gate"
_LOOK: Final = 0.5
_MOST_TURNS: Final = 200
_HEX: Final = 24
_SHOWN: Final = "The variables of the runbook that you may see, as data:"


class StepPrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The price of the model in US dollars per million tokens, where the table has none."""

    prompt: Annotated[float, Meta(ge=0)]
    completion: Annotated[float, Meta(ge=0)]


class StepInputs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The inputs of the step; those of `tools`, `runbooks` and `gates` are read by `agent_tools`."""

    task: str
    model: str
    instructions: str = IDENTITY
    provider: str | None = None
    tools: list[Any] = field(default_factory=list)
    runbooks: list[Any] = field(default_factory=list)
    gates: list[Any] = field(default_factory=list)
    budget_usd: Annotated[float, Meta(ge=0)] = 1.0
    price: StepPrice | None = None
    max_turns: Annotated[int, Meta(ge=1, le=_MOST_TURNS)] = 15
    show_vars: bool = False


class StepCall(msgspec.Struct, frozen=True, kw_only=True):
    """What gert says of the call.

    detach: end while the agent waits for people, instead of waiting with it
    variables: those of gert that the agent needs; a program that is not this installation's own runner gets none
    """

    id: str
    run_id: str
    path: str
    folder: str
    runbook: str
    actor: str
    require_signed: bool = False
    by_agent: bool = False
    policies: list[str] = field(default_factory=list)
    config: str | None = None
    secrets: list[str] = field(default_factory=list)
    detach: bool = False
    variables: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"StepCall({self.run_id} {self.path})"

    @property
    def agent_run_id(self) -> str:
        """The id of the agent's run: the same whenever this call is made, and another for every other call."""
        return f"agent-{sha256_hex(canonical([self.run_id, self.id]))[:_HEX]}"


class StepWaits(Exception):
    """Raised where the agent waits for people and the step does not wait with it."""

    def __init__(self, ticket_id: str) -> None:
        super().__init__(f"the agent waits for the ticket `{ticket_id}`")
        self.ticket_id = ticket_id


def take_variables(known: StepCall) -> None:
    """Take the variables of gert from a call; from now on other processes of the user cannot read them."""
    protect_secrets()
    os.environ.update(known.variables)


async def execute_agent(
    inputs: Mapping[str, Any],
    variables: Mapping[str, Any],
    contract: Mapping[str, Any],
    known: StepCall,
    environ: Mapping[str, str],
    notify: Callable[[str], object],
) -> dict[str, Any]:
    """Run or resume the agent of a step, and return the outputs; GertError says why there is no accepted answer.

    StepWaits is raised if the agent waits for people and the run is to be detached: called again, it continues.

    notify: called with messages for people while the step runs
    """
    said = _inputs(inputs)
    root = Root.of(known.folder)
    packs = packs_of(root, said.tools, said.runbooks, known)
    require_within(contract, packs)
    answer, outputs = _answer_model(contract)
    run_id = known.agent_run_id
    tenant = TenantContext(tenant_id=known.runbook, budget_usd_limit=said.budget_usd)
    async with AsyncExitStack() as held:
        store = _store(environ)
        approvals = AgentApprovals.from_settings(known.folder, config=known.config, actor=known.actor)
        kernel = await held.enter_async_context(
            ArtanaKernel(
                store=store,
                model_port=await held.enter_async_context(_model(said, environ)),
                middleware=ArtanaKernel.default_middleware_stack(),
                policy=KernelPolicy.enforced(),
                approvals=approvals,
                packs=packs,
            )
        )
        await _link(kernel, store, run_id, tenant, known)
        agent = AutonomousAgent(kernel, context_builder=ContextBuilder(progressive_skills=False))

        async def work() -> BaseModel:
            return await agent.run(
                run_id=run_id,
                tenant=tenant,
                model=said.model,
                system_prompt=said.instructions,
                prompt=_prompt(said, variables),
                output_schema=answer,
                max_iterations=said.max_turns,
                acceptance=AcceptanceSpec(gates=gates_of(said.gates)),
            )

        try:
            found = await _until_answered(work, kernel, approvals, known, notify)
        except asyncio.CancelledError:
            await _stop(packs)
            raise
        except MaxIterationsExceeded as problem:
            problem.message = f"{problem.message}{await _last_gate(store, run_id)}"
            raise
        own = {"agent_run_id": run_id, "cost_usd": await store.get_model_cost_sum_for_run(run_id)}
        values = {**found.model_dump(mode="json"), **own}
        return {name: values[name] for name in outputs}


async def _until_answered(
    work: Callable[[], Awaitable[BaseModel]],
    kernel: ArtanaKernel,
    approvals: AgentApprovals,
    known: StepCall,
    notify: Callable[[str], object],
) -> BaseModel:
    """Run the agent; while a call of it waits for people, wait with it. The timeout of the step ends that."""
    run_id = known.agent_run_id
    while True:
        try:
            return await work()
        except ApprovalRequiredError as waiting:
            ticket = waiting.ticket_id or await _ticket_of(kernel, run_id, waiting.approval_key)
            if known.detach:
                if not await approvals.answered(kernel.ledger, ticket):
                    raise StepWaits(ticket) from None
                continue
            notify(f"waits for: gert approve {ticket} (agent run {run_id}: {waiting})")
            async with approvals.listening(kernel.ledger, ticket):
                while not await approvals.answered(kernel.ledger, ticket):
                    await asyncio.sleep(_LOOK)


async def _ticket_of(kernel: ArtanaKernel, run_id: str, approval_key: str) -> str:
    head = await kernel.ledger.head(run_id)
    ticket = head.agent.tickets.get(approval_key) if head is not None and head.agent is not None else None
    if ticket is None:
        raise UsageError(f"a call of agent run `{run_id}` waits for an approval that has no ticket")
    return ticket.ticket_id


async def _stop(packs: Sequence[Pack]) -> None:
    """Stop runs of runbooks that the agent started, if gert cancelled the step.

    If gert itself has died, they continue, and the resumed agent finds them.
    """
    if os.getppid() == _STARTED_BY:
        for pack in packs:
            if isinstance(pack, RunbookTool):
                await pack.stop()


_STARTED_BY: Final = os.getppid()


async def _link(kernel: ArtanaKernel, store: LedgerStore, run_id: str, tenant: TenantContext, call: StepCall) -> None:
    """Record in the agent's run whose step it is, once."""
    if await kernel.ledger.head(run_id) is None:
        await kernel.start_run(tenant=tenant, run_id=run_id)
    if await store.get_latest_run_summary(run_id, PARENT) is None:
        facts = canonical_json_dumps({"run_id": call.run_id, "path": call.path, "runbook": call.runbook})
        await kernel.append_run_summary(run_id=run_id, tenant=tenant, summary_type=PARENT, summary_json=facts)


async def _last_gate(store: LedgerStore, run_id: str) -> str:
    last = await store.get_latest_run_summary(run_id, _GATE)
    gate = msgspec.json.decode(last.summary_json) if last is not None else {}
    return f": the gate `{gate.get('tool_name')}` did not pass" if gate.get("passed") is False else ""


def _inputs(given: Mapping[str, Any]) -> StepInputs:
    try:
        said = msgspec.convert({name: value for name, value in given.items() if value is not None}, StepInputs)
    except msgspec.ValidationError as problem:
        raise InputError(f"the inputs of the agent do not fit: {problem}") from None
    if not said.task.strip():
        raise InputError("the input `task` is empty")
    return said


def call_of(given: Mapping[str, Any]) -> StepCall:
    """Read what gert says of a call."""
    try:
        return msgspec.convert(dict(given), StepCall)
    except msgspec.ValidationError:
        raise UsageError(
            "gert did not say which call this is", hint="the runner `agent` is started by gert, as a step of a run"
        ) from None


def _store(environ: Mapping[str, str]) -> LedgerStore:
    ledger = environ.get(LEDGER)
    if not ledger:
        raise UsageError(
            "the runner `agent` got no ledger to record in",
            hint="use the `gert-ext-agent` that is installed beside gert, and none of another installation",
        )
    return PostgresStore(ledger, max_pool_size=4) if "://" in ledger else SQLiteStore(ledger)


def _model(said: StepInputs, environ: Mapping[str, str]) -> Any:
    provider = provider_of(environ, said.provider)
    if is_offline(provider):
        raise InputError(f"the provider `{provider}` cannot be the model of an agent: it calls no tools")
    if said.price is None:
        return port_of(provider, environ)
    price = Price(prompt=said.price.prompt, completion=said.price.completion)
    return port_of(provider, environ, prices={said.model: price})


def _prompt(said: StepInputs, variables: Mapping[str, Any]) -> str:
    if not said.show_vars:
        return said.task
    return f"{said.task}\n\n{_SHOWN}\n{canonical_json_dumps(dict(variables))}"


def _answer_model(contract: Mapping[str, Any]) -> tuple[type[BaseModel], tuple[str, ...]]:
    """The schema of the answer: the declared outputs; and the names of all of them."""
    outputs: Mapping[str, Mapping[str, Any]] = contract.get("outputs") or {}
    wanted = {name: _parameter(each) for name, each in outputs.items() if name not in OWN_OUTPUTS}
    if not wanted:
        raise InputError("the step says nothing of the answer", hint="declare it under `outputs` of its contract")
    return input_model("answer", wanted), tuple(outputs)


def _parameter(said: Mapping[str, Any]) -> Parameter:
    kept = {name: said[name] for name in ("type", "description", "pattern", "min", "max") if name in said}
    enum = tuple(said["enum"]) if said.get("enum") is not None else None
    return Parameter(**kept, enum=enum, required=True)
