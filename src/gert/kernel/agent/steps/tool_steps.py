"""Tool steps: announced before they happen, recorded as they ended, and never made twice by guessing."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from gert.errors import GertError
from gert.kernel.agent.middleware.base import KernelMiddleware, PreparedToolRequest
from gert.kernel.agent.ports.loop import Loop
from gert.kernel.agent.replay.decisions import Ask, Compare, Fail, InDoubt, Replay, Wait, decide_tool
from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.agent.replay.step_lookup import StepLookup
from gert.kernel.agent.steps.reconcile import Settling, ToolSettling
from gert.kernel.agent.steps.tool_calls import Announced, ToolCalls, ToolStep
from gert.kernel.agent.steps.tool_events import abandoned, another_call, doubt, failure, held, never_called
from gert.kernel.agent.steps.tools import Tools
from gert.kernel.agent.types.api import StepToolResult
from gert.kernel.events.agent import ToolCompleted, ToolRequested
from gert.kernel.ledger.compose import Entry
from gert.kernel.ledger.projection import idempotency_key, tool_hash
from gert.kernel.ledger.record import Batch, Call, Head, Held, Overtaken, last_seq_of

__all__ = ["Settling", "ToolStep", "ToolSteps"]


class ToolSteps:
    """Takes tool steps."""

    def __init__(self, log: RunLog, tools: Tools, middleware: Sequence[KernelMiddleware], loop: Loop) -> None:
        self._log = log
        self._tools = tools
        self._calls = ToolCalls(log, tools, middleware, loop)
        self._settling = ToolSettling(log, tools, self._calls)

    async def take(self, step: ToolStep) -> StepToolResult:
        """Replay a step, or call the tool."""
        step = self._kept(step)
        lookup = await self._lookup(step)
        prepared: PreparedToolRequest | None = None
        while True:
            calls, in_flight = await lookup.look()
            hashes = await self._alike(step, lookup.hashed, calls)
            changes = await self._changes(step, calls)
            match decide_tool(calls, hashes, in_flight, side_effect=changes):
                case Replay(call):
                    found = await self._calls.given(step, lookup, call)
                    if found is not None:
                        return found
                case Compare(call):
                    raise another_call(step.step_key, step.tool_name, call)
                case Wait():
                    await lookup.wait()
                case Fail() | InDoubt() if lookup.count is None:
                    # Somebody may have settled it since.
                    await lookup.turn()
                case Fail(call):
                    raise failure(await self._log.said(step.run_id, call.done_seq, ToolCompleted))
                case InDoubt(call):
                    raise doubt(call)
                case Ask() as decided:
                    with self._log.in_flight.take(step.run_id, lookup.key):
                        if prepared is None:
                            prepared = await self._calls.prepare(step)
                        result = await self._made(step, lookup, prepared, decided)
                    if result is not None:
                        return result
                    lookup.overtaken()

    async def settle(self, step: ToolStep, settling: Settling) -> str:
        """Settle a call that may have happened, and give its result."""
        step = self._kept(step)
        lookup = await self._lookup(step)
        calls = await lookup.look_anew()
        hashes = await self._alike(step, lookup.hashed, calls)
        return await self._settling.settle(step, lookup, calls, hashes, settling)

    def _kept(self, step: ToolStep) -> ToolStep:
        """The step with arguments nobody else holds: what is looked up, recorded and called with is the same."""
        return replace(step, arguments=self._tools.kept(step.tool_name, step.arguments))

    async def _lookup(self, step: ToolStep) -> StepLookup:
        """Where to look: under the step key, or under the arguments as they were given."""
        hashed = tool_hash(step.tool_name, self._tools.given(step.tool_name, step.arguments))
        if step.step_key is None:
            filled = self._filled(step)
            if filled is not None and filled != hashed and not await self._found(step, hashed):
                # As earlier versions recorded it: with the tool's defaults filled in.
                hashed = filled if await self._found(step, filled) else hashed
        return StepLookup(self._log, step.run_id, step.tenant.tenant_id, "tool", step.step_key, hashed)

    async def _found(self, step: ToolStep, hashed: str) -> list[Call]:
        return await self._log.calls(step.run_id, step.tenant.tenant_id, "tool", None, hashed)

    def _filled(self, step: ToolStep) -> str | None:
        """The hash of the arguments with the tool's defaults; None where it is not there or they do not fit."""
        try:
            return tool_hash(step.tool_name, self._tools.canonical(step.tool_name, step.arguments))
        except GertError:
            return None

    async def _alike(self, step: ToolStep, hashed: str, calls: Sequence[Call]) -> Collection[str]:
        """The hashes of calls that are this one: arguments are the same with or without defaults filled in."""
        hashes = {hashed}
        for call in calls:
            if call.input_hash in hashes or call.name != step.tool_name:
                continue
            filled = self._filled(step)
            if filled is None:
                continue
            request = await self._log.said(step.run_id, call.seq, ToolRequested)
            if filled in (call.input_hash, tool_hash(call.name, request.arguments_json)):
                hashes.add(call.input_hash)
        return hashes

    async def _changes(self, step: ToolStep, calls: Sequence[Call]) -> bool:
        """Whether the tool changes something, now or when it was called."""
        if self._tools.has(step.tool_name) and self._tools.side_effect(step.tool_name):
            return True
        unfinished = [call for call in calls if call.outcome == "open"]
        return bool(unfinished) and (await self._log.said(step.run_id, unfinished[0].seq, ToolRequested)).side_effect

    async def _made(
        self, step: ToolStep, lookup: StepLookup, prepared: PreparedToolRequest, decided: Ask
    ) -> StepToolResult | None:
        """Call the tool; None where somebody else has made the same request meanwhile."""
        side_effect = self._tools.side_effect(step.tool_name)
        ends = [Entry(abandoned(call), step.parent_step_key) for call in decided.abandoned]

        def entries(head: Head) -> Sequence[Entry]:
            # The key is made from the number of the request itself, and so inside the append.
            seq = head.count + len(ends) + 1
            return (*ends, Entry(self._request(step, prepared, lookup.hashed, seq, side_effect), step.parent_step_key))

        tried: list[Batch] = []
        try:
            written = await self._log.write(
                step.run_id,
                step.tenant.tenant_id,
                entries,
                expect=lookup.expect(decided.last),
                step=True,
                tried=tried,
            )
        except GeneratorExit:
            raise  # whoever is closed waits for nothing
        except BaseException as error:
            if tried or not isinstance(error, Exception):
                await self._give_up(step, lookup, tried, error)
            raise
        if isinstance(written, Overtaken):
            return None
        if isinstance(written, Held):
            raise held(step.tool_name, written.call)
        seq = written.last
        request = self._request(step, prepared, lookup.hashed, seq, side_effect)
        return await self._calls.make(step, lookup, Announced(seq, request, seq))

    def _request(
        self, step: ToolStep, prepared: PreparedToolRequest, hashed: str, seq: int, side_effect: bool
    ) -> ToolRequested:
        tool = self._tools.definition(step.tool_name)
        return ToolRequested(
            tool_name=step.tool_name,
            arguments_json=prepared.arguments_json,
            idempotency_key=idempotency_key(step.run_id, step.tool_name, seq),
            tool_version=tool.tool_version,
            schema_version=tool.schema_version,
            step_key=step.step_key,
            semantic_idempotency_key=prepared.semantic_idempotency_key,
            intent_id=prepared.intent_id,
            amount_usd=prepared.amount_usd,
            side_effect=side_effect,
            input_hash=hashed,
        )

    async def _give_up(self, step: ToolStep, lookup: StepLookup, tried: list[Batch], error: BaseException) -> None:
        """A request that was written and whose tool nobody will call is no doubt: say so."""
        try:
            # What was begun is written all the same, perhaps only now.
            await self._log.settle_appends(step.run_id)
            if not tried:
                return
            row = tried[-1].events[-1]
            if (await self._log.ledger.lines_at(step.run_id, (row.seq,))).get(row.seq) != row.line:
                return
            calls = await lookup.look_anew()
            entries = (Entry(never_called(row.seq, step.tool_name), step.parent_step_key),)
            await lookup.end(entries, row.seq, last_seq_of(calls), ("open", None), wins=False)
        except Exception as unwritten:
            error.add_note(f"that the tool was not called could not be recorded: {unwritten}")
