"""Three agents debate: one argues for, one against, and a judge decides. Each is a run of its own, under one budget.

    python examples/agents/three_agent_debate.py --db debate.db "Should we deploy on Fridays?"

The supervisor runs the debaters as sub-agents of the judge: they share its budget, and `gert run cost --by run` shows
what the whole debate cost.
"""

import argparse
import asyncio
from typing import Any

from model import choose_model
from pydantic import BaseModel

from gert.agent import (
    ArtanaKernel,
    AutonomousAgent,
    ContextBuilder,
    ModelRequest,
    SQLiteStore,
    SubAgentFactory,
    TenantContext,
)
from gert.testing import calls

TENANT = TenantContext(tenant_id="examples", budget_usd_limit=1)
SIDES = {"argue_for": "You argue for the motion.", "argue_against": "You argue against the motion."}


class Argument(BaseModel):
    """What a debater says."""

    points: list[str]


class Verdict(BaseModel):
    """What the judge decides."""

    winner: str
    because: str


def script(request: ModelRequest[Any]) -> Any:
    """The judge hears both sides at once, then decides."""
    if request.output_schema is Argument:
        is_for = "argue for" in request.messages[0].content
        return {"points": ["small changes are safe on any day"] if is_for else ["nobody is there to roll back"]}
    heard = [message.content for message in request.messages if message.role == "tool"]
    if not heard:
        return [calls(side, {"prompt": request.messages[-1].content}) for side in SIDES]
    return {"winner": "against", "because": f"of {len(heard)} sides, that one names who pays for a failure"}


async def debate(db: str, motion: str, *, offline: bool) -> None:
    """Run or continue the debate."""
    port, model = choose_model(script, offline=offline)
    stack = ArtanaKernel.default_middleware_stack()
    async with ArtanaKernel(store=SQLiteStore(db), model_port=port, middleware=stack) as kernel:
        builder = ContextBuilder(progressive_skills=False)
        factory = SubAgentFactory(kernel=kernel, context_builder=builder)
        for side, instruction in SIDES.items():
            factory.create(name=side, output_schema=Argument, model=model, system_prompt=instruction)
        verdict = await AutonomousAgent(kernel, context_builder=builder).run(
            run_id="debate",
            tenant=TENANT,
            model=model,
            system_prompt="You judge a debate. Ask both sides with your tools, then decide for one of them.",
            prompt=motion,
            output_schema=Verdict,
        )
        print(f"{motion} -> {verdict.winner}: {verdict.because}")


def main(arguments: list[str] | None = None) -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("motion", nargs="?", default="Should we deploy on Fridays?")
    parser.add_argument("--db", default="debate.db", help="The ledger (default: debate.db).")
    parser.add_argument("--offline", action="store_true", help="Use the script even if a key is set.")
    given = parser.parse_args(arguments)
    asyncio.run(debate(given.db, given.motion, offline=given.offline))


if __name__ == "__main__":
    main()
