"""The way in: every answer from the world is redacted, and checked to be plain data, before the engine sees it."""

from collections.abc import Mapping, Set
from typing import Any, Final, TypeVar

import msgspec

from gert.errors import CanonicalError
from gert.kernel.engine.requests import (
    Answer,
    ApprovalAnswer,
    CallExtension,
    CallTool,
    CollectEvidence,
    EvidenceAnswer,
    PauseAnswer,
    Request,
    TicketAnswer,
    ToolAnswer,
)
from gert.kernel.events.runbook import Failure
from gert.kernel.foundation.canonical import require_canonical
from gert.kernel.foundation.principal import Principal
from gert.kernel.foundation.redaction import PLACEHOLDER, Redactor
from gert.kernel.foundation.secret_refs import without_marks
from gert.kernel.governance.approval import Response

A = TypeVar("A", bound=Answer)

MOST_BYTES: Final = 4 * 1024 * 1024
"""What one answer may hold; more would not fit the line of an event."""

_ENCODER = msgspec.json.Encoder(enc_hook=str)

# What the world says, by the struct that holds it. The rest are words and numbers of ours: a secret that happens to
# be called like one of them must not break an answer.
_SAID: Final[Mapping[type, tuple[str, ...]]] = {
    ToolAnswer: ("outputs", "again", "stdout", "stderr", "failure", "principal"),
    EvidenceAnswer: ("evidence", "failure", "by"),
    TicketAnswer: ("ticket_id", "method", "expires_at", "failure"),
    ApprovalAnswer: ("responses", "failure"),
    PauseAnswer: ("failure",),
    Failure: ("message",),
    Principal: ("id", "role", "model"),
    Response: ("approver", "timestamp", "reason", "flaw", "unfit"),
}


class Sanitizer:
    """Takes answers in."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def take(self, answer: A, ask: Request[A] | None = None) -> A:
        """The answer as it may be kept: nothing secret, nothing that passes for a reference, nothing too large."""
        if not any(getattr(answer, name) for name in _SAID[type(answer)]):
            return answer  # nothing was said
        flaw = _flaw(answer)
        if flaw is not None:
            # The message may name a key, and a key may be a secret.
            told = Failure("extraction", without_marks(self._redactor.text(flaw).value))
            return type(answer)(failure=told, duration=answer.duration, redacted=answer.redacted)
        mask = _Mask(self._redactor, _names(ask))
        taken: A = mask.struct(_withheld(answer, ask))
        return msgspec.structs.replace(taken, redacted=taken.redacted + mask.count) if mask.count else taken


class _Mask:
    """Masks secrets in answers, and counts them."""

    def __init__(self, redactor: Redactor, names: frozenset[str]) -> None:
        self._redactor = redactor
        self._names = names
        self.count = 0

    def struct(self, value: Any) -> Any:
        """A struct with everything masked that is not ours."""
        said = {name: getattr(value, name) for name in _SAID[type(value)]}
        return msgspec.structs.replace(value, **{name: self._masked_value(each) for name, each in said.items() if each})

    def _masked_value(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self.struct(each) for each in value)
        if isinstance(value, dict):
            # Declared names are the author's; others, and their contents, are not.
            own = {name: self._masked(each) for name, each in value.items() if name in self._names}
            return {**own, **self._masked({name: each for name, each in value.items() if name not in self._names})}
        return self.struct(value) if type(value) in _SAID else self._masked(value)

    def _masked(self, value: Any) -> Any:
        shown = self._redactor.value(value)
        self.count += shown.masked
        return without_marks(shown.value)


def _names(ask: Request[Any] | None) -> frozenset[str]:
    """The names an answer may use: those the author gave to outputs and evidence."""
    if isinstance(ask, CallTool | CallExtension):
        return frozenset(ask.contract.outputs)
    if isinstance(ask, CollectEvidence):
        return frozenset((*ask.contract.outputs, *(each.name for each in ask.evidence)))
    return frozenset()


def _withheld(answer: A, ask: Request[A] | None) -> A:
    """An answer without what its contract calls secret among the outputs.

    Such a value is not known before it is found, and may never be found, or in another form than it was printed in.
    So nothing that was printed is kept or quoted.
    """
    if isinstance(ask, CollectEvidence) and isinstance(answer, EvidenceAnswer):
        hidden = {name for name, parameter in ask.contract.outputs.items() if parameter.secret}
        given = {name: PLACEHOLDER if name in hidden else value for name, value in answer.evidence.items()}
        count = _shown(hidden, answer.evidence)
        return msgspec.structs.replace(answer, evidence=given, redacted=answer.redacted + count)
    if not isinstance(ask, CallTool | CallExtension) or not isinstance(answer, ToolAnswer):
        return answer
    secret = {name for name, parameter in ask.contract.outputs.items() if parameter.secret}
    if not secret:
        return answer
    failure = answer.failure
    if failure is not None:
        how = f"it exited with {answer.exit_code}" if failure.kind == "exit_code" else "the details are withheld"
        failure = Failure(failure.kind, f"{how}; an output is secret, so what was printed is not shown")
    given = {name: PLACEHOLDER if name in secret else value for name, value in answer.outputs.items()}
    again = answer.again
    if again is not None:
        again = {name: PLACEHOLDER if name in secret else value for name, value in again.items()}
    count = _shown(secret, answer.outputs)
    return msgspec.structs.replace(
        answer, outputs=given, again=again, failure=failure, stdout="", stderr="", redacted=answer.redacted + count
    )


def _shown(secret: Set[str], given: Mapping[str, Any]) -> int:
    """How many values are hidden now that were not: those of a recording are already."""
    return sum(1 for name in secret if name in given and given[name] != PLACEHOLDER)


def _flaw(answer: Answer) -> str | None:
    """Why an answer cannot be kept: it is no plain data, or too much of it."""
    try:
        for name in _SAID[type(answer)]:
            value = getattr(answer, name)
            if value and isinstance(value, dict | str):
                require_canonical({name: value})
        size = len(_ENCODER.encode(answer))
    except CanonicalError as error:
        return f"the answer is not plain data: {error.message}"
    except (TypeError, ValueError, RecursionError):
        return "the answer is not plain data"
    return f"the answer is too large: expected at most {MOST_BYTES} bytes, found {size}" if size > MOST_BYTES else None
