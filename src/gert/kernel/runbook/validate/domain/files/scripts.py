"""Scripts on a command line (D65): a value that is rendered into the text of a script is a part of the program."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gert.kernel.governance.parameter import Parameter
from gert.kernel.runbook.documents.tool import ActionBlock, Tool
from gert.kernel.runbook.finding import Finding, Path, at_offset, warning
from gert.kernel.template import Template
from gert.kernel.template.tree import Call, If, Pipe, Variable
from gert.kernel.template.tree import Path as Name


class Interpreter(msgspec.Struct, frozen=True):
    """A program that takes a script as an argument.

    takes_script: the letters of its options before a script
    takes_value: the letters of its options before another value
    is_shell: whether the script is the first argument after all options, and the next one its name
    example: how a script reads an argument
    """

    takes_script: str
    takes_value: str
    example: str
    is_shell: bool = False


_SHELL: Final = Interpreter("c", "oO", """[sh, -c, 'echo "$1"', sh, "{{ .NAME }}"]""", is_shell=True)
_PYTHON: Final = Interpreter("c", "WX", '[python3, -c, "import sys; print(sys.argv[1])", "{{ .NAME }}"]')
_OTHERS: Final = {
    "perl": Interpreter("eE", "", """[perl, -e, 'print $ARGV[0]', "{{ .NAME }}"]"""),
    "ruby": Interpreter("e", "rIC", """[ruby, -e, 'puts ARGV[0]', "{{ .NAME }}"]"""),
    "node": Interpreter("ep", "r", """[node, -e, 'console.log(process.argv[1])', "{{ .NAME }}"]"""),
}
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "mksh"})
_PYTHON_NAME: Final = re.compile(r"python[0-9.]*")
_OPTIONS: Final = re.compile(r"[-+][A-Za-z]+")
_FREE_TYPES: Final = frozenset({"string", "any", "list", "object"})

# Their results contain nothing of the text that they are given.
_DECIDING: Final = frozenset(
    {
        *("not", "eq", "ne", "lt", "le", "gt", "ge", "contains", "hasPrefix", "hasSuffix", "regexMatch", "any", "all"),
        *("len", "int", "float", "add", "sub", "mul", "div", "mod", "min", "max"),
    }
)


def templates_in_scripts(tool: Tool, action: ActionBlock, inputs: Mapping[str, Parameter]) -> Iterator[Finding]:
    """D65: an input that may be any text is an argument of a script, and no part of it."""
    argv, first = action.argv or (), 0
    if tool.meta.binary is not None and argv and argv[0].is_text and not argv[0].source.startswith("-"):
        first = 1
    words: Sequence[Template | str] = (*((tool.meta.binary,) if tool.meta.binary else ()), *argv[first:])
    at = len(argv) - len(words)
    yield from _checked(words, ("argv",), at, action, inputs)
    if action.preview is not None and action.preview.argv is not None:
        yield from _checked(action.preview.argv, ("preview", "argv"), 0, action, inputs)


def _checked(
    words: Sequence[Template | str], key: Path, at: int, action: ActionBlock, inputs: Mapping[str, Parameter]
) -> Iterator[Finding]:
    for index, interpreter in _scripts(words):
        script = words[index]
        for name, offset in _printed(script, inputs) if isinstance(script, Template) else ():
            message = f"the input `{name}` is rendered into a script, which runs whatever it contains"
            hint = (
                f"pass it as an argument, as in `{interpreter.example.replace('NAME', name)}`, or give it a `pattern`"
            )
            yield at_offset(offset, warning("D65", action.at(*key, index + at), message, hint))


def _scripts(words: Sequence[Template | str]) -> Iterator[tuple[int, Interpreter]]:
    """Yield where scripts are, also behind another program: `sudo sh -c SCRIPT`."""
    index = 0
    while index < len(words):
        interpreter = _interpreter(_literal(words[index]))
        index += 1
        if interpreter is None:
            continue
        expected = False
        while (word := _literal(words[index]) if index < len(words) else None) is not None and word[:1] in ("-", "+"):
            index += 1
            letters = word[1:] if _OPTIONS.fullmatch(word) else ""
            expected = expected or any(each in interpreter.takes_script for each in letters)
            if expected and not interpreter.is_shell:
                break
            index += letters[-1:] != "" and letters[-1] in interpreter.takes_value
        if expected and index < len(words):
            yield index, interpreter


def _literal(word: Template | str) -> str | None:
    if isinstance(word, str):
        return word
    return word.source if word.is_text else None


def _interpreter(word: str | None) -> Interpreter | None:
    name = (word or "").replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".exe")
    if name in _SHELLS:
        return _SHELL
    return _PYTHON if _PYTHON_NAME.fullmatch(name) else _OTHERS.get(name)


def _printed(script: Template, inputs: Mapping[str, Parameter]) -> Iterator[tuple[str, int]]:
    """Yield the inputs with any text that a script may contain, once each."""
    decided = _decided(script)
    free = {name for name, each in inputs.items() if each.type in _FREE_TYPES and not (each.enum or each.pattern)}
    seen: set[str] = set()
    for reference in script.references:
        head = reference.path[0] if reference.path else min(free, default=None)
        if isinstance(head, str) and head in free - seen and reference.offset not in decided:
            seen.add(head)
            yield head, reference.offset


def _decided(script: Template) -> set[int]:
    """Return where names are that only decide what is printed."""
    found: set[int] = set()
    waiting: list[tuple[Any, bool]] = [(each, False) for each in script.statements]
    while waiting:
        node, decides = waiting.pop()
        if isinstance(node, Name | Variable) and decides:
            found.add(node.offset)
        elif isinstance(node, If):
            for clause in node.clauses:
                waiting += ((clause.condition, clause.name is None), *((each, decides) for each in clause.body))
            waiting += ((each, decides) for each in node.otherwise)
        elif isinstance(node, tuple):
            waiting += ((each, decides) for each in node)
        elif isinstance(node, msgspec.Struct):
            calls = (node,) if isinstance(node, Call) else node.calls if isinstance(node, Pipe) else ()
            decides = decides or any(each.name in _DECIDING for each in calls)
            waiting += ((getattr(node, name), decides) for name in node.__struct_fields__)
    return found
