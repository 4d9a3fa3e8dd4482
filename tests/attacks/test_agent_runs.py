"""Attempts on the agent kernel: other tenants' runs, replays that differ, hostile tool results and output schemas."""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from tests.attacks.attack import Attack, table
from tests.ecosystem.surfaces.cli.workbench import Project

from gert.agent import (
    ArtanaKernel,
    BoundRun,
    ChatMessage,
    GertError,
    KernelPolicy,
    MockModelPort,
    ModelRequest,
    SQLiteStore,
    TenantContext,
    ToolExecutionContext,
    ToolExecutionResult,
)

OURS = TenantContext(tenant_id="acme", budget_usd_limit=10)
THEIRS = TenantContext(tenant_id="mallory", budget_usd_limit=10)


class Answer(BaseModel):
    text: str = ""


class Counted(MockModelPort):
    """A model that answers with how often it was asked."""

    def __init__(self) -> None:
        super().__init__(output_factory=self._counted)

    def _counted(self, _: ModelRequest[BaseModel]) -> dict[str, object]:
        return {"text": str(self.calls)}


def kernel_in(project: Project, **more: Any) -> ArtanaKernel:
    return ArtanaKernel(store=SQLiteStore(str(project.root / "runs.db")), model_port=Counted(), **more)


Trial = Callable[[ArtanaKernel], Awaitable[str]]


def on_a_kernel(trial: Trial, **more: Any) -> Callable[[Project], str]:
    """An attempt with a kernel on which tenant `acme` has the run `r`."""

    async def scenario(project: Project) -> str:
        async with kernel_in(project, **more) as kernel, asyncio.timeout(30):
            await kernel.start_run(tenant=OURS, run_id="r")
            await kernel.set_artifact(run_id="r", tenant=OURS, key="secret", value="ours")
            return await trial(kernel)

    return lambda project: asyncio.run(scenario(project))


async def refused(work: Awaitable[object]) -> str:
    try:
        found = await work
    except GertError as error:
        return str(error)
    return f"it was let pass: {found!r}"


async def drained(events: Any) -> list[Any]:
    return [event async for event in events]


def by_handle(use: Callable[[BoundRun], Awaitable[object]]) -> Callable[[Project], str]:
    async def trial(kernel: ArtanaKernel) -> str:
        before = await kernel.get_events(run_id="r")
        said = await refused(use(kernel.bind(run_id="r", tenant=THEIRS)))
        assert await kernel.get_events(run_id="r") == before
        assert await kernel.get_run_lease(run_id="r") is None
        return said

    return on_a_kernel(trial)


async def entered(kernel: Any) -> None:
    async with kernel.run(tenant=THEIRS, run_id="r"):
        pass


READS: dict[str, Callable[[BoundRun], Awaitable[object]]] = {
    "reads an artifact of": lambda run: run.get_artifact("secret"),
    "reads the status of": lambda run: run.status(),
    "reads the progress of": lambda run: run.progress(),
    "reads the resume point of": lambda run: run.resume_point(),
    "reads the events of": lambda run: run.events(),
    "takes the lease of": lambda run: run.acquire_lease("mallory", 60),
    "renews the lease of": lambda run: run.renew_lease("mallory", 60),
    "releases the lease of": lambda run: run.release_lease("mallory"),
    "looks up the lease of": lambda run: run.lease(),
    "asks a model in": lambda run: run.model("m", "q", Answer),
    "pauses": lambda run: run.pause("stop"),
    "enters": lambda run: entered(run.kernel),
    "lists the artifacts of": lambda run: run.kernel.list_artifacts(run_id="r", tenant=THEIRS),
    "loads": lambda run: run.kernel.load_run(run_id="r", tenant=THEIRS),
    "asks for the explanation of": lambda run: run.kernel.explain_run("r", tenant=THEIRS),
    "streams the events of": lambda run: drained(run.kernel.stream_events(run_id="r", tenant=THEIRS)),
    "streams the progress of": lambda run: drained(run.kernel.stream_run_progress(run_id="r", tenant=THEIRS)),
    "reads a summary of": lambda run: run.kernel.get_latest_summary(
        run_id="r", summary_type="artifact::secret", tenant=THEIRS
    ),
}

TENANTS = [
    Attack(
        f"another tenant {what} a run",
        why="reads and leases check the tenant",
        attempt=by_handle(use),
        reason="belongs to another tenant",
    )
    for what, use in READS.items()
]


async def key_twice() -> dict[Any, int]:
    return {1: 1, "1": 2}


async def twice_in_text() -> str:
    return '{"paid": 1, "paid": 2}'


async def not_a_number() -> dict[str, float]:
    return {"price": math.nan}


async def infinite() -> list[float]:
    return [math.inf]


async def nan_in_text() -> str:
    return '{"price": NaN}'


async def half_a_character() -> str:
    return "half \ud800"


async def half_in_a_mapping() -> dict[str, str]:
    return {"a": "\udfff"}


async def half_escaped() -> str:
    return '{"a": "\\ud800"}'


async def endless() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def tool_returns(function: Callable[..., Any]) -> Callable[[Project], str]:
    async def trial(kernel: ArtanaKernel) -> str:
        kernel.tool(name="look")(function)
        run = kernel.bind(run_id="r", tenant=OURS)
        live = await refused(run.tool("look", {}))
        assert await refused(run.tool("look", {})) == live, "a replay differs"
        return live

    return on_a_kernel(trial)


