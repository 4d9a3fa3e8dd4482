"""Resolves a runbook's inputs: given by the caller, read from their source, or their default.

Every host drives this one generator, so the order and the errors are the same everywhere (ecosystem-v0 §5). It
performs no I/O: it yields batches of bindings, one per resolver, and receives what was found. It reports all
problems together, and prompts for nothing if the run cannot begin anyway.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import field

from gert.errors import CanonicalError, InputError
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.canonical import canonical, require_canonical
from gert.kernel.foundation.names import listing, suggestion
from gert.kernel.foundation.redaction import Redactor, parts_of
from gert.kernel.foundation.secret_refs import secret_ref, without_marks
from gert.kernel.foundation.text import shorten
from gert.kernel.foundation.values import coerce
from gert.kernel.governance.decide import crossing_refusal
from gert.kernel.governance.parameter import Parameter
from gert.kernel.governance.rules import Policy
from gert.kernel.runbook.documents.contract import InputBlock

ENV: Final = "env"
FILE: Final = "file"
PROMPT: Final = "prompt"
PROVIDER: Final = "provider/"
DEFAULT: Final = "default"
UNSET: Final = "unset"
"""The source of an optional input whose binding has no value."""

PROVIDER_EFFECT: Final = "network"
EFFECTS: Final = {ENV: "environment", FILE: "filesystem", "provider": PROVIDER_EFFECT}
"""The effect that rules see when an input is read from a source."""

RESERVED_PREFIX: Final = "GERT_"

_MAX_LISTED: Final = 10
_NONE: Final[Mapping[str, str]] = {}
_NOT_SHOWN: Final = "; the value is secret and not shown"


class GivenInput(msgspec.Struct, frozen=True):
    """A value given by the caller.

    source: its source in the trace: `cli`, or `file:NAME`
    text: the original text of a value that is not text, for an input declared as `string`
    file: the path of the file that the caller named for this value
    is_raw: whether the value is taken as it is written, so that `@FILE` is text
    """

    value: Any
    source: str = "cli"
    text: str | None = None
    file: str | None = None
    is_raw: bool = False


class InputBinding(msgspec.Struct, frozen=True, kw_only=True):
    """One input to resolve from its source.

    source: the whole binding, such as `provider/cmdb.server.hostname`
    path: the part after the resolver, such as `server.hostname`
    """

    name: str
    source: str
    path: str
    parameter: Parameter


class ResolveBatch(msgspec.Struct, frozen=True):
    """All inputs for one resolver: `env`, `file`, `provider/NAME` or `prompt`."""

    resolver: str
    bindings: tuple[InputBinding, ...]


class BatchAnswer(msgspec.Struct, frozen=True):
    """What a resolver found and what failed, by input; an input in neither has no value."""

    values: Mapping[str, Any] = field(default_factory=dict)
    failures: Mapping[str, Failure] = field(default_factory=dict)


class ResolvedInputs(msgspec.Struct, frozen=True):
    """The inputs of a run, in the order of their declaration.

    values: the values in the state; for a secret, a reference
    sources: where each value is from; `unset` for an optional input without a value in its source
    secrets: the values of secrets as text, for redaction and for processes
    """

    values: dict[str, Any]
    sources: dict[str, str]
    secrets: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"ResolvedInputs({', '.join(f'{name} from {source}' for name, source in self.sources.items())})"


class InputProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Why one input has no value; `InputError.problems` lists them.

    input: the name of the input
    source: where its value was to come from; None if it is not bound and was not given
    kind: `unknown_input`, `no_value`, `invalid_value`, `denied`, or the kind of the failure of its source
    """

    input: str
    kind: str
    message: str
    source: str | None = None
    hint: str | None = None


