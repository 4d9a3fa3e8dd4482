"""Write a new tool file from an example command line or a program's `--help`, with a contract to review."""

import asyncio
import os
import re
import secrets
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

import msgspec

from gert.ecosystem.host.config.files import is_there
from gert.ecosystem.host.config.settings import require_sound
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.tools.example_command import ExampleAction, action_of, program_name
from gert.ecosystem.host.tools.help_text import HelpText, read_help
from gert.ecosystem.host.tools.tool_file import STDOUT, tool_path, write_tool
from gert.ecosystem.process.capture import Capture
from gert.ecosystem.process.descendants import mark_for
from gert.ecosystem.process.environment import environment_for
from gert.ecosystem.process.find_program import Programs
from gert.ecosystem.process.run_program import run_program
from gert.errors import UsageError
from gert.kernel.events.runbook import Failure
from gert.kernel.foundation.names import is_safe_name
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.foundation.text import os_reason
from gert.kernel.governance.contract import UNKNOWN
from gert.kernel.runbook.document import load
from gert.kernel.runbook.documents.tool import API_VERSION

HELP_TIMEOUT: Final = 10.0
_LONGEST_FILE: Final = 1 << 20
HELP_LIMIT: Final = 256 * 1024
MOST_COMMANDS: Final = 40
MOST_OPTIONS: Final = 60
# Words that YAML reads as text; anything else is quoted.
_PLAIN: Final = re.compile(
    r"(?!(?:true|false|null|yes|no|on|off)$)[A-Za-z_/.]*[A-Za-z][A-Za-z0-9_./-]*|--?[A-Za-z][A-Za-z0-9_-]*"
)
_HEADER: Final = (
    "Written by `gert tool new`. Review it: gert knows nothing about this program but what you see here.",
)
_REVIEW: Final = (
    "What it does is not known in full, which is the highest risk. In the contract of each action, replace `unknown`",
    "by what is true: `effects: []` and `writes: []` if it only reads, otherwise what it touches, such as",
    "`effects: [network]` and `writes: [pods]`. `idempotent: true` if calling it twice does no more than once.",
)


class NewTool(msgspec.Struct, frozen=True, kw_only=True):
    """The result: the tool file and what it holds.

    file: where it was written; None if it was not
    actions: the inputs of each action
    is_known: effects and writes were given
    is_added: the file existed, and the actions were added to it
    """

    name: str
    file: str | None
    text: str
    actions: dict[str, list[str]]
    is_known: bool
    is_added: bool = False


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """What the author says of the effects; None is unknown."""

    effects: tuple[str, ...] | None = None
    writes: tuple[str, ...] | None = None
    idempotent: bool = False

    @property
    def is_known(self) -> bool:
        """Whether effects and writes were given; what has no effects writes nothing."""
        return self.effects is not None and (self.writes is not None or not self.effects)

    def contract(self) -> dict[str, Any]:
        """The contract of each action; `unknown` stays until the author says what it touches and writes."""
        said: dict[str, Any] = {"effects": [*(self.effects or ()), *(() if self.is_known else (UNKNOWN,))]}
        if self.writes is not None or self.is_known:
            said["writes"] = list(self.writes or ())
        return {**said, **({"idempotent": True} if self.idempotent else {})}


