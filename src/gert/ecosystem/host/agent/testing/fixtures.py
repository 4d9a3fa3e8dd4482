"""Fixtures for pytest; `pytest_plugins = ["gert.testing"]` in a conftest.py turns them on."""

import asyncio
from collections.abc import Iterator

import pytest

from gert.ecosystem.host.agent.kernel import ArtanaKernel
from gert.ecosystem.host.agent.testing.clock import FakeClock
from gert.ecosystem.host.agent.testing.kernels import a_tenant, memory_kernel
from gert.ecosystem.host.agent.testing.model import ScriptedModel
from gert.kernel.agent.types.api import TenantContext


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that moves only when the test moves it."""
    return FakeClock()


@pytest.fixture
def scripted_model(fake_clock: FakeClock) -> ScriptedModel:
    """A model without answers: add them with `scripted_model.then(…)`."""
    return ScriptedModel(clock=fake_clock)


@pytest.fixture
def agent_tenant() -> TenantContext:
    """A tenant with a budget and no capabilities."""
    return a_tenant()


@pytest.fixture
def agent_kernel(scripted_model: ScriptedModel, fake_clock: FakeClock) -> Iterator[ArtanaKernel]:
    """A kernel in memory with the scripted model and the fake clock; closed after the test."""
    kernel = memory_kernel(scripted_model, clock=fake_clock)
    yield kernel
    asyncio.run(kernel.close())
