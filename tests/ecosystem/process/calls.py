"""Tools made of a few words, and calls of them as real processes."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

import msgspec

from gert.ecosystem.tools.command import CommandContext
from gert.ecosystem.tools.stdio import Stdio
from gert.kernel.engine.requests import CallTool, ToolAnswer
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.governance.contract import Contract, resolve
from gert.kernel.runbook.document import load
from gert.kernel.runbook.documents.tool import Tool
from gert.kernel.runbook.program import declared

T = TypeVar("T")

_CALLS = count()
SH = ["sh", "-c"]
PYTHON = [sys.executable, "-c"]


def tool_of(action: Mapping[str, Any], *, outputs: Mapping[str, Any] | None = None, **tool: Any) -> Tool:
    """A tool with the one action `go`; `meta` and `secrets` are those of its file."""
    document = load(
        msgspec.json.encode(
            {
                "apiVersion": "tool/v0",
                "meta": {"name": "t", **tool.pop("meta", {})},
                "contract": {"effects": [], "outputs": outputs or {}},
                "actions": {"go": action},
                **tool,
            }
        ),
        kind="tool",
    )
    assert document.findings == []
    model: Tool = document.model
    return model


def asked(tool: Tool, inputs: Mapping[str, Any] | None = None) -> CallTool:
    contract: Contract = resolve(declared(tool.contract), declared(tool.actions["go"].contract))
    return CallTool(
        key=f"k{next(_CALLS)}",
        path="steps/0",
        step_id="s",
        tool="t",
        action="go",
        inputs=dict(inputs or {}),
        contract=contract,
    )


def stdio(*, hides: Sequence[str] = (), **options: Any) -> Stdio:
    """A transport in this process's surroundings; `hides` are the secrets its redactor knows."""
    defaults: dict[str, Any] = {
        "environment": {"PATH": os.environ["PATH"]},
        "secrets": {},
        "withheld": frozenset(),
        "working": options.get("working") or os.getcwd(),
        "run_id": os.urandom(8).hex(),
    }
    shared = {name: options.pop(name) for name in CommandContext.__struct_fields__ if name in options}
    redactor = options.pop("redactor", None) or Redactor([*hides, *shared.get("secrets", {}).values()])
    return Stdio(CommandContext(**{**defaults, **shared}), redactor, **options)


async def call(transport: Stdio, tool: Tool, inputs: Mapping[str, Any] | None = None) -> ToolAnswer:
    return await transport.call(tool, "go", tool.actions["go"], asked(tool, inputs))


def run(
    argv: Sequence[str],
    *,
    inputs: Mapping[str, Any] | None = None,
    extract: Mapping[str, Any] | None = None,
    outputs: Mapping[str, Any] | None = None,
    tool: Mapping[str, Any] | None = None,
    action: Mapping[str, Any] | None = None,
    **options: Any,
) -> ToolAnswer:
    """Call a tool with this `argv` once."""
    declared_outputs = outputs if outputs is not None else {name: {"type": "any"} for name in extract or {}}
    made = tool_of(
        {"argv": list(argv), "extract": extract or {}, **(action or {})}, outputs=declared_outputs, **(tool or {})
    )
    return finished(lambda: call(stdio(**options), made, inputs))


def finished(work: Callable[[], Awaitable[T]]) -> T:
    """Run it in a loop of its own, for half a minute at most."""

    async def bounded() -> T:
        async with asyncio.timeout(30):
            return await work()

    return asyncio.run(bounded())


def failed(answer: ToolAnswer, kind: str, message: str) -> None:
    """Check a failure's kind and part of its message."""
    assert answer.failure is not None
    assert (answer.failure.kind, message in answer.failure.message) == (kind, True), answer.failure
