"""Resolvers of inputs, as one table."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from gert.kernel.engine.inputs import PROMPT, PROVIDER, BatchAnswer, InputBinding, ResolveBatch
from gert.kernel.events.runbook.parts import Failure


class Resolver(Protocol):
    """Resolves inputs from one source."""

    async def resolve(self, bindings: Sequence[InputBinding]) -> BatchAnswer:
        """Resolve all of them at once; values that are not found are left out of the answer."""
        ...


class Resolvers:
    """A resolver for each row: `env`, `file`, `prompt`, and `provider/NAME` for each configured provider."""

    def __init__(self, table: Mapping[str, Resolver]) -> None:
        self._table = dict(table)

    async def answer(self, batch: ResolveBatch) -> BatchAnswer:
        """Pass a batch to its resolver."""
        resolver = self._table.get(batch.resolver)
        if resolver is not None:
            return await resolver.resolve(batch.bindings)
        if batch.resolver == PROMPT:
            # Without a terminal no prompt is possible, which is no failure: defaults apply.
            return BatchAnswer()
        failure = _no_resolver(batch.resolver)
        return BatchAnswer(failures={binding.name: failure for binding in batch.bindings})


def _no_resolver(resolver: str) -> Failure:
    if resolver.startswith(PROVIDER):
        name = resolver.removeprefix(PROVIDER)
        message = f"this installation cannot ask the provider `{name}`; pass the input with --var or --input"
        return Failure("not_found", message)
    return Failure("not_found", f"this installation has no input source `{resolver}`")
