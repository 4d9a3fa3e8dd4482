"""Replay: what testing a long scenario costs beside validating its runbook."""

import sys
import tempfile
from pathlib import Path

from bench.engine import END, HEAD, TOOL, calls
from bench.ratio import Ratio, report, timed_commands

STEPS = 10_000
SCENARIO = """\
inputs: { host: web-7 }
tool_responses:
  look: { stdout: "200\\n" }
"""
TEST = """\
expected_status: completed
expected_outcome: resolved
expected_code: done
must_reach: [s0, s9999]
expected_outputs: { code: 0 }
"""


def main() -> int:
    """Measure and report."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tools").mkdir()
        (folder / "tools" / "look.tool.yaml").write_text(TOOL)
        runbook = folder / "bench.yaml"
        runbook.write_text(HEAD + calls(STEPS) + END)
        place = folder / "scenarios" / "bench" / "long"
        place.mkdir(parents=True)
        (place / "scenario.yaml").write_text(SCENARIO)
        (place / "test.yaml").write_text(TEST)
        gert = [sys.executable, "-m", "gert"]
        validating, testing = timed_commands(
            [[*gert, "validate", str(runbook)], [*gert, "test", str(runbook)]], rounds=5
        )
        return report([Ratio(f"testing a scenario of {STEPS:,} steps / validating it", testing, validating, 2.5)])
