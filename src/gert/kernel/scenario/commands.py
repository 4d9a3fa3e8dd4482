"""The commands of a run: what each call of a tool starts or sends, without the values of secrets.

A replay starts nothing, so a command is rendered from the tool file, as for an approver. A trace has the commands that
were approved, and the inputs of the others.
"""

import shlex
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from gert.errors import GertError
from gert.kernel.foundation.text import printable
from gert.kernel.runbook.command import masked_call
from gert.kernel.runbook.documents.expectations import ALONE
from gert.kernel.runbook.program import Program
from gert.kernel.template import render_text

Command: TypeAlias = dict[str, Any]
"""`argv`, `stdin`, `env` and `cwd` of a process; or `call`, `arguments` and `server`; and the `preview` of either."""

ARGV: Final = "argv"
PREVIEW: Final = "preview"
_BESIDE: Final = ("stdin", "env", "cwd")
_MAX_SHOWN: Final = 200
_BEFORE: Final = 40


class ToolCall(msgspec.Struct, frozen=True):
    """One call of a tool: a step that started; its retries make the same call.

    approved: the call as the approval request shows it, if there was one
    preview: the command of the preview that ran before the approval
    """

    path: str
    step_id: str
    tool: str
    action: str
    inputs: Mapping[str, Any]
    writes: bool
    approved: Mapping[str, Any] | None = None
    preview: tuple[str, ...] = ()

    def command(self, program: Program | None) -> Command | None:
        """Return the command by the tool file, or as approved where there is none; None if it is not known."""
        command = self._call(program)
        return {**command, PREVIEW: list(self.preview)} if command is not None and self.preview else command

    def _call(self, program: Program | None) -> Command | None:
        lookup = program.tool_names.get(self.tool) if program is not None else None
        tool = lookup.tool if lookup is not None else None
        action = tool.actions.get(self.action) if tool is not None else None
        if tool is None or action is None:
            return _command(self.approved) if self.approved is not None else None
        command = _command(masked_call(tool, self.action, action, self.inputs))
        if ARGV not in command:
            sent = {action.mcp_arguments.get(name, name): value for name, value in self.inputs.items()}
            command["arguments"] = sent
        return command


def _command(called: Mapping[str, Any]) -> Command:
    if "transport" not in called:
        beside = {name: called[name] for name in _BESIDE if name in called}
        return {ARGV: [called.get("program", ""), *called.get("arguments", ())], **beside}
    server = {name: value for name, value in called.items() if name != "call"}
    return {"call": called.get("call"), "server": server}


def comparable(one: ToolCall, mine: Command | None, other: Command | None) -> Command:
    """Return the parts of a call to compare with another one; its inputs, where a trace has no command."""
    if mine is None or other is None:
        return {"inputs": dict(one.inputs)}
    if ARGV in mine or "arguments" in mine.keys() & other.keys():
        return mine
    return {**{name: value for name, value in mine.items() if name != "arguments"}, "inputs": dict(one.inputs)}


def command_text(part: Any) -> str:
    """Format an `argv` as a shell would read it, and other parts as text or JSON."""
    is_argv = isinstance(part, list | tuple) and all(isinstance(word, str) for word in part)
    try:
        return shlex.join(part) if is_argv else render_text(part)
    except GertError:
        return "…"  # nested too deeply to show


def shown_pair(one: str, other: str) -> tuple[str, str]:
    """Return two texts for a message, shortened so that their first difference can be seen."""
    common = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    begin = max(0, common - _BEFORE) if max(len(one), len(other)) > _MAX_SHOWN else 0
    return _cut(one, begin), _cut(other, begin)


def _cut(text: str, begin: int) -> str:
    cut = text[begin : begin + _MAX_SHOWN]
    return f"`{'…' if begin else ''}{printable(cut)}{'…' if begin + len(cut) < len(text) else ''}`"


def as_written(command: Command) -> Any:
    """Return a command as a test has it: its `argv` alone, if it is known to have nothing beside it."""
    said = {part: value for part, value in command.items() if value is not None}
    return said[ARGV] if said.keys() == {ARGV} and ALONE.keys() <= command.keys() else said
