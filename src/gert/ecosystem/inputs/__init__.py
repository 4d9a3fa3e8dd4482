"""Resolvers of inputs, as one table."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from gert.kernel.engine.inputs import PROMPT, PROVIDER, BatchAnswer, InputBinding, ResolveBatch
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.redaction import Redactor


class Resolver(Protocol):
    """Resolves inputs from one source."""

    async def resolve(self, bindings: Sequence[InputBinding]) -> BatchAnswer:
        """Resolve all of them at once; values that are not found are left out of the answer."""


class Resolvers:
    """A resolver for each row: `env`, `file`, `prompt`, and `provider/NAME` for each configured provider.

    redactor: masks known secrets in messages; made only where something fails
    """

    def __init__(self, table: Mapping[str, Resolver], redactor: Callable[[], Redactor] = Redactor) -> None:
        self._table = dict(table)
        self._redactor = redactor

    async def answer(self, batch: ResolveBatch) -> BatchAnswer:
        """Pass a batch to its resolver; no message about a failure holds a known secret."""
        resolver = self._table.get(batch.resolver)
        if resolver is not None:
            answer = await resolver.resolve(batch.bindings)
            return self._redacted(answer) if answer.failures else answer
        if batch.resolver == PROMPT:
            # Without a terminal no prompt is possible, which is no failure: defaults apply.
            return BatchAnswer()
        failure = _no_resolver(batch.resolver)
        return BatchAnswer(failures={binding.name: failure for binding in batch.bindings})

    def _redacted(self, answer: BatchAnswer) -> BatchAnswer:
        redactor = self._redactor()
        told = {
            name: Failure(failure.kind, redactor.text(failure.message).value)
            for name, failure in answer.failures.items()
        }
        return BatchAnswer(answer.values, told)


def _no_resolver(resolver: str) -> Failure:
    if resolver.startswith(PROVIDER):
        name = resolver.removeprefix(PROVIDER)
        return Failure(
            "not_found", f"no provider `{name}` is configured; add it to `providers`, or pass the input with --var"
        )
    return Failure("not_found", f"this installation has no input source `{resolver}`")
