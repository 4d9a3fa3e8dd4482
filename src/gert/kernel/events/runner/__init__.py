"""The events of a runner execution: a run of its own, whose id is the id of its plan (runner-kernel interface v0.1)."""

from typing import Any, ClassVar

from msgspec import field

from gert.kernel.events.payload import Payload


class PlanCreated(Payload, frozen=True, kw_only=True):
    """An execution begins with the plan that was approved; writing this event spends the plan.

    digest: of the plan as it was authorized
    plan: the whole plan; it holds a `secret_ref` and never a secret
    parent_run_id: the run whose step the plan executes
    root_run_id: the first of the runs that started each other; None if no run asked for the plan
    actor: who asked for the plan
    """

    type: ClassVar[str] = "plan_created"
    plan_id: str
    digest: str
    skill_id: str
    vendor: str
    runner_id: str
    plan: dict[str, Any]
    parent_run_id: str | None = None
    root_run_id: str | None = None
    actor: str | None = None


class PlanAuthorized(Payload, frozen=True, kw_only=True):
    """The authorization that the runner verified.

    scope: the scope labels that were authorized
    verdict, rule: what governance decided, and the rule that decided
    tickets, approvers: the approvals it rests on
    alg, key_id, signature: over digest, runner, scope and expiry
    """

    type: ClassVar[str] = "plan_authorized"
    digest: str
    runner_id: str
    scope: tuple[str, ...]
    issued_at: str
    expires_at: str
    verdict: str
    alg: str
    signature: str
    key_id: str | None = None
    rule: str | None = None
    tickets: tuple[str, ...] = ()
    approvers: tuple[str, ...] = ()


class RunnerStarted(Payload, frozen=True, kw_only=True):
    """The runner has verified the plan and begins to execute it.

    scope: the scope labels it was started with, which may be fewer than the authorized ones
    isolation: what separates the execution from the machine: `declared`, `sandbox` or `none`
    dispatched: gert itself started the runner, in a clean environment
    """

    type: ClassVar[str] = "runner_started"
    runner_id: str
    scope: tuple[str, ...]
    isolation: str
    host: str
    gert_version: str
    dispatched: bool = False


class RunnerRecorded(Payload, frozen=True, kw_only=True):
    """The execution has ended and its record is complete.

    exit_code: of the runner; 0 means that the vendor did what was asked
    rule, message: why it is not 0
    record: the record as it is written beside the artifacts
    record_digest: the digest of that file
    recovered: `gert runner recover` found the record, which the runner could not report
    """

    type: ClassVar[str] = "runner_recorded"
    exit_code: int
    record: dict[str, Any]
    record_digest: str
    rule: str | None = None
    message: str | None = None
    recovered: bool = False


class RunnerInDoubt(Payload, frozen=True, kw_only=True):
    """The runner ended without a record: the vendor may have been called, and the plan is never executed again.

    reason: what is known
    artifacts: the artifacts that are there, with their digests
    """

    type: ClassVar[str] = "runner_in_doubt"
    reason: str
    actor: str
    artifacts: dict[str, str] = field(default_factory=dict)


EVENTS: tuple[type[Payload], ...] = (PlanCreated, PlanAuthorized, RunnerStarted, RunnerRecorded, RunnerInDoubt)
