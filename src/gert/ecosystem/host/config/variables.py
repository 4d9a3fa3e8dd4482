"""Input values from `--var`, `--input` and `--vars-file`, and the resolution of a runbook's inputs."""

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Final

from gert.ecosystem.host.config.files import read_map
from gert.ecosystem.inputs import Resolvers
from gert.ecosystem.inputs.file import MAX_PATH, read_text
from gert.errors import InputError, UsageError
from gert.kernel.engine.inputs import BatchAnswer, GivenInput, ResolvedInputs, resolve_inputs, was_given
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.runbook import RunStart
from gert.kernel.foundation.text import printable, shorten
from gert.kernel.foundation.values import show
from gert.kernel.governance.rules import Policy
from gert.kernel.runbook.documents.contract import InputBlock
from gert.kernel.runbook.reader import read

NO_FILES: Final[Mapping[str, str]] = {}
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
    refuse_file_names({name for name, block in inputs.items() if block.secret}, given)
    resolution = resolve_inputs(inputs, given, policies, recorded or {})
    answer: BatchAnswer | None = None
    while True:
        try:
            batch = next(resolution) if answer is None else resolution.send(answer)
        except StopIteration as end:
            resolved: ResolvedInputs = end.value
            return resolved
        answer = await resolvers.answer(batch)


def refuse_file_names(secret: Set[str], given: Mapping[str, GivenInput]) -> None:
    """Refuse `--var NAME=@FILE` for a secret: the text itself would be used, and no one would see that."""
    for name, each in given.items():
        if name in secret and each.is_raw and str(each.value).startswith("@"):
            literal = f"""to pass text that begins with `@`, use --input {name}='"@…"'"""
            raise UsageError(
                f"`--var` reads no file, and the secret input `{name}` would be the text that begins with `@`",
                hint=f"pass --input {name}=@FILE; {literal}",
            )


def again_words(secret: Iterable[str], sources: Mapping[str, str], files: Mapping[str, str] = NO_FILES) -> str:
    """The options that give secret inputs again that were given; `files` are those that they were read from."""
    names = sorted(name for name in secret if was_given(sources.get(name)))
    return "".join(" --input " + shlex.quote(f"{name}=@{files.get(name, 'FILE')}") for name in names)


def again_words_of(start: Envelope | None) -> str:
    """The options that give the secret inputs of a run again, as its first event names them."""
    started = start.payload if start is not None else None
    if not isinstance(started, RunStart) or started.start is None:
        return ""
    return printable(again_words(started.start.secret_inputs, started.input_sources))


def notes_on_given(secret: Set[str], given: Mapping[str, GivenInput]) -> Iterator[str]:
    """Notes about values on a command line: secrets that others can read, and names of files that are only text."""
    for name, each in given.items():
        if name in secret and each.source == "cli":
            place = "the list of processes and the history of the shell"
            yield f"the secret input `{name}` is visible in {place}: pass --input {name}=@FILE"
        elif each.is_raw and str(each.value).startswith("@") and os.path.isfile(os.path.expanduser(each.value[1:])):
            yield f"the input `{name}` is the text {show(each.value)}; --input reads the file, --var does not"


def _variable(text: str) -> tuple[str, GivenInput]:
    name, value = _split(text, "--var")
    return name, GivenInput(value, is_raw=True)


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
        return GivenInput(read_text(path), f"file:{printable(os.path.basename(path))}", file=path)
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
