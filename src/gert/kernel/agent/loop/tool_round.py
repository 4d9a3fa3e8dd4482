"""The tool calls of one turn: run them, and turn their results and errors into text for the model."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gert.errors import (
    CapabilityDeniedError,
    GertError,
    InputError,
    PolicyViolationError,
    ToolExecutionFailedError,
    ToolNotFound,
)
from gert.kernel.agent.loop.conversation import error_json
from gert.kernel.agent.loop.settled import settled_tool_step
from gert.kernel.agent.ports.model import ToolCall
from gert.kernel.agent.replay.step_keys import normalized
from gert.kernel.agent.steps.error_text import error_text
from gert.kernel.agent.types.api import TenantContext
from gert.kernel.foundation.names import did_you_mean

if TYPE_CHECKING:
    from gert.kernel.agent.api.kernel import AgentKernel

MOST_CALLS: Final = 64
"""Tool calls of one turn that are made; a model may ask for any number."""

REFUSAL: Final = "tool_refusal"
"""The source of the text for the model about a call that did not succeed."""

_LONGEST_NAME: Final = 64
_LONGEST_MESSAGE: Final = 2000

FED_BACK: Final = (
    ToolExecutionFailedError,
    CapabilityDeniedError,
    PolicyViolationError,
    InputError,
)
"""Errors of a call that the model sees; everything else ends the turn, such as a call that waits for approval."""


@dataclass(frozen=True, slots=True)
class CallReply:
    """The text for the model about its call.

    succeeded: the tool returned; otherwise the text says why not
    replayed: it was on record
    """

    text: str
    succeeded: bool
    replayed: bool


After = Callable[[int, ToolCall, CallReply], Coroutine[Any, Any, None]]


class ToolRound:
    """Runs the tool calls of a model in one run."""

    def __init__(self, kernel: "AgentKernel", tenant: TenantContext, in_order: frozenset[str] = frozenset()) -> None:
        """in_order: tools whose calls run one after the other."""
        self._kernel = kernel
        self._tenant = tenant
        self._in_order = in_order

    def key(self, prefix: str, place: int, tool_name: str) -> str:
        """Return the step key of a call; a model may have invented the name of its tool."""
        known = self._kernel.tools.has(tool_name)
        return f"{prefix}_tool_{place}_{tool_name if known else _invented(tool_name)}"

    async def run(
        self, run_id: str, prefix: str, calls: Sequence[ToolCall], after: After | None = None, *, first: int = 1
    ) -> list[CallReply]:
        """Run calls concurrently and return the text for the model about each, in their order.

        An error that the model does not see is raised when all calls have ended, so that each is on record.

        after: called with the place, the call and the text for the model, when the call has ended
        first: the place of the first call
        """
        results: dict[int, CallReply] = {}

        async def one(place: int, call: ToolCall) -> None:
            reply = await self._one(run_id, self.key(prefix, place, call.tool_name), call, place - first)
            results[place] = reply
            if after is not None:
                await after(place, call, reply)

        async def one_after_another(chosen: Sequence[tuple[int, ToolCall]]) -> None:
            for place, call in chosen:
                await one(place, call)

        numbered = list(enumerate(calls, first))
        ordered = [each for each in numbered if each[1].tool_name in self._in_order]
        works = [one(place, call) for place, call in numbered if call.tool_name not in self._in_order]
        ends = await self._kernel.event_loop.all([*works, one_after_another(ordered)])
        errors = [end for end in ends if isinstance(end, BaseException)]
        if errors:
            for other in errors[1:]:
                errors[0].add_note(f"another call of the turn failed: {other}")
            raise errors[0]
        return [results[place] for place, _ in numbered]

    async def _one(self, run_id: str, key: str, call: ToolCall, before: int) -> CallReply:
        """Run a call and return the text for the model; `before` is the number of earlier calls in its turn."""
        refusal = await self._kernel.recorded_context(run_id=run_id, tenant=self._tenant, step_key=key)
        if refusal is not None:
            return CallReply(refusal, succeeded=False, replayed=True)
        try:
            if before >= MOST_CALLS:
                raise InputError(f"a turn may call at most {MOST_CALLS} tools")
            self._require(call.tool_name)
            result = await settled_tool_step(
                self._kernel,
                run_id=run_id,
                tenant=self._tenant,
                tool_name=call.tool_name,
                arguments=call.arguments_json,
                step_key=key,
            )
            return CallReply(result.result_json, succeeded=True, replayed=result.replayed)
        except FED_BACK as error:
            if getattr(error, "in_doubt", False):
                raise
            return CallReply(await self._refused(run_id, key, error), succeeded=False, replayed=False)

    async def _refused(self, run_id: str, key: str, error: GertError) -> str:
        """Record the text for the model, so that a resumed run shows it the same."""

        async def look() -> str:
            return error_json(error_text(error, _LONGEST_MESSAGE) or type(error).__name__)

        return await self._kernel.read_context(
            run_id=run_id, tenant=self._tenant, source=REFUSAL, step_key=key, look=look, parent_step_key=key
        )

    def _require(self, tool_name: str) -> None:
        if not self._kernel.tools.has(tool_name):
            # Only what the tenant may use is suggested.
            known = [tool.name for tool in self._kernel.list_tools_for_tenant(tenant=self._tenant)]
            meant = did_you_mean(tool_name, known)
            end = f"; did you mean `{meant}`?" if meant else ""
            raise ToolNotFound(f"there is no tool `{tool_name[:_LONGEST_NAME]}`{end}")


def _invented(tool_name: str) -> str:
    try:
        return normalized(tool_name)[:_LONGEST_NAME]
    except InputError:
        return "unnamed"
