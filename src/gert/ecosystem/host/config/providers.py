"""Configured providers of inputs: their programs, their environment, and how gert asks them."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from gert.ecosystem.process.find_program import Programs
from gert.kernel.foundation.duration import parse_duration
from gert.kernel.runbook.documents.project import Config, ProviderBlock

if TYPE_CHECKING:
    from gert.ecosystem.inputs.provider import ProviderResolver
    from gert.ecosystem.process.command import Command
    from gert.kernel.events.runbook.parts import Failure
    from gert.kernel.foundation.redaction import Redactor

DEFAULT_SECONDS: Final = 30.0


class Provider(msgspec.Struct, frozen=True):
    """A configured provider, and the file that configures it."""

    name: str
    block: ProviderBlock
    file: str


def providers_in(file: str, config: Config) -> dict[str, Provider]:
    """The providers that a file configures, by name."""
    return {name: Provider(name, block, file) for name, block in config.providers.items()}


def found_providers(providers: Iterable[Provider], environ: Mapping[str, str]) -> frozenset[str]:
    """The names of the providers whose programs can be started."""
    return frozenset(each.name for each in providers if isinstance(find_provider(each, environ), str))


def find_provider(provider: Provider, environ: Mapping[str, str]) -> "str | Failure":
    """The file of a provider's program: a name is looked up on PATH, a path beside the file that configures it."""
    binary = os.path.expanduser(provider.block.binary)
    found = Programs().find(binary, os.path.dirname(provider.file), environ)
    return os.path.abspath(found) if isinstance(found, str) else found


def seconds_of(provider: Provider) -> float:
    """The time limit for an answer."""
    said = provider.block.timeout
    return parse_duration(said).total_seconds() if said is not None else DEFAULT_SECONDS


def provider_resolver(
    provider: Provider, environ: Mapping[str, str], withheld: Iterable[str], redactor: "Callable[[], Redactor]"
) -> "ProviderResolver":
    """What asks a provider.

    withheld: variables with secrets of others; the credentials that the provider's own settings name are not
    """
    from gert.ecosystem.inputs.provider import ProviderResolver  # most runbooks need no provider
    from gert.ecosystem.process.command import Command
    from gert.ecosystem.process.descendants import MARK, mark_for
    from gert.ecosystem.process.environment import GERT_PREFIX, is_name
    from gert.ecosystem.process.own_process import prepare_for_tools

    hidden = frozenset(withheld) - provider.block.variables

    def find() -> "Command | Failure":
        prepare_for_tools()
        program = find_provider(provider, environ)
        if not isinstance(program, str):
            return program
        names = (name for name in environ if is_name(name) and not name.startswith(GERT_PREFIX))
        given = {name: environ[name] for name in names if name not in hidden}
        # No run exists yet, so its mark is a random one; what it starts is found and ended by it.
        given[MARK] = f"{given.get(MARK, '')} {mark_for(os.urandom(8).hex(), provider.name)}".strip()
        return Command(
            name=provider.block.binary,
            program=program,
            arguments=provider.block.args,
            environment={os.fsencode(name): os.fsencode(value) for name, value in given.items()},
            folder=os.getcwd(),
        )

    return ProviderResolver(provider.name, provider.block.config, find, redactor, seconds_of(provider))