def new_tool(
    name: str,
    examples: Sequence[Sequence[str]],
    *,
    environ: Mapping[str, str],
    from_help: bool = False,
    program: str | None = None,
    action: str | None = None,
    claims: Claims = Claims(),  # noqa: B008  # it is frozen
    output: str | None = None,
    announce: Callable[[str], None] = lambda _: None,
) -> NewTool:
    """Write a tool file; to one that exists, actions from examples are added.

    announce: given each command before it is run, as people write it
    """
    if not is_safe_name(name):
        raise UsageError(f"`{name}` cannot be the name of a tool", hint="use letters, digits, `_`, `.` and `-`")
    if not examples and not from_help:
        raise UsageError(
            "expected an example of a command, or `--from-help`",
            hint=f"for example `gert tool new {name} -- {name} get <what>`, or `gert tool new {name} --from-help`",
        )
    workspace = Workspace()
    file = tool_path(output, name, workspace)
    binary = program or (examples[0][0] if examples and examples[0] else name)
    before = _before(file, name, binary if examples else None) if file is not None and is_there(file) else None
    if before is not None and not examples:
        raise UsageError(f"`{file}` exists already", hint="give an example to add an action, or another file with -o")
    described: HelpText | None = None
    of_commands: dict[str, HelpText] = {}
    if from_help:
        help_of = partial(_help_of, environ=environ, folder=workspace.working, announce=announce)
        described = read_help(help_of([binary]), os.path.basename(binary))
        # Only what the program itself calls a command: any other word might be acted upon.
        for command in dict.fromkeys(words[1] for words in examples if words[1:2] and words[1] in described.commands):
            of_commands[command] = read_help(help_of([binary, command]), command)
    actions = dict(_actions(examples, binary, described, of_commands, claims, action))
    document = {
        "apiVersion": API_VERSION,
        "meta": {
            "name": name,
            **({"description": described.description} if described is not None and described.description else {}),
            "binary": binary,
        },
        "actions": {action: document for action, (document, _) in actions.items()},
    }
    program = os.path.basename(binary)
    found = {f"{program} {command}": each for command, each in of_commands.items()}
    text = _text(document, found or ({program: described} if described is not None else {}), is_known=claims.is_known)
    if before is not None:
        text = _added(before, document)
    require_sound(workspace.check(file or "tool", source=text.encode(), kind="tool"))
    if file is not None:
        write_tool(file, text)
    return NewTool(
        name=name,
        file=file,
        text=text,
        actions={action: list(made.inputs) for action, (_, made) in actions.items()},
        is_known=claims.is_known,
        is_added=before is not None,
    )


def _before(file: str, name: str, binary: str | None) -> str:
    """The text of an existing tool file of this name.

    binary: the program of the actions to add, which must be that of the file
    """
    try:
        with open(file, encoding="utf-8") as opened:
            text = opened.read(_LONGEST_FILE)
    except (OSError, UnicodeDecodeError):
        raise UsageError(f"`{file}` exists and cannot be read", hint="choose another file with -o") from None
    document = load(text.encode(), kind="tool", file_name=file)
    old = document.model
    if old is None or old.meta.name != name:
        what = f"is not a tool file for `{name}`" if old is None else f"is the tool `{old.meta.name}`, not `{name}`"
        raise UsageError(f"`{file}` exists and {what}", hint="choose another file with -o")
    if binary is not None and old.meta.binary not in (binary, None):
        raise UsageError(
            f"`{file}` exists and is a tool for the program `{old.meta.binary}`, not `{binary}`",
            hint=f"choose another NAME than `{name}`, or edit the file if it is wrong",
        )
    return text


def _added(before: str, document: dict[str, Any]) -> str:
    """The file with more actions at its end; nothing else of it changes."""
    old = load(before.encode(), kind="tool", file_name="tool").model
    if old.meta.binary is None:
        raise UsageError(
            "the tool names no program of its own: each of its actions does",
            hint="print the action with `-o -`, and add it yourself",
        )
    for name in document["actions"]:
        if name in old.actions:
            raise UsageError(f"the tool has an action `{name}` already", hint="name the new one with --action")
    text = "\n".join([before.rstrip("\n"), *_yaml(document["actions"], 1)]) + "\n"
    new = load(text.encode(), kind="tool", file_name="tool").model
    if new is None or set(new.actions) != {*old.actions, *document["actions"]}:
        raise UsageError(
            "the actions cannot be added to this file, because `actions` is not its last key",
            hint="print them with `-o -`, and add them yourself",
        )
    return text


def _actions(
    examples: Sequence[Sequence[str]],
    binary: str,
    described: HelpText | None,
    of_commands: Mapping[str, HelpText],
    claims: Claims,
    chosen: str | None,
) -> "list[tuple[str, tuple[dict[str, Any], ExampleAction]]]":
    made: dict[str, tuple[dict[str, Any], ExampleAction]] = {}
    contract = claims.contract()
    for words in examples:
        action = action_of(words)
        if chosen is not None and words is examples[0]:
            action = msgspec.structs.replace(action, name=chosen)
        if program_name(words) != os.path.basename(binary):
            raise UsageError(f"`{words[0]}` is another program than `{binary}`", hint="a tool file has one program")
        if action.name in made:
            raise UsageError(f"two examples make the action `{action.name}`", hint="name the first one with --action")
        command = described.commands.get(words[1]) if described is not None and words[1:2] else None
        help_text = of_commands.get(words[1], described) if words[1:2] else described
        takes_number = help_text.takes_number if help_text is not None else lambda _: False
        about = command.about if command is not None else None
        made[action.name] = (action.document(contract, about, takes_number), action)
    if described is not None and not examples:
        program = os.path.basename(binary)
        for name, command in islice(described.commands.items(), MOST_COMMANDS):
            action = action_of([program, name, *map(_marked, command.arguments)])
            made[action.name] = (action.document(contract, command.about), action)
        if not made:
            action = action_of([program, *map(_marked, described.arguments)])
            made[action.name] = (action.document(contract), action)
    return list(made.items())


