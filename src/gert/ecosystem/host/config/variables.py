"""Input values from `--var`, `--input` and `--vars-file`, and the resolution of a runbook's inputs."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from gert.ecosystem.host.config.files import read_map
from gert.ecosystem.inputs import Resolvers
from gert.ecosystem.inputs.file import MAX_PATH, read_text
from gert.errors import InputError, UsageError
from gert.kernel.engine.inputs import BatchAnswer, GivenInput, ResolvedInputs, resolve_inputs
from gert.kernel.foundation.text import printable, shorten
from gert.kernel.governance.rules import Policy
from gert.kernel.runbook.documents.contract import InputBlock
from gert.kernel.runbook.reader import read

_EXAMPLES: Final = {
    "--var": "for example --var hostname=srv1",
    "--input": "for example --input ports=[80,443], or --input token=@token.txt to read a file",
}


def given_values(
    variables: Iterable[str] = (), inputs: Iterable[str] = (), vars_files: Iterable[str] = ()
) -> dict[str, GivenInput]:
    """The given values by name; the command line overrides files, and later files override earlier ones."""
    given: dict[str, GivenInput] = {}
    for path in vars_files:
        given.update(read_vars_file(path))
    said: set[str] = set()
    for name, value in (*map(_variable, variables), *map(_input, inputs)):
        if name in said:
            # Either choice would be a surprise.
            raise UsageError(f"`{shorten(name)}` is given twice", hint="pass one --var or --input per name")
        said.add(name)
        given[name] = value
    return given


def read_vars_file(path: str) -> dict[str, GivenInput]:
    """The values in a YAML or JSON file, as native values at every depth."""
    root = read_map(path, "values by name")
    source = f"file:{printable(os.path.basename(path))}"
    return {name: GivenInput(value, source, root.texts.get(name)) for name, value in root.items()}


async def resolve(
    inputs: Mapping[str, InputBlock],
    given: Mapping[str, GivenInput],
    resolvers: Resolvers,
    policies: Sequence[Policy] = (),
    recorded: Mapping[str, str] | None = None,
) -> ResolvedInputs:
    """Resolve a runbook's inputs under the policies of the run; `recorded` is that of `resolve_inputs`."""
    resolution = resolve_inputs(inputs, given, policies, recorded or {})
    answer: BatchAnswer | None = None
    while True:
        try:
            batch = next(resolution) if answer is None else resolution.send(answer)
        except StopIteration as end:
            resolved: ResolvedInputs = end.value
            return resolved
        answer = await resolvers.answer(batch)


def _variable(text: str) -> tuple[str, GivenInput]:
    name, value = _split(text, "--var")
    return name, GivenInput(value)


def _input(text: str) -> tuple[str, GivenInput]:
    """A value written as YAML or JSON, or `@FILE` for the text of a file."""
    name, value = _split(text, "--input")
    if value.startswith("@"):
        return name, _from_file(name, value[1:])
    native = _native(name, value) if value.strip() else value
    return name, GivenInput(native, text=None if isinstance(native, str) else value)


def _split(text: str, option: str) -> tuple[str, str]:
    # The text is not repeated: without a name it may be only a value, and that may be a secret.
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"`{option}` expects name=value, found no `=`", hint=_EXAMPLES[option])
    if not name.strip():
        raise UsageError(f"`{option}` expects name=value, found no name", hint=_EXAMPLES[option])
    return name.strip(), value


def _from_file(name: str, path: str) -> GivenInput:
    try:
        return GivenInput(read_text(path), f"file:{printable(os.path.basename(path))}")
    except FileNotFoundError:
        raise UsageError(f"there is no file `{shorten(path, MAX_PATH)}` for input `{shorten(name)}`") from None
    except InputError as problem:
        raise UsageError(f"input `{shorten(name)}`: {problem.message}") from None


def _native(name: str, text: str) -> Any:
    reading = read(text.encode("utf-8", "surrogatepass"))
    if reading.findings:
        # Only the position: the value may be a secret.
        column = reading.findings[0].column
        raise UsageError(
            f"the value of input `{shorten(name)}` is not valid YAML or JSON at character {column}",
            hint=f"quote it, or pass it as text with --var {shorten(name)}=…",
        )
    return reading.tree.root
