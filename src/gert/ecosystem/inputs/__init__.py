"""Resolvers of inputs: who looks where, as one table."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from gert.kernel.engine.inputs import PROMPT, PROVIDER, BatchAnswer, InputBinding, ResolveBatch
from gert.kernel.events.runbook.parts import Failure


class Resolver(Protocol):
    """Finds the values of inputs in one place."""

    async def resolve(self, bindings: Sequence[InputBinding]) -> BatchAnswer:
        """Look for all of them at once; what is not there is left out of the answer."""
        ...


class Resolvers:
    """A resolver for each row: `env`, `file`, `prompt`, and `provider/NAME` for each configured provider."""

    def __init__(self, table: Mapping[str, Resolver]) -> None:
        self._table = dict(table)

    async def answer(self, batch: ResolveBatch) -> BatchAnswer:
        """Hand a batch to its resolver."""
        resolver = self._table.get(batch.resolver)
        if resolver is not None:
            return await resolver.resolve(batch.bindings)
        if batch.resolver == PROMPT:
            # Nobody can be asked here, which is no failure: defaults stand in.
            return BatchAnswer()
        failure = _nobody_looks(batch.resolver)
        return BatchAnswer(failures={binding.name: failure for binding in batch.bindings})


def _nobody_looks(resolver: str) -> Failure:
    if resolver.startswith(PROVIDER):
        name = resolver.removeprefix(PROVIDER)
        message = f"this installation cannot ask the provider `{name}`; give the input with --var or --input"
        return Failure("not_found", message)
    return Failure("not_found", f"nothing is read from `{resolver}` here")
