"""Model steps: the model is called once; later runs of the step replay the recorded answer."""

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from gert.errors import RunError, UsageError
from gert.kernel.agent.middleware.base import KernelMiddleware, ModelInvocation
from gert.kernel.agent.middleware.conditions import NO_CONDITIONS, Conditions, Refusal
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
from gert.kernel.agent.replay.decisions import Compare, Replay, Request, Wait, decide_model, first_answer
from gert.kernel.agent.replay.run_log import InPlace, RunLog
from gert.kernel.agent.replay.step_lookup import StepLookup
from gert.kernel.agent.steps.drift import DriftNotes, ToolPins
from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.agent.steps.model_events import (
    CAPABILITY_DECISION,
    ModelStep,
    PreparedStep,
    abandoned,
    capability_decision,
    completed,
    failed,
    question_changed,
    requested,
    result,
    tools_changed,
)
from gert.kernel.agent.steps.outputs import check_output_schema
from gert.kernel.agent.steps.question import Question, drift, question_of, recorded_question
from gert.kernel.agent.steps.tool_visibility import after_middleware, allowed, visibility_of
from gert.kernel.agent.steps.tools import Tools
from gert.kernel.agent.types.api import ModelInput, StepModelResult
from gert.kernel.events.agent import ModelCompleted, ModelRequested
from gert.kernel.events.agent.parts import ToolSignature
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.names import is_run_id
from gert.kernel.ledger.build_batch import Entry
from gert.kernel.ledger.record import Call, Head, Overtaken, Written

__all__ = ["CAPABILITY_DECISION", "ModelStep", "ModelSteps"]


