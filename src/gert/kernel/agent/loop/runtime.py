"""Single turns of an agent, for callers that keep the conversation themselves."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from gert.errors import InputError
from gert.kernel.agent.api.kernel import AgentKernel
from gert.kernel.agent.loop.conversation import answer_text, answering, calling, with_ids
from gert.kernel.agent.loop.tool_round import ToolRound
from gert.kernel.agent.ports.model import ModelCallOptions, OutputT
from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.agent.types.api import ModelInput, StepModelResult, TenantContext
from gert.kernel.foundation.arguments import checks_arguments

PREFIX = "agent_turn"


@dataclass(frozen=True, slots=True)
class AgentRuntimeState:
    """A conversation, and how many turns it had."""

    messages: tuple[ChatMessage, ...]
    turn_index: int = 0


# Without slots: a generic, frozen dataclass with slots cannot be created as `AgentRuntimeResult[X](…)`.
@dataclass(frozen=True)
class AgentRuntimeResult(Generic[OutputT]):
    """The conversation after a turn, and the model step of that turn."""

    run_id: str
    state: AgentRuntimeState
    last_step: StepModelResult[OutputT]


@checks_arguments
class AgentRuntime:
    """Takes turns: calls the model, runs the tools it asks for, and adds both to the conversation."""

    def __init__(self, kernel: AgentKernel) -> None:
        self._kernel = kernel

    async def run_turn(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        model: str,
        output_schema: type[OutputT],
        state: AgentRuntimeState,
        step_key: str | None = None,
        model_options: ModelCallOptions | None = None,
    ) -> AgentRuntimeResult[OutputT]:
        """Take one turn of a run that has started; a recorded turn is replayed.

        step_key: the key of the model step (default: `agent_turn_` and the number of the turn)
        """
        turn = state.turn_index + 1
        key = step_key if step_key is not None else f"{PREFIX}_{turn}"
        step = await self._kernel.step_model(
            run_id=run_id,
            tenant=tenant,
            model=model,
            input=ModelInput.from_messages(state.messages),
            output_schema=output_schema,
            step_key=key,
            model_options=model_options,
        )
        if not step.tool_calls:
            added: tuple[ChatMessage, ...] = (ChatMessage(role="assistant", content=step.output.model_dump_json()),)
        else:
            calls = with_ids(step.tool_calls, turn)
            replies = await ToolRound(self._kernel, tenant).run(run_id, key, calls)
            added = (calling(answer_text(step.output), calls), *answering(calls, [each.text for each in replies]))
        return AgentRuntimeResult(run_id, AgentRuntimeState((*state.messages, *added), turn), step)

    async def run_until(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        model: str,
        output_schema: type[OutputT],
        initial_messages: Sequence[ChatMessage],
        should_continue: Callable[[AgentRuntimeResult[OutputT]], bool],
        max_turns: int = 4,
        step_key_prefix: str = PREFIX,
        model_options: ModelCallOptions | None = None,
    ) -> AgentRuntimeResult[OutputT]:
        """Take turns while `should_continue` says so, at most `max_turns`, and return the last one."""
        if max_turns < 1:
            raise InputError("expected `max_turns` to be 1 or more")
        state = AgentRuntimeState(tuple(initial_messages))
        while True:
            result = await self.run_turn(
                run_id=run_id,
                tenant=tenant,
                model=model,
                output_schema=output_schema,
                state=state,
                step_key=f"{step_key_prefix}_{state.turn_index + 1}",
                model_options=model_options,
            )
            state = result.state
            if state.turn_index >= max_turns or not should_continue(result):
                return result
