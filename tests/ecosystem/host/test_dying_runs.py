"""A run whose process is killed at any moment goes on, and nothing happens twice."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_a_run_that_dies_at_any_call_goes_on_and_does_nothing_twice(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.ecosystem.host.dying_runs", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    attempts = [[int(each) for each in line.split()] for line in done.stdout.splitlines()]
    # It died at every call it makes, and in the end at none.
    assert len(attempts) > 20
    assert [code for code, _, _ in attempts] == [9] * (len(attempts) - 1) + [0]
    assert {marks for _, _, marks in attempts} == {0, 1, 2, 3}
