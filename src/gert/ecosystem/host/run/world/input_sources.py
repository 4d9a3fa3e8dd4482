"""Where the inputs of a run are looked for: the environment, files, people, providers, and the embedding program."""

import os

from gert.ecosystem.host.config.providers import provider_resolver
from gert.ecosystem.host.embedding.ports import Parts
from gert.ecosystem.host.run.prepare import Prepared
from gert.ecosystem.host.run.world.callers import own_variables
from gert.ecosystem.host.run.world.console import Console
from gert.ecosystem.inputs import Resolver, Resolvers
from gert.ecosystem.inputs.env import EnvResolver
from gert.ecosystem.inputs.file import FileResolver
from gert.ecosystem.inputs.foreign import RefusedResolver
from gert.ecosystem.inputs.prompt import PromptResolver
from gert.kernel.engine.inputs import GIVE_HINT, PROMPT, PROVIDER, PROVIDER_EFFECT, ResolvedInputs
from gert.kernel.engine.run import secret_names
from gert.kernel.foundation.redaction import Redactor


def resolvers(prepared: Prepared, console: Console) -> Resolvers:
    """Where inputs are looked for."""
    options = prepared.options
    folder = os.path.dirname(os.path.abspath(options.file))
    table: dict[str, Resolver] = {"env": EnvResolver(prepared.environ), "file": FileResolver(folder)}
    # A dry run requests nothing of people, but an input is resolved before the run begins: it has to be known.
    table[PROMPT] = PromptResolver(console)

    def redactor() -> Redactor:
        return prepared.redactor(ResolvedInputs({}, {}))

    withheld = frozenset((*secret_names(prepared.program), *own_variables(prepared)))
    for name, provider in prepared.settings.providers.items():
        table[f"{PROVIDER}{name}"] = provider_resolver(provider, prepared.environ, withheld, redactor)
    table |= _embedded_resolvers(prepared.parts)
    if options.mode in ("dry-run", "probe") and PROVIDER_EFFECT not in options.probe_effects:
        refused = RefusedResolver(f"a {options.mode} may not have the effect {PROVIDER_EFFECT}; {GIVE_HINT}")
        table |= {name: refused for name in table if name.startswith(PROVIDER)}
    return Resolvers(table, redactor)


def _embedded_resolvers(parts: Parts) -> dict[str, Resolver]:
    """The resolvers that the embedding program brings."""
    if not parts.inputs and parts.prompt is None:
        return {}
    from gert.ecosystem.host.embedding.calling import LONGEST_CALL
    from gert.ecosystem.host.embedding.inputs import EmbeddedResolver

    found: dict[str, Resolver] = {f"{PROVIDER}{name}": EmbeddedResolver(each) for name, each in parts.inputs.items()}
    if parts.prompt is not None:
        found[PROMPT] = EmbeddedResolver(parts.prompt, LONGEST_CALL)
    return found
