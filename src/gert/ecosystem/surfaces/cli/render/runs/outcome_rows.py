"""Runs as CSV rows; no cell can be read as a formula."""

import csv
from collections.abc import Iterable
from typing import Final, TextIO

from gert.kernel.events.envelope import format_timestamp
from gert.kernel.events.outcomes import INCOMPLETE
from gert.kernel.events.summary import RunSummary
from gert.kernel.foundation.text import printable

COLUMNS: Final = (
    "run_id", "runbook", "started", "mode", "actor", "status", "category", "code", "duration_seconds",
    "waited_seconds", "failure_kind", "failed_step", "violations", "trace",
)  # fmt: skip
# The wide forms too: some spreadsheets treat them like the narrow ones.
_FORMULA: Final = tuple("=+-@\t\r\n＝＋－＠")  # noqa: RUF001


def write_rows(runs: Iterable[RunSummary], out: TextIO) -> int:
    """Write one row per run as they arrive; return their number."""
    writer, count = csv.writer(out, lineterminator="\n"), 0
    writer.writerow(COLUMNS)
    for run in runs:
        count += 1
        writer.writerow(cell(value) for value in _row(run))
    return count


def cell(value: str | float | None) -> str:
    """A value as text that neither a spreadsheet nor a terminal interprets."""
    if not isinstance(value, str):
        return "" if value is None else str(value)
    return ("'" if value.lstrip(" ").startswith(_FORMULA) else "") + printable(value)


def _row(run: RunSummary) -> tuple[str | float | None, ...]:
    return (
        run.run_id, run.runbook, format_timestamp(run.started), run.mode, run.actor, run.status or INCOMPLETE,
        run.category, run.code, run.seconds, run.waited, run.failure_kind, run.failed_step,
        run.violations.total, run.trace,
    )  # fmt: skip
