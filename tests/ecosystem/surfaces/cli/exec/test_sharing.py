"""Many `gert exec` processes at once share one SQLite ledger, and no run fails; `python -m bench.sharing` times it."""

from pathlib import Path

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, note
from tests.soak import sampled

PATIENCE = 300.0


@pytest.mark.parametrize("processes", sampled([12, 100], [12]))
def test_no_run_fails(tmp_path: Path, processes: int) -> None:
    project = Project(tmp_path / "project")
    project.runbook(note("one"), note("two"), note("three"))
    started = [project.start("--quiet") for _ in range(processes)]
    ended = [(process.communicate(timeout=PATIENCE)[1], process.returncode) for process in started]
    assert [err.decode() for err, code in ended if code] == []
    assert sorted(project.noted()) == sorted(["one", "two", "three"] * processes)
    verified = project.gert("run", "verify-ledger", "--json").ended(0).said["runs"]
    assert len(verified) == processes
