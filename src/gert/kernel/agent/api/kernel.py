"""The agent kernel: every syscall of the contract, delegated to the module that implements it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from datetime import datetime
from typing import Self

from pydantic import BaseModel

from gert.errors import InputError
from gert.kernel.agent.api.bound import BoundRun
from gert.kernel.agent.api.lifecycle import Lifecycle
from gert.kernel.agent.api.notes import ARTIFACT, CHECKPOINT, Notes, artifact_json, as_json
from gert.kernel.agent.api.open_calls import OpenCalls
from gert.kernel.agent.api.policy import ApprovalStatus, PendingApproval, PolicyRecords, approval_mode, refuse_reserved
from gert.kernel.agent.api.queries import RunQueries
from gert.kernel.agent.api.workflow import WorkflowContext, run_workflow
from gert.kernel.agent.middleware.base import KernelMiddleware, ModelInvocation
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
    ToolDefinition,
)
from gert.kernel.agent.ports.store import EventStore, ledger_of
from gert.kernel.agent.ports.tool import ToolCallable, ToolPort, ToolRiskLevel
from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.agent.safety.approvals import Approvals
from gert.kernel.agent.safety.config import IntentPlanRecord
from gert.kernel.agent.safety.records import ApprovalRecord
from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.agent.steps.model_steps import ModelStep, ModelSteps
from gert.kernel.agent.steps.tool_steps import Reconciliation, ToolStep, ToolSteps
from gert.kernel.agent.steps.tool_visibility import after_middleware, allowed, visibility_of, visibility_report
from gert.kernel.agent.steps.tools import Arguments, Tools
from gert.kernel.agent.types.api import (
    ContextVersion,
    KernelPolicy,
    ModelInput,
    PauseTicket,
    ReplayPolicy,
    ResumePoint,
    RunLease,
    RunLifecycleStatus,
    RunProgress,
    RunRef,
    RunStatus,
    StepModelResult,
    StepToolResult,
    TenantContext,
    ToolDrift,
    ToolFingerprint,
    WorkflowOutputT,
    WorkflowRunResult,
)
from gert.kernel.agent.types.payload_models import EventPayload, EventType, RunSummaryPayload
from gert.kernel.agent.types.payloads import KernelEvent, event_from_line, to_entry_payload
from gert.kernel.events.agent.parts import ToolOutcome
from gert.kernel.events.started_by import NO_RUN, StartedBy
from gert.kernel.foundation.arguments import checks_arguments
from gert.kernel.foundation.closable import Closable
from gert.kernel.ledger.build_batch import Entry


@checks_arguments
class AgentKernel(Closable):
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
        self.run_log = self._log = RunLog(self.ledger, started_by)
        self.approvals = Approvals(self._log, approvals)
        self._models = ModelSteps(self._log, model_port, self._tools, ordered)
        self._tool_steps = ToolSteps(self._log, self._tools, ordered, loop)
        self._lifecycle = Lifecycle(self._log)
        self._notes = Notes(self._log)
        self._policy_records = PolicyRecords(self._log, self.approvals)
        self._queries = RunQueries(self._log)
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

    # Queries

    async def get_run_status(self, *, run_id: str, tenant: TenantContext | None = None) -> RunStatus:
        """Return the status of a run."""
        return await self._queries.status(run_id, tenant)

    async def get_run_progress(self, *, run_id: str, tenant: TenantContext | None = None) -> RunProgress:
        """Return the progress of a run."""
        return await self._queries.progress(run_id, tenant)

    async def list_active_runs(
        self, *, tenant_id: str, status: RunLifecycleStatus | None = None, since: datetime | None = None
    ) -> tuple[RunStatus, ...]:
        """Return the runs of a tenant that have not ended, or those with a status, newest first."""
        return await self._queries.runs(tenant_id, status, since)

    async def resume_point(self, *, run_id: str, tenant: TenantContext | None = None) -> ResumePoint:
        """Return where a run resumes."""
        return await self._queries.resume_point(run_id, tenant)

    async def explain_run(self, run_id: str, *, tenant: TenantContext | None = None) -> dict[str, object]:
        """Return the state of a run and its reasons, with its open calls."""
        return await self._queries.explanation(run_id, tenant)

    def stream_events(
        self,
        *,
        run_id: str,
        since_seq: int = 0,
        follow: bool = False,
        poll_interval_seconds: float = 0.5,
        idle_timeout_seconds: float | None = None,
        tenant: TenantContext | None = None,
    ) -> AsyncIterator[KernelEvent]:
        """Yield the events of a run; with `follow` also new ones, until none arrived for `idle_timeout_seconds`."""
        return self._queries.stream(run_id, since_seq, tenant, follow=follow, idle_timeout=idle_timeout_seconds)

    def stream_run_progress(
        self,
        *,
        run_id: str,
        since_seq: int = 0,
        follow: bool = False,
        poll_interval_seconds: float = 0.5,
        idle_timeout_seconds: float | None = None,
        tenant: TenantContext | None = None,
    ) -> AsyncIterator[RunProgress]:
        """Yield the progress of a run now and whenever it changes, until the run has ended."""
        return self._queries.stream_progress(
            run_id, since_seq, tenant, follow=follow, idle_timeout=idle_timeout_seconds
        )

    async def get_events(self, *, run_id: str, tenant: TenantContext | None = None) -> tuple[KernelEvent, ...]:
        """Return every event of a run whose type this version knows."""
        return await self._queries.events(run_id, tenant)

    def max_cost_usd(self, model: str, prompt_tokens: int) -> float | None:
        """Return the most a call of a model may cost, by its port or else by the price table; None if unknown."""
        if isinstance(self._model_port, PricedModelPort):
            return self._model_port.max_cost_usd(model, prompt_tokens)
        return None if self._prices is None else self._prices(model, prompt_tokens)

    # Notes

    async def append_run_summary(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        summary_type: str,
        summary_json: str,
        step_key: str | None = None,
        parent_step_key: str | None = None,
    ) -> int:
        """Record a summary and return the number of its event; types that decide about calls are refused."""
        refuse_reserved(summary_type)
        return await self._notes.summarize(run_id, tenant, summary_type, summary_json, step_key, parent_step_key)

    async def get_latest_run_summary(
        self, *, run_id: str, summary_type: str, tenant: TenantContext | None = None
    ) -> RunSummaryPayload | None:
        """Return the newest summary of a type."""
        return await self._notes.latest(run_id, summary_type, tenant)

    async def get_latest_summary(
        self, *, run_id: str, summary_type: str, tenant: TenantContext | None = None
    ) -> RunSummaryPayload | None:
        """Return the newest summary of a type."""
        return await self._notes.latest(run_id, summary_type, tenant)

    async def checkpoint(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        name: str,
        payload: object,
        step_key: str | None = None,
        parent_step_key: str | None = None,
    ) -> int:
        """Record a checkpoint and return the number of its event."""
        return await self._notes.summarize(
            run_id, tenant, CHECKPOINT + _require_name("checkpoint", name), as_json(payload), step_key, parent_step_key
        )

    async def set_artifact(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        key: str,
        value: object,
        schema_version: str | None = None,
        step_key: str | None = None,
        parent_step_key: str | None = None,
    ) -> int:
        """Record a value under a key and return the number of its event."""
        held = artifact_json(value, schema_version)
        return await self._notes.summarize(
            run_id, tenant, ARTIFACT + _require_name("artifact", key), held, step_key, parent_step_key
        )

    async def get_artifact(self, *, run_id: str, key: str, tenant: TenantContext | None = None) -> object | None:
        """Return the newest value under a key."""
        return await self._notes.artifact(run_id, key, tenant)

    async def list_artifacts(self, *, run_id: str, tenant: TenantContext | None = None) -> dict[str, object]:
        """Return the newest value under every key."""
        return await self._notes.artifacts(run_id, tenant)

    async def append_harness_event(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        event_type: EventType,
        payload: EventPayload,
        parent_step_key: str | None = None,
    ) -> KernelEvent:
        """Append a harness event."""
        if not str(event_type.value).startswith("harness_") or payload.kind != event_type.value:
            raise InputError(f"expected a harness event, found `{event_type.value}` with `{payload.kind}`")
        entry = Entry(to_entry_payload(payload), parent_step_key)
        written = await self._log.append(run_id, tenant.tenant_id, (entry,))
        return event_from_line(written.batch.events[-1].line)

    # Tools

    def tool(
        self,
        *,
        requires_capability: str | None = None,
        side_effect: bool = False,
        tool_version: str = "1.0.0",
        schema_version: str = "1",
        risk_level: ToolRiskLevel = "medium",
        sandbox_profile: str | None = None,
        **more: object,
    ) -> Callable[[ToolCallable], ToolCallable]:
        """Register a function as a tool; further settings are passed to the tool port."""

        def register(function: ToolCallable) -> ToolCallable:
            self._tools.port.register(
                function,
                requires_capability,
                side_effect,
                tool_version,
                schema_version,
                risk_level,
                sandbox_profile,
                **more,
            )
            return function

        return register

    def list_registered_tools(self) -> tuple[ToolDefinition, ...]:
        """Return every tool, sorted by name."""
        return self._tools.definitions()

    def list_tools(
        self, *, tenant_capabilities: frozenset[str], visible_tool_names: set[str] | None = None
    ) -> tuple[ToolDefinition, ...]:
        """Return the tools that a tenant with these capabilities may use, sorted by name."""
        tools, needed = self._tools.definitions(), self._tools.capabilities()
        return allowed(visibility_of(tools, needed, tenant_capabilities, visible_tool_names))

    def list_tools_for_tenant(
        self, *, tenant: TenantContext, visible_tool_names: set[str] | None = None
    ) -> tuple[ToolDefinition, ...]:
        """Return the tools a tenant may use, sorted by name."""
        return self.list_tools(tenant_capabilities=tenant.capabilities, visible_tool_names=visible_tool_names)

    def tool_capability_map(self) -> dict[str, str | None]:
        """Return the capability each tool needs, by name."""
        return self._tools.capabilities()

    def tool_fingerprint(self, *, tool_name: str) -> ToolFingerprint:
        """Return the identity, risk level and sandbox profile of a tool."""
        return self._tools.fingerprint(tool_name)

    def canonicalize_tool_args(self, *, tool_name: str, arguments: Arguments) -> tuple[str, str]:
        """Validate arguments; return them as canonical JSON, with the hash of the tool's schema."""
        tool = self._tools.definition(tool_name)
        return self._tools.canonical(tool_name, arguments), tool.schema_hash

    async def describe_capabilities(
        self, *, tenant: TenantContext, visible_tool_names: set[str] | None = None
    ) -> dict[str, object]:
        """Return which tools a tenant may use, and why not the others."""
        tools, needed = self._tools.definitions(), self._tools.capabilities()
        return visibility_report(visibility_of(tools, needed, tenant.capabilities, visible_tool_names), tenant)

    async def explain_tool_allowlist(
        self,
        *,
        tenant: TenantContext,
        model: str = "tool_allowlist_explain",
        run_id: str = "__tool_allowlist_explain__",
        visible_tool_names: set[str] | None = None,
        prompt: str = "Explain tool allowlist for this tenant.",
        messages: Sequence[ChatMessage] | None = None,
    ) -> dict[str, object]:
        """Return which tools a model step would offer after middleware; no model is called, no event recorded."""
        tools, needed = self._tools.definitions(), self._tools.capabilities()
        visibility = visibility_of(tools, needed, tenant.capabilities, visible_tool_names)
        shown = tuple(messages) if messages else (ChatMessage(role="user", content=prompt),)
        invocation = ModelInvocation(
            run_id, tenant, model, prompt, shown, ModelCallOptions(), allowed(visibility), needed
        )
        for middleware in self._middleware:
            invocation = await middleware.prepare_model(invocation)
        final = sorted(tool.name for tool in invocation.allowed_tools)
        decided = after_middleware(visibility, invocation.allowed_tools)
        return visibility_report(decided, tenant) | {"model": model, "final_allowed_tools": final}


def _require_name(what: str, name: str) -> str:
    if not name.strip():
        raise InputError(f"{what} needs a name")
    return name
