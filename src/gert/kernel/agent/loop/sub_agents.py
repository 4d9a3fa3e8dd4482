"""Sub-agents: agents that other agents call as tools. Each has a run of its own, named after the call."""

import inspect
from typing import Any, Final

from gert.errors import (
    AgentRunFailed,
    InputError,
    MaxIterationsExceeded,
    ModelPermanentError,
    ToolSuspended,
    UsageError,
)
from gert.kernel.agent.api.kernel import AgentKernel
from gert.kernel.agent.loop.agent import AutonomousAgent
from gert.kernel.agent.loop.compaction import CompactionStrategy
from gert.kernel.agent.loop.context import ContextBuilder
from gert.kernel.agent.loop.memory import MemoryStore
from gert.kernel.agent.ports.model import OutputT
from gert.kernel.agent.ports.tool import ToolCallable, ToolExecutionContext
from gert.kernel.agent.types.api import TenantContext
from gert.kernel.foundation.arguments import checks_arguments

BRANCH: Final = "::sub_agent::"
MOST_LEVELS: Final = 4
"""How deep sub-agents may call sub-agents; the id of a run has to stay readable."""


@checks_arguments
class SubAgentFactory:
    """Makes sub-agents of a kernel."""

    def __init__(
        self,
        *,
        kernel: AgentKernel,
        context_builder: ContextBuilder | None = None,
        compaction: CompactionStrategy | None = None,
        memory_store: MemoryStore | None = None,
    ) -> None:
        self._kernel = kernel
        self._agent = AutonomousAgent(
            kernel, context_builder=context_builder, compaction=compaction, memory_store=memory_store
        )

    def create(
        self,
        *,
        name: str,
        output_schema: type[OutputT],
        model: str,
        system_prompt: str,
        max_iterations: int = 10,
        requires_capability: str | None = None,
    ) -> ToolCallable:
        """Register a sub-agent as a tool of the kernel, and return the tool's function.

        Its run is `{run}::sub_agent::{idempotency_key}`: it shares the budget and the tenant of the run that calls it,
        and a call that was interrupted continues in the same run.
        """
        if max_iterations < 1:
            raise InputError("expected `max_iterations` to be 1 or more")
        if "resumable" not in inspect.signature(self._kernel.tools.port.register).parameters:
            raise UsageError(
                "the tool port cannot resume calls, which sub-agents need", hint="use LocalToolRegistry, or none"
            )

        async def sub_agent(prompt: str, artana_context: ToolExecutionContext) -> Any:
            context = artana_context
            if context.run_id.count(BRANCH) >= MOST_LEVELS:
                raise AgentRunFailed(status="failed", message=f"sub-agents are nested more than {MOST_LEVELS} deep")
            try:
                answer = await self._agent.run(
                    run_id=f"{context.run_id}{BRANCH}{context.idempotency_key}",
                    tenant=_tenant(context),
                    model=model,
                    system_prompt=system_prompt,
                    prompt=prompt,
                    output_schema=output_schema,
                    max_iterations=max_iterations,
                )
            except (MaxIterationsExceeded, ModelPermanentError) as error:
                raise AgentRunFailed(status="failed", message=f"sub-agent `{name}` failed: {error}") from error
            except Exception as error:
                # It waits for an approval, a budget, a model or an operator: the call continues when it can.
                raise ToolSuspended(error) from error
            return answer.model_dump(mode="json")

        sub_agent.__name__ = sub_agent.__qualname__ = name
        sub_agent.__doc__ = f"Delegate a task to the sub-agent `{name}` and wait for its answer."
        self._kernel.tool(requires_capability=requires_capability, resumable=True)(sub_agent)
        return sub_agent


def _tenant(context: ToolExecutionContext) -> TenantContext:
    return TenantContext(
        tenant_id=context.tenant_id,
        capabilities=context.tenant_capabilities,
        budget_usd_limit=context.tenant_budget_usd_limit or 0.0,
    )
