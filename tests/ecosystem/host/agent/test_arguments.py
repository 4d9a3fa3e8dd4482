"""Whatever the agent API is given in any argument, it answers with an error of ours that Python callers expect."""

import asyncio
import inspect
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.host.agent.places import TENANT, Answer, Model

import gert.agent
import gert.testing
from gert.agent import (
    ArtanaKernel,
    BoundRun,
    EventType,
    GertError,
    HarnessWakePayload,
    InMemoryStore,
    KernelModelClient,
    ModelInput,
    RunNotFound,
    StepKey,
    WorkflowContext,
    json_step_serde,
)


class Strange:
    """An object that fits nowhere, with a name that is the same in every process."""

    def __repr__(self) -> str:
        return "strange"


WRONG: tuple[Any, ...] = (None, 7, "text", b"bytes", [], Strange())


async def look() -> str:
    return "seen"


async def work(_: WorkflowContext) -> int:
    return 1


FITTING: dict[str, Any] = {
    "run_id": "r", "tenant": TENANT, "model": "mock", "input": ModelInput.from_prompt("q"), "asked": "q",
    "output_schema": Answer, "visible_tool_names": {"look"}, "tool_name": "look", "arguments": {}, "source": "memory",
    "step_key": "k", "look": look, "workflow": work, "reason": "why", "worker_id": "w", "ttl_seconds": 5,
    "tenant_id": "acme", "summary_type": "note", "summary_json": "{}", "name": "n", "payload": {"a": 1}, "key": "k",
    "value": 1, "event_type": EventType.HARNESS_WAKE, "tenant_capabilities": frozenset({"a"}), "prompt": "q",
    "action": look, "serde": json_step_serde(), "label": "l", "event": "e", "tenant_context": TENANT,
    "since": datetime.now(UTC), "ticket": None, "namespace": "ns", "messages": [],
}  # fmt: skip
"""A value that fits, for each parameter without a default."""

ENDLESS = {"follow"}


def methods(kind: type) -> Iterator[Any]:
    for name, member in inspect.getmembers(kind):
        if not name.startswith("_") and name not in ("close", "tool") and callable(member):
            yield pytest.param(kind, name, id=f"{kind.__name__}.{name}")


def made(kind: type, kernel: ArtanaKernel, run_id: str) -> Any:
    if kind is BoundRun:
        return kernel.bind(run_id=run_id, tenant=TENANT)
    if kind is KernelModelClient:
        return KernelModelClient(kernel)
    if kind is WorkflowContext:
        return WorkflowContext(run_id=run_id, tenant=TENANT, store=kernel.store, pause_api=kernel, events=())
    return kernel if kind is ArtanaKernel else kernel.store


