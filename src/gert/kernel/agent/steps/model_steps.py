"""Model steps: asked once, answered from the record ever after."""

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from gert.errors import RunError, UsageError
from gert.kernel.agent.middleware.base import KernelMiddleware, ModelInvocation
from gert.kernel.agent.ports.model import (
    ModelCallOptions,
    ModelPort,
    ModelRequest,
    ModelResult,
    ModelUsage,
    OnToken,
    OutputT,
    StreamingModelPort,
)
from gert.kernel.agent.replay.decisions import Ask, Compare, Replay, Wait, decide_model, first_answer
from gert.kernel.agent.replay.model_drift import Drifts
from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.agent.replay.step_lookup import StepLookup
from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.agent.steps.model_events import (
    CAPABILITY_DECISION,
    Asking,
    ModelStep,
    abandoned,
    completed,
    decided,
    failed,
    other_question,
    other_tools,
    requested,
    result,
)
from gert.kernel.agent.steps.outputs import check_output_schema
from gert.kernel.agent.steps.question import Question, drift, question_of, recorded_question
from gert.kernel.agent.steps.tool_pins import Pins
from gert.kernel.agent.steps.tool_visibility import after_middleware, allowed, offer
from gert.kernel.agent.steps.tools import Tools
from gert.kernel.agent.types.api import ModelInput, StepModelResult
from gert.kernel.events.agent import ModelCompleted, ModelRequested, RunStarted
from gert.kernel.events.agent.parts import ToolSignature
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.names import is_run_id
from gert.kernel.ledger.compose import Entry
from gert.kernel.ledger.record import Call, Written

__all__ = ["CAPABILITY_DECISION", "ModelStep", "ModelSteps"]


