"""The way in: every answer from the world is redacted, and checked to be plain data, before the engine sees it."""

from typing import Any, Final, TypeVar

import msgspec

from gert.errors import CanonicalError
from gert.kernel.engine.asks import Answer, AnyAnswer, ToolAnswer
from gert.kernel.events.runbook import Failure
from gert.kernel.foundation.canonical import require_canonical
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.foundation.secret_refs import defused

A = TypeVar("A", bound=Answer)

MOST_BYTES: Final = 4 * 1024 * 1024
"""What one answer may hold; more would not fit the line of an event."""

_BASE: Final = frozenset({"duration", "redacted", "assumed"})
_ENCODER = msgspec.json.Encoder(enc_hook=str)


class Intake:
    """Takes answers in."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def take(self, answer: A) -> A:
        """The answer as it may be kept: nothing secret, nothing that passes for a reference, nothing too large."""
        data: dict[str, Any] = {
            name: msgspec.to_builtins(getattr(answer, name)) if name not in _BASE else getattr(answer, name)
            for name in answer.__struct_fields__
        }
        masked = 0
        for name, value in data.items():
            if name not in _BASE and value:
                shown = self._redactor.value(value)
                masked += shown.masked
                data[name] = defused(shown.value)
        data["redacted"] = answer.redacted + masked
        flaw = _flaw(data)
        if flaw is not None:
            return type(answer)(failure=Failure("extraction", flaw), duration=answer.duration, redacted=answer.redacted)
        return msgspec.convert(data, type(answer))


def _flaw(data: dict[str, Any]) -> str | None:
    try:
        require_canonical(data)
    except CanonicalError as error:
        return f"the answer is not plain data: {error.message}"
    size = len(_ENCODER.encode(data))
    return f"the answer is too large: expected at most {MOST_BYTES} bytes, found {size}" if size > MOST_BYTES else None


__all__ = ["MOST_BYTES", "AnyAnswer", "Intake", "ToolAnswer"]