async def used(found: Any) -> None:
    """Do what the method does: await it, enter it, or go through it."""
    if inspect.isawaitable(found):
        await found
    elif hasattr(found, "__aenter__"):
        async with found:
            pass
    elif hasattr(found, "__aiter__"):
        async for _ in found:
            pass


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong value that is taken for the name of a file leaves none in the repository."""
    monkeypatch.chdir(tmp_path)


KINDS = (ArtanaKernel, BoundRun, KernelModelClient, InMemoryStore, WorkflowContext)


@pytest.mark.parametrize(("kind", "name"), [each for kind in KINDS for each in methods(kind)])
def test_a_wrong_argument_is_an_error_of_ours(kind: type, name: str) -> None:
    async def scenario() -> None:
        async with ArtanaKernel(store=InMemoryStore(), model_port=Model()) as kernel:
            kernel.tool()(look)
            for number, (parameter, wrong) in enumerate(product(parameters(getattr(kind, name)), WRONG)):
                run_id = f"r{number}"
                await kernel.start_run(tenant=TENANT, run_id=run_id)
                method = getattr(made(kind, kernel, run_id), name)
                given = {key: run_id if key == "run_id" else value for key, value in fitting(method).items()}
                error = await raised(method, given, {parameter: wrong})
                assert is_ours(error), f"{parameter}={wrong!r}: {error!r}"

    asyncio.run(scenario())


def is_ours(error: BaseException | None) -> bool:
    if error is None or type(error).__name__ == "WorkflowPaused":
        return True  # the value fits after all
    if not isinstance(error, GertError) or "object at 0x" in str(error):
        return False
    return isinstance(error, ValueError | TypeError | KeyError) or "has no such call" in str(error)


def parameters(method: Any) -> list[str]:
    return [name for name in inspect.signature(method).parameters if name not in ("self", "more", *ENDLESS)]


def fitting(method: Any) -> dict[str, Any]:
    """Values that fit what must be given."""
    given = {
        each.name: FITTING.get(each.name)
        for each in inspect.signature(method).parameters.values()
        if each.default is each.empty and each.kind is not each.VAR_KEYWORD
    }
    if "event_type" in given:
        given["payload"] = HarnessWakePayload(run_created=True)
    return given


async def raised(method: Any, given: dict[str, Any], wrong: dict[str, Any]) -> BaseException | None:
    try:
        await used(method(**(given | wrong)))
    except BaseException as error:
        return error
    return None


def no_text(wrong: Any, instead: Any = 5) -> Any:
    """Another wrong value where text would fit."""
    return instead if wrong == "text" else wrong


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda wrong: ArtanaKernel(store=wrong, model_port=Model()), id="kernel(store)"),
        pytest.param(lambda wrong: ArtanaKernel(store=InMemoryStore(), model_port=wrong), id="kernel(model_port)"),
        pytest.param(
            lambda wrong: ArtanaKernel(store=InMemoryStore(), model_port=Model(), middleware=[wrong]), id="middleware"
        ),
        pytest.param(lambda wrong: gert.agent.SQLiteStore(no_text(wrong)), id="SQLiteStore"),
        pytest.param(lambda wrong: gert.agent.PostgresStore(no_text(wrong)), id="PostgresStore"),
        pytest.param(lambda wrong: StepKey(no_text(wrong, "-")), id="StepKey"),
        pytest.param(lambda wrong: StepKey("a").next(no_text(wrong, "-")), id="StepKey.next"),
        pytest.param(ModelInput.from_messages, id="ModelInput.from_messages"),
        pytest.param(lambda wrong: ModelInput.from_prompt(no_text(wrong)), id="ModelInput.from_prompt"),
        pytest.param(KernelModelClient, id="KernelModelClient"),
        pytest.param(lambda wrong: gert.agent.order_middleware([wrong]), id="order_middleware"),
        pytest.param(gert.agent.pydantic_step_serde, id="pydantic_step_serde"),
        pytest.param(gert.agent.payload_to_canonical_json, id="payload_to_canonical_json"),
        pytest.param(lambda wrong: gert.agent.resolve_tool_resolutions([wrong]), id="resolve_tool_resolutions"),
        pytest.param(
            lambda wrong: gert.agent.compute_allowed_tools_hash([no_text(wrong), no_text("text")]),
            id="compute_allowed_tools_hash",
        ),
        pytest.param(gert.agent.canonicalize_json_object, id="canonicalize_json_object"),
        pytest.param(lambda wrong: gert.agent.MockModelPort(output=no_text(wrong or 5)), id="MockModelPort"),
        pytest.param(lambda wrong: gert.testing.calls(no_text(wrong)), id="calls"),
        pytest.param(lambda wrong: gert.testing.says(no_text(wrong or 5)), id="says"),
        pytest.param(ArtanaKernel(store=InMemoryStore(), model_port=Model()).tool(), id="tool"),
    ],
)
def test_what_is_made_of_the_wrong_thing_is_an_error_of_ours(make: Any, wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        make(wrong)
    assert isinstance(caught.value, GertError)


def test_errors_of_callers_are_what_python_callers_expect() -> None:
    async def scenario() -> None:
        async with ArtanaKernel(store=InMemoryStore(), model_port=Model()) as kernel:
            with pytest.raises(KeyError) as missing:
                await kernel.load_run(run_id="r")
            assert isinstance(missing.value, RunNotFound)
            assert str(missing.value) == "there is no run `r`"
            await kernel.start_run(tenant=TENANT, run_id="r")
            with pytest.raises(ValueError, match="already exists"):
                await kernel.start_run(tenant=TENANT, run_id="r")
            with pytest.raises(KeyError, match="there is no tool `look`"):
                await kernel.step_tool(run_id="r", tenant=TENANT, tool_name="look", arguments={})
            kernel.tool()(look)
            with pytest.raises(ValueError, match="do not fit"):
                await kernel.step_tool(run_id="r", tenant=TENANT, tool_name="look", arguments={"n": 1})
            with pytest.raises(ValueError, match="found `loose`"):
                await kernel.step_model(
                    run_id="r",
                    tenant=TENANT,
                    model="m",
                    input=ModelInput.from_prompt("q"),
                    output_schema=Answer,
                    replay_policy="loose",  # type: ignore[arg-type]
                )

    asyncio.run(scenario())


def test_a_run_takes_messages() -> None:
    async def scenario() -> None:
        model = Model()
        async with ArtanaKernel(store=InMemoryStore(), model_port=model) as kernel:
            async with kernel.run(tenant=TENANT, run_id="r") as run:
                said = [gert.agent.ChatMessage(role=role, content=role) for role in ("system", "user")]
                assert (await run.model("m", said, Answer)).output.text == "user!"
                assert (await run.model("m", tuple(said), Answer)).replayed
                with pytest.raises(ValueError, match="asked"):
                    await run.model("m", [{"role": "user", "content": "x"}], Answer)  # type: ignore[list-item]
            [asked] = [
                event.payload
                for event in await kernel.get_events(run_id="r")
                if event.payload.kind == "model_requested"
            ]
            version = asked.context_version
            assert version is not None
            assert version.system_prompt_hash == "bbc5e661e106c6dcd8dc6dd186454c2fcba3c710fb4d8e71a60c93eaf077f073"

    asyncio.run(scenario())