class ModelSteps:
    """Runs model steps."""

    def __init__(
        self, log: RunLog, model_port: ModelPort, tools: Tools, middleware: Sequence[KernelMiddleware]
    ) -> None:
        self._log = log
        self._models = model_port
        self._tools = tools
        self._middleware = tuple(middleware)
        self._pins = ToolPins(log)
        self._drifts = DriftNotes(log)

    async def run(self, step: ModelStep[OutputT]) -> StepModelResult[OutputT]:
        """Replay a step, or call the model."""
        check_output_schema(step.output_schema)
        pinned = await self._pins.of(step.run_id) if step.tool_drift == "pin" else None
        pinned = None if pinned is None else pinned | self._tools.own
        prepared = await self._prepare(step, pinned)
        lookup = StepLookup(self._log, step.run_id, step.tenant.tenant_id, "model", step.step_key, prepared.hash)
        conditions: Conditions | None = None
        while True:
            calls, in_flight = await lookup.find()
            match decide_model(calls, prepared.hash, in_flight):
                case Replay(call):
                    return await self._replay(step, call)
                case Compare(call):
                    return await self._compare(step, prepared, call)
                case Wait():
                    await lookup.wait()
                case Request() as decision:
                    with self._log.in_flight.enter(step.run_id, lookup.key):
                        if conditions is None:
                            conditions = await self._admit(step, prepared)
                        answer = await self._request(step, prepared, lookup, decision, conditions)
                    if answer is not None:
                        return answer
                    lookup.retry()

    async def _prepare(self, step: ModelStep[OutputT], pinned: frozenset[ToolSignature] | None) -> PreparedStep:
        capabilities = self._tools.capabilities()
        visibility = visibility_of(
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
            allowed(visibility),
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
        decided = after_middleware(visibility, invocation.allowed_tools) if self._middleware else visibility
        return PreparedStep(invocation, decided, question, question.hash)

    async def _admit(self, step: ModelStep[OutputT], prepared: PreparedStep) -> Conditions:
        """Check the state of the run, then let middleware refuse the call before the model is called."""
        if step.forked_from is not None:
            await self._log.check_step(step.forked_from)
        if not self._middleware:
            return NO_CONDITIONS
        await self._log.check_step(step.run_id)
        conditions = NO_CONDITIONS
        for middleware in self._middleware:
            await middleware.before_model(run_id=step.run_id, tenant=step.tenant)
            admit = getattr(middleware, "admit_model", None)
            given = None if admit is None else await admit(invocation=prepared.invocation, step_key=step.step_key)
            conditions = conditions if given is None else conditions & given
        return conditions

    async def _request(
        self,
        step: ModelStep[OutputT],
        prepared: PreparedStep,
        lookup: StepLookup,
        decision: Request,
        conditions: Conditions,
    ) -> StepModelResult[OutputT] | None:
        """Record the request and call the model; None if another task or process recorded the request first."""
        made = [Entry(abandoned(call), step.parent_step_key) for call in decision.abandoned]
        made += (*conditions.entries, Entry(requested(step, prepared, conditions.reserved_usd), step.parent_step_key))
        refused: Refusal | None = None

        def entries(head: Head) -> Sequence[Entry]:
            nonlocal refused
            refused = conditions.refusal(head)
            return made if refused is None else InPlace(refused.entries)

        written = await self._log.write(
            step.run_id,
            step.tenant.tenant_id,
            entries,
            expect=lookup.expect(decision.last),
            step=True,
            limits=conditions.limits,
        )
        if isinstance(written, Overtaken):
            return None
        if not isinstance(written, Written):
            refused = conditions.refusal_of(written) or Refusal(RunError("the ledger refuses the model call"))
            raise await self._log.record_refusal(step.run_id, step.tenant.tenant_id, refused)
        if refused is not None:
            raise refused.error
        seq = written.last
        answer, usage = await self._call(step, prepared, seq)
        found = await self._record(step, prepared, lookup, answer)
        for middleware in self._middleware:
            await middleware.after_model(run_id=step.run_id, tenant=step.tenant, usage=usage)
        return found

    async def _call(
        self, step: ModelStep[OutputT], prepared: PreparedStep, seq: int
    ) -> tuple[ModelCompleted, ModelUsage]:
        invocation = prepared.invocation
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
                answer = await self._stream(request, step.on_token)
            return completed(step.output_schema, prepared, seq, answer), answer.usage
        except GeneratorExit:
            raise  # a coroutine that is closed must not await
        except BaseException as error:
            # The clock may have been set back.
            elapsed = max(0.0, (self._log.ledger.now() - began).total_seconds())
            await self._record_failure(step, seq, error, elapsed, getattr(answer, "usage", None))
            raise

    async def _stream(self, request: ModelRequest[OutputT], on_token: OnToken) -> ModelResult[OutputT]:
        if not isinstance(self._models, StreamingModelPort):
            raise UsageError("the model port does not stream tokens", hint="leave `on_token` out")
        return await self._models.complete_streaming(request, on_token)

    async def _record_failure(
        self, step: ModelStep[OutputT], seq: int, error: BaseException, elapsed: float, usage: ModelUsage | None
    ) -> None:
        payload = failed(step.model, seq, error, elapsed, usage)
        try:
            await self._log.append(step.run_id, step.tenant.tenant_id, (Entry(payload, step.parent_step_key),))
        except Exception as unwritten:
            # The caller needs the model's error; that it was not recorded is added as a note.
            error.add_note(f"the failure could not be recorded: {unwritten}")

    async def _record(
        self, step: ModelStep[OutputT], prepared: PreparedStep, lookup: StepLookup, answer: ModelCompleted
    ) -> StepModelResult[OutputT]:
        """Record an answer and return the one that every replay returns: the answer that was recorded first."""
        entries = (
            Entry(answer, step.parent_step_key),
            Entry(capability_decision(step, prepared), step.parent_step_key),
        )
        seq = answer.request_seq
        done = await lookup.end(entries, seq, seq, ("open", None), wins=True)
        if lookup.changed:
            first = first_answer(await lookup.find_in_ledger(), (prepared.hash,))
            if first is not None and first.seq != seq:
                return await self._replay(step, first)
        return result(step, answer, done.first if done is not None else 0, replayed=False)

    async def _replay(self, step: ModelStep[OutputT], call: Call) -> StepModelResult[OutputT]:
        answer = await self._log.payload(step.run_id, call.done_seq, ModelCompleted)
        return result(step, answer, call.done_seq or 0, replayed=True)

    async def _compare(self, step: ModelStep[OutputT], prepared: PreparedStep, call: Call) -> StepModelResult[OutputT]:
        """Decide what to do with a recorded answer to a different question under the same key."""
        then = recorded_question(await self._log.payload(step.run_id, call.seq, ModelRequested))
        now = prepared.question
        if then.tools != now.tools:
            if step.tool_drift == "pin" and set(then.tools) <= set(self._tools.signatures()):
                return await self._with_recorded_tools(step, then, call)
            raise tools_changed(step, then, now)
        fields = drift(then, now)
        if step.replay_policy == "strict" or "model" in fields:
            raise question_changed(step, fields)
        if step.replay_policy == "fork_on_drift":
            return await self._fork(step, prepared, call, fields)
        await self._drifts.note(step, prepared, call, fields, None)
        found = await self._replay(step, call)
        return replace(found, replayed_with_drift=True, drift_fields=fields)

    async def _with_recorded_tools(
        self, step: ModelStep[OutputT], then: Question, call: Call
    ) -> StepModelResult[OutputT]:
        """Prepare the step again with the tools that it was recorded with."""
        prepared = await self._prepare(step, frozenset(then.tools))
        if prepared.hash == call.input_hash:
            return await self._replay(step, call)
        if prepared.question.tools != then.tools:
            raise tools_changed(step, then, prepared.question)
        return await self._compare(step, prepared, call)

    async def _fork(
        self, step: ModelStep[OutputT], prepared: PreparedStep, call: Call, fields: tuple[str, ...]
    ) -> StepModelResult[OutputT]:
        fork = f"{step.run_id}::fork::{sha256_hex(f'{step.step_key}:{prepared.hash}'.encode())[:16]}"
        if not is_run_id(fork):
            raise RunError(f"`{fork}` is too long to be a run id", hint="start a new run instead of forking this one")
        if await self._log.ledger.head(fork) is None:
            # A paused or blocked run runs no steps in a fork either.
            await self._log.check_step(step.run_id)
            await self._drifts.note(step, prepared, call, fields, fork)
            # The fork of a pinned run is pinned to the same tools.
            pinned = await self._pins.of(step.run_id) if step.tool_drift == "pin" else None
            tools = self._tools.signatures() if pinned is None else tuple(sorted(pinned))
            started = self._log.run_started(tools, forked_from=step.run_id)
            await self._log.ensure_started(fork, step.tenant.tenant_id, started)
        found = await self.run(structs.replace(step, run_id=fork, replay_policy="strict", forked_from=step.run_id))
        return replace(found, forked_from_run_id=step.run_id, drift_fields=fields)


def _messages(asked: ModelInput) -> tuple[ChatMessage, ...]:
    if asked.messages:
        return asked.messages
    return (ChatMessage(role="user", content=asked.prompt or ""),)
