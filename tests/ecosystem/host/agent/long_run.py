"""A run of twenty turns with memory, skills, compaction, sub-agents, gates and reflection, and the world around it.

The model is a function of what it is asked: every request shows how far the run is (`turn=N`), and the answer follows
from that. So any process can continue the run, and a call that is repeated is seen in the world's list of requests.
"""

import hashlib
import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from gert.agent import (
    AcceptanceSpec,
    ArtanaKernel,
    AutonomousAgent,
    CompactionStrategy,
    ContextBuilder,
    ModelRequest,
    ModelResult,
    ModelUsage,
    SQLiteExperienceStore,
    SQLiteMemoryStore,
    SubAgentFactory,
    TenantContext,
    ToolCall,
    ToolExecutionContext,
    ToolExecutionResult,
    ToolGate,
    ToolTransientError,
)

TENANT = TenantContext(tenant_id="acme", capabilities=frozenset({"charge"}), budget_usd_limit=100)
RUN = "long"
CHARGES = {5, 7, 14, 19}
RESEARCH = {4, 11}
TURN = re.compile(r"turn=(\d+)")
PART = re.compile(r"part=(\d+)")


class Report(BaseModel):
    """What the agents answer."""

    text: str


class World:
    """What is outside the run: a folder that remembers effects and requests, whoever dies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def note(self, name: str, line: str) -> None:
        """Write a line that outlives the process."""
        file = os.open(self.folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, f"{line}\n".encode())
        finally:
            os.close(file)

    def noted(self, name: str) -> Counter[str]:
        """How often each line was written."""
        path = self.folder / name
        return Counter(path.read_text().splitlines() if path.exists() else [])


# What the agent does in each turn; a turn that is not here looks at something.
SCRIPT: dict[int, list[tuple[str, dict[str, Any]]]] = {
    1: [("load_skill", {"skill_name": "look"})],
    3: [("memory_append", {"text": "turn=3 web is flaky"})],
    4: [("research", {"prompt": "find part=0 for turn=4"})],
    5: [("look", {"at": "turn=5"}), ("charge", {"turn": 5}), ("look", {"at": "again turn=5"})],
    6: [("lok", {"at": "turn=6"})],
    7: [("charge", {"turn": 7})],
    8: [("memory_append", {"text": "turn=8 one"}), ("memory_append", {"text": "turn=8 two"})],
    9: [("look", {"where": "turn=9"})],
    10: [("query_event_history", {"limit": 3})],
    11: [("research", {"prompt": "find part=0 for turn=11"}), ("look", {"at": "turn=11"})],
    12: [("flaky", {"turn": 12})],
    13: [("memory_search", {"query": "flaky"})],
    14: [("charge", {"turn": 14})],
    16: [("memory_replace", {"content": "turn=16 all is well"})],
    19: [("charge", {"turn": 19}), ("look", {"at": "turn=19"})],
}
ANSWERS = {17: "draft", 20: "final"}


class Model:
    """Answers by what the request shows, and remembers each request in the world."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def complete(self, request: ModelRequest[Any]) -> ModelResult[Any]:
        """Answer."""
        texts = [f"{each.role}:{each.content}:{each.tool_calls}" for each in request.messages]
        hashed = hashlib.sha256("\n".join([request.run_id, request.model, *texts]).encode()).hexdigest()[:16]
        self._world.note("asked", f"{request.model} {hashed}")
        answer, calls = self._answer(request, "\n".join(texts[1:]))
        output = request.output_schema.model_validate(answer) if answer else request.output_schema.model_construct()
        return ModelResult(output, ModelUsage(10, 5, 0.01), calls, json.dumps(answer) if answer else "")

    def _answer(self, request: ModelRequest[Any], text: str) -> tuple[dict[str, Any], tuple[ToolCall, ...]]:
        if request.model == "summarizer":
            return {"summary": f"so far turn={max(map(int, TURN.findall(text)))}"}, ()
        if request.model == "reflector":
            rule = {"rule_id": "x", "tenant_id": "evil", "task_category": "y", "rule_type": "fact", "content": "ask"}
            return {"extracted_rules": [rule]}, ()
        if request.model == "researcher":
            part = max(map(int, PART.findall(text))) + 1
            if part == 3:
                return {"text": f"found {TURN.findall(text)[0]}"}, ()
            return {}, (_call("look", {"at": f"part={part}"}),)
        turn = max(map(int, TURN.findall(text)), default=0) + 1
        if turn in ANSWERS:
            return {"text": f"{ANSWERS[turn]} turn={turn}"}, ()
        # What a tool says does not always name the turn, but its arguments do, or the call's id.
        made = SCRIPT.get(turn, [("look", {"at": f"turn={turn}"})])
        return {}, tuple(_call(name, given, f"turn={turn}.{at}") for at, (name, given) in enumerate(made))


def _call(name: str, given: dict[str, Any], call_id: str | None = None) -> ToolCall:
    return ToolCall(name, json.dumps(given), call_id)


def make_kernel(store: Any, world: World) -> ArtanaKernel:
    """A kernel with the tools of the run."""
    kernel = ArtanaKernel(
        store=store, model_port=Model(world), middleware=ArtanaKernel.default_middleware_stack(pii=False)
    )

    async def is_charged(context: ToolExecutionContext, given: dict[str, Any]) -> ToolExecutionResult:
        if world.noted("charged")[f"{given['turn']} {context.idempotency_key}"]:
            return ToolExecutionResult("success", json.dumps({"charged": given["turn"]}))
        return ToolExecutionResult("transient_error", "null", error_message="not charged")

    @kernel.tool()
    async def look(at: str) -> dict[str, str]:
        """Look at something."""
        return {"seen": at}

    @kernel.tool(requires_capability="charge", side_effect=True, reconcile=is_charged)
    async def charge(turn: int, artana_context: ToolExecutionContext) -> dict[str, int]:
        """Charge a customer."""
        world.note("charged", f"{turn} {artana_context.idempotency_key}")
        return {"charged": turn}

    @kernel.tool()
    async def flaky(turn: int) -> str:
        """Fail for now."""
        world.note("flaky", str(turn))
        raise ToolTransientError("try later")

    @kernel.tool()
    async def is_final(candidate: Report) -> dict[str, object]:
        """Accept what is final."""
        return {"passed": candidate.text.startswith("final"), "note": candidate.text}

    return kernel


async def drive(store: Any, world: World) -> Report:
    """Everything the run has to do, or what is left of it."""
    async with make_kernel(store, world) as kernel:
        memory = SQLiteMemoryStore(world.folder / "memory.db")
        learned = SQLiteExperienceStore(world.folder / "learned.db")
        try:
            workspace = str(world.folder / "AGENTS.md")
            strategy = CompactionStrategy(
                trigger_at_messages=14, keep_recent_messages=4, summarize_with_model="summarizer"
            )
            factory = SubAgentFactory(kernel=kernel, memory_store=memory)
            factory.create(name="research", output_schema=Report, model="researcher", system_prompt="You research.")
            builder = ContextBuilder(
                experience_store=learned, task_category="ops", memory_store=memory, workspace_context_path=workspace
            )
            agent = AutonomousAgent(
                kernel, context_builder=builder, compaction=strategy, auto_reflect=True, reflection_model="reflector"
            )
            return await agent.run(
                run_id=RUN,
                tenant=TENANT,
                model="worker",
                prompt="Work for twenty turns.",
                output_schema=Report,
                max_iterations=20,
                acceptance=AcceptanceSpec(gates=(ToolGate(tool="is_final"),)),
            )
        finally:
            await memory.close()
            await learned.close()
