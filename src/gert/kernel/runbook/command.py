"""Renders the command of an action; it is neither looked up nor started here.

The approval request and the start of the process use the same rendering, so that they cannot differ.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from gert.errors import GertError, TemplateEvalError
from gert.kernel.foundation.canonical import digest
from gert.kernel.foundation.secret_refs import masked
from gert.kernel.runbook.documents.tool import RUNNER, ActionBlock, Tool
from gert.kernel.template import Template
from gert.kernel.template.budget import Budget
from gert.kernel.template.partial import render_known_parts
from gert.kernel.template.strict import Inputs, render_strictly
from gert.kernel.template.unknown import is_unknown

Fill: TypeAlias = Callable[[Template, str], str]
"""Renders a template; the second argument is its place, for messages."""

STDIN: Final = "stdin"
_LONGEST_STDIN: Final = 64 * 1024

BUDGET: Final = Budget(max_output=64 * 1024 * 1024)
"""Standard input may be large; the system itself refuses arguments that are too long."""


class CommandLine(msgspec.Struct, frozen=True, kw_only=True):
    """A rendered command; `cwd` is as written in the tool file."""

    program: str
    arguments: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None = None
    stdin: str | None = None


def inputs_of(tool: Tool, action: ActionBlock, given: Mapping[str, Any]) -> Inputs:
    """Return the inputs that the templates of an action read."""
    blocks = (tool.contract, action.contract)
    return Inputs(given, {name for block in blocks if block is not None for name in block.inputs})


def command_line(action: ActionBlock, binary: str | None, fill: Fill) -> CommandLine:
    """Render the command of an action (kernel-v0 §12.2, DECISIONS 11); `binary` is None for a preview."""
    argv = action.argv or ()
    words = [fill(word, f"argv[{at}]") for at, word in enumerate(argv)]
    name = binary
    if name is None:
        name, words = (words[0], words[1:]) if words else ("", words)
    elif argv and argv[0].is_text and not argv[0].source.startswith("-"):
        words = words[1:]
    return CommandLine(
        program=name,
        arguments=tuple(words),
        env={name: fill(value, f"env.{name}") for name, value in action.env.items()},
        cwd=fill(action.cwd, "cwd") if action.cwd is not None else None,
        stdin=fill(action.stdin, STDIN) if action.stdin is not None else None,
    )


def call_fault(tool: Tool, action: ActionBlock, inputs: Mapping[str, Any]) -> str | None:
    """Return why the command of a call cannot be rendered, where all its inputs are known and gert renders it."""
    if tool.meta.transport != "stdio" or is_unknown(inputs):
        return None
    known = inputs_of(tool, action, inputs)
    try:
        command_line(action, tool.meta.binary, lambda template, place: filled(template, known, place))
    except TemplateEvalError as problem:
        return problem.message
    return None


def filled(template: Template, inputs: Inputs, place: str) -> str:
    """Render the template at `place`; an error names the place."""
    try:
        return render_strictly(template, inputs, BUDGET)
    except TemplateEvalError as problem:
        raise TemplateEvalError(f"`{place}`: {problem.message}", hint=problem.hint) from None


def masked_call(tool: Tool, name: str, action: ActionBlock, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the call of an action as shown to an approver and covered by the approval, without secret values."""
    meta = tool.meta
    if meta.transport == RUNNER:
        call: dict[str, Any] = {
            "transport": meta.transport,
            "call": action.skill,
            "runner": action.runner,
            "plan": action.plan,
        }
        call["secret_ref"] = action.secret_ref
    elif meta.transport != "stdio":
        call = {
            "transport": meta.transport,
            "call": (action.method if meta.transport == "jsonrpc" else action.mcp_tool) or name,
            "program": meta.binary,
            "arguments": [word.source for word in meta.args],
            "connect": meta.connect,
        }
    else:
        line = command_line(action, meta.binary, _masked_fill(inputs_of(tool, action, inputs)))
        call = msgspec.to_builtins(line)
        if line.stdin is not None and len(line.stdin) > _LONGEST_STDIN:
            call[STDIN] = f"{digest(line.stdin.encode())} ({len(line.stdin)} characters)"
    return {key: value for key, value in call.items() if value not in (None, [], (), {})}


def masked_preview(tool: Tool, action: ActionBlock, inputs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the command of an action's preview as shown to people."""
    preview = action.preview
    if preview is None:
        return ()
    if preview.argv is None:
        return (preview.mcp_tool or "",)
    fill = _masked_fill(inputs_of(tool, action, inputs))
    return tuple(fill(word, "preview.argv") for word in preview.argv)


def _masked_fill(inputs: Inputs) -> Fill:
    """Return a renderer for people: a template that cannot be rendered is shown as written."""
    rendered = render_known_parts if is_unknown(inputs) else render_strictly

    def fill(template: Template, _: str) -> str:
        try:
            text: str = masked(rendered(template, inputs))
            text.encode()
        except (GertError, UnicodeEncodeError):
            return template.source
        return text

    return fill