def _marked(argument: str) -> str:
    """An argument of a help text as an example has it."""
    return f"<{re.sub(r'[^A-Za-z0-9]+', '_', argument).strip('_').lower()}>"


def _text(document: dict[str, Any], described: Mapping[str, HelpText], *, is_known: bool) -> str:
    review = () if is_known else _REVIEW
    lines = [f"# {line}" for line in (*_HEADER, *review)]
    lines += _yaml(document)
    for command, found in described.items():
        lines += _remarks(command, found)
    return "\n".join(lines) + "\n"


def _remarks(command: str, found: HelpText) -> Iterator[str]:
    """What the help of a program says beside the actions, as comments."""
    more_commands, more_options = len(found.commands) - MOST_COMMANDS, len(found.options) - MOST_OPTIONS
    if found.usage or found.commands:
        yield ""
    if found.usage:
        yield f"# Usage: {found.usage}"
    if more_commands > 0:
        yield f"# It has {more_commands} more commands: see `{command} --help`."
    if found.commands:
        yield "# Delete the actions you do not need. An example says more than a list of commands, for instance:"
        yield f"#   gert tool new NAME --from-help -- {command} {next(iter(found.commands))} --option VALUE"
    if found.options:
        yield ""
        yield f"# Options of `{command}`; add those you need to `argv`:"
        for option, about in islice(found.options.items(), MOST_OPTIONS):
            yield f"#   {option}  {about}".rstrip()
    if more_options > 0:
        yield f"#   … and {more_options} more: see `{command} --help`"


def _yaml(document: dict[str, Any], depth: int = 0) -> Iterator[str]:
    """The document with lists and parameters on one line, as people write them."""
    for key, value in document.items():
        indent = "  " * depth
        if isinstance(value, dict) and not (depth > 3 and all(not isinstance(each, dict) for each in value.values())):
            yield f"{indent}{key}:"
            yield from _yaml(value, depth + 1)
        else:
            yield f"{indent}{key}: {_flow(value)}"


def _flow(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key}: {_flow(each)}' for key, each in value.items())} }}"
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
        return msgspec.json.encode(value).decode()
    return value if isinstance(value, str) else str(value).lower()


def _help_of(words: Sequence[str], environ: Mapping[str, str], folder: str, announce: Callable[[str], None]) -> str:
    """What `PROGRAM --help` or `PROGRAM COMMAND --help` prints."""
    program, *command = words
    found = Programs().find(program, folder, environ)
    if isinstance(found, Failure):
        raise UsageError(found.message, hint="name the program with --program, or give an example instead")
    announce(shlex.join([found, *command, "--help"]))
    try:
        streams, timed_out = asyncio.run(_printed([found, *command, "--help"], environ, folder))
    except (OSError, ValueError) as problem:
        why = os_reason(problem) if isinstance(problem, OSError) else str(problem)
        raise UsageError(f"`{' '.join(words)} --help` cannot be run: {why}", hint="give an example instead") from None
    text = "\n".join(stream.kept for stream in streams if stream.kept)
    if not text.strip():
        late = f" within {HELP_TIMEOUT:.0f} seconds, and was ended" if timed_out else ""
        raise UsageError(f"`{' '.join(words)} --help` printed nothing{late}", hint="give an example instead")
    return text


async def _printed(
    command: Sequence[str], environ: Mapping[str, str], folder: str
) -> tuple[tuple[Capture, Capture], bool]:
    """What a program printed, and whether it had to be ended; nothing that it started is left running."""
    streams: list[tuple[Capture, Capture]] = []
    try:
        async with asyncio.timeout(HELP_TIMEOUT):
            await run_program(
                command,
                environment_for((), environ, frozenset()),
                folder=folder,
                redactor=Redactor(),
                limit=HELP_LIMIT,
                mark=mark_for("tool-new", secrets.token_hex(8)),
                printing=lambda *both: streams.append(both),
                leaves_nothing=True,
            )
    except TimeoutError:
        for stream in streams[0]:
            stream.close()
        return streams[0], True
    return streams[0], False


__all__ = ["STDOUT", "Claims", "NewTool", "new_tool"]
