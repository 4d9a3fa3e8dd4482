"""The language is judged on one fixed machine: its findings must not depend on where the tests run."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from tests.conformance.cases import CASES

from gert.ecosystem.host.config.machine import platform

settings.register_profile("conformance", deadline=None, derandomize=True)

ENVIRONMENT = {"HOME": "/home/operator", "PATH": "/usr/bin:/bin", "DEPLOY_TOKEN": "set", "GERT_DEBUG": "1"}


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Linux, with `DEPLOY_TOKEN` as its only secret, in a working folder that has tools of its own.

    What the installation can run is unknown, so nothing is reported about it.
    """
    monkeypatch.chdir(CASES / "working")
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", ENVIRONMENT)
        patch.setattr(platform, "platform", lambda: "linux")
        patch.setattr(platform, "supported_here", lambda _: None)
        yield
