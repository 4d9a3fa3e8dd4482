"""What a test needs of the machine: where it is missing, the test fails in CI, and is skipped with a warning elsewhere.

`pytest.mark.needs("chromium")` names programs; `missing` says that anything else is not there.
"""

import os
import shutil
from collections import Counter
from typing import Final, NoReturn

import pytest

MISSING: Final = "missing on this machine: "


def missing(what: str, why: str = "") -> NoReturn:
    """Fail this test in CI, and skip it elsewhere."""
    reason = f"{MISSING}{what}" + (f" ({why})" if why else "")
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def require_programs(item: pytest.Item) -> None:
    """Check that the programs are there which the markers of a test name."""
    names = [name for marker in item.iter_markers("needs") for name in marker.args]
    if absent := [name for name in names if shutil.which(name) is None]:
        missing(", ".join(dict.fromkeys(absent)))


def warn(reporter: pytest.TerminalReporter) -> None:
    """Print one line for everything that is missing, however many tests that has skipped."""
    reasons = [report.longrepr[2] for report in reporter.getreports("skipped") if isinstance(report.longrepr, tuple)]
    counts = Counter(
        reason.partition(MISSING)[2].partition(" (")[0] for reason in map(str, reasons) if MISSING in reason
    )
    if counts:
        named = "; ".join(f"{what} ({count} tests)" for what, count in sorted(counts.items()))
        reporter.write_line(f"WARNING: NOT TESTED, missing on this machine: {named}", red=True, bold=True)
