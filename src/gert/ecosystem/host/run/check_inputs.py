"""Trying providers of inputs outside a run: which are configured, and what they answer."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gert.ecosystem.host.config.providers import Provider, find_provider, provider_resolver, seconds_of
from gert.ecosystem.host.config.settings import Settings, require_sound, settings_for
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.inputs import Resolvers
from gert.errors import InputError, UsageError
from gert.kernel.engine.inputs import PROVIDER, BatchAnswer, InputProblem, resolve_inputs
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.names import suggestion
from gert.kernel.foundation.redaction import PLACEHOLDER, Redactor, credentials_of
from gert.kernel.runbook.documents.contract import InputBlock
from gert.kernel.runbook.documents.runbook import Runbook

_RUNBOOKS = (".yaml", ".yml")


class ListedProvider(msgspec.Struct, frozen=True, kw_only=True):
    """A configured provider.

    program: the file that is started; None where it is not found, and `problem` says why
    variables: the environment variables with credentials that it is given, and whether they are set
    file: the file that configures it
    """

    name: str
    binary: str
    program: str | None
    problem: str | None
    timeout: float
    variables: dict[str, bool]
    file: str


class InputResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one binding: its value, or the problem; the value of a secret is a placeholder."""

    input: str
    source: str
    value: Any = None
    problem: InputProblem | None = None


def list_providers(config: str | None, environ: Mapping[str, str]) -> list[ListedProvider]:
    """The providers that are configured for the working folder."""
    providers = _settings(os.getcwd(), config, environ).providers
    return [_entry(provider, environ) for provider in providers.values()]


async def check_inputs(names: Sequence[str], config: str | None, environ: Mapping[str, str]) -> list[InputResult]:
    """Ask providers for bindings such as `cmdb.server.hostname`, or for those of a runbook; one call per provider."""
    workspace = Workspace()
    blocks: dict[str, InputBlock] = {}
    folder = os.getcwd()
    for name in names:
        if name.endswith(_RUNBOOKS):
            folder = os.path.dirname(os.path.abspath(name))
            blocks |= dict(_provider_bindings(require_sound(workspace.program(name)).document.model, name))
        else:
            fields: dict[str, Any] = {"type": "any", "from_": name, "required": True}
            blocks[name] = InputBlock(**fields)
    settings = _settings(folder, config, environ, workspace)
    for name, block in blocks.items():
        _require_provider(block.from_ or name, settings)
    return await _ask(blocks, _resolvers(settings, environ))


def _settings(
    folder: str, config: str | None, environ: Mapping[str, str], workspace: Workspace | None = None
) -> Settings:
    return settings_for(workspace or Workspace(), folder, config, environ)


def _entry(provider: Provider, environ: Mapping[str, str]) -> ListedProvider:
    found = find_provider(provider, environ)
    return ListedProvider(
        name=provider.name,
        binary=provider.block.binary,
        program=found if isinstance(found, str) else None,
        problem=found.message if isinstance(found, Failure) else None,
        timeout=seconds_of(provider),
        variables={name: bool(environ.get(name)) for name in sorted(provider.block.variables)},
        file=provider.file,
    )


def _provider_bindings(runbook: Runbook, file: str) -> Iterator[tuple[str, InputBlock]]:
    found = [(name, block) for name, block in runbook.meta.inputs.items() if _provider_of(block.from_ or "")]
    if not found:
        raise UsageError(f"no input of `{file}` is bound to a provider")
    yield from found


def _provider_of(source: str) -> str | None:
    """The provider that a binding names; None for other sources."""
    prefix, slash, _ = source.partition("/")
    if slash and prefix != PROVIDER.rstrip("/"):
        return None
    name, dot, path = source.removeprefix(PROVIDER).partition(".")
    return name if name and dot and path else None


def _require_provider(source: str, settings: Settings) -> None:
    name = _provider_of(source)
    if name is None:
        hint = "name a binding such as `cmdb.server.hostname`, or a runbook"
        raise UsageError(f"`{source}` is not a binding to a provider", hint=hint)
    if name not in settings.providers:
        hint = suggestion(name, settings.providers) or "`gert input list` shows those that are configured"
        raise UsageError(f"no provider `{name}` is configured", hint=hint)


def _resolvers(settings: Settings, environ: Mapping[str, str]) -> Resolvers:
    providers = settings.providers.values()
    credentials = frozenset(name for each in providers for name in each.block.variables)

    def redactor() -> Redactor:
        return Redactor([part for name in credentials for part in credentials_of(environ.get(name, ""))])

    return Resolvers(
        {f"{PROVIDER}{each.name}": provider_resolver(each, environ, credentials, redactor) for each in providers},
        redactor,
    )


async def _ask(blocks: Mapping[str, InputBlock], resolvers: Resolvers) -> list[InputResult]:
    """Resolve the bindings as a run does, and keep the values beside the problems."""
    found: dict[str, Any] = {}
    problems: dict[str, InputProblem] = {}
    resolution = resolve_inputs(blocks, {})
    answer: BatchAnswer | None = None
    try:
        while True:
            answer = await resolvers.answer(next(resolution) if answer is None else resolution.send(answer))
            found |= answer.values
    except StopIteration:
        pass
    except InputError as error:
        problems = {each.input: each for each in error.problems if isinstance(each, InputProblem)}
    return [
        InputResult(
            input=name,
            source=f"{PROVIDER}{(block.from_ or '').removeprefix(PROVIDER)}",
            value=PLACEHOLDER if block.secret and name in found else found.get(name),
            problem=problems.get(name),
        )
        for name, block in blocks.items()
    ]
