"""Settling calls of which nobody knows whether they happened."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gert.kernel.agent.ports.tool import ToolExecutionResult
from gert.kernel.agent.replay.decisions import first_answer
from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.agent.replay.step_lookup import StepLookup, Stood
from gert.kernel.agent.steps.tool_calls import Announced, ToolCalls, ToolStep
from gert.kernel.agent.steps.tool_events import (
    MADE_AGAIN,
    another_call,
    completed,
    doubt,
    held,
    is_made_again,
    made_again,
    no_call,
    under_way,
)
from gert.kernel.agent.steps.tools import Tools
from gert.kernel.events.agent import ToolCompleted, ToolRequested
from gert.kernel.events.agent.parts import ToolOutcome
from gert.kernel.events.envelope import parse_timestamp
from gert.kernel.ledger.compose import Entry
from gert.kernel.ledger.record import Call, last_seq_of

MADE_AGAIN_SECONDS = 60.0
"""How long whoever makes a call again is waited for; after that, they may have died."""


@dataclass(frozen=True)
class Settling:
    """How a call in doubt is to be settled.

    outcome: what somebody says came of it
    rerun: make the call again, under the same idempotency key
    """

    outcome: ToolOutcome | None = None
    result_json: str = ""
    rerun: bool = False
    by: str | None = None
    reason: str | None = None


class ToolSettling:
    """Settles calls, each as it stood when it was looked at: whoever is slower hears what stands instead."""

    def __init__(self, log: RunLog, tools: Tools, calls: ToolCalls) -> None:
        self._log = log
        self._tools = tools
        self._calls = calls

    async def settle(
        self, step: ToolStep, lookup: StepLookup, calls: Sequence[Call], hashes: Collection[str], settling: Settling
    ) -> str:
        """Settle a call that may have happened, and give its result.

        1. Another call under the step key is refused.
        2. A call that succeeded has its result.
        3. What somebody says came of it is recorded with their name.
        4. Whoever asks for it has it made again, under the same idempotency key.
        5. Otherwise the tool is asked whether it happened, where it can tell.
        """
        if not calls:
            raise no_call(step.run_id, step.tool_name)
        for call in calls:
            if call.input_hash not in hashes:
                raise another_call(step.step_key, step.tool_name, call)
        if first_answer(calls) is not None:
            return (await self._calls.standing(step, lookup, calls[0].seq)).result_json
        if self._log.in_flight.has(step.run_id, lookup.key):
            raise under_way(step.tool_name)
        with self._log.in_flight.take(step.run_id, lookup.key):
            # Of equal calls that were made at the same time, each may be in doubt.
            call = next((each for each in calls if each.outcome in ("open", "unknown_outcome")), calls[0])
            request = await self._log.said(step.run_id, call.seq, ToolRequested)
            found = Announced(call.seq, request, last_seq_of(calls), (call.outcome, call.done_seq))
            if settling.rerun:
                return await self._made_again(step, lookup, call, found, settling)
            said = await self._said(step, call, request, settling)
            await self._record(step, lookup, found, said)
            # Written or not, what stands is the answer: somebody else may have settled it meanwhile.
            return await self._stands(step, lookup, call)

    async def _said(self, step: ToolStep, call: Call, request: ToolRequested, settling: Settling) -> ToolCompleted:
        """What came of a call, by whoever knows."""
        if settling.outcome is not None:
            told = ToolExecutionResult(settling.outcome, settling.result_json or "null")
            return completed(call.seq, step.tool_name, told, by=settling.by, reason=settling.reason)
        self._tools.definition(step.tool_name)
        context = self._calls.context(step, request, call.seq)
        looked = await self._tools.reconcile(step.tool_name, request.arguments_json, context)
        if looked is None:
            raise doubt(call)
        reason = settling.reason or "the tool was asked"
        return completed(call.seq, step.tool_name, looked, by=settling.by, reason=reason)

    async def _record(self, step: ToolStep, lookup: StepLookup, call: Announced, said: ToolCompleted) -> None:
        entries = (Entry(self._calls.withheld(said), step.parent_step_key),)
        await lookup.end(entries, call.seq, call.last_seq, call.stood, wins=False)

    async def _made_again(
        self, step: ToolStep, lookup: StepLookup, call: Call, found: Announced, settling: Settling
    ) -> str:
        """Make a call again; of several who want to, one does.

        That it is made again is on record before it is made, and whoever dies meanwhile leaves a doubt.
        """
        self._tools.definition(step.tool_name)
        self._calls.permit(step)
        await self._refuse_if_made_again(step, call)
        await self._refuse_if_held(step, call)
        entries = (Entry(made_again(call, settling.by), step.parent_step_key),)
        written = await lookup.end(entries, call.seq, found.last_seq, found.stood, wins=False, step=True)
        if written is None:
            return await self._stands(step, lookup, call)
        stood: Stood = ("unknown_outcome", written.last)
        try:
            # Whoever announced it holds its semantic key again, unless another has it by now.
            await self._refuse_if_held(step, call)
        except BaseException as error:
            await self._take_back(step, lookup, call, stood, error)
            raise
        again = Announced(
            call.seq,
            found.request,
            written.last,
            stood,
            by=settling.by,
            reason=settling.reason or "made again",
            doubted=call.outcome == "unknown_outcome"
            or (call.outcome == "open" and self._calls.changes(found.request)),
        )
        return (await self._calls.make(step, lookup, again)).result_json

    async def _take_back(
        self, step: ToolStep, lookup: StepLookup, call: Call, stood: Stood, error: BaseException
    ) -> None:
        """It is not made again after all: it stands as it did."""
        try:
            before = await self._log.said(step.run_id, call.done_seq, ToolCompleted)
            entries = (Entry(before, step.parent_step_key),)
            await lookup.end(entries, call.seq, stood[1] or 0, stood, wins=False)
        except Exception as unwritten:
            error.add_note(f"that the call was not made again could not be recorded: {unwritten}")

    async def _refuse_if_made_again(self, step: ToolStep, call: Call) -> None:
        if call.outcome != "unknown_outcome":
            return
        event = await self._log.event(step.run_id, call.done_seq)
        said = event.payload
        if not isinstance(said, ToolCompleted) or said.reason != MADE_AGAIN:
            return
        age = (self._log.ledger.now() - parse_timestamp(event.timestamp)).total_seconds()
        if age < MADE_AGAIN_SECONDS:
            raise is_made_again(call, said)

    async def _refuse_if_held(self, step: ToolStep, call: Call) -> None:
        if call.semantic_key is None or call.held:
            return
        for other in await self._log.ledger.holders(call.tenant, call.name, call.semantic_key):
            if other.held and (other.run_id, other.seq) != (call.run_id, call.seq):
                raise held(step.tool_name, other)

    async def _stands(self, step: ToolStep, lookup: StepLookup, call: Call) -> str:
        """What the record says of a call now."""
        return (await self._calls.standing(step, lookup, call.seq)).result_json