RESULTS = [
    Attack(what, why="tool results are JSON every reader reads alike", attempt=tool_returns(function), reason=reason)
    for what, function, reason in (
        ("a tool returns two keys that are written alike", key_twice, "occurs twice"),
        ("a tool returns JSON text with a key twice", twice_in_text, "occurs twice"),
        ("a tool returns NaN", not_a_number, "`NaN` is not a JSON number"),
        ("a tool returns infinity", infinite, "is not a JSON number"),
        ("a tool returns JSON text with NaN", nan_in_text, "`NaN` is not a JSON number"),
        ("a tool returns half a character", half_a_character, "has no JSON form"),
        ("a tool returns half a character in a mapping", half_in_a_mapping, "has no JSON form"),
        ("a tool returns half a character, escaped", half_escaped, "has no JSON form"),
        ("a tool returns a list that contains itself", endless, "has no JSON form"),
    )
]


class Rogue:
    """A tool port that returns what its owner wants."""

    def __init__(self, result_json: str) -> None:
        from gert.agent import LocalToolRegistry

        self._inner = LocalToolRegistry()
        self._result_json = result_json

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def call(self, tool_name: str, arguments_json: str, *, context: ToolExecutionContext) -> ToolExecutionResult:
        return ToolExecutionResult("success", self._result_json)


def port_returns(result_json: str) -> Callable[[Project], str]:
    async def trial(kernel: ArtanaKernel) -> str:
        kernel.tool(name="look")(twice_in_text)
        return await refused(kernel.bind(run_id="r", tenant=OURS).tool("look", {}))

    return on_a_kernel(trial, tool_port=Rogue(result_json))


PORTS = [
    Attack(what, why="what a port returns is checked too", attempt=port_returns(text), reason=reason)
    for what, text, reason in (
        ("a tool port returns a key twice", '{"a":1,"a":2}', "occurs twice"),
        ("a tool port returns NaN", "NaN", "is not a JSON number"),
        ("a tool port returns text that is not JSON", "{", "is not JSON"),
    )
]


class Abstract(BaseModel, ABC):
    @abstractmethod
    def answer(self) -> str: ...


class Arbitrary(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    found: Counted


class Calls(BaseModel):
    found: Callable[[], int]


class Undefined(BaseModel):
    found: "Nowhere"  # type: ignore[name-defined]  # noqa: F821


class Raises(BaseModel):
    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> Any:
        raise ZeroDivisionError("hostile")


class Unsendable(BaseModel):
    model_config = ConfigDict(json_schema_extra={"half": "\ud800"})


def schema(output_schema: Any) -> Callable[[Project], str]:
    async def trial(kernel: ArtanaKernel) -> str:
        port: Any = kernel._models._models
        said = await refused(kernel.bind(run_id="r", tenant=OURS).model("m", "q", output_schema))
        assert port.calls == 0, "the model was asked and paid"
        assert "model_requested" not in [event.event_type.value for event in await kernel.get_events(run_id="r")]
        return said

    return on_a_kernel(trial)


SCHEMAS = [
    Attack(what, why="refused before the paid call", attempt=schema(output_schema), reason=reason)
    for what, output_schema, reason in (
        ("an output schema that is abstract", Abstract, "is abstract"),
        ("an output schema of a type JSON does not know", Arbitrary, "has no JSON Schema"),
        ("an output schema that holds a function", Calls, "has no JSON Schema"),
        ("an output schema that names an unknown class", Undefined, "has no JSON Schema"),
        ("an output schema that raises", Raises, "has no JSON Schema"),
        ("an output schema that cannot be sent", Unsendable, "has no JSON Schema"),
        ("an output schema that is no model", dict, "expected `output_schema` to be a class of `BaseModel`"),
    )
]


async def twins(kernel: ArtanaKernel) -> str:
    run = kernel.bind(run_id="r", tenant=OURS)
    live = await asyncio.gather(*(run.model("m", "q", Answer) for _ in range(10)))
    again = await run.model("m", "q", Answer)
    return f"{len({each.output.text for each in (*live, again)})} answer, {len({each.seq for each in live})} event"


async def twins_by_messages(kernel: ArtanaKernel) -> str:
    run, said = kernel.bind(run_id="r", tenant=OURS), [ChatMessage(role="user", content="q")]
    live = await asyncio.gather(*(run.model("m", said, Answer) for _ in range(5)))
    return f"{len({each.output.text for each in live})} answer, {len({each.seq for each in live})} event"


def impostors(names: tuple[str, ...], mode: KernelPolicy) -> Callable[[Project], str]:
    from gert.kernel.agent.middleware.base import PassThroughMiddleware

    def attempt(project: Project) -> str:
        with pytest.raises(ValueError, match="requires") as caught:
            kernel_in(project, policy=mode, middleware=[type(name, (PassThroughMiddleware,), {})() for name in names])
        return str(caught.value)

    return attempt


GUARDS = ("PIIScrubberMiddleware", "QuotaMiddleware", "CapabilityGuardMiddleware")
REPLAYS = [
    Attack(
        "equal questions at once are paid ten times and replay as another",
        why="equal steps without a key are one call, live and in replay",
        attempt=on_a_kernel(twins),
        reason="1 answer, 1 event",
    ),
    Attack(
        "equal conversations at once are paid five times",
        why="equal steps without a key are one call, live and in replay",
        attempt=on_a_kernel(twins_by_messages),
        reason="1 answer, 1 event",
    ),
    Attack(
        "guards of an enforced kernel are replaced by classes of their names",
        why="required middleware is checked by type (DECISIONS 75)",
        attempt=impostors(GUARDS, KernelPolicy.enforced()),
        reason="requires `PIIScrubberMiddleware`, `QuotaMiddleware`, `CapabilityGuardMiddleware`",
    ),
]


@pytest.mark.parametrize("attack", table([*TENANTS, *RESULTS, *PORTS, *SCHEMAS, *REPLAYS]))
def test_attack_fails(attack: Attack, project: Project) -> None:
    attack.fails(project)
