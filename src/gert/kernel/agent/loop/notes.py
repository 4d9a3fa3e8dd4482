"""Notes that a run records once, however often it is resumed."""

from typing import TYPE_CHECKING, Final

from gert.kernel.agent.types.api import TenantContext
from gert.kernel.events.agent import RunSummary
from gert.kernel.events.envelope import decode
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps

if TYPE_CHECKING:
    from gert.kernel.agent.api.kernel import AgentKernel

MOST: Final = 100_000


class OnceNotes:
    """Records one summary of a type for each step."""

    def __init__(self, kernel: "AgentKernel", tenant: TenantContext) -> None:
        self._kernel = kernel
        self._tenant = tenant
        self._known: dict[tuple[str, str], set[str | None]] = {}

    async def record(self, run_id: str, kind: str, step_key: str, facts: dict[str, object], *, replayed: bool) -> None:
        """Record facts about a step, unless they are on record.

        replayed: the step was replayed; a process that stopped may have recorded it without this note
        """
        if replayed and step_key in await self._recorded(run_id, kind):
            return
        text = canonical_json_dumps({"step_key": step_key, **facts})
        await self._kernel.append_run_summary(
            run_id=run_id,
            tenant=self._tenant,
            summary_type=kind,
            summary_json=text,
            step_key=step_key,
            parent_step_key=step_key,
        )

    async def _recorded(self, run_id: str, kind: str) -> set[str | None]:
        known = self._known.get((run_id, kind))
        if known is None:
            lines = await self._kernel.ledger.summaries(run_id, kind, MOST)
            payloads = (decode(line).payload for line in lines)
            known = {each.step_key for each in payloads if isinstance(each, RunSummary)}
            self._known[run_id, kind] = known
        return known
