"""What tools return and raise, as it is recorded: JSON text of bounded size, and one line about what went wrong."""

import json
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, Final, get_args

import msgspec
from pydantic_core import PydanticSerializationError, to_json

from gert.errors import CanonicalError, ToolPermanentError, ToolTransientError, ToolUnknownOutcomeError
from gert.kernel.agent.ports.tool import ToolExecutionOutcome, ToolExecutionResult
from gert.kernel.agent.steps.error_text import named, words_of
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps, require_json
from gert.kernel.foundation.text import one_line

MAX_RESULT_BYTES: Final = 4 * 1024 * 1024
"""What one result may hold; more would not fit the line of an event."""

MAX_MESSAGE: Final = 500
"""The longest message about an error."""

NOTHING: Final = "null"
"""The result of a call that has none."""

_SHOWN: Final = 2000

_SAID: Final[dict[type[Exception], ToolExecutionOutcome]] = {
    ToolTransientError: "transient_error",
    ToolPermanentError: "permanent_error",
    ToolUnknownOutcomeError: "unknown_outcome",
}


def failed(outcome: ToolExecutionOutcome, message: str) -> ToolExecutionResult:
    """A call that came to nothing, or nobody knows to what."""
    return ToolExecutionResult(outcome, NOTHING, error_message=one_line(message, MAX_MESSAGE))


def raised(error: BaseException, *, side_effect: bool) -> ToolExecutionResult:
    """How a call ended that raised.

    A tool that changes something and raises what it was not meant to raise may have changed it before.
    """
    for kind, outcome in _SAID.items():
        if isinstance(error, kind):
            return failed(outcome, words_of(error, MAX_MESSAGE) or kind.__name__)
    if side_effect:
        return failed("unknown_outcome", named(error, MAX_MESSAGE))
    return failed(
        "transient_error" if isinstance(error, TimeoutError) else "permanent_error", named(error, MAX_MESSAGE)
    )


def returned(value: object, *, side_effect: bool, received_key: str | None) -> ToolExecutionResult:
    """How a call ended that returned a value.

    A tool that changes something has changed it when it returns, whatever it returns: a value that cannot be
    recorded makes the call no less a success, and the result says what is missing. Where nothing was changed, a call
    without a result that can be kept has failed. What is made only while somebody goes through it, or waits for it, is
    neither: nobody does, since that would be done beside the time limit of the call and on everybody's loop.
    """
    if isinstance(value, ToolExecutionResult):
        return _checked(value, side_effect=side_effect)
    if isinstance(value, Iterator | AsyncIterator | Awaitable):
        outcome: ToolExecutionOutcome = "unknown_outcome" if side_effect else "permanent_error"
        return failed(
            outcome, f"the tool returned a `{type(value).__name__}`, and its work is not done; return one value"
        )
    try:
        text = json_text(value)
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        why = f": {error.message}" if isinstance(error, CanonicalError) else ""
        return _lost(
            f"the tool returned a `{type(value).__name__}` that has no JSON form{why}", {}, side_effect, received_key
        )
    if (size := len(text.encode())) > MAX_RESULT_BYTES:
        message = f"the tool returned {size} bytes, more than the {MAX_RESULT_BYTES} that are kept"
        return _lost(message, {"bytes": size, "beginning": text[:_SHOWN]}, side_effect, received_key)
    return ToolExecutionResult("success", text, received_idempotency_key=received_key)


def json_text(value: object) -> str:
    """A value as JSON text; text that is JSON already stays as it is.

    ValueError for what JSON cannot hold: NaN, infinity, half characters, and keys that are written alike.
    """
    if not isinstance(value, str):
        return require_json(to_json(value, inf_nan_mode="constants").decode())
    text = str.__str__(value)
    text.encode()
    return require_json(text) if _is_meant_as_json(text) else msgspec.json.encode(text).decode()


def _is_meant_as_json(text: str) -> bool:
    """Whether text is read as JSON, also where only some readers take it: with NaN in it, or a key twice."""
    if not text.lstrip().startswith(("{", "[")):
        return _is_json(text)
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _checked(result: ToolExecutionResult, *, side_effect: bool) -> ToolExecutionResult:
    """What a tool says of its own call, held to the same bounds."""
    if result.outcome not in get_args(ToolExecutionOutcome):
        outcome: ToolExecutionOutcome = "unknown_outcome" if side_effect else "permanent_error"
        return failed(outcome, f"the tool says it ended as `{result.outcome}`, which is no outcome")
    kept = returned(result.result_json, side_effect=side_effect, received_key=None)
    told: Any = result.error_message if kept.error_message is None else kept.error_message
    # It says itself what happened: a result that cannot be kept does not change that, unless nothing happened.
    outcome = kept.outcome if result.outcome == "success" else result.outcome
    return ToolExecutionResult(
        outcome,
        kept.result_json,
        _short(result.received_idempotency_key),
        _short(result.effect_id),
        _short(result.request_id),
        _short(told),
    )


def _lost(message: str, found: dict[str, Any], side_effect: bool, received_key: str | None) -> ToolExecutionResult:
    if not side_effect:
        return failed("permanent_error", message)
    described = canonical_json_dumps({"result_not_recorded": message, **found})
    return ToolExecutionResult("success", described, received_key, error_message=message)


def _short(text: object) -> str | None:
    return None if text is None else one_line(str(text), MAX_MESSAGE)
