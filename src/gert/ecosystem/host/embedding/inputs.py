"""An input resolver of the embedding program, as the resolution of inputs uses it."""

from collections.abc import Sequence
from typing import Any, Final

from gert.ecosystem.host.embedding.calling import call_part, error_of, name_of
from gert.ecosystem.host.embedding.ports import InputResolver
from gert.ecosystem.inputs.foreign import answer_from, foreign_failure
from gert.kernel.engine.inputs import BatchAnswer, InputBinding
from gert.kernel.events.runbook.parts import Failure

RESOLVE_SECONDS: Final = 60.0
"""How long a resolver may take for one input."""


class EmbeddedResolver:
    """Resolves inputs with the resolver of the embedding program, one after the other."""

    def __init__(self, resolver: InputResolver, seconds: float = RESOLVE_SECONDS) -> None:
        self._resolver = resolver
        self._seconds = seconds
        self._name = f"the input resolver `{name_of(resolver)}`"

    async def resolve(self, bindings: Sequence[InputBinding]) -> BatchAnswer:
        """Resolve each input; what the program raises about one fails that one."""
        values: dict[str, Any] = {}
        failures: dict[str, Failure] = {}
        for binding in bindings:
            try:
                values[binding.name] = await call_part(self._resolver.resolve, binding, self._seconds)
            except TimeoutError:
                message = f"{self._name} gave no answer within {self._seconds:g} s"
                failures[binding.name] = foreign_failure(binding, "timeout", message)
            except Exception as error:
                message = f"{self._name} failed: {error_of(error)}"
                failures[binding.name] = foreign_failure(binding, "transport", message)
        answer = answer_from(bindings, values, self._name)
        return BatchAnswer(answer.values, {**answer.failures, **failures})
