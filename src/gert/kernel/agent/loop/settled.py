"""Tool steps of runs that are resumed: a call of unknown outcome is settled by asking its tool."""

from functools import partial
from typing import TYPE_CHECKING

from gert.errors import ToolExecutionFailedError
from gert.kernel.agent.steps.tools import Arguments
from gert.kernel.agent.types.api import StepToolResult, TenantContext

if TYPE_CHECKING:
    from gert.kernel.agent.api.kernel import AgentKernel


async def settled_tool_step(
    kernel: "AgentKernel",
    *,
    run_id: str,
    tenant: TenantContext,
    tool_name: str,
    arguments: Arguments,
    step_key: str,
    parent_step_key: str | None = None,
) -> StepToolResult:
    """Run a tool step; if its outcome is unknown, let the tool's reconciler find out whether the call happened.

    A call that happened is not repeated, and one that did not is made. If the tool does not know, the error is raised:
    an operator has to reconcile the call.
    """
    step = partial(
        kernel.step_tool,
        run_id=run_id,
        tenant=tenant,
        tool_name=tool_name,
        arguments=arguments,
        step_key=step_key,
        parent_step_key=parent_step_key,
    )
    try:
        return await step()
    except ToolExecutionFailedError as error:
        if not error.in_doubt:
            raise
    try:
        await kernel.reconcile_tool(**step.keywords)
    except ToolExecutionFailedError as error:
        if error.outcome != "transient_error":
            raise
    # The recorded result, or a call that the tool says did not happen.
    return await step()
