"""A chat that survives its process: every turn is recorded, and what was said is never asked again.

    python examples/agents/durable_chat.py --db chat.db "What is a lease?" "And a fencing token?"

Run it again with one more question: the first answers come from the ledger, and only the new question is asked.
"""

import argparse
import asyncio
from typing import Any

from model import choose_model
from pydantic import BaseModel

from gert.agent import ArtanaKernel, ChatMessage, ModelInput, ModelRequest, SQLiteStore, TenantContext

TENANT = TenantContext(tenant_id="examples", budget_usd_limit=1)
SYSTEM = "You explain distributed systems in one sentence."


class Reply(BaseModel):
    """What the assistant says."""

    text: str


def script(request: ModelRequest[Any]) -> dict[str, str]:
    """Answer offline."""
    asked = request.messages[-1].content.lower()
    if "fencing" in asked:
        return {"text": "A number that grows with each lease, so that a late holder is refused."}
    if "lease" in asked:
        return {"text": "The right to drive a run, until it expires."}
    return {"text": f"I heard {len(request.messages) - 1} messages so far."}


async def chat(db: str, questions: list[str], *, offline: bool) -> None:
    """Ask the questions one after the other, in one run."""
    port, model = choose_model(script, offline=offline)
    async with ArtanaKernel(store=SQLiteStore(db), model_port=port) as kernel:
        messages = [ChatMessage(role="system", content=SYSTEM)]
        async with kernel.run(tenant=TENANT, run_id="chat") as run:
            for number, question in enumerate(questions, 1):
                messages.append(ChatMessage(role="user", content=question))
                answer = await run.model(
                    model, ModelInput.from_messages(messages), Reply, step_key=f"question_{number}"
                )
                messages.append(ChatMessage(role="assistant", content=answer.output.text))
                print(f"you: {question}")
                print(f"{'replayed' if answer.replayed else model}: {answer.output.text}")
        spent = (await kernel.explain_run("chat"))["model_cost_total"]
        print(f"run `chat` in {db}: {spent:.6f} USD; see `gert run show chat --db {db}`")


def main(arguments: list[str] | None = None) -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="*", default=["What is a lease?"])
    parser.add_argument("--db", default="chat.db", help="The ledger (default: chat.db).")
    parser.add_argument("--offline", action="store_true", help="Use the script even if a key is set.")
    given = parser.parse_args(arguments)
    asyncio.run(chat(given.db, given.questions, offline=given.offline))


if __name__ == "__main__":
    main()
