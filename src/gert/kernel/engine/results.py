"""Results of steps: a status, a failure or an outcome, which alone decide if the run continues (kernel-v0 §9.5)."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import field

from gert.kernel.events.runbook import Failure, Outcome
from gert.kernel.events.vocabulary import FailureKind, SkipReason, StepStatus
from gert.kernel.foundation.principal import Principal
from gert.kernel.template.unknown import UNKNOWN

# A step that ran and did not succeed has failed; one that could not run is in error.
FAILED: Final[frozenset[FailureKind]] = frozenset(
    {"exit_code", "tool_error", "assertion", "rejected", "reported", "lane_failed"}
)
# Failures decided by a policy or by a cancellation, not by the step: `continue_on_fail` never applies.
NEVER_CONTINUED: Final[frozenset[FailureKind]] = frozenset(
    {"denied", "approval_outdated", "cancelled", "contract_violation", "unknown_outcome", "internal"}
)


def status_of(failure: Failure | None) -> StepStatus:
    """Return the status of a step with this failure."""
    if failure is None:
        return "success"
    if failure.kind == "denied":
        return "skipped"
    return "failed" if failure.kind in FAILED else "error"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """How a step, or a list of steps, ended.

    outcome: the `end` that was reached
    ended: an `end` was reached; in a dry run the outcome may be unknown
    failed_step: the path of the step that failed first
    continued: the failure was recorded and the run continues
    uncertain: it is unknown whether the step ran at all
    child_run_id: the run that it started
    """

    status: StepStatus = "success"
    outputs: dict[str, Any] = field(default_factory=dict)
    failure: Failure | None = None
    outcome: Outcome | None = None
    ended: bool = False
    failed_step: str | None = None
    continued: bool = False
    reason: SkipReason | None = None
    exit_code: int | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    principal: Principal | None = None
    child_run_id: str | None = None
    attempts: int = 1
    assumed: bool = False
    uncertain: bool = False

    @property
    def stops(self) -> bool:
        """Whether the steps after this one are not run."""
        return self.ended or (self.failure is not None and not self.continued)

    @property
    def is_cancelled(self) -> bool:
        """Whether the run was cancelled here: nothing is explored or continued after that."""
        return self.failure is not None and self.failure.kind == "cancelled"

    @property
    def facts(self) -> Mapping[str, Any]:
        """The step's status and exit code, as templates read them."""
        if self.assumed:
            return {"status": UNKNOWN, "exit_code": UNKNOWN}
        if self.exit_code is None:
            return {"status": self.status}
        return {"status": self.status, "exit_code": self.exit_code}


DONE: Final = Result()
"""The result of a list whose steps have all run, or of a block without a result of its own."""


def failed(kind: FailureKind, message: str, **more: Any) -> Result:
    """Return a result with a failure, and the status for its kind."""
    failure = Failure(kind, message)
    return Result(status=status_of(failure), failure=failure, **more)


def block_result(inner: Result) -> Result:
    """Return the result of a block from the result of its steps."""
    if inner.ended:
        return Result(outcome=inner.outcome, ended=True)
    if inner.failure is None or inner.continued:
        return DONE
    # A denied step is skipped; a block that contains one has begun, so it failed.
    status = "failed" if inner.failure.kind == "denied" else status_of(inner.failure)
    return Result(status=status, failure=inner.failure, failed_step=inner.failed_step)
