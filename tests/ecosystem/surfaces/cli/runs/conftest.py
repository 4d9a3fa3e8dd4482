"""A ledger with runs in it, on each backend."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ecosystem.surfaces.cli.runs.ledgers import Place, fill
from tests.soak import sampled


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and none of the caller's settings."""
    for name in [name for name in os.environ if name.startswith("GERT_")]:
        if name != "GERT_TEST_DSN":
            monkeypatch.delenv(name)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


@pytest.fixture(params=sampled(["sqlite", "postgres"], ["sqlite"]))
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A ledger on each backend, with runs."""
    if request.param == "sqlite":
        yield fill(Place(str(tmp_path / "runs.db")))
    else:
        yield fill(Place(request.getfixturevalue("dsn")))
