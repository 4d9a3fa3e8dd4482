"""The tools a run is pinned to: those it began with."""

from collections import OrderedDict

from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.events.agent import ModelRequested, RunStarted
from gert.kernel.events.agent.parts import ToolSignature
from gert.kernel.events.envelope import decode

MOST_RUNS = 256
SCANNED = 4000
"""Events among which the first question of a run is looked for."""

PAGE = 500


class Pins:
    """Finds the tools of runs; what a run began with never changes."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._known: OrderedDict[str, frozenset[ToolSignature]] = OrderedDict()

    async def of(self, run_id: str) -> frozenset[ToolSignature] | None:
        """The tools a run is pinned to; None while it has none to be pinned to.

        A run that was begun before its tools were registered is pinned to those its first question offered.
        """
        if run_id in self._known:
            return self._known[run_id]
        await self._log.head(run_id)  # a run nobody began has no tools, and says so
        started = await self._log.said(run_id, 1, RunStarted)
        found = frozenset(started.tool_signatures) or await self._of_first_question(run_id)
        if found is not None:
            self._known[run_id] = found
            if len(self._known) > MOST_RUNS:
                self._known.popitem(last=False)
        return found

    async def _of_first_question(self, run_id: str) -> frozenset[ToolSignature] | None:
        since = 1
        while since < SCANNED:
            lines = await self._log.ledger.lines(run_id, since, PAGE)
            for line in lines:
                if b"model_requested" in line and isinstance(said := decode(line).payload, ModelRequested):
                    return frozenset(said.allowed_tool_signatures)
            if len(lines) < PAGE:
                return None
            since += len(lines)
        return None
