"""A place for a ledger of each kind."""

from pathlib import Path

import pytest
from tests.ecosystem.ledger.ledgers import LEDGERS, place_of

from gert.ecosystem.ledger.sqlite import executor


@pytest.fixture(params=list(LEDGERS))
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which ledger."""
    if request.param == "sqlite-threads":
        monkeypatch.setattr(executor, "QUICK_SECONDS", 0.0)
    return str(request.param)


@pytest.fixture
def place(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Where it lives."""
    return str(request.getfixturevalue("dsn")) if kind == "postgres" else place_of(kind, tmp_path)
