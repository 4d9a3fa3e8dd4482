"""What the tests of `gert exec` share."""

from pathlib import Path

import pytest
from tests.ecosystem.surfaces.cli.runs.ledgers import Place, fill
from tests.ecosystem.surfaces.cli.workbench import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty project."""
    return Project(tmp_path / "project")


@pytest.fixture
def sqlite_ledger(tmp_path: Path) -> Place:
    """A ledger in a file, with runs."""
    return fill(Place(str(tmp_path / "runs.db")))
