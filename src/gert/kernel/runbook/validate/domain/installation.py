"""What a runbook needs that this installation cannot run (DECISIONS 73)."""

from collections.abc import Iterator

import msgspec

from gert.kernel.runbook.documents.steps import ExtensionStep, ToolStep
from gert.kernel.runbook.documents.tool import Tool
from gert.kernel.runbook.finding import Finding, Path, warning
from gert.kernel.runbook.program import Program
from gert.kernel.runbook.validate.case import Case
from gert.kernel.runbook.validate.facts import Facts, Supported


class Need(msgspec.Struct, frozen=True):
    """Something a step needs, where it is written, and why it cannot be had."""

    path: Path
    message: str


def unsupported(program: Program, supported: Supported) -> Iterator[Need]:
    """Every step that cannot run, by the tool or the extension it uses."""
    for step in program.steps:
        if isinstance(step, ToolStep):
            tool = program.tool_of(step)
            if tool is not None and tool.meta.transport not in supported.transports:
                yield Need(step.at("tool"), f"{step.label} cannot run here: {_unreachable(step.tool, tool)}")
        elif isinstance(step, ExtensionStep) and step.extension not in supported.extensions:
            message = f"{step.label} cannot run here: this installation has no runner for the extension"
            yield Need(step.at("extension"), f"{message} `{step.extension}`")


def runnable(case: Case) -> Iterator[Finding]:
    """D50: every step is one that this installation can run."""
    supported = case.facts.supported
    if supported is None:
        return
    for need in unsupported(case.program, supported):
        yield warning("D50", need.path, need.message)


def tool_runnable(tool: Tool, facts: Facts) -> Iterator[Finding]:
    """D50, for a tool file by itself."""
    if facts.supported is not None and tool.meta.transport not in facts.supported.transports:
        yield warning("D50", ("meta", "transport"), _unreachable(tool.meta.name, tool))


def _unreachable(name: str, tool: Tool) -> str:
    return f"this installation cannot call the tool `{name}`, whose transport is `{tool.meta.transport}`"
