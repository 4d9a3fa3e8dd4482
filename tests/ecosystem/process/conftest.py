"""Every test of processes is run for each way they are started."""

import sys
from threading import Event

import pytest

from gert.ecosystem.process import descriptors


@pytest.fixture(autouse=True, params=["the system's own way", "Popen"] if sys.platform == "linux" else ["Popen"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How processes are started."""
    monkeypatch.setattr(descriptors, "_private", Event())
    if request.param != "Popen":
        descriptors.keep_private()
    return str(request.param)
