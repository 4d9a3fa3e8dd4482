"""Answers of foreign code (providers and parts): plain data of bounded size, and failures without secrets."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gert.errors import CanonicalError
from gert.kernel.engine.inputs import BatchAnswer, InputBinding
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.events.vocabulary import FailureKind
from gert.kernel.foundation.canonical import require_canonical
from gert.kernel.foundation.text import one_line

MAX_VALUE: Final = 1024 * 1024
"""Bytes of one value as JSON; a file may hold as much."""
MAX_MESSAGE: Final = 500

_ENCODER = msgspec.json.Encoder()


class RefusedResolver:
    """Resolves nothing: every input fails with a reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def resolve(self, bindings: Sequence[InputBinding]) -> BatchAnswer:
        """Give the reason for each."""
        return BatchAnswer(failures={binding.name: Failure("denied", self._reason) for binding in bindings})


def answer_from(bindings: Iterable[InputBinding], values: Mapping[str, Any], source: str) -> BatchAnswer:
    """The values of the inputs that were requested; null is no value, and other names are ignored.

    source: who answered, for messages
    """
    found: dict[str, Any] = {}
    failures: dict[str, Failure] = {}
    for binding in bindings:
        value = values.get(binding.name)
        flaw = _flaw(value)
        if flaw is not None:
            failures[binding.name] = foreign_failure(binding, "invalid_input", f"{source} gave {flaw}")
        elif value is not None:
            found[binding.name] = value
    return BatchAnswer(found, failures)


def all_failed(bindings: Iterable[InputBinding], kind: FailureKind, message: str) -> BatchAnswer:
    """The same failure for every input; none of their messages is shown where one of the inputs is secret.

    Foreign code may quote any of the values it was about to return.
    """
    batch = tuple(bindings)
    hides = any(binding.parameter.secret for binding in batch)
    return BatchAnswer(failures={each.name: foreign_failure(each, kind, message, hides=hides) for each in batch})


def foreign_failure(binding: InputBinding, kind: FailureKind, message: str, *, hides: bool = False) -> Failure:
    """The failure of one input, on one line."""
    if hides or binding.parameter.secret:
        message = f"{message.partition(':')[0]}; a secret input was requested, so the details are withheld"
    return Failure(kind, one_line(message, MAX_MESSAGE))


def _flaw(value: Any) -> str | None:
    try:
        require_canonical(value)
        size = len(_ENCODER.encode(value))
    except (CanonicalError, TypeError, ValueError, RecursionError):
        return "a value that is not plain JSON data"
    return f"a value of {size} bytes: expected at most {MAX_VALUE}" if size > MAX_VALUE else None
