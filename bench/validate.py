"""Validation: checking a runbook against parsing its YAML with the same reader, and how both grow.

Each size is measured in a process of its own, so that no cache of one run helps another.
"""

import json
import subprocess
import sys
from pathlib import Path

from bench.ratio import Ratio, report, timed

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
ROUNDS = 5
SMALL, LARGE = 1_000, 10_000

HEAD = """apiVersion: kernel/v0
meta:
  name: big
  inputs:
    hostname: { type: string, required: true }
    region: { type: string, default: eu }
tools: [health-check]
steps:
"""
STEPS = """  - id: check_{n}
    type: tool
    tool: health-check
    action: check
    when: '{{{{ eq .region "eu" }}}}'
    inputs:
      url: "https://{{{{ .hostname }}}}/shard/{n}"
  - id: judge_{n}
    type: branch
    branches:
      - condition: '{{{{ eq (default "0" .check_{n}.status_code) "200" }}}}'
        label: healthy
        steps:
          - id: healthy_{n}
            type: assert
            assert:
              - type: equals
                value: "{{{{ .check_{n}.status_code }}}}"
                expected: 200
      - condition: default
        label: ill
        steps:
          - id: look_{n}
            type: manual
            instructions: "Look at shard {n} of {{{{ .hostname }}}}"
            contract: {{ effects: [] }}
"""
TAIL = "  - type: end\n    outcome: { category: resolved, code: swept }\n"
STEPS_EACH = 4


def runbook(steps: int) -> bytes:
    """A runbook of about so many steps, no two of them alike."""
    return (HEAD + "".join(STEPS.format(n=n) for n in range(steps // STEPS_EACH)) + TAIL).encode()


def measure(steps: int) -> tuple[float, float]:
    """Seconds to read, and to check, one runbook."""
    from gert.ecosystem.host.config.machine.gc_pause import without_collector
    from gert.ecosystem.host.config.workspace import Workspace
    from gert.kernel.runbook.reader import read

    source = runbook(steps)
    file = str(EXAMPLES / "runbooks" / "big.yaml")
    workspace = Workspace(str(EXAMPLES))
    reading = timed(without_collector(lambda: read(source)))
    started = timed(lambda: _must_be_sound(workspace, file, source))
    return reading, started


def _must_be_sound(workspace: object, file: str, source: bytes) -> None:
    checked = workspace.check(file, source=source)  # type: ignore[attr-defined]
    if checked.findings:
        raise SystemExit(f"the benchmark's runbook has findings: {checked.findings[0]}")


def _in_a_fresh_process(steps: int) -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-c", f"import json; from bench.validate import measure; print(json.dumps(measure({steps})))"],
        capture_output=True, text=True, check=True, cwd=Path(__file__).resolve().parent.parent,
    )  # fmt: skip
    reading, checking = json.loads(done.stdout)
    return reading, checking


def main() -> int:
    """Measure and report."""
    small = [_in_a_fresh_process(SMALL) for _ in range(ROUNDS)]
    large = [_in_a_fresh_process(LARGE) for _ in range(ROUNDS)]
    read_small, check_small = (min(column) for column in zip(*small, strict=True))
    read_large, check_large = (min(column) for column in zip(*large, strict=True))
    return report(
        [
            Ratio(f"checking {SMALL} steps / reading their YAML", check_small, read_small, 4),
            Ratio(f"checking {LARGE} steps / reading their YAML", check_large, read_large, 4),
            Ratio(f"checking {LARGE} steps / checking {SMALL}", check_large, check_small, 11),
        ]
    )
