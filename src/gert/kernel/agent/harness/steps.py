"""The model and tool steps of a harness, with step keys that are the same whenever its work runs again."""

from collections.abc import Sequence

from pydantic import BaseModel

from gert.errors import HarnessStateError, InputError
from gert.kernel.agent.api.kernel import AgentKernel
from gert.kernel.agent.harness.notes import HarnessNotes
from gert.kernel.agent.harness.scope import current_scope
from gert.kernel.agent.harness.types import TraceLevel
from gert.kernel.agent.loop.agent import AutonomousAgent
from gert.kernel.agent.loop.context import IDENTITY
from gert.kernel.agent.loop.settled import settled_tool_step
from gert.kernel.agent.ports.model import ModelCallOptions, OutputT, ToolDefinition
from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.agent.types.api import (
    ContextVersion,
    ModelInput,
    ReplayPolicy,
    StepModelResult,
    StepToolResult,
    TenantContext,
)
from gert.kernel.foundation.arguments import checks_arguments


@checks_arguments
class HarnessSteps(HarnessNotes):
    """Model and tool steps with the models, tenant and replay policy of a harness."""

    def __init__(
        self,
        kernel: AgentKernel,
        tenant: TenantContext | None,
        *,
        default_model: str,
        draft_model: str,
        verify_model: str,
        replay_policy: ReplayPolicy,
        trace_level: TraceLevel,
    ) -> None:
        super().__init__(kernel, tenant, default_model, trace_level)
        self._draft_model = draft_model
        self._verify_model = verify_model
        self._replay_policy: ReplayPolicy = replay_policy

    def require_step_key(self, step_key: str | None) -> str:
        """Return a step key; HarnessStateError if there is none."""
        if step_key is None or not step_key.strip():
            raise HarnessStateError("this step needs a step key", hint="pass `step_key`, the same one each time")
        return step_key

    def list_tools(
        self, *, visible_tool_names: set[str] | None = None, tenant: TenantContext | None = None
    ) -> tuple[ToolDefinition, ...]:
        """Return the tools that the tenant may use."""
        return self._kernel.list_tools_for_tenant(tenant=self._tenant_of(tenant), visible_tool_names=visible_tool_names)

    # --- steps with every argument

    async def model_step(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        model: str,
        input: ModelInput,  # noqa: A002  the documented name
        output_schema: type[OutputT],
        step_key: str,
        visible_tool_names: set[str] | None = None,
        model_options: ModelCallOptions | None = None,
        replay_policy: ReplayPolicy | None = None,
        context_version: ContextVersion | None = None,
        parent_step_key: str | None = None,
    ) -> StepModelResult[OutputT]:
        """Run a model step."""
        step = await self._kernel.step_model(
            run_id=run_id,
            tenant=tenant,
            model=model,
            input=input,
            output_schema=output_schema,
            step_key=self.require_step_key(step_key),
            visible_tool_names=visible_tool_names,
            model_options=model_options,
            replay_policy=replay_policy or self._replay_policy,
            context_version=context_version,
            parent_step_key=parent_step_key,
        )
        if step.replayed_with_drift:
            drift: dict[str, object] = {"step_key": step_key, "fields": list(step.drift_fields)}
            await self._trace("stage", run_id, tenant, "drift", drift, step_key)
        if not step.replayed:
            cost: dict[str, object] = {"step_key": step_key, "model": model, "cost_usd": step.usage.cost_usd}
            await self._trace("verbose", run_id, tenant, "cost", cost, step_key)
        return step

    async def model_step_from_messages(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        model: str,
        messages: tuple[ChatMessage, ...],
        output_schema: type[OutputT],
        step_key: str,
        visible_tool_names: set[str] | None = None,
        model_options: ModelCallOptions | None = None,
        replay_policy: ReplayPolicy | None = None,
        context_version: ContextVersion | None = None,
        parent_step_key: str | None = None,
    ) -> StepModelResult[OutputT]:
        """Run a model step with the messages of a conversation."""
        return await self.model_step(
            run_id=run_id,
            tenant=tenant,
            model=model,
            input=ModelInput.from_messages(messages),
            output_schema=output_schema,
            step_key=step_key,
            visible_tool_names=visible_tool_names,
            model_options=model_options,
            replay_policy=replay_policy,
            context_version=context_version,
            parent_step_key=parent_step_key,
        )

    async def tool_step(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        tool_name: str,
        arguments: BaseModel,
        step_key: str,
        parent_step_key: str | None = None,
    ) -> StepToolResult:
        """Run a tool step."""
        key = self.require_step_key(step_key)
        try:
            return await settled_tool_step(
                self._kernel,
                run_id=run_id,
                tenant=tenant,
                tool_name=tool_name,
                arguments=arguments,
                step_key=key,
                parent_step_key=parent_step_key,
            )
        except InputError as error:
            facts: dict[str, object] = {"tool_name": tool_name, "step_key": key, "error": error.message}
            await self._trace("verbose", run_id, tenant, "tool_validation", facts, key)
            raise

    # --- steps of the run that is worked on

    async def run_model(
        self,
        *,
        output_schema: type[OutputT],
        prompt: str | None = None,
        messages: Sequence[ChatMessage] | None = None,
        input: ModelInput | None = None,  # noqa: A002  the documented name
        model: str | None = None,
        step_key: str | None = None,
        run_id: str | None = None,
        tenant: TenantContext | None = None,
        visible_tool_names: set[str] | None = None,
        model_options: ModelCallOptions | None = None,
        replay_policy: ReplayPolicy | None = None,
        context_version: ContextVersion | None = None,
        parent_step_key: str | None = None,
    ) -> StepModelResult[OutputT]:
        """Run a model step with a prompt, messages or an input, of which one is given.

        step_key: (default: derived from the question and its place in the work)
        """
        given = [each for each in (prompt, messages, input) if each is not None]
        if len(given) != 1:
            raise InputError(f"expected one of `prompt`, `messages` and `input`, found {len(given)}")
        if input is None:
            input = (  # noqa: A001
                ModelInput.from_prompt(prompt) if prompt is not None else ModelInput.from_messages(messages or ())
            )
        named = model if model is not None else self._model_in_use()
        asked = [named, output_schema.__name__, input.prompt, [each.model_dump() for each in input.messages or ()]]
        return await self.model_step(
            run_id=self._run_of(run_id),
            tenant=self._tenant_of(tenant),
            model=named,
            input=input,
            output_schema=output_schema,
            step_key=step_key if step_key is not None else self._scope(run_id, tenant).key("model", asked),
            visible_tool_names=visible_tool_names,
            model_options=model_options,
            replay_policy=replay_policy,
            context_version=context_version,
            parent_step_key=parent_step_key,
        )

    async def run_draft_model(
        self,
        *,
        output_schema: type[OutputT],
        prompt: str | None = None,
        messages: Sequence[ChatMessage] | None = None,
        input: ModelInput | None = None,  # noqa: A002  the documented name
        step_key: str | None = None,
        run_id: str | None = None,
        tenant: TenantContext | None = None,
        visible_tool_names: set[str] | None = None,
        model_options: ModelCallOptions | None = None,
        replay_policy: ReplayPolicy | None = None,
        context_version: ContextVersion | None = None,
        parent_step_key: str | None = None,
    ) -> StepModelResult[OutputT]:
        """`run_model` with the draft model."""
        return await self.run_model(
            output_schema=output_schema,
            prompt=prompt,
            messages=messages,
            input=input,
            model=self._draft_model,
            step_key=step_key,
            run_id=run_id,
            tenant=tenant,
            visible_tool_names=visible_tool_names,
            model_options=model_options,
            replay_policy=replay_policy,
            context_version=context_version,
            parent_step_key=parent_step_key,
        )

    async def run_verify_model(
        self,
        *,
        output_schema: type[OutputT],
        prompt: str | None = None,
        messages: Sequence[ChatMessage] | None = None,
        input: ModelInput | None = None,  # noqa: A002  the documented name
        step_key: str | None = None,
        run_id: str | None = None,
        tenant: TenantContext | None = None,
        visible_tool_names: set[str] | None = None,
        model_options: ModelCallOptions | None = None,
        replay_policy: ReplayPolicy | None = None,
        context_version: ContextVersion | None = None,
        parent_step_key: str | None = None,
    ) -> StepModelResult[OutputT]:
        """`run_model` with the verify model."""
        return await self.run_model(
            output_schema=output_schema,
            prompt=prompt,
            messages=messages,
            input=input,
            model=self._verify_model,
            step_key=step_key,
            run_id=run_id,
            tenant=tenant,
            visible_tool_names=visible_tool_names,
            model_options=model_options,
            replay_policy=replay_policy,
            context_version=context_version,
            parent_step_key=parent_step_key,
        )

    async def run_tool(
        self,
        *,
        tool_name: str,
        arguments: BaseModel,
        step_key: str | None = None,
        run_id: str | None = None,
        tenant: TenantContext | None = None,
        parent_step_key: str | None = None,
    ) -> StepToolResult:
        """Run a tool step.

        step_key: (default: derived from the tool, its arguments and its place in the work)
        """
        asked = [tool_name, self._kernel.tools.given(tool_name, arguments)]
        return await self.tool_step(
            run_id=self._run_of(run_id),
            tenant=self._tenant_of(tenant),
            tool_name=tool_name,
            arguments=arguments,
            step_key=step_key if step_key is not None else self._scope(run_id, tenant).key(tool_name, asked),
            parent_step_key=parent_step_key,
        )

    async def run_autonomous_agent(
        self,
        *,
        run_id: str | None = None,
        tenant: TenantContext | None = None,
        model: str | None = None,
        prompt: str,
        output_schema: type[OutputT],
        system_prompt: str = IDENTITY,
        max_iterations: int = 15,
        replay_policy: ReplayPolicy | None = None,
    ) -> OutputT:
        """Let an agent work on a task in this run and return its answer."""
        scope = self._scope(run_id, tenant)
        key = scope.key("agent")
        # The first agent of a run has the documented step keys; those of tasks and others have a name before them.
        prefix = "" if scope.task_id is None and key.endswith("_agent_1") else f"{key}_"
        agent = AutonomousAgent(self._kernel, replay_policy=replay_policy or self._replay_policy)
        return await agent.run(
            run_id=self._run_of(run_id),
            tenant=self._tenant_of(tenant),
            model=model if model is not None else self._model_in_use(),
            system_prompt=system_prompt,
            prompt=prompt,
            output_schema=output_schema,
            max_iterations=max_iterations,
            step_key_prefix=prefix,
        )

    def _model_in_use(self) -> str:
        scope = current_scope()
        return self._default_model if scope is None else scope.context.model
