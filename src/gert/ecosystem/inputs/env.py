"""Inputs from environment variables."""

from collections.abc import Mapping, Sequence

from gert.kernel.engine.inputs import BatchAnswer, InputBinding


class EnvResolver:
    """Resolves inputs from an environment; an empty variable is a value."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    async def resolve(self, bindings: Sequence[InputBinding]) -> BatchAnswer:
        """Return the variables that are set."""
        names = [(binding.name, binding.path) for binding in bindings]
        return BatchAnswer({name: self._environment[path] for name, path in names if path in self._environment})
