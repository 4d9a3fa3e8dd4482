"""What the tests of `gert exec` share."""

from pathlib import Path

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty project."""
    return Project(tmp_path / "project")
