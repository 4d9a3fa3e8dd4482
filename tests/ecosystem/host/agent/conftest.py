"""Ledgers for tests that run on several of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.postgres import database

from .places import DURABLE, EVERY, SHARED, Place, stands


@pytest.fixture(params=EVERY)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty ledger of each kind."""
    return stands(request, request.param, tmp_path)


@pytest.fixture(params=DURABLE)
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
