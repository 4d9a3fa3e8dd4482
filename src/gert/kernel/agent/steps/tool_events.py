"""The events that end a tool call, and the errors that its caller gets."""

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
from gert.kernel.foundation.credentials import foreign_line
from gert.kernel.ledger.record import Call, Exceeded

LONGEST_MESSAGE = 2000
RECONCILE = "check the target, then call `reconcile_tool`"
RERUN_STARTED = "rerun started"


def completed(
    seq: int, tool_name: str, found: ToolExecutionResult, *, by: str | None = None, reason: str | None = None
) -> ToolCompleted:
    """Build the completion event of a call."""
    return ToolCompleted(
        request_seq=seq,
        tool_name=tool_name,
        result_json=found.result_json,
        outcome=found.outcome,
        received_idempotency_key=found.received_idempotency_key,
        effect_id=found.effect_id,
        request_id=found.request_id,
        error_message=None if found.error_message is None else foreign_line(found.error_message, LONGEST_MESSAGE),
        reconciled_by=by,
        reason=reason,
    )


def abandoned(call: Call) -> ToolCompleted:
    """Build the end of a call without side effects whose caller is gone."""
    why = "the caller stopped before the call ended; the tool has no side effects"
    return completed(call.seq, call.name, ToolExecutionResult("transient_error", "null", error_message=why))


def not_called(seq: int, tool_name: str) -> ToolCompleted:
    """Build the end of a call that was recorded but never made, because the step was cancelled."""
    why = "the step was cancelled before the tool was called"
    found = ToolExecutionResult("transient_error", "null", error_message=why)
    return completed(seq, tool_name, found)


def rerun_started(call: Call, by: str | None) -> ToolCompleted:
    """Build the event that a rerun starts; the outcome is unknown until the rerun ends."""
    return completed(call.seq, call.name, ToolExecutionResult("unknown_outcome", "null"), by=by, reason=RERUN_STARTED)


def still_unknown(found: ToolExecutionResult) -> ToolExecutionResult:
    """Return the result of a failed rerun: the outcome of the first attempt stays unknown."""
    why = f"the rerun ended as `{found.outcome}`"
    message = why if found.error_message is None else f"{why}: {found.error_message}"
    return replace(found, outcome="unknown_outcome", error_message=message)


def rerun_in_progress(call: Call, ended: ToolCompleted) -> ToolExecutionFailedError:
    """Another process is rerunning the call."""
    by = f" by `{ended.reconciled_by}`" if ended.reconciled_by else ""
    return ToolExecutionFailedError(
        f"the call of `{call.name}` in event {call.seq} of run `{call.run_id}` is being rerun{by}",
        outcome="unknown_outcome",
        hint="wait until the rerun ends, or pass `outcome`",
    )


def outcome_of(error: Exception, *, side_effect: bool) -> ToolExecutionOutcome:
    """Return the outcome of a tool call that raised an exception."""
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
        "transient_error": "failed temporarily",
        "permanent_error": "failed",
        "unknown_outcome": "ended with an unknown outcome",
    }[ended.outcome]
    hint = RECONCILE if ended.outcome == "unknown_outcome" else None
    return ToolExecutionFailedError(f"`{ended.tool_name}` {how}{why}", outcome=ended.outcome, hint=hint)


def outcome_unknown(call: Call) -> ToolExecutionFailedError:
    """The outcome of the call is unknown."""
    return ToolExecutionFailedError(
        f"the call of `{call.name}` in event {call.seq} of run `{call.run_id}` has an unknown outcome",
        outcome="unknown_outcome",
        hint=f"{RECONCILE} with `outcome` or rerun=True",
    )


def call_not_found(run_id: str, tool_name: str) -> ToolExecutionFailedError:
    """No such call is recorded."""
    return ToolExecutionFailedError(
        f"run `{run_id}` has no such call of `{tool_name}`", hint="pass the arguments and the step key of the call"
    )


def call_in_progress(tool_name: str) -> ToolExecutionFailedError:
    """The call is in progress."""
    return ToolExecutionFailedError(f"the call of `{tool_name}` is in progress", outcome="unknown_outcome")


def call_changed(step_key: str | None, tool_name: str, call: Call) -> ReplayConsistencyError:
    """Another call is recorded under the step key."""
    same_tool = call.name == tool_name
    other = "different arguments" if same_tool else f"another tool, `{call.name}`"
    return ReplayConsistencyError(
        f"step `{step_key}` was recorded with {other}",
        drift_fields=("arguments_json",) if same_tool else ("tool_name",),
        hint="use another step key",
    )


def duplicate_call(tool_name: str, call: Call) -> PolicyViolationError:
    """Another call holds the same semantic idempotency key."""
    done = call.outcome == "success"
    where = f"event {call.seq} of run `{call.run_id}`"
    return PolicyViolationError(
        code="semantic_duplicate" if done else "semantic_requires_reconciliation",
        message=f"`{tool_name}` was already called with the same semantic key, in {where}"
        if done
        else f"`{tool_name}` may have been called with the same semantic key, in {where}; reconcile that call first",
        tool_name=tool_name,
    )


def limit_exceeded(tool_name: str, found: Exceeded) -> PolicyViolationError:
    """The tenant has called the tool too often, or spent too much."""
    limit = found.limit
    return PolicyViolationError(
        code="tool_rate_limited",
        message=f"a call of `{tool_name}` exceeds a limit of tenant `{limit.tenant}`: {found.counted} of {limit.most}",
        tool_name=tool_name,
    )