class _Resolution:
    """The values resolved so far, and all problems."""

    def __init__(self, inputs: Mapping[str, InputBlock], recorded: Mapping[str, str]) -> None:
        self.parameters = {name: block.parameter() for name, block in inputs.items()}
        self.recorded = recorded
        self.found: dict[str, tuple[Any, str]] = {}
        self.unset: set[str] = set()
        self.problems: list[InputProblem] = []
        self._given: dict[str, Any] = {}

    def set(self, name: str, value: Any, source: str) -> None:
        """Set a value if it fits its type, else add a problem."""
        self._given[name] = value
        try:
            self.found[name] = fit(_split(value, self.parameters[name], source), self.parameters[name]), source
        except InputError as problem:
            self.refuse(name, source, "invalid_value", problem.message, problem.hint)

    def refuse(self, name: str, source: str, kind: str, reason: str, hint: str | None = None) -> None:
        """Add a problem with the value of a source."""
        message = f"input `{name}` from {_source_text(source)}: {reason}"
        self.problems.append(InputProblem(input=name, source=source, kind=kind, message=message, hint=hint))

    def use_default(self, name: str, binding: InputBinding | None = None) -> None:
        """Use the default; add a problem if a required input has none, or if the run was started with another value."""
        parameter = self.parameters[name]
        if self.recorded.get(name, DEFAULT) != DEFAULT:
            message = f"the run was started with the secret input `{name}`, and it has no value now"
            self.require(name, binding, message, _how_to_give(name, parameter, binding, again=True))
        elif parameter.has_default and parameter.default is None:
            self.found[name] = None, DEFAULT
        elif parameter.has_default:
            self.set(name, parameter.default, DEFAULT)
        elif parameter.required:
            self.require(name, binding, f"no value for required input `{name}`", _how_to_give(name, parameter, binding))
        elif binding is not None:
            self.unset.add(name)

    def require(self, name: str, binding: InputBinding | None, message: str, hint: str) -> None:
        """Add the problem of an input that must have a value."""
        source = binding.source if binding is not None else None
        self.problems.append(InputProblem(input=name, source=source, kind="no_value", message=message, hint=hint))

    def apply_answer(self, binding: InputBinding, answer: BatchAnswer) -> None:
        """Apply a resolver's answer to one binding; a failure is not a missing value, so no default hides it."""
        name = binding.name
        if name in answer.failures:
            hint = GIVE_HINT if binding.source.startswith(PROVIDER) else None
            self.refuse(name, binding.source, answer.failures[name].kind, answer.failures[name].message, hint)
        elif name in answer.values:
            self.set(name, answer.values[name], binding.source)
        else:
            self.use_default(name, binding)

    def error(self) -> InputError:
        """Return one error with all problems; a value that contains the secret of another input is not quoted."""
        secret = [value for name, value in self._given.items() if self.parameters[name].secret]
        redactor = Redactor(part for value in secret for part in parts_of(value))
        return _combined_error(
            [
                msgspec.structs.replace(problem, message=_without_value(problem.message))
                if redactor.value(self._given.get(problem.input)).masked
                else problem
                for problem in self.problems
            ]
        )

    def result(self) -> ResolvedInputs:
        """Return the inputs in the order of declaration, with secrets separate."""
        resolved = ResolvedInputs({}, {}, {})
        for name, parameter in self.parameters.items():
            if name in self.unset:
                resolved.sources[name] = UNSET
            if name not in self.found:
                continue
            value, resolved.sources[name] = self.found[name]
            if parameter.secret and value is not None:
                resolved.secrets[name] = value if isinstance(value, str) else canonical(value).decode()
                resolved.values[name] = secret_ref(name)
            else:
                resolved.values[name] = without_marks(value)
        return resolved


def resolve_inputs(
    inputs: Mapping[str, InputBlock],
    given: Mapping[str, GivenInput],
    policies: Sequence[Policy] = (),
    recorded: Mapping[str, str] = _NONE,
) -> Generator[ResolveBatch, BatchAnswer, ResolvedInputs]:
    """Resolve every input, or raise one error with all problems.

    The environment and files are read only where policies allow that effect (DECISIONS 81).

    recorded: the sources of secret inputs of a run that is driven again; each needs a value from the same kind of
        source: the caller, its binding or its default
    """
    resolution = _Resolution(inputs, recorded)
    resolution.problems += _unknown_inputs(inputs, given)
    bound: list[tuple[str, InputBinding]] = []
    for name, block in inputs.items():
        if name in given:
            resolution.set(name, _given_value(given[name], block), given[name].source)
        elif block.from_ is None or recorded.get(name) == DEFAULT:
            resolution.use_default(name)
        else:
            resolver, binding = _bind(name, block.from_, resolution.parameters[name])
            refusal = binding_refusal(block.from_, policies)
            if was_given(recorded.get(name)) and block.from_ != PROMPT:
                resolution.use_default(name)
            elif refusal is None:
                bound.append((resolver, binding))
            else:
                resolution.refuse(name, block.from_, "denied", refusal, GIVE_HINT)
    for batch in _batches(bound):
        if batch.resolver == PROMPT and resolution.problems:
            break
        answer = yield batch
        for binding in batch.bindings:
            resolution.apply_answer(binding, answer)
    if resolution.problems:
        raise resolution.error()
    return resolution.result()


def was_given(source: str | None) -> bool:
    """Whether a recorded source says that the caller gave the value."""
    return source is not None and source not in (DEFAULT, PROMPT) and source.partition("/")[0] not in EFFECTS


def _split(value: Any, parameter: Parameter, source: str) -> Any:
    """Split a list given as text by a flag, a prompt or the environment on commas (DECISIONS 63)."""
    is_typed = source in ("cli", PROMPT) or source.startswith(f"{ENV}/")
    if parameter.type != "list" or not isinstance(value, str) or not is_typed or value.lstrip()[:1] in ("[", "{"):
        return value
    return [piece.strip() for piece in value.split(",") if piece.strip()]


GIVE_HINT: Final = "pass the value with --var or --input"


