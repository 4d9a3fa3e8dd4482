"""Convert what tools return and raise to recorded results: JSON text of bounded size, and a one-line error."""

import json
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, Final, get_args

import msgspec
from pydantic_core import PydanticSerializationError, to_json

from gert.errors import CanonicalError, ToolPermanentError, ToolTransientError, ToolUnknownOutcomeError
from gert.kernel.agent.ports.tool import ToolExecutionOutcome, ToolExecutionResult
from gert.kernel.agent.steps.error_text import error_summary, error_text
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps, require_json
from gert.kernel.foundation.text import one_line

MAX_RESULT_BYTES: Final = 4 * 1024 * 1024
"""Bytes of one result; more would not fit the line of an event."""

MAX_MESSAGE: Final = 500
"""Characters of an error message."""

NOTHING: Final = "null"
"""The result of a call without one."""

_SHOWN: Final = 2000

_OUTCOMES: Final[dict[type[Exception], ToolExecutionOutcome]] = {
    ToolTransientError: "transient_error",
    ToolPermanentError: "permanent_error",
    ToolUnknownOutcomeError: "unknown_outcome",
}


def failed(outcome: ToolExecutionOutcome, message: str) -> ToolExecutionResult:
    """Return the result of a call that failed or whose outcome is unknown."""
    return ToolExecutionResult(outcome, NOTHING, error_message=one_line(message, MAX_MESSAGE))


def raised(error: BaseException, *, side_effect: bool) -> ToolExecutionResult:
    """Return the result of a call that raised.

    A tool with side effects that raises an unexpected error may have had its effect before.
    """
    for kind, outcome in _OUTCOMES.items():
        if isinstance(error, kind):
            return failed(outcome, error_text(error, MAX_MESSAGE) or kind.__name__)
    if side_effect:
        return failed("unknown_outcome", error_summary(error, MAX_MESSAGE))
    return failed(
        "transient_error" if isinstance(error, TimeoutError) else "permanent_error", error_summary(error, MAX_MESSAGE)
    )


def returned(value: object, *, side_effect: bool, received_key: str | None) -> ToolExecutionResult:
    """Return the result of a call that returned a value.

    A tool with side effects that returned has had its effect: if its value cannot be recorded, the call still
    succeeded, and the result says what is missing. Without side effects, such a call failed. An iterator or awaitable
    is not a result: consuming it would run outside the time limit of the call and block the loop.
    """
    if isinstance(value, ToolExecutionResult):
        return _checked(value, side_effect=side_effect)
    if isinstance(value, Iterator | AsyncIterator | Awaitable):
        outcome: ToolExecutionOutcome = "unknown_outcome" if side_effect else "permanent_error"
        return failed(outcome, f"the tool returned a `{type(value).__name__}`, which is not a result; return one value")
    try:
        text = json_text(value)
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        why = f": {error.message}" if isinstance(error, CanonicalError) else ""
        return _not_recorded(
            f"the tool returned a `{type(value).__name__}` that has no JSON form{why}", {}, side_effect, received_key
        )
    if (size := len(text.encode())) > MAX_RESULT_BYTES:
        message = f"the tool returned {size} bytes, more than the limit of {MAX_RESULT_BYTES}"
        return _not_recorded(message, {"bytes": size, "beginning": text[:_SHOWN]}, side_effect, received_key)
    return ToolExecutionResult("success", text, received_idempotency_key=received_key)


def json_text(value: object) -> str:
    """Return a value as JSON text; text that is already JSON stays unchanged.

    ValueError for values without a JSON form: NaN, infinity, lone surrogates, and duplicate keys.
    """
    if not isinstance(value, str):
        return require_json(to_json(value, inf_nan_mode="constants").decode())
    text = str.__str__(value)
    text.encode()
    return require_json(text) if _looks_like_json(text) else msgspec.json.encode(text).decode()


def _looks_like_json(text: str) -> bool:
    """Whether text is JSON, including forms that only some parsers accept: with NaN, or duplicate keys."""
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
    """Check a result that the tool made itself against the same limits."""
    if result.outcome not in get_args(ToolExecutionOutcome):
        outcome: ToolExecutionOutcome = "unknown_outcome" if side_effect else "permanent_error"
        return failed(outcome, f"the tool returned the unknown outcome `{result.outcome}`")
    kept = returned(result.result_json, side_effect=side_effect, received_key=None)
    message: Any = result.error_message if kept.error_message is None else kept.error_message
    # The tool states the outcome: a result that cannot be recorded changes only a success.
    outcome = kept.outcome if result.outcome == "success" else result.outcome
    return ToolExecutionResult(
        outcome,
        kept.result_json,
        _short(result.received_idempotency_key),
        _short(result.effect_id),
        _short(result.request_id),
        _short(message),
    )


def _not_recorded(
    message: str, found: dict[str, Any], side_effect: bool, received_key: str | None
) -> ToolExecutionResult:
    if not side_effect:
        return failed("permanent_error", message)
    described = canonical_json_dumps({"result_not_recorded": message, **found})
    return ToolExecutionResult("success", described, received_key, error_message=message)


def _short(text: object) -> str | None:
    return None if text is None else one_line(str(text), MAX_MESSAGE)
