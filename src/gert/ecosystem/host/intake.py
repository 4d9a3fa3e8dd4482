"""The way in: every answer from the world is redacted, and checked to be plain data, before the engine sees it."""

from typing import Any, Final, TypeVar

import msgspec

from gert.errors import CanonicalError
from gert.kernel.engine.asks import Answer, Ask, CallExtension, CallTool, ToolAnswer
from gert.kernel.events.runbook import Failure
from gert.kernel.foundation.canonical import require_canonical
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.foundation.secret_refs import defused
from gert.kernel.template import render_text

A = TypeVar("A", bound=Answer)

MOST_BYTES: Final = 4 * 1024 * 1024
"""What one answer may hold; more would not fit the line of an event."""

_BASE: Final = frozenset({"duration", "redacted", "assumed"})
_ENCODER = msgspec.json.Encoder(enc_hook=str)


class Intake:
    """Takes answers in."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def take(self, answer: A, ask: Ask[A] | None = None) -> A:
        """The answer as it may be kept: nothing secret, nothing that passes for a reference, nothing too large."""
        redactor = self._redactor.also(found) if (found := _secret_outputs(answer, ask)) else self._redactor
        data: dict[str, Any] = {
            name: msgspec.to_builtins(getattr(answer, name)) if name not in _BASE else getattr(answer, name)
            for name in answer.__struct_fields__
        }
        masked = 0
        for name, value in data.items():
            if name not in _BASE and value:
                shown = redactor.value(value)
                masked += shown.masked
                data[name] = defused(shown.value)
        data["redacted"] = answer.redacted + masked
        flaw = _flaw(data)
        if flaw is not None:
            return type(answer)(failure=Failure("extraction", flaw), duration=answer.duration, redacted=answer.redacted)
        return msgspec.convert(data, type(answer))


def _secret_outputs(answer: Answer, ask: Ask[Any] | None) -> list[str]:
    """What a contract calls secret among the outputs: it is masked wherever it shows, as any other secret."""
    if not isinstance(ask, CallTool | CallExtension) or not isinstance(answer, ToolAnswer):
        return []
    names = [name for name, parameter in ask.contract.outputs.items() if parameter.secret]
    given = [outputs[name] for outputs in (answer.outputs, answer.again or {}) for name in names if name in outputs]
    return [render_text(value) for value in given]


def _flaw(data: dict[str, Any]) -> str | None:
    try:
        require_canonical(data)
    except CanonicalError as error:
        return f"the answer is not plain data: {error.message}"
    size = len(_ENCODER.encode(data))
    return f"the answer is too large: expected at most {MOST_BYTES} bytes, found {size}" if size > MOST_BYTES else None
