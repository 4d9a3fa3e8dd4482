"""Where runs are exported to while they are recorded, such as a collector of traces."""

from typing import TYPE_CHECKING, Protocol

from gert.kernel.ledger.record import Batch

if TYPE_CHECKING:
    from gert.kernel.ledger.port import Ledger


class RunExport(Protocol):
    """Exports what a ledger has recorded; nothing it does changes, fails or delays a run.

    problem: why not everything was exported
    """

    problem: str | None

    def wrote(self, ledger: "Ledger", batch: Batch) -> None:
        """An append is durable; those of one run come in order."""

    def recorded(self, ledger: "Ledger", run_id: str) -> None:
        """Another process has recorded a whole run in this ledger."""

    async def flush(self) -> None:
        """Export what was recorded so far, within a limited time."""

    def close(self) -> None:
        """Nothing more will be recorded; what is still under way may be given up."""
