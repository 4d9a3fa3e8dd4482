"""An agent that works on a task until it has an accepted answer."""

from dataclasses import dataclass

from gert.errors import InputError
from gert.kernel.agent.api.kernel import AgentKernel
from gert.kernel.agent.loop.agent_run import AgentRun, AgentSettings
from gert.kernel.agent.loop.compaction import CompactionStrategy
from gert.kernel.agent.loop.context import IDENTITY, ContextBuilder
from gert.kernel.agent.loop.gates import AcceptanceSpec, check_gate
from gert.kernel.agent.loop.memory import MemoryStore
from gert.kernel.agent.ports.model import OutputT
from gert.kernel.agent.types.api import ReplayPolicy, TenantContext, ToolDrift
from gert.kernel.foundation.arguments import checks_arguments


@dataclass(frozen=True, slots=True)
class DraftVerifyLoopConfig:
    """Let one model write drafts, and another one verify them."""

    draft_model: str
    verify_model: str


@checks_arguments
class AutonomousAgent:
    """Calls a model and the tools it asks for, turn by turn, until the model answers.

    Every turn is on record: run again after a crash, the agent continues where it stopped. It may be used for any
    number of runs, also concurrently.
    """

    def __init__(
        self,
        kernel: AgentKernel,
        *,
        context_builder: ContextBuilder | None = None,
        loop: DraftVerifyLoopConfig | None = None,
        compaction: CompactionStrategy | None = None,
        memory_store: MemoryStore | None = None,
        auto_reflect: bool = False,
        reflection_model: str = "gpt-4o-mini",
        replay_policy: ReplayPolicy = "strict",
        tool_drift: ToolDrift = "refuse",
    ) -> None:
        """auto_reflect: after its answer, extract rules for later runs into the builder's experience store
        tool_drift: `pin` keeps a run on the tools it started with, even if others are registered now
        """
        builder = context_builder if context_builder is not None else ContextBuilder(memory_store=memory_store)
        if auto_reflect and (builder.experience_store is None or builder.task_category is None):
            raise InputError(
                "`auto_reflect` needs a place for what it learns",
                hint="pass a `context_builder` with `experience_store` and `task_category`",
            )
        self._kernel = kernel
        self._settings = AgentSettings(
            builder=builder,
            memory_store=memory_store if memory_store is not None else builder.memory_store,
            draft_model=None if loop is None else loop.draft_model,
            verify_model=None if loop is None else loop.verify_model,
            compaction=compaction,
            reflection_model=reflection_model if auto_reflect else None,
            replay_policy=replay_policy,
            tool_drift=tool_drift,
        )

    async def run(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        model: str,
        system_prompt: str = IDENTITY,
        prompt: str,
        output_schema: type[OutputT],
        max_iterations: int = 15,
        acceptance: AcceptanceSpec | None = None,
        step_key_prefix: str = "",
    ) -> OutputT:
        """Work on a task and return the accepted answer; MaxIterationsExceeded if there is none after the last turn.

        The run is started if it does not exist, and ends with the answer. ApprovalRequiredError if a tool call waits
        for an approval: run it again when that is given.

        step_key_prefix: distinguishes the steps of several agents in one run
        """
        if max_iterations < 1:
            raise InputError("expected `max_iterations` to be 1 or more")
        gates = acceptance.gates if acceptance is not None else ()
        for gate in gates:
            check_gate(gate)
            self._kernel.tools.definition(gate.tool)
        async with self._kernel.run(tenant=tenant, run_id=run_id) as bound:
            run = AgentRun(
                self._kernel, self._settings, bound.run_id, tenant, model, system_prompt, prompt, step_key_prefix
            )
            return await run.answer(output_schema, max_iterations, gates)
