"""An agent with tools under a safety policy: it looks freely, and restarts only what a person has approved.

    python examples/agents/tool_agent_with_approval.py --db pods.db
    gert approvals list --db pods.db
    gert approve TICKET --db pods.db
    python examples/agents/tool_agent_with_approval.py --db pods.db

The first run stops at the restart and waits. After the approval, the second run continues there: nothing that was
looked at is looked at again, and the restart happens once.
"""

import argparse
import asyncio
from typing import Any

from model import choose_model
from pydantic import BaseModel

from gert.agent import (
    ApprovalGatePolicy,
    ApprovalRequiredError,
    ArtanaKernel,
    AutonomousAgent,
    KernelPolicy,
    ModelRequest,
    SafetyPolicyConfig,
    SafetyPolicyMiddleware,
    SQLiteStore,
    TenantContext,
    ToolExecutionContext,
    ToolLimitPolicy,
    ToolSafetyPolicy,
)
from gert.testing import calls

TENANT = TenantContext(tenant_id="examples", capabilities=frozenset({"restart"}), budget_usd_limit=1)
SAFETY = SafetyPolicyConfig(
    tools={
        "restart_pod": ToolSafetyPolicy(
            limits=ToolLimitPolicy(max_calls_per_run=1), approval=ApprovalGatePolicy(mode="human")
        )
    }
)
PODS = {"web-1": "crash looping", "web-2": "healthy"}


class Report(BaseModel):
    """What the agent found and did."""

    summary: str


def script(request: ModelRequest[Any]) -> Any:
    """Look at both pods, restart the broken one, report."""
    results = sum(message.role == "tool" for message in request.messages)
    if results == 0:
        return [calls("look_at_pod", {"pod": pod}) for pod in PODS]
    if results == 2:
        return calls("restart_pod", {"pod": "web-1"})
    return {"summary": "web-1 was crash looping and is restarted; web-2 is healthy"}


def with_tools(kernel: ArtanaKernel) -> ArtanaKernel:
    """Register the tools; the cluster is a table."""

    @kernel.tool(risk_level="low")
    async def look_at_pod(pod: str) -> dict[str, str]:
        """Return the state of a pod."""
        return {"pod": pod, "state": PODS[pod]}

    @kernel.tool(requires_capability="restart", side_effect=True, risk_level="high")
    async def restart_pod(pod: str, artana_context: ToolExecutionContext) -> dict[str, str]:
        """Restart a pod. Pass the key to the target, so that a repeated request restarts it once."""
        print(f"restarting {pod} (idempotency key {artana_context.idempotency_key[:12]})")
        return {"restarted": pod}

    return kernel


async def triage(db: str, *, offline: bool) -> None:
    """Run or continue the agent."""
    port, model = choose_model(script, offline=offline)
    stack = ArtanaKernel.default_middleware_stack(safety=SafetyPolicyMiddleware(config=SAFETY))
    async with ArtanaKernel(
        store=SQLiteStore(db), model_port=port, middleware=stack, policy=KernelPolicy.enforced_v2()
    ) as kernel:
        agent = AutonomousAgent(with_tools(kernel))
        try:
            report = await agent.run(
                run_id="pods",
                tenant=TENANT,
                model=model,
                system_prompt="You look after pods. Look first; restart only what is broken.",
                prompt="Are web-1 and web-2 healthy? Fix what is not.",
                output_schema=Report,
            )
        except ApprovalRequiredError as waiting:
            print(f"waiting: {waiting}")
            print(f"next: gert approvals list --db {db}")
        else:
            print(report.summary)


def main(arguments: list[str] | None = None) -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", default="pods.db", help="The ledger (default: pods.db).")
    parser.add_argument("--offline", action="store_true", help="Use the script even if a key is set.")
    given = parser.parse_args(arguments)
    asyncio.run(triage(given.db, offline=given.offline))


if __name__ == "__main__":
    main()
