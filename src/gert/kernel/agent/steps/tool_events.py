"""What is said about a tool call: the events that end it, and the errors that tell the caller."""

from dataclasses import replace

from gert.errors import (
    PolicyViolationError,
    ReplayConsistencyError,
    ToolExecutionFailedError,
    ToolPermanentError,
    ToolTransientError,
    ToolUnknownOutcomeError,
)
from gert.kernel.agent.ports.tool import ToolExecutionOutcome, ToolExecutionResult
from gert.kernel.events.agent import ToolCompleted
from gert.kernel.foundation.credentials import stranger_line
from gert.kernel.ledger.record import Call

LONGEST_MESSAGE = 2000
RECONCILE = "settle it with `reconcile_tool`"
MADE_AGAIN = "it is made again"


def completed(
    seq: int, tool_name: str, found: ToolExecutionResult, *, by: str | None = None, reason: str | None = None
) -> ToolCompleted:
    """How a call ended."""
    return ToolCompleted(
        request_seq=seq,
        tool_name=tool_name,
        result_json=found.result_json,
        outcome=found.outcome,
        received_idempotency_key=found.received_idempotency_key,
        effect_id=found.effect_id,
        request_id=found.request_id,
        error_message=None if found.error_message is None else stranger_line(found.error_message, LONGEST_MESSAGE),
        reconciled_by=by,
        reason=reason,
    )


def abandoned(call: Call) -> ToolCompleted:
    """Nobody waits for the end of a call that changes nothing."""
    why = "whoever called did not wait for the end; the tool changes nothing"
    return completed(call.seq, call.name, ToolExecutionResult("transient_error", "null", error_message=why))


def never_called(seq: int, tool_name: str) -> ToolCompleted:
    """A call was announced, and whoever did that gave up before making it."""
    found = ToolExecutionResult("transient_error", "null", error_message="the step was cancelled; it was not called")
    return completed(seq, tool_name, found)


def made_again(call: Call, by: str | None) -> ToolCompleted:
    """Somebody is about to make a call again: until it ends, nobody knows whether it happened."""
    return completed(call.seq, call.name, ToolExecutionResult("unknown_outcome", "null"), by=by, reason=MADE_AGAIN)


def still_in_doubt(found: ToolExecutionResult) -> ToolExecutionResult:
    """A call that was made again and failed: that it did not happen this time says nothing about the time before."""
    why = f"made again, it ended as `{found.outcome}`"
    told = why if found.error_message is None else f"{why}: {found.error_message}"
    return replace(found, outcome="unknown_outcome", error_message=told)


def is_made_again(call: Call, ended: ToolCompleted) -> ToolExecutionFailedError:
    """Somebody else makes the call again right now."""
    by = f" by `{ended.reconciled_by}`" if ended.reconciled_by else ""
    return ToolExecutionFailedError(
        f"the call of `{call.name}` in event {call.seq} of run `{call.run_id}` is being made again{by}",
        outcome="unknown_outcome",
        hint="wait for its end, or say its outcome",
    )


def outcome_of(error: Exception, *, side_effect: bool) -> ToolExecutionOutcome:
    """What an exception says about whether a call happened."""
    if isinstance(error, ToolTransientError):
        return "transient_error"
    if isinstance(error, ToolPermanentError):
        return "permanent_error"
    if isinstance(error, ToolUnknownOutcomeError) or side_effect:
        return "unknown_outcome"
    return "transient_error" if isinstance(error, TimeoutError) else "permanent_error"


def failure(ended: ToolCompleted) -> ToolExecutionFailedError:
    """The call did not succeed."""
    why = f": {ended.error_message}" if ended.error_message else ""
    how = {
        "transient_error": "failed for now",
        "permanent_error": "failed",
        "unknown_outcome": "ended, and nobody knows whether it happened",
    }[ended.outcome]
    hint = RECONCILE if ended.outcome == "unknown_outcome" else None
    return ToolExecutionFailedError(f"`{ended.tool_name}` {how}{why}", outcome=ended.outcome, hint=hint)


def doubt(call: Call) -> ToolExecutionFailedError:
    """The call may have happened."""
    return ToolExecutionFailedError(
        f"the call of `{call.name}` in event {call.seq} of run `{call.run_id}` may have happened",
        outcome="unknown_outcome",
        hint=f"{RECONCILE}: say its outcome, or pass rerun=True",
    )


def no_call(run_id: str, tool_name: str) -> ToolExecutionFailedError:
    """There is nothing to settle."""
    return ToolExecutionFailedError(
        f"run `{run_id}` has no such call of `{tool_name}`", hint="give the arguments and step key of it"
    )


def under_way(tool_name: str) -> ToolExecutionFailedError:
    """The call is being made right now."""
    return ToolExecutionFailedError(f"the call of `{tool_name}` is under way", outcome="unknown_outcome")


def another_call(step_key: str | None, tool_name: str, call: Call) -> ReplayConsistencyError:
    """Something else was called under the step key."""
    same_tool = call.name == tool_name
    other = "other arguments" if same_tool else f"another tool, `{call.name}`"
    return ReplayConsistencyError(
        f"step `{step_key}` was recorded with {other}",
        drift_fields=("arguments_json",) if same_tool else ("tool_name",),
        hint="use another step key",
    )


def held(tool_name: str, call: Call) -> PolicyViolationError:
    """Another call means the same."""
    done = call.outcome == "success"
    where = f"event {call.seq} of run `{call.run_id}`"
    return PolicyViolationError(
        code="semantic_duplicate" if done else "semantic_requires_reconciliation",
        message=f"`{tool_name}` was called for the same already, in {where}"
        if done
        else f"`{tool_name}` may have been called for the same, in {where}, which must be reconciled first",
        tool_name=tool_name,
    )
