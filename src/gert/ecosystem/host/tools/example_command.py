"""An action of a tool file from an example command line: words that stand for values become inputs."""

import os
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gert.errors import UsageError

# `<name>`, `{name}` or `{{ .name }}`, also within a word.
_MARKED: Final = re.compile(r"<([A-Za-z][\w-]*)>|\{\{\s*\.?([A-Za-z]\w*)\s*\}\}|(?<!\{)\{([A-Za-z][\w-]*)\}(?!\})")
# `NAMESPACE`, `--limit=COUNT`, `user@HOST`; only where no word is marked.
_CAPITALS: Final = re.compile(r"(?:^|(?<=[=@:/]))([A-Z][A-Z0-9_]*)$")
_SUBCOMMAND: Final = re.compile(r"[a-z][a-z0-9-]*")
_SHELL: Final = frozenset({"|", "||", "&&", ">", ">>", "<", "2>", "2>&1"})
_MOST_WORDS: Final = 3
_NUMBERS: Final = frozenset({"n", "num", "number", "count", "limit", "lines", "port", "seconds", "size", "depth"})
READ_ALL: Final = {"from": "stdout"}


class ExampleAction(msgspec.Struct, frozen=True):
    """An action: its name, its arguments with templates, and its inputs with the words they were found as."""

    name: str
    argv: list[str]
    inputs: dict[str, str]

    def document(self, contract: dict[str, Any], description: str | None = None) -> dict[str, Any]:
        """The action as a tool file has it."""
        inputs = {name: {"type": "int" if name in _NUMBERS else "string", "required": True} for name in self.inputs}
        return {
            **({"description": description} if description else {}),
            "argv": self.argv,
            "contract": {
                **contract,
                **({"inputs": inputs} if inputs else {}),
                "outputs": {"stdout": {"type": "string"}},
            },
            "extract": {"stdout": READ_ALL},
        }


def action_of(words: Sequence[str]) -> ExampleAction:
    """Turn the words of a command into an action."""
    if not words or not words[0].strip():
        raise UsageError("the example has no program", hint="for example -- kubectl get pods -n NAMESPACE")
    if len(words[0].split()) > 1:
        raise UsageError(
            f"`{words[0]}` is one word, so it would be the name of a program",
            hint="write the words of the command without quotes around all of them, or use --example",
        )
    operator = next((word for word in words if word in _SHELL), None)
    if operator is not None:
        raise UsageError(
            f"`{operator}` is for a shell, and gert starts a program without one",
            hint="make an action of each command, and let the runbook pass outputs on",
        )
    is_marked = any(_MARKED.search(word) for word in words[1:])
    pattern = _MARKED if is_marked else _CAPITALS
    argv, inputs = [words[0]], {}
    for at, word in enumerate(words[1:], 1):
        parts, end = [], 0
        for match in pattern.finditer(word):
            said = next(group for group in match.groups() if group is not None)
            name = _input_name(said, words[at - 1])
            inputs[name] = match.group()
            parts += [_literal(word[end : match.start()]), f"{{{{ .{name} }}}}"]
            end = match.end()
        argv.append("".join((*parts, _literal(word[end:]))))
    return ExampleAction(_name(words, pattern), argv, inputs)


def _input_name(said: str, before: str) -> str:
    """The name of an input: the word itself, or for a single letter the option before it: `--lines N`."""
    option = before.removeprefix("--")
    if len(said) == 1 and before.startswith("--") and "=" not in option and option:
        said = option
    name = re.sub(r"\W+", "_", said.lower()).strip("_")
    return name if name[:1].isalpha() else f"value_{name}"


def _name(words: Sequence[str], pattern: re.Pattern[str]) -> str:
    """The name of the action: the subcommands of the program, such as `get_pods`."""
    found: list[str] = []
    for word in words[1:]:
        is_command = _SUBCOMMAND.fullmatch(word) is not None and pattern.search(word) is None
        if is_command and len(found) < _MOST_WORDS:
            found.append(word.replace("-", "_"))
        elif found:
            break  # options and values before the first command are those of the program
    return "_".join(found) or "run"


def _literal(text: str) -> str:
    """Text that a template renders as it is."""
    return text.replace("{{", '{{ "{{" }}')


def program_name(words: Sequence[str]) -> str:
    """The program of a command, without its folder."""
    return os.path.basename(words[0])
