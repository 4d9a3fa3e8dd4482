"""Steps that this installation cannot run (DECISIONS 73)."""

from collections.abc import Iterator

import msgspec

from gert.kernel.runbook.documents.steps import ExtensionStep, ToolStep
from gert.kernel.runbook.documents.tool import Tool
from gert.kernel.runbook.finding import Finding, Path, warning
from gert.kernel.runbook.program import Program
from gert.kernel.runbook.validate.case import Case
from gert.kernel.runbook.validate.facts import Facts, Supported


class Need(msgspec.Struct, frozen=True):
    """Something that a step needs and this installation lacks: its path, and the reason."""

    path: Path
    message: str


def unsupported(program: Program, supported: Supported) -> Iterator[Need]:
    """Yield every step that cannot run, because of its tool or extension."""
    for step in program.steps:
        if isinstance(step, ToolStep):
            tool = program.tool_of(step)
            if tool is not None and tool.meta.transport not in supported.transports:
                yield Need(step.at("tool"), f"{step.label} cannot run here: {_unsupported_tool(step.tool, tool)}")
        elif isinstance(step, ExtensionStep) and step.extension not in supported.extensions:
            message = f"{step.label} cannot run here: this installation has no runner for the extension"
            yield Need(step.at("extension"), f"{message} `{step.extension}`")


def supported_steps(case: Case) -> Iterator[Finding]:
    """D50: this installation can run every step."""
    supported = case.facts.supported
    if supported is None:
        return
    for need in unsupported(case.program, supported):
        yield warning("D50", need.path, need.message)


def supported_tool(tool: Tool, facts: Facts) -> Iterator[Finding]:
    """D50, for a tool file by itself."""
    if facts.supported is not None and tool.meta.transport not in facts.supported.transports:
        yield warning("D50", ("meta", "transport"), _unsupported_tool(tool.meta.name, tool))


def _unsupported_tool(name: str, tool: Tool) -> str:
    return f"this installation cannot call the tool `{name}`, whose transport is `{tool.meta.transport}`"
