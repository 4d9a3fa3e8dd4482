"""An action of a tool file from an example command line: words that stand for values become inputs."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from gert.errors import UsageError

# `<name>`, `{name}` or `{{ .name }}`, also within a word; `<name=value>` has a default.
_NAMED: Final = r"([A-Za-z][\w-]*)(?:=([^<>{}]+))?"
_MARKED: Final = re.compile(rf"<{_NAMED}>|\{{\{{\s*\.?([A-Za-z]\w*)()\s*\}}\}}|(?<!\{{)\{{{_NAMED}\}}(?!\}})")
# `NAMESPACE`, `--limit=COUNT`, `user@HOST`; only where no word is marked.
_CAPITALS: Final = re.compile(r"(?:^|(?<=[=@:/]))([A-Z][A-Z0-9_]*)()$")
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,14})")
_SUBCOMMAND: Final = re.compile(r"[a-z][a-z0-9_-]*")
_SHELL: Final = frozenset({"|", "||", "&&", ">", ">>", "<", "2>", "2>&1"})
_MOST_WORDS: Final = 3
_NUMBERS: Final = frozenset(
    {
        "n", "num", "number", "count", "limit", "lines", "port", "depth", "retries", "bits", "pid", "uid", "gid",
        "seconds", "minutes", "hours", "days", "weeks",
    }
)  # fmt: skip
"""Names of inputs that are numbers in every program we know of; others, such as `size`, may have a unit."""
READ_ALL: Final = {"from": "stdout"}


class ExampleInput(msgspec.Struct, frozen=True):
    """An input: the option whose value it is, and its value in the example, where it has them."""

    option: str = ""
    value: str = ""

    def document(self, name: str, takes_number: Callable[[str], bool]) -> dict[str, Any]:
        """The input as a contract has it: a number where its value, the help or its name says so."""
        is_integer = _INTEGER.fullmatch(self.value) is not None
        if self.value:
            return {"type": "int" if is_integer else "string", "default": int(self.value) if is_integer else self.value}
        is_number = name in _NUMBERS or (bool(self.option) and takes_number(self.option))
        return {"type": "int" if is_number else "string", "required": True}


class ExampleAction(msgspec.Struct, frozen=True):
    """An action: its name, its arguments with templates, and its inputs."""

    name: str
    argv: list[str]
    inputs: dict[str, "ExampleInput"]

    def document(
        self,
        contract: dict[str, Any],
        description: str | None = None,
        takes_number: Callable[[str], bool] = lambda _: False,
    ) -> dict[str, Any]:
        """The action as a tool file has it.

        takes_number: whether the help says that the value of an option is a number
        """
        inputs = {name: each.document(name, takes_number) for name, each in self.inputs.items()}
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
            said, value = next((name, value) for name, value in _pairs(match.groups()) if name is not None)
            name = _input_name(said, words[at - 1])
            inputs[name] = ExampleInput(_option(word[: match.start()], words[at - 1]), value or "")
            parts += [_literal(word[end : match.start()]), f"{{{{ .{name} }}}}"]
            end = match.end()
        argv.append("".join((*parts, _literal(word[end:]))))
    return ExampleAction(_name(words, pattern), argv, inputs)


def _pairs(groups: tuple[str | None, ...]) -> Iterator[tuple[str | None, str | None]]:
    return zip(groups[::2], groups[1::2], strict=True)


def _option(start: str, before: str) -> str:
    """The option whose value begins here: `--days=`, or the word before."""
    if start.startswith("-") and start.endswith("="):
        return start[:-1]
    return before if not start and before.startswith("-") else ""


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
