"""Start-up: what it costs to ask for the version, and to check one small runbook."""

import sys
from pathlib import Path

from bench.ratio import Ratio, report, timed_commands

ROUNDS = 21
RUNBOOK = Path(__file__).resolve().parent.parent / "examples" / "runbooks" / "service-health-check.yaml"
GERT = str(Path(sys.executable).parent / "gert")


def main() -> int:
    """Measure and report."""
    commands = [
        [sys.executable, "-c", "pass"],
        [GERT, "--version"],
        [sys.executable, "-c", "import pydantic, yaml, click"],
        [GERT, "validate", str(RUNBOOK)],
    ]
    interpreter, version, imports, validate = timed_commands(commands, ROUNDS)
    return report(
        [
            Ratio("gert --version / starting the interpreter", version, interpreter, 1.5),
            Ratio("gert validate / importing pydantic, yaml and click", validate, imports, 1.5),
        ]
    )