class ModelSteps:
    """Takes model steps."""

    def __init__(
        self, log: RunLog, model_port: ModelPort, tools: Tools, middleware: Sequence[KernelMiddleware]
    ) -> None:
        self._log = log
        self._models = model_port
        self._tools = tools
        self._middleware = tuple(middleware)
        self._pins = Pins(log)
        self._drifts = Drifts(log)

    async def take(self, step: ModelStep[OutputT]) -> StepModelResult[OutputT]:
        """Replay a step, or ask the model."""
        check_output_schema(step.output_schema)
        pinned = await self._pins.of(step.run_id) if step.tool_drift == "pin" else None
        asking = await self._prepared(step, pinned)
        lookup = StepLookup(self._log, step.run_id, step.tenant.tenant_id, "model", step.step_key, asking.hash)
        admitted = False
        while True:
            calls, in_flight = await lookup.look()
            match decide_model(calls, asking.hash, in_flight):
                case Replay(call):
                    return await self._replayed(step, call)
                case Compare(call):
                    return await self._compared(step, asking, call)
                case Wait():
                    await lookup.wait()
                case Ask() as decision:
                    with self._log.in_flight.take(step.run_id, lookup.key):
                        if not admitted and (self._middleware or step.forked_from is not None):
                            await self._admit(step)
                        admitted = True
                        answer = await self._asked(step, asking, lookup, decision)
                    if answer is not None:
                        return answer
                    lookup.overtaken()

    async def _prepared(self, step: ModelStep[OutputT], pinned: frozenset[ToolSignature] | None) -> Asking:
        capabilities = self._tools.capabilities()
        offered = offer(
            self._tools.definitions(),
            capabilities,
            step.tenant.capabilities,
            step.visible_tool_names,
            pinned,
        )
        invocation = ModelInvocation(
            step.run_id,
            step.tenant,
            step.model,
            step.input.prompt or "",
            _messages(step.input),
            step.options or ModelCallOptions(),
            allowed(offered),
            capabilities,
        )
        for middleware in self._middleware:
            invocation = await middleware.prepare_model(invocation)
        question = question_of(
            invocation.model,
            invocation.prompt,
            invocation.messages,
            invocation.model_options,
            invocation.allowed_tools,
            step.step_key,
        )
        judged = after_middleware(offered, invocation.allowed_tools) if self._middleware else offered
        return Asking(invocation, judged, question, question.hash)

    async def _admit(self, step: ModelStep[OutputT]) -> None:
        """Let policy refuse a question that is about to be put, once."""
        if step.forked_from is not None:
            await self._log.check_step(step.forked_from)
        for middleware in self._middleware:
            await middleware.before_model(run_id=step.run_id, tenant=step.tenant)

    async def _asked(
        self, step: ModelStep[OutputT], asking: Asking, lookup: StepLookup, decision: Ask
    ) -> StepModelResult[OutputT] | None:
        """Ask the model; None where somebody else has asked the same meanwhile."""
        entries = [Entry(abandoned(call), step.parent_step_key) for call in decision.abandoned]
        entries.append(Entry(requested(step, asking), step.parent_step_key))
        expect = lookup.expect(decision.last)
        written = await self._log.write(step.run_id, step.tenant.tenant_id, entries, expect=expect, step=True)
        if not isinstance(written, Written):
            return None
        seq = written.last
        answer, usage = await self._called(step, asking, seq)
        found = await self._recorded(step, asking, lookup, answer)
        for middleware in self._middleware:
            await middleware.after_model(run_id=step.run_id, tenant=step.tenant, usage=usage)
        return found

    async def _called(self, step: ModelStep[OutputT], asking: Asking, seq: int) -> tuple[ModelCompleted, ModelUsage]:
        invocation = asking.invocation
        request = ModelRequest(
            step.run_id,
            invocation.model,
            invocation.prompt,
            invocation.messages,
            step.output_schema,
            invocation.allowed_tools,
            invocation.model_options,
        )
        began = self._log.ledger.now()
        answer: ModelResult[OutputT] | None = None
        try:
            if step.on_token is None:
                answer = await self._models.complete(request)
            else:
                answer = await self._streamed(request, step.on_token)
            return completed(step.output_schema, asking, seq, answer), answer.usage
        except GeneratorExit:
            raise  # whoever is closed waits for nothing
        except BaseException as error:
            # Clocks are set back; nothing takes less than no time.
            elapsed = max(0.0, (self._log.ledger.now() - began).total_seconds())
            await self._note_failure(step, seq, error, elapsed, getattr(answer, "usage", None))
            raise

    async def _streamed(self, request: ModelRequest[OutputT], on_token: OnToken) -> ModelResult[OutputT]:
        if not isinstance(self._models, StreamingModelPort):
            raise UsageError("the model port does not stream tokens", hint="leave `on_token` out")
        return await self._models.complete_streaming(request, on_token)

    async def _note_failure(
        self, step: ModelStep[OutputT], seq: int, error: BaseException, elapsed: float, usage: ModelUsage | None
    ) -> None:
        said = failed(step.model, seq, error, elapsed, usage)
        try:
            await self._log.note(step.run_id, step.tenant.tenant_id, (Entry(said, step.parent_step_key),))
        except Exception as unwritten:
            # What went wrong with the model is the news; that it could not be written is said beside it.
            error.add_note(f"the failure could not be recorded: {unwritten}")

    async def _recorded(
        self, step: ModelStep[OutputT], asking: Asking, lookup: StepLookup, answer: ModelCompleted
    ) -> StepModelResult[OutputT]:
        """Record an answer, and give what every replay gives: this one, unless another was recorded before it."""
        entries = (Entry(answer, step.parent_step_key), Entry(decided(step, asking), step.parent_step_key))
        seq = answer.request_seq
        done = await lookup.end(entries, seq, seq, ("open", None), wins=True)
        if lookup.moved:
            first = first_answer(await lookup.look_anew(), (asking.hash,))
            if first is not None and first.seq != seq:
                return await self._replayed(step, first)
        return result(step, answer, done.first if done is not None else 0, replayed=False)

    async def _replayed(self, step: ModelStep[OutputT], call: Call) -> StepModelResult[OutputT]:
        answer = await self._log.said(step.run_id, call.done_seq, ModelCompleted)
        return result(step, answer, call.done_seq or 0, replayed=True)

    async def _compared(self, step: ModelStep[OutputT], asking: Asking, call: Call) -> StepModelResult[OutputT]:
        """An answer is on record for this key, to a question that was not quite this one."""
        then = recorded_question(await self._log.said(step.run_id, call.seq, ModelRequested))
        now = asking.question
        if then.tools != now.tools:
            if step.tool_drift == "pin" and set(then.tools) <= set(self._tools.signatures()):
                return await self._with_tools_of(step, then, call)
            raise other_tools(step, then, now)
        fields = drift(then, now)
        if step.replay_policy == "strict" or "model" in fields:
            raise other_question(step, fields)
        if step.replay_policy == "fork_on_drift":
            return await self._forked(step, asking, call, fields)
        await self._drifts.note(step, asking, call, fields, None)
        found = await self._replayed(step, call)
        return replace(found, replayed_with_drift=True, drift_fields=fields)

    async def _with_tools_of(self, step: ModelStep[OutputT], then: Question, call: Call) -> StepModelResult[OutputT]:
        """The same step, offered the tools it was offered then."""
        asking = await self._prepared(step, frozenset(then.tools))
        if asking.hash == call.input_hash:
            return await self._replayed(step, call)
        if asking.question.tools != then.tools:
            raise other_tools(step, then, asking.question)
        return await self._compared(step, asking, call)

    async def _forked(
        self, step: ModelStep[OutputT], asking: Asking, call: Call, fields: tuple[str, ...]
    ) -> StepModelResult[OutputT]:
        fork = f"{step.run_id}::fork::{sha256_hex(f'{step.step_key}:{asking.hash}'.encode())[:16]}"
        if not is_run_id(fork):
            raise RunError(f"`{fork}` is too long to be a run id", hint="begin another run instead of forking this one")
        if await self._log.ledger.head(fork) is None:
            # A run that takes no steps now takes none elsewhere either.
            await self._log.check_step(step.run_id)
            await self._drifts.note(step, asking, call, fields, fork)
            # A run that is pinned is so wherever it goes on.
            pinned = await self._pins.of(step.run_id) if step.tool_drift == "pin" else None
            tools = self._tools.signatures() if pinned is None else tuple(sorted(pinned))
            started = RunStarted(tool_signatures=tools, forked_from=step.run_id)
            await self._log.begin(fork, step.tenant.tenant_id, Entry(started))
        found = await self.take(structs.replace(step, run_id=fork, replay_policy="strict", forked_from=step.run_id))
        return replace(found, forked_from_run_id=step.run_id, drift_fields=fields)


def _messages(asked: ModelInput) -> tuple[ChatMessage, ...]:
    if asked.messages:
        return asked.messages
    return (ChatMessage(role="user", content=asked.prompt or ""),)
