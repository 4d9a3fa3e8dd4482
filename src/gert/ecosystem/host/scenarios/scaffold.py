"""Creating a scenario of stubs: every input, an answer for every request of a runbook, and a test to fill in."""

import os
from collections.abc import Iterator
from typing import Any, Final

from gert.ecosystem.host.config.settings import require_sound
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.scenarios.folders import SCENARIO_FILE, TEST_FILE, Folder, scenario_folder
from gert.ecosystem.host.scenarios.record_scenario import write_folder
from gert.errors import DocumentError, UsageError
from gert.kernel.foundation.text import printable
from gert.kernel.runbook.documents.contract import InputBlock
from gert.kernel.runbook.documents.steps import EndStep, ExtensionStep, ManualStep, ToolStep
from gert.kernel.runbook.documents.tool import ActionBlock, ExtractBlock
from gert.kernel.runbook.program import Program
from gert.kernel.runbook.validate.domain.tools import literal_objection
from gert.kernel.runbook.writer import to_yaml

_MOST_WORDS: Final = 100
_MOST_LISTED: Final = 12
_EXAMPLES: Final[dict[str, Any]] = {
    "string": "", "int": 0, "float": 0.0, "bool": False, "list": [], "object": {}, "any": "",
}  # fmt: skip
_EVIDENCE: Final[dict[str, Any]] = {
    "text": "what was seen",
    "checklist": True,
    "attachment": {"name": "file.txt", "size": 0, "sha256": "sha256:" + "0" * 64},
}


def scaffold(runbook: str, name: str) -> Folder:
    """Write a valid scenario of stubs for a runbook."""
    folder = scenario_folder(runbook, name)
    checked = require_sound(Workspace().program(runbook))
    if checked.program is None:
        raise DocumentError(f"`{runbook}` is not a runbook")
    require_free(folder)
    files = {SCENARIO_FILE: scenario_text(checked.program), TEST_FILE: expectations_text(checked.program, name)}
    write_folder(folder.path, {file: text.encode() for file, text in files.items()})
    return folder


def require_free(folder: Folder) -> None:
    """Refuse the name of an existing scenario."""
    if os.path.lexists(folder.path):
        raise UsageError(f"scenario `{folder.name}` already exists", hint=f"it is in `{folder.path}`")


def scenario_text(program: Program) -> str:
    """The answers, as far as they can be derived, with comments."""
    lines = [
        f"# The answers for a replay of {_comment_text(program.runbook.meta.name)}.",
        "# A single answer serves every call; each entry of a list serves one. A key may also be the id of a step.",
        'description: ""',
        *_inputs(program),
        *_tools(program),
        *_extensions(program),
        *_evidence(program),
        "# Every approval is granted unless you list it here:",
        "# approvals:",
        "#   step_id: {approved: false, approver: ann@example.com, reason: too risky}",
    ]
    return "".join(f"{line}\n" for line in lines)


def expectations_text(program: Program, name: str) -> str:
    """The expectations: the run completes; the others are comments to edit."""
    ends = [step for step in program.steps if isinstance(step, EndStep)]
    categories = list(dict.fromkeys(step.outcome.category for step in ends))
    codes = list(dict.fromkeys(_comment_text(step.outcome.code.source) for step in ends))
    steps = [step.id for step in program.steps if step.id is not None]
    lines = [
        f"# The expectations of `gert test` for this replay of {_comment_text(program.runbook.meta.name)}.",
        *to_yaml({"description": name, "expected_status": "completed"}).splitlines(),
        f"# expected_outcome: {categories[0] if categories else 'resolved'}  # {_few(categories)}",
        f"# expected_code: …  # {_few(codes)}",
        f"# must_reach: []  # {_few(steps)}",
        "# must_not_reach: []",
        "# expected_outputs: {name: value, step.name: /a regular expression/}",
        "# expected_decisions: {step_id: allow}  # allow, require-approval, deny",
    ]
    return "".join(f"{line}\n" for line in lines)


