"""Ledgers for tests of the kernel: on SQLite, and in `make soak` on the others, whose own promises are in `stores`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ecosystem.host.agent.places import DURABLE, EVERY, SHARED, Place, stands
from tests.postgres import database
from tests.soak import sampled


@pytest.fixture(params=sampled(EVERY, ["sqlite"]))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty ledger of each kind."""
    return stands(request, request.param, tmp_path)


@pytest.fixture(params=sampled(DURABLE, ["sqlite"]))
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty ledger of each kind that outlives a process."""
    return stands(request, request.param, tmp_path)


@pytest.fixture(params=SHARED)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty ledger of each kind that many processes use at once."""
    return stands(request, request.param, tmp_path)


@pytest.fixture(scope="session")
def agents_dsn(postgres: str) -> Iterator[str]:
    """A database these tests share, each in a schema of its own."""
    with database(postgres) as address:
        yield address
