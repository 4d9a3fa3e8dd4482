"""Where runs of agents are kept in these tests, and what everybody in them uses: a tenant, models, tools."""

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from gert.agent import (
    ArtanaKernel,
    InMemoryStore,
    KernelEvent,
    ModelInput,
    ModelRequest,
    ModelResult,
    ModelUsage,
    OutputT,
    PostgresStore,
    SQLiteStore,
    TenantContext,
    ToolCompletedPayload,
    ToolRequestedPayload,
)

TENANT = TenantContext(tenant_id="acme", budget_usd_limit=100)
SIZE = int(os.environ.get("GERT_TEST_SIZE", "1"))
"""How much larger than usual the storms are."""

_numbers = count(1)

SHARED = ("sqlite", "postgres")
DURABLE = ("sqlite", "postgres")
EVERY = ("memory", "sqlite", "postgres")


class Answer(BaseModel):
    """What models answer."""

    text: str = ""


class Charge(BaseModel):
    """What is charged."""

    amount: int


@dataclass
class Place:
    """One ledger, which any number of stores may be opened on."""

    kind: str
    address: str
    schema: str = ""
    clock: Callable[[], datetime] | None = None
    _memory: list[InMemoryStore] = field(default_factory=list)

    def store(self, **settings: Any) -> Any:
        """Open it once more; what is in memory is open once."""
        if self.clock is not None:
            settings.setdefault("clock", self.clock)
        if self.kind == "sqlite":
            return SQLiteStore(self.address, **settings)
        if self.kind == "postgres":
            return PostgresStore(self.address, max_pool_size=4, schema=self.schema, **settings)
        if not self._memory:
            self._memory.append(InMemoryStore(**settings))
        return self._memory[0]

    def anew(self) -> "Place":
        """Another empty ledger of this kind."""
        number = next(_numbers)
        if self.kind == "postgres":
            return Place(self.kind, self.address, f"agents_{number}")
        return Place(self.kind, f"{self.address}.{number}")

    def kernel(self, model: Any = None, *, store: dict[str, Any] | None = None, **settings: Any) -> ArtanaKernel:
        """A kernel on it."""
        return ArtanaKernel(store=self.store(**(store or {})), model_port=model or Model(), **settings)


def stands(request: pytest.FixtureRequest, kind: str, folder: Path) -> Place:
    """A new and empty ledger."""
    if kind == "postgres":
        # A schema is made in no time; a database is not.
        return Place(kind, request.getfixturevalue("agents_dsn"), f"agents_{next(_numbers)}")
    return Place(kind, str(folder / "runs.db" if kind == "sqlite" else folder / "runs"))


class Model:
    """A model that answers what it was asked, and counts how often; or does what it is told."""

    def __init__(self, *does: Callable[[ModelRequest[Any]], Awaitable[str]] | BaseException | str) -> None:
        self.asked: list[str] = []
        self._does = list(does)

    async def complete(self, request: ModelRequest[OutputT]) -> ModelResult[OutputT]:
        """Answer."""
        self.asked.append(request.messages[-1].content)
        does = self._does.pop(0) if self._does else f"{request.messages[-1].content}!"
        if isinstance(does, BaseException):
            raise does
        text = does if isinstance(does, str) else await does(request)
        return ModelResult(request.output_schema.model_validate({"text": text}), ModelUsage(3, 2, 0.25))


class Hooks:
    """A middleware that notes what is called, and does nothing else unless it is told to."""

    def __init__(self, **does: Any) -> None:
        self.called: Counter[str] = Counter()
        self.order: list[str] = []
        self._does = does

    async def prepare_model(self, invocation: Any) -> Any:
        """Note it."""
        return await self._do("prepare_model", invocation)

    async def before_model(self, **call: Any) -> None:
        """Note it."""
        await self._do("before_model", None)

    async def after_model(self, **call: Any) -> None:
        """Note it."""
        await self._do("after_model", None)

    async def prepare_tool_request(self, *, arguments_json: str, **call: Any) -> Any:
        """Note it."""
        return await self._do("prepare_tool_request", arguments_json)

    async def prepare_tool_result(self, *, result_json: str, **call: Any) -> str:
        """Note it."""
        return str(await self._do("prepare_tool_result", result_json))

    async def _do(self, name: str, value: Any) -> Any:
        self.called[name] += 1
        self.order.append(name)
        does = self._does.get(name)
        return value if does is None else does(value)


async def ask(kernel: ArtanaKernel, run_id: str, prompt: str, step_key: str | None = None, **more: Any) -> Any:
    """Take a model step."""
    return await kernel.step_model(
        run_id=run_id,
        tenant=more.pop("tenant", TENANT),
        model=more.pop("model", "mock"),
        input=ModelInput.from_prompt(prompt),
        output_schema=more.pop("output_schema", Answer),
        step_key=step_key,
        **more,
    )


async def call(
    kernel: ArtanaKernel, run_id: str, tool: str, arguments: Any, step_key: str | None = None, **more: Any
) -> Any:
    """Take a tool step."""
    tenant = more.pop("tenant", TENANT)
    return await kernel.step_tool(
        run_id=run_id, tenant=tenant, tool_name=tool, arguments=arguments, step_key=step_key, **more
    )


async def reconcile(
    kernel: ArtanaKernel, run_id: str, tool: str, arguments: Any, step_key: str | None = None, **more: Any
) -> str:
    """Settle a tool step."""
    return await kernel.reconcile_tool(
        run_id=run_id, tenant=TENANT, tool_name=tool, arguments=arguments, step_key=step_key, **more
    )


async def kinds(kernel: ArtanaKernel, run_id: str) -> list[str]:
    """The types of the events of a run."""
    return [event.event_type.value for event in await kernel.get_events(run_id=run_id)]


async def of_type(kernel: ArtanaKernel, run_id: str, kind: str) -> list[KernelEvent]:
    """The events of a type."""
    return [event for event in await kernel.get_events(run_id=run_id) if event.event_type.value == kind]


def requests(events: Sequence[KernelEvent]) -> list[ToolRequestedPayload]:
    """What tools were asked for."""
    return [event.payload for event in events if isinstance(event.payload, ToolRequestedPayload)]


def ends(events: Sequence[KernelEvent]) -> list[ToolCompletedPayload]:
    """How calls of tools ended."""
    return [event.payload for event in events if isinstance(event.payload, ToolCompletedPayload)]


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test in an event loop of its own."""

    @wraps(test)
    def run(*args: Any, **given: Any) -> None:
        async def work() -> None:
            await test(*args, **given)

        asyncio.run(work())

    return run


async def soon(condition: Callable[[], bool]) -> None:
    """Wait until something has happened in this process."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.time = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        """The time."""
        return self.time

    def go(self, seconds: float) -> None:
        """Let time pass, or go back."""
        self.time += timedelta(seconds=seconds)
