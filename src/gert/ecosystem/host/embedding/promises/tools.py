"""The promises of tool executors."""

import asyncio
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Final

import msgspec

from gert.ecosystem.host.config.supported import CallsTools
from gert.ecosystem.host.embedding.promises import Promise, cancel, promises, require
from gert.ecosystem.host.embedding.tools import EmbeddedTool
from gert.ecosystem.host.run.world.sanitize import Sanitizer
from gert.errors import DocumentError
from gert.kernel.engine.requests import CallTool, ToolAnswer
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.governance.contract import resolve
from gert.kernel.runbook.document import load
from gert.kernel.runbook.documents.tool import Tool


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A call of an action, and the outputs it has."""

    action: str
    inputs: Mapping[str, Any] = msgspec.field(default_factory=dict)
    outputs: Mapping[str, Any] = msgspec.field(default_factory=dict)


class ExecutorCase(msgspec.Struct, frozen=True, kw_only=True):
    """An executor under test, and calls whose results are known.

    tool: the text of the tool file
    succeeds: calls that succeed; two with different outputs show that calls are kept apart
    fails: a call that fails, if there is one
    slow: a call that takes at least seconds, if there is one
    """

    executor: Any
    tool: str
    succeeds: tuple[Example, ...]
    fails: Example | None = None
    slow: Example | None = None

    @property
    def definition(self) -> Tool:
        """The tool."""
        document = load(self.tool.encode(), kind="tool", file_name="tool.yaml")
        if document.model is None:
            raise DocumentError(f"the tool of the case is not valid: {document.findings[0].message}")
        model: Tool = document.model
        return model


async def _call(case: ExecutorCase, example: Example, key: str = "step") -> ToolAnswer:
    tool = case.definition
    action = tool.actions[example.action]
    declared = [block.declared() for block in (tool.contract, action.contract) if block is not None]
    ask = CallTool(
        key=key,
        path="step",
        step_id="step",
        tool=tool.meta.name,
        action=example.action,
        inputs=dict(example.inputs),
        contract=resolve(*declared),
    )
    caller: CallsTools = case.executor
    return Sanitizer(Redactor()).take(await caller.call(tool, example.action, action, ask), ask)


def _require_outputs(answer: ToolAnswer, example: Example) -> None:
    require(answer.failure is None, f"`{example.action}` failed: {answer.failure}")
    found = {name: answer.outputs.get(name) for name in example.outputs}
    require(found == dict(example.outputs), f"expected {dict(example.outputs)}, found {answer.outputs}")


async def _gives_outputs(case: ExecutorCase) -> None:
    """a call gives its outputs, as plain data."""
    for example in case.succeeds:
        _require_outputs(await _call(case, example), example)


async def _keeps_calls_apart(case: ExecutorCase) -> None:
    """calls at the same time get their own outputs."""
    examples = [example for example in case.succeeds for _ in range(3)]
    keyed = (_call(case, example, f"step-{number}") for number, example in enumerate(examples))
    for answer, example in zip(await asyncio.gather(*keyed), examples, strict=True):
        _require_outputs(answer, example)


async def _reports_failures(case: ExecutorCase) -> None:
    """a call that fails has a failure with a reason."""
    if case.fails is not None:
        answer = await _call(case, case.fails)
        require(answer.failure is not None and answer.failure.message, f"expected a failure, found {answer}")


async def _leaves_inputs(case: ExecutorCase) -> None:
    """a call changes nothing in its inputs."""
    for example in case.succeeds:
        before = deepcopy(dict(example.inputs))
        await _call(case, example)
        require(dict(example.inputs) == before, f"the inputs were {before}, and are {dict(example.inputs)}")


async def _can_be_cancelled(case: ExecutorCase) -> None:
    """a call can be cancelled."""
    if case.slow is not None:
        task = asyncio.create_task(_call(case, case.slow))
        await asyncio.sleep(0.2)
        require(not task.done(), f"`{case.slow.action}` ended at once: name a call that takes seconds")
        await cancel(task, "the call")


_CHECKS: Final = (_gives_outputs, _keeps_calls_apart, _reports_failures, _leaves_inputs, _can_be_cancelled)


def caller_promises(make: Callable[[], Any]) -> list[Promise]:
    """The promises of what calls tools for a run; `make` returns an `ExecutorCase`."""
    return promises(_CHECKS, make)


def tool_executor_promises(make: Callable[[], Any]) -> list[Promise]:
    """The promises of a tool executor.

    make: returns an `ExecutorCase` with a new executor; it may be async
    """

    def case(given: ExecutorCase) -> ExecutorCase:
        embedded = EmbeddedTool(given.executor, run_id="run-1", secrets={}, redactor=Redactor())
        return msgspec.structs.replace(given, executor=embedded)

    return promises(_CHECKS, make, case)
