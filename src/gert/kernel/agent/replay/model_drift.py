"""Notes that a recorded answer was taken for a question that has changed: one for each such question."""

from gert.kernel.agent.ports.model import OutputT
from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.agent.replay.step_lookup import StepLookup
from gert.kernel.agent.steps.model_events import Asking, ModelStep
from gert.kernel.events.agent import ReplayedWithDrift
from gert.kernel.events.envelope import decode
from gert.kernel.ledger.compose import Entry
from gert.kernel.ledger.projection import event_id
from gert.kernel.ledger.record import Call, Written, last_seq_of

SCANNED = 4000
"""Events that are read to find a note that is not the last one about an answer."""

PAGE = 1000

MOST_KNOWN = 10_000
"""Notes that are known to be there; more of them are looked for again."""


class Drifts:
    """Notes drift."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._known: set[tuple[str, int, str]] = set()

    async def note(
        self, step: ModelStep[OutputT], asking: Asking, call: Call, fields: tuple[str, ...], fork: str | None
    ) -> None:
        """Say once that an answer was taken for another question, or that this was asked elsewhere."""
        name = (step.run_id, call.seq, asking.hash)
        if call.drift == asking.hash or name in self._known:
            return
        said = ReplayedWithDrift(
            model=step.model,
            source_model_requested_event_id=event_id(step.run_id, call.seq),
            replay_policy="allow_prompt_drift" if fork is None else "fork_on_drift",
            drift_fields=list(fields),
            source_model_completed_seq=call.done_seq,
            step_key=step.step_key,
            fork_run_id=fork,
            input_hash=asking.hash,
        )
        entries = (Entry(said, step.parent_step_key),)
        lookup = StepLookup(self._log, step.run_id, step.tenant.tenant_id, "model", step.step_key, asking.hash)
        while True:
            calls = await lookup.look_anew()
            noted = any(each.seq == call.seq and each.drift == asking.hash for each in calls)
            if noted or await self._is_noted(step.run_id, call, asking.hash):
                break
            expect = lookup.expect(last_seq_of(calls))
            written = await self._log.write(step.run_id, step.tenant.tenant_id, entries, expect=expect)
            if isinstance(written, Written):
                break
            lookup.overtaken()
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known.add(name)

    async def _is_noted(self, run_id: str, call: Call, input_hash: str) -> bool:
        if not call.drift:
            return False
        since, source = call.done_seq or call.seq, event_id(run_id, call.seq)
        for _ in range(SCANNED // PAGE):
            lines = await self._log.ledger.lines(run_id, since, PAGE)
            for line in lines:
                if b"replayed_with_drift" not in line:
                    continue
                said = decode(line).payload
                if (
                    isinstance(said, ReplayedWithDrift)
                    and said.input_hash == input_hash
                    and said.source_model_requested_event_id == source
                ):
                    return True
            if len(lines) < PAGE:
                return False
            since += len(lines)
        return False
