"""Drift between a recorded run and the code that replays it: notes of changed questions, and pinned tools."""

from collections import OrderedDict

from gert.kernel.agent.ports.model import OutputT
from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.agent.replay.step_lookup import StepLookup
from gert.kernel.agent.steps.model_events import ModelStep, PreparedStep
from gert.kernel.events.agent import ModelRequested, ReplayedWithDrift, RunStarted
from gert.kernel.events.agent.parts import ToolSignature
from gert.kernel.events.envelope import decode
from gert.kernel.ledger.build_batch import Entry
from gert.kernel.ledger.projection import event_id
from gert.kernel.ledger.record import Call, Written, last_seq_of

MAX_SCANNED = 4000
"""Events read to find a note of drift, or the first model request of a run."""

PAGE = 500

MAX_NOTES = 10_000
"""Notes of drift that a process remembers; others are looked up again."""

MAX_RUNS = 256
"""Runs whose pinned tools a process remembers."""


class DriftNotes:
    """Records each drift from a recorded question once."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._known: set[tuple[str, int, str]] = set()

    async def note(
        self, step: ModelStep[OutputT], prepared: PreparedStep, call: Call, fields: tuple[str, ...], fork: str | None
    ) -> None:
        """Record, once, that a recorded answer was replayed for a changed question, or that the run was forked."""
        name = (step.run_id, call.seq, prepared.hash)
        if call.drift == prepared.hash or name in self._known:
            return
        payload = ReplayedWithDrift(
            model=step.model,
            source_model_requested_event_id=event_id(step.run_id, call.seq),
            replay_policy="allow_prompt_drift" if fork is None else "fork_on_drift",
            drift_fields=list(fields),
            source_model_completed_seq=call.done_seq,
            step_key=step.step_key,
            fork_run_id=fork,
            input_hash=prepared.hash,
        )
        entries = (Entry(payload, step.parent_step_key),)
        lookup = StepLookup(self._log, step.run_id, step.tenant.tenant_id, "model", step.step_key, prepared.hash)
        while True:
            calls = await lookup.find_in_ledger()
            noted = any(each.seq == call.seq and each.drift == prepared.hash for each in calls)
            if noted or await self._is_noted(step.run_id, call, prepared.hash):
                break
            expect = lookup.expect(last_seq_of(calls))
            written = await self._log.write(step.run_id, step.tenant.tenant_id, entries, expect=expect)
            if isinstance(written, Written):
                break
            lookup.retry()
        if len(self._known) >= MAX_NOTES:
            self._known.clear()
        self._known.add(name)

    async def _is_noted(self, run_id: str, call: Call, input_hash: str) -> bool:
        if not call.drift:
            return False
        since, source = call.done_seq or call.seq, event_id(run_id, call.seq)
        for _ in range(MAX_SCANNED // PAGE):
            lines = await self._log.ledger.lines(run_id, since, PAGE)
            for line in lines:
                if b"replayed_with_drift" not in line:
                    continue
                payload = decode(line).payload
                if (
                    isinstance(payload, ReplayedWithDrift)
                    and payload.input_hash == input_hash
                    and payload.source_model_requested_event_id == source
                ):
                    return True
            if len(lines) < PAGE:
                return False
            since += len(lines)
        return False


class ToolPins:
    """Finds the tools a run is pinned to; they never change."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._known: OrderedDict[str, frozenset[ToolSignature]] = OrderedDict()

    async def of(self, run_id: str) -> frozenset[ToolSignature] | None:
        """Return the tools a run is pinned to; None while it has none.

        A run that started before its tools were registered is pinned to those its first model request offered.
        """
        if run_id in self._known:
            return self._known[run_id]
        await self._log.head(run_id)  # an unknown run is an error
        started = await self._log.payload(run_id, 1, RunStarted)
        found = frozenset(started.tool_signatures) or await self._of_first_question(run_id)
        if found is not None:
            self._known[run_id] = found
            if len(self._known) > MAX_RUNS:
                self._known.popitem(last=False)
        return found

    async def _of_first_question(self, run_id: str) -> frozenset[ToolSignature] | None:
        since = 1
        while since < MAX_SCANNED:
            lines = await self._log.ledger.lines(run_id, since, PAGE)
            for line in lines:
                if b"model_requested" in line and isinstance(payload := decode(line).payload, ModelRequested):
                    return frozenset(payload.allowed_tool_signatures)
            if len(lines) < PAGE:
                return None
            since += len(lines)
        return None