def effect_of(source: str) -> str | None:
    """Return the effect of reading an input from its source; None for prompts, and for inputs without a source."""
    if source in ("", PROMPT):
        return None
    prefix, slash, _ = source.partition("/")
    # The short form `cmdb.server.hostname` names a provider, too.
    return EFFECTS.get(prefix if slash else "provider")


def binding_refusal(source: str, policies: Sequence[Policy]) -> str | None:
    """Return why a source must not be read, or None: gert's own variables never are, and rules may deny others."""
    prefix, _, name = source.partition("/")
    if prefix == ENV and name.upper().startswith(RESERVED_PREFIX):
        return f"`{name}` is one of gert's own variables, which cannot be inputs"
    effect = effect_of(source)
    return crossing_refusal(effect, policies) if effect is not None else None


def fit(value: Any, parameter: Parameter) -> Any:
    """Coerce a value to its declared type and check its limits; an error about a secret does not quote it."""
    try:
        coerced = coerce(value, parameter.type)
        why = parameter.objection(coerced)
        if why is not None:
            raise InputError(why)
        require_canonical(coerced)
    except (InputError, CanonicalError) as problem:
        raise InputError(_error_text(problem, parameter), hint=problem.hint) from None
    return coerced


def _error_text(problem: InputError | CanonicalError, parameter: Parameter) -> str:
    if not parameter.secret:
        return problem.message
    return _without_value(problem.message if isinstance(problem, InputError) else "expected text")


def _without_value(message: str) -> str:
    """Return the part of a message before the value that it quotes."""
    return f"{message.partition(', found ')[0].removesuffix(_NOT_SHOWN)}{_NOT_SHOWN}"


def _unknown_inputs(inputs: Mapping[str, InputBlock], given: Mapping[str, GivenInput]) -> Iterator[InputProblem]:
    for name in given:
        if name not in inputs:
            takes = f"the runbook takes {listing(inputs)}"
            hint = suggestion(name, inputs) or (takes if inputs else "the runbook takes no inputs")
            message = f"there is no input `{shorten(name)}`"
            yield InputProblem(
                input=shorten(name), source=given[name].source, kind="unknown_input", message=message, hint=hint
            )


def _given_value(given: GivenInput, block: InputBlock) -> Any:
    return given.text if given.text is not None and block.type == "string" else given.value


def _bind(name: str, source: str, parameter: Parameter) -> tuple[str, InputBinding]:
    """Return the resolver of an input and its binding."""
    prefix, slash, rest = source.partition("/")
    if source == PROMPT:
        resolver, path = PROMPT, ""
    elif slash and prefix in (ENV, FILE):
        resolver, path = prefix, rest
    else:
        # `provider/cmdb.server.hostname` and the short form `cmdb.server.hostname` mean the same.
        provider, _, path = source.removeprefix(PROVIDER).partition(".")
        resolver, source = f"{PROVIDER}{provider}", f"{PROVIDER}{provider}.{path}"
    return resolver, InputBinding(name=name, source=source, path=path, parameter=parameter)


def _batches(bound: list[tuple[str, InputBinding]]) -> Iterator[ResolveBatch]:
    """Yield one batch per resolver; prompts come last, when all other inputs are resolved."""
    groups: dict[str, list[InputBinding]] = {ENV: [], FILE: []}
    for resolver, binding in bound:
        groups.setdefault(resolver, []).append(binding)
    asked = groups.pop(PROMPT, [])
    for resolver, bindings in (*groups.items(), (PROMPT, asked)):
        if bindings:
            yield ResolveBatch(resolver, tuple(bindings))


def _source_text(source: str) -> str:
    return {"cli": "the command line", DEFAULT: "its default"}.get(source, f"`{shorten(source)}`")


def _how_to_give(name: str, parameter: Parameter, binding: InputBinding | None, *, again: bool = False) -> str:
    # A secret on the command line is in the history of the shell and in the list of processes.
    give = f"pass --input {name}=@FILE" if parameter.secret else f"pass --var {name}=…"
    instead = give if again else f"{give} or set a default"
    if binding is None:
        return instead
    resolver = binding.source.partition("/")[0]
    places = {
        ENV: f"set the environment variable `{binding.path}`",
        FILE: f"write it to the file `{binding.path}`",
        PROMPT: "answer the prompt",
    }
    return f"{places[resolver]}, or {give}" if resolver in places else instead


def _combined_error(problems: list[InputProblem]) -> InputError:
    """Return one error that lists all problems and their hints."""
    if len(problems) == 1:
        return InputError(problems[0].message, hint=problems[0].hint, problems=problems)
    told = problems[:_MAX_LISTED]
    more = [f"and {len(problems) - _MAX_LISTED} more"] if len(problems) > _MAX_LISTED else []
    listed = "; ".join([f"({number}) {problem.message}" for number, problem in enumerate(told, 1)] + more)
    hints = [f"({number}) {problem.hint}" for number, problem in enumerate(told, 1) if problem.hint]
    message = f"{len(problems)} problems with the inputs: {listed}"
    return InputError(message, hint="; ".join(hints) or None, problems=problems)
