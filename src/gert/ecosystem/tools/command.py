"""Build the command of an action: render its templates and check everything that can be checked."""

import os
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from gert.ecosystem.process.command import Command, Encoded
from gert.ecosystem.process.descendants import MARK, mark_for
from gert.ecosystem.process.environment import environment_for, is_name, missing_secret
from gert.ecosystem.process.find_program import Programs, shown
from gert.errors import InputError, TemplateEvalError
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.names import listing
from gert.kernel.foundation.secret_refs import all_refs, reveal
from gert.kernel.foundation.text import is_text
from gert.kernel.runbook.command import STDIN, CommandLine, command_line, filled, inputs_of
from gert.kernel.runbook.documents.tool import ActionBlock, Tool
from gert.kernel.template import Template
from gert.kernel.template.strict import Inputs


def encoded(environment: Mapping[str, str]) -> dict[bytes, bytes]:
    """Encode an environment for the system."""
    return {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}


class CommandContext(msgspec.Struct, frozen=True, kw_only=True):
    """What all commands of a run share.

    secrets: the values of secret inputs, by input
    withheld: environment variables with secrets of any tool
    working: the folder tools run in
    platform: the running system by its GOOS name
    run_id: the run, which marks the processes of its calls
    """

    environment: Mapping[str, str]
    secrets: Mapping[str, str]
    withheld: frozenset[str]
    working: str
    run_id: str
    platform: str | None = None
    programs: Programs = msgspec.field(default_factory=Programs)
    inherited: dict[int, tuple[dict[str, str], Encoded]] = msgspec.field(default_factory=dict)
    """The environment each tool inherits, as text and encoded; it is the same for every call."""

    def inherited_by(self, tool: Tool) -> tuple[dict[str, str], Encoded]:
        """Return the environment a tool inherits, as text and encoded."""
        known = self.inherited.get(id(tool))
        if known is None:
            texts = environment_for((each.env for each in tool.all_secrets), self.environment, self.withheld)
            known = self.inherited[id(tool)] = texts, encoded(texts)
        return known

    def marks(self, key: str) -> Encoded:
        """Return the mark of a call, after the marks of the calls that started this gert."""
        outer = self.environment.get(MARK, "").split()
        return encoded({MARK: " ".join([*outer, mark_for(self.run_id, key)])})


def command_for(
    tool: Tool,
    action: ActionBlock,
    inputs: Mapping[str, Any],
    context: CommandContext,
    key: str,
    *,
    is_preview: bool = False,
) -> Command | Failure:
    """Render the command of an action, or return why it cannot be started; a preview ignores `binary`.

    key: the key of the call, which marks its processes
    """
    try:
        line = line_for(tool, action, inputs, context.secrets, is_preview=is_preview)
        return _command(tool, line, context, context.marks(key))
    except TemplateEvalError as problem:
        return Failure("evaluation", problem.message)
    except InputError as problem:
        return Failure("invalid_input", problem.message)


def line_for(
    tool: Tool, action: ActionBlock, inputs: Mapping[str, Any], secrets: Mapping[str, str], *, is_preview: bool = False
) -> CommandLine:
    """Render the command line of an action with its secrets; TemplateEvalError or InputError if that fails."""
    # Only the secrets in the step's inputs: a tool file cannot use other secrets of the run.
    named = all_refs(inputs) if secrets else ()
    handed = {name: secrets[name] for name in named if name in secrets}
    for name in action.env:
        _require_variable(name)
    fill = _Renderer(inputs_of(tool, action, inputs), handed).text
    return command_line(action, None if is_preview else tool.meta.binary, fill)


def server_command(tool: Tool, context: CommandContext) -> Command | Failure:
    """Render the command of a program that keeps running, `binary` with fixed `args`; the caller adds the marks."""
    try:
        fill = _Renderer(Inputs({}, ()), {}).text
        arguments = tuple(fill(word, f"args[{at}]") for at, word in enumerate(tool.meta.args))
        line = CommandLine(program=tool.meta.binary or "", arguments=arguments, env={})
        return _command(tool, line, context, {})
    except TemplateEvalError as problem:
        return Failure("evaluation", problem.message)
    except InputError as problem:
        return Failure("invalid_input", problem.message)


def _command(tool: Tool, line: CommandLine, context: CommandContext, marks: Encoded) -> Command | Failure:
    environment, as_bytes = context.inherited_by(tool)
    if line.env:
        environment = {**environment, **line.env}
        as_bytes = encoded(environment)
    missing = missing_secret(tool, environment)
    if missing is not None:
        return missing
    _require_no_nul(line.program, "binary")
    if not line.program:
        raise InputError("the name of the program is empty")
    folder = _folder(line.cwd, context.working)
    program = context.programs.find(line.program, folder, environment)
    if isinstance(program, Failure):
        return _wrong_platform(program, tool, context.platform)
    return Command(
        name=line.program,
        program=program,
        arguments=line.arguments,
        environment={**as_bytes, **marks},
        folder=folder,
        stdin=line.stdin.encode() if line.stdin is not None else None,
    )


def _folder(cwd: str | None, working: str) -> str:
    if cwd is None:
        return working
    folder = os.path.join(working, cwd)
    if not os.path.isdir(folder):
        raise InputError(f"`cwd`: there is no folder {shown(cwd)}")
    return folder


def _wrong_platform(failure: Failure, tool: Tool, platform: str | None) -> Failure:
    """Add to a failure that the tool is made for other systems, if it is (kernel-v0 §12.1)."""
    if platform is None or not tool.meta.platform or platform in tool.meta.platform:
        return failure
    made_for = listing(tool.meta.platform)
    return Failure(failure.kind, f"{failure.message}; the tool is made for {made_for}, but this is `{platform}`")


class _Renderer:
    """Renders templates over the inputs and replaces references by the secrets."""

    def __init__(self, inputs: Inputs, secrets: Mapping[str, str]) -> None:
        self._inputs = inputs
        self._secrets = secrets

    def text(self, template: Template, place: str) -> str:
        """Render the template at `place`. Only standard input accepts NUL and any character."""
        try:
            text = reveal(filled(template, self._inputs, place), self._secrets)
        except InputError as problem:
            raise InputError(f"`{place}`: {problem.message}", hint=problem.hint) from None
        _require_characters(text, place)
        if place != STDIN:
            _require_no_nul(text, place)
            _require_encodable(text, place)
        return text


def _require_variable(name: str) -> None:
    """Refuse an invalid name of an environment variable."""
    if not is_name(name):
        raise InputError(f"`env`: {shown(name)} is not a valid variable name")
    _require_no_nul(name, "env")
    _require_encodable(name, "env")


def _require_characters(text: str, place: str) -> None:
    if not (text.isascii() or is_text(text)):
        raise InputError(f"`{place}` contains a lone surrogate, which is not a character")


def _require_no_nul(text: str, place: str) -> None:
    if "\0" in text:
        raise InputError(f"`{place}` contains a NUL character, which cannot be passed to a program")


def _require_encodable(text: str, place: str) -> None:
    """Refuse text that the encoding of this process cannot express."""
    try:
        text.isascii() or os.fsencode(text)
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        raise InputError(f"`{place}` contains a character that the encoding `{encoding}` does not have") from None
