"""The agent kernel: every syscall of the contract, delegated to the module that implements it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from typing import Self

from pydantic import BaseModel

from gert.errors import InputError
from gert.kernel.agent.api.bound import BoundRun
from gert.kernel.agent.api.kernel_tools import KernelTools
from gert.kernel.agent.api.lifecycle import Lifecycle
from gert.kernel.agent.api.notes import as_json
from gert.kernel.agent.api.open_calls import OpenCalls
from gert.kernel.agent.api.policy import ApprovalStatus, PendingApproval, PolicyRecords, approval_mode
from gert.kernel.agent.api.run_records import RunRecords
from gert.kernel.agent.api.workflow import WorkflowContext, run_workflow
from gert.kernel.agent.middleware.base import KernelMiddleware
from gert.kernel.agent.middleware.stack import order_middleware, require_middleware
from gert.kernel.agent.ports.approvals import ApprovalPort
from gert.kernel.agent.ports.loop import Loop
from gert.kernel.agent.ports.model import (
    MaxCost,
    ModelCallOptions,
    ModelPort,
    OnToken,
    OutputT,
    PricedModelPort,
)
from gert.kernel.agent.ports.store import EventStore, ledger_of
from gert.kernel.agent.ports.tool import ToolPort
from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.agent.safety.approvals import Approvals
from gert.kernel.agent.safety.config import IntentPlanRecord
from gert.kernel.agent.safety.records import ApprovalRecord
from gert.kernel.agent.steps.model_steps import ModelStep, ModelSteps
from gert.kernel.agent.steps.tool_steps import Reconciliation, ToolStep, ToolSteps
from gert.kernel.agent.steps.tools import Arguments, Tools
from gert.kernel.agent.types.api import (
    ContextVersion,
    KernelPolicy,
    ModelInput,
    PauseTicket,
    ReplayPolicy,
    RunLease,
    RunRef,
    StepModelResult,
    StepToolResult,
    TenantContext,
    ToolDrift,
    WorkflowOutputT,
    WorkflowRunResult,
)
from gert.kernel.events.agent.parts import ToolOutcome
from gert.kernel.events.started_by import NO_RUN, StartedBy
from gert.kernel.foundation.arguments import checks_arguments
from gert.kernel.foundation.closable import Closable


@checks_arguments
class AgentKernel(RunRecords, KernelTools, Closable):
    """Runs model and tool steps once, records them, and replays them from the ledger afterwards.

    It belongs to the event loop it is first used in. Close it when all work is done, or use it as an asynchronous
    context manager.
    """

    def __init__(
        self,
        *,
        store: EventStore,
        model_port: ModelPort,
        tool_port: ToolPort,
        loop: Loop,
        middleware: Sequence[KernelMiddleware] | None = None,
        policy: KernelPolicy | None = None,
        approvals: ApprovalPort | None = None,
        prices: MaxCost | None = None,
        started_by: StartedBy = NO_RUN,
    ) -> None:
        ordered = order_middleware(middleware or ())
        self.policy = policy or KernelPolicy()
        require_middleware(self.policy, ordered)
        for each in ordered:
            if (bind := getattr(each, "bind_store", None)) is not None:
                bind(store)
        self.store = store
        self.ledger = ledger_of(store)
        self._loop = loop
        self._model_port = model_port
        self._prices = prices
        self._open_calls = OpenCalls()
        self._middleware = ordered
        self._tools = Tools(tool_port)
        for each in ordered:
            if (learn := getattr(each, "bind_capabilities", None)) is not None:
                learn(self._tools.capabilities)
        self.run_log = RunLog(self.ledger, started_by)
        super().__init__(self.run_log)
        self.approvals = Approvals(self._log, approvals)
        self._models = ModelSteps(self._log, model_port, self._tools, ordered)
        self._tool_steps = ToolSteps(self._log, self._tools, ordered, loop)
        self._lifecycle = Lifecycle(self._log)
        self._policy_records = PolicyRecords(self._log, self.approvals)
        for each in ordered:
            if (bind := getattr(each, "bind_kernel", None)) is not None:
                bind(self)

    async def close(self) -> None:
        """Refuse new calls, wait for open ones, and close the store; closing twice has no effect."""
        self._open_calls.close()
        await self._loop.until(self._open_calls.when_idle)
        await self.store.close()

    # Runs

    async def start_run(self, *, tenant: TenantContext, run_id: str | None = None) -> RunRef:
        """Start a run; of several concurrent starts with one id, one succeeds and the others raise RunExists."""
        return await self._lifecycle.start(tenant, run_id, self._tools.signatures())

    async def load_run(self, *, run_id: str, tenant: TenantContext | None = None) -> RunRef:
        """Return a run that has started."""
        return await self._lifecycle.load(run_id, tenant)

    def with_tools(self, tools: Tools) -> Self:
        """Return a view of this kernel with other tools: the same runs, models and middleware."""
        view = copy(self)
        view._tools = tools
        view._models = ModelSteps(self._log, self._model_port, tools, self._middleware)
        view._tool_steps = ToolSteps(self._log, tools, self._middleware, self._loop)
        return view

    @property
    def tools(self) -> Tools:
        """Return the tools of this kernel."""
        return self._tools

    @property
    def event_loop(self) -> Loop:
        """Return the event loop this kernel runs in."""
        return self._loop

    def bind(self, *, run_id: str, tenant: TenantContext) -> BoundRun:
        """Return a handle on a run that adds its id and tenant to every call."""
        return BoundRun(self, run_id, tenant)

    @asynccontextmanager
    async def run(self, *, tenant: TenantContext, run_id: str | None = None) -> AsyncIterator[BoundRun]:
        """Start or resume a run and use it through a handle; the run ends when the block is left.

        It is completed, or failed if an exception leaves the block. It does not end if it is paused or blocked, or if
        the block is cancelled. Entered again, it replays recorded steps; a new step reopens it.
        """
        ref = await self._lifecycle.begin(tenant, run_id, self._tools.signatures())
        async with self._lifecycle.entered(ref.run_id, tenant):
            yield self.bind(run_id=ref.run_id, tenant=tenant)

    # Steps

    async def step_model(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        model: str,
        input: ModelInput,  # noqa: A002  the documented name
        output_schema: type[OutputT],
        step_key: str | None = None,
        visible_tool_names: set[str] | None = None,
        model_options: ModelCallOptions | None = None,
        replay_policy: ReplayPolicy = "strict",
        context_version: ContextVersion | None = None,
        parent_step_key: str | None = None,
        tool_drift: ToolDrift = "refuse",
        on_token: OnToken | None = None,
    ) -> StepModelResult[OutputT]:
        """Call a model, or replay the recorded answer.

        tool_drift: `pin` offers the tools the run started with, even if others are registered now
        on_token: called with each piece of the answer as it arrives; not called by a replay
        """
        step = ModelStep(
            run_id,
            tenant,
            model,
            input,
            output_schema,
            step_key,
            None if visible_tool_names is None else frozenset(visible_tool_names),
            model_options,
            replay_policy,
            tool_drift,
            context_version,
            parent_step_key,
            on_token,
        )
        with self._open_calls.call():
            return await self._models.run(step)

    async def step_model_with_visible_tools(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        model: str,
        input: ModelInput,  # noqa: A002  the documented name
        output_schema: type[OutputT],
        visible_tool_names: set[str] | None,
        model_options: ModelCallOptions | None = None,
        step_key: str | None = None,
        replay_policy: ReplayPolicy = "strict",
        context_version: ContextVersion | None = None,
        parent_step_key: str | None = None,
    ) -> StepModelResult[OutputT]:
        """`step_model` with a required `visible_tool_names`."""
        return await self.step_model(
            run_id=run_id,
            tenant=tenant,
            model=model,
            input=input,
            output_schema=output_schema,
            step_key=step_key,
            visible_tool_names=visible_tool_names,
            model_options=model_options,
            replay_policy=replay_policy,
            context_version=context_version,
            parent_step_key=parent_step_key,
        )

    async def step_tool(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        tool_name: str,
        arguments: Arguments,
        step_key: str | None = None,
        parent_step_key: str | None = None,
    ) -> StepToolResult:
        """Call a tool, or replay the recorded result."""
        with self._open_calls.call():
            return await self._tool_steps.run(ToolStep(run_id, tenant, tool_name, arguments, step_key, parent_step_key))

    async def reconcile_tool(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        tool_name: str,
        arguments: Arguments,
        step_key: str | None = None,
        parent_step_key: str | None = None,
        outcome: ToolOutcome | None = None,
        result: object = None,
        rerun: bool = False,
        by: str | None = None,
        reason: str | None = None,
    ) -> str:
        """Reconcile a call of unknown outcome and return its result; the tool is called again only with `rerun`.

        outcome: the outcome that `by` found out; `result` is what the tool returned
        rerun: repeat the call under the same idempotency key
        """
        if outcome is not None and rerun:
            raise InputError("expected either `outcome` or `rerun`, found both")
        reconciliation = Reconciliation(outcome, "" if outcome is None else as_json(result), rerun, by, reason)
        step = ToolStep(run_id, tenant, tool_name, arguments, step_key, parent_step_key)
        with self._open_calls.call():
            return await self._tool_steps.reconcile(step, reconciliation)

    async def read_context(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        source: str,
        step_key: str,
        look: Callable[[], Awaitable[str]],
        parent_step_key: str | None = None,
    ) -> str:
        """Read from outside the run, such as a memory or a file, once; a replay returns the recorded content."""
        with self._open_calls.call():
            return await self._notes.read(run_id, tenant, source, step_key, look, parent_step_key)

    async def recorded_context(self, *, run_id: str, tenant: TenantContext, step_key: str) -> str | None:
        """Return what `read_context` recorded under a step key; None if nothing was read."""
        return await self._notes.recorded(run_id, tenant, step_key)

    async def run_workflow(
        self,
        *,
        run_id: str | None,
        tenant: TenantContext,
        workflow: Callable[[WorkflowContext], Awaitable[WorkflowOutputT]],
    ) -> WorkflowRunResult[WorkflowOutputT]:
        """Run or resume a workflow: recorded steps are replayed."""
        async with self.run(tenant=tenant, run_id=run_id) as run:
            context = WorkflowContext(
                run_id=run.run_id, tenant=tenant, store=self.store, pause_api=self, events=(), log=self._log
            )
            with self._open_calls.call():
                return await run_workflow(context, workflow)

    # Pauses and leases

    async def pause(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        reason: str,
        context: BaseModel | None = None,
        step_key: str | None = None,
        parent_step_key: str | None = None,
    ) -> PauseTicket:
        """Pause a run: it runs no steps until it is resumed."""
        return await self._lifecycle.pause(run_id, tenant, reason, context, step_key, parent_step_key)

    async def resume(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        human_input: BaseModel | None = None,
        parent_step_key: str | None = None,
    ) -> RunRef:
        """Resume a paused run."""
        return await self._lifecycle.resume(run_id, tenant, human_input, parent_step_key)

    async def block_run(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        reason: str,
        unblock_key: str | None = None,
        metadata: Mapping[str, object] | None = None,
        step_key: str | None = None,
        parent_step_key: str | None = None,
    ) -> PauseTicket:
        """Block a run: it runs no steps until it is unblocked by this key."""
        return await self._lifecycle.block(run_id, tenant, reason, unblock_key, metadata, step_key, parent_step_key)

    async def unblock_run(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        unblock_key: str | None = None,
        metadata: Mapping[str, object] | None = None,
        parent_step_key: str | None = None,
    ) -> RunRef:
        """End the blocks with this key."""
        return await self._lifecycle.unblock(run_id, tenant, unblock_key, metadata, parent_step_key)

    async def acquire_run_lease(
        self, *, run_id: str, worker_id: str, ttl_seconds: int, tenant: TenantContext | None = None
    ) -> bool:
        """Acquire the lease of a run; from then on no other worker can append to it."""
        return await self._lifecycle.acquire(run_id, worker_id, ttl_seconds, tenant)

    async def renew_run_lease(
        self, *, run_id: str, worker_id: str, ttl_seconds: int, tenant: TenantContext | None = None
    ) -> bool:
        """Renew the lease of a run."""
        return await self._lifecycle.renew(run_id, worker_id, ttl_seconds, tenant)

    async def release_run_lease(self, *, run_id: str, worker_id: str, tenant: TenantContext | None = None) -> bool:
        """Release the lease of a run."""
        return await self._lifecycle.release(run_id, worker_id, tenant)

    async def get_run_lease(self, *, run_id: str, tenant: TenantContext | None = None) -> RunLease | None:
        """Return the current lease of a run."""
        return await self._lifecycle.lease(run_id, tenant)

    # Approvals and intent plans

    async def approve_tool_call(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        approval_key: str,
        mode: str,
        reason: str,
        step_key: str | None = None,
        parent_step_key: str | None = None,
        by: str | None = None,
        approved: bool = True,
        reusable: bool = False,
    ) -> int:
        """Record that a call is approved, or rejected with approved=False; return the number of the event.

        An open ticket is answered with it, by the same rules as for any approver; PolicyViolationError if it does not
        count. Without a ticket it is recorded, and counts once a call asks for it.

        by: the approver (default: the person who runs this kernel)
        reusable: it covers equal calls until it expires, where no ticket says otherwise
        """
        record = ApprovalRecord(
            approval_key=approval_key,
            approved=approved,
            mode=approval_mode(mode),
            reason=reason,
            by=by,
            reusable=reusable,
        )
        return await self._policy_records.approve(run_id, tenant, record, parent_step_key or step_key)

    async def list_pending_approvals(
        self, *, tenant: TenantContext, run_id: str | None = None
    ) -> tuple[PendingApproval, ...]:
        """Return the calls of a tenant, or of one run, that wait for the approval of people, the oldest first."""
        return await self._policy_records.pending(tenant, run_id)

    async def wait_for_approval(
        self, *, run_id: str, tenant: TenantContext, approval_key: str, timeout_seconds: float
    ) -> ApprovalStatus:
        """Wait until people have decided about a call: `approved`, `rejected`, or `pending` if the time is over."""
        with self._open_calls.call():
            return await self._policy_records.wait(run_id, tenant, approval_key, timeout_seconds)

    async def record_intent_plan(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        intent: IntentPlanRecord,
        step_key: str | None = None,
        parent_step_key: str | None = None,
    ) -> int:
        """Record what the agent is about to do, and return the number of the event."""
        return await self._policy_records.plan(run_id, tenant, intent, step_key, parent_step_key)

    # Costs

    def max_cost_usd(self, model: str, prompt_tokens: int) -> float | None:
        """Return the most a call of a model may cost, by its port or else by the price table; None if unknown."""
        if isinstance(self._model_port, PricedModelPort):
            return self._model_port.max_cost_usd(model, prompt_tokens)
        return None if self._prices is None else self._prices(model, prompt_tokens)
