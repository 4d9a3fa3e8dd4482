"""An incident triage agent that may act only through governed runbooks.

    python examples/agents/incident_triage.py --db incident.db
    gert approvals list --db incident.db
    gert approve TICKET --db incident.db --as ann
    python examples/agents/incident_triage.py --db incident.db

The agent has no other tools than three runbooks. The policy of the project decides about their steps: looking is
allowed, a restart waits for a person, and the runbook that deletes data is denied before it begins. The first run stops
at the restart. After the approval, the second one resumes the same run of the runbook: nothing is done twice.
"""

import argparse
import asyncio
from pathlib import Path
from typing import Any

from model import choose_model
from pydantic import BaseModel

from gert.agent import (
    ApprovalRequiredError,
    ArtanaKernel,
    AutonomousAgent,
    ContextBuilder,
    ModelRequest,
    SQLiteStore,
    TenantContext,
    runbook_tool,
)
from gert.testing import calls

RUNBOOKS = Path(__file__).resolve().parent / "incident"
TENANT = TenantContext(tenant_id="examples", budget_usd_limit=1)


class Report(BaseModel):
    """What the agent found and did."""

    summary: str
    resolved: bool


def script(request: ModelRequest[Any]) -> Any:
    """Look, try to delete, restart, report."""
    results = [message.content for message in request.messages if message.role == "tool"]
    if not results:
        return calls("check-service", {"service": "web"})
    if len(results) == 1:
        return calls("wipe-service", {"service": "web"})
    if len(results) == 2:
        return calls("restart-service", {"service": "web", "reason": "it is crash looping: out of memory"})
    return {"summary": "web was out of memory and is restarted", "resolved": '"restarted"' in results[-1]}


async def triage(db: str, *, offline: bool) -> None:
    """Run or continue the agent."""
    port, model = choose_model(script, offline=offline)
    packs = [runbook_tool(f"{name}-service.yaml", root=str(RUNBOOKS)) for name in ("check", "restart", "wipe")]
    async with ArtanaKernel(store=SQLiteStore(db), model_port=port, packs=packs) as kernel:
        agent = AutonomousAgent(kernel, context_builder=ContextBuilder(progressive_skills=False))
        try:
            report = await agent.run(
                run_id="incident-42",
                tenant=TENANT,
                model=model,
                system_prompt="You triage incidents. Look first. Act only through the runbooks you are given.",
                prompt="The alert `web is down` fires. Find out why, fix it, and report.",
                output_schema=Report,
            )
        except ApprovalRequiredError as waiting:
            print(f"waiting: {waiting}")
            print(f"next: gert approve {waiting.ticket_id} --db {db} --as YOU")
        else:
            print(f"{report.summary} (resolved: {report.resolved})")


def main(arguments: list[str] | None = None) -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", default="incident.db", help="The ledger (default: incident.db).")
    parser.add_argument("--offline", action="store_true", help="Use the script even if a key is set.")
    given = parser.parse_args(arguments)
    asyncio.run(triage(given.db, offline=given.offline))


if __name__ == "__main__":
    main()