def _inputs(program: Program) -> Iterator[str]:
    inputs = program.runbook.meta.inputs
    if inputs:
        known = {name: _example(block) for name, block in inputs.items()}
        yield "inputs:" if any(fits for fits, _ in known.values()) else "# inputs:"
        for name, block in inputs.items():
            fits, value = known[name]
            (first, *rest) = to_yaml({name: value}).splitlines()
            mark = "  " if fits else "#   "
            yield f"{mark}{first}  # {_about(block)}" if not rest else f"{mark}# {_about(block)}"
            if rest:
                yield from (f"{mark}{line}" for line in (first, *rest))


def _example(block: InputBlock) -> tuple[bool, Any]:
    """An example value, and whether it is valid."""
    parameter = block.parameter()
    if block.secret:
        return True, "[REDACTED]"  # a replay needs only some value
    if block.has_default:
        return True, block.default
    value = block.enum[0] if block.enum else _EXAMPLES[block.type]
    if block.type in ("int", "float") and block.min is not None and not block.enum:
        value = int(block.min) if block.type == "int" else float(block.min)
    return literal_objection(value, parameter) is None, value


def _about(block: InputBlock) -> str:
    words = [block.type]
    if block.required and not block.has_default:
        words.append("required")
    if block.secret:
        words.append("secret: a replay does not need its value")
    if block.enum:
        words.append(f"one of {_few([str(each) for each in block.enum])}")
    if block.pattern:
        words.append(f"matching {_comment_text(block.pattern)}")
    if block.description:
        words.append(_comment_text(block.description))
    return ", ".join(words)


def _tools(program: Program) -> Iterator[str]:
    used: dict[str, tuple[ActionBlock, list[str]]] = {}
    for step in program.steps:
        found = program.action_of(step) if isinstance(step, ToolStep) else None
        if found is not None and isinstance(step, ToolStep):
            used.setdefault(f"{step.tool}:{found[0]}", (found[1], []))[1].append(step.id)
    if used:
        yield "tool_responses:"
    for key, (action, steps) in used.items():
        yield f"  # for {_few(steps)}"
        yield from (f"  # {_comment_text(name)}: {_extracted(each)}" for name, each in action.extract.items())
        yield from (f"  {line}" for line in to_yaml({key: {"exit_code": 0, "stdout": ""}}).splitlines())


def _extracted(block: ExtractBlock) -> str:
    where = {"json": "JSON on stdout"}.get(block.from_, block.from_)
    path = f" at {_comment_text(block.json_path)}" if block.json_path is not None else ""
    pattern = f", matching {_comment_text(block.pattern)}" if block.pattern is not None else ""
    return f"from {where}{path}{pattern}"


def _extensions(program: Program) -> Iterator[str]:
    steps = [step for step in program.steps if isinstance(step, ExtensionStep)]
    if steps:
        yield "extension_responses:"
    for step in steps:
        outputs = list(program.outputs_of(step))
        yield f"  # {_comment_text(step.extension)}" + (f" gives {_few(outputs)}" if outputs else "")
        yield from (f"  {line}" for line in to_yaml({step.id: {"outputs": {}}}).splitlines())


def _evidence(program: Program) -> Iterator[str]:
    steps = [step for step in program.steps if isinstance(step, ManualStep) and step.required_evidence]
    if steps:
        yield "evidence:"
    for step in steps:
        yield f"  # {_comment_text(step.instructions.source)}"
        given = {piece.name: _EVIDENCE[piece.kind] for piece in step.required_evidence}
        yield from (f"  {line}" for line in to_yaml({step.id: given}).splitlines())


def _few(words: list[str]) -> str:
    listed = ", ".join(_comment_text(word) for word in words[:_MOST_LISTED])
    return f"{listed}, …" if len(words) > _MOST_LISTED else listed or "none"


def _comment_text(text: str) -> str:
    """Text for a comment: one line of limited length."""
    line = printable(" ".join(text[: 4 * _MOST_WORDS].split()))
    return line if len(line) <= _MOST_WORDS else line[:_MOST_WORDS] + "…"
