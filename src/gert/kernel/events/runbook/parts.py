"""Types used in the events of a runbook run."""

from typing import Any

import msgspec
from msgspec import field

from gert.kernel.events.vocabulary import ApprovalMode, FailureKind, OutcomeCategory, StepStatus


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a step or a run failed: a kind for policies and metrics, a message for people."""

    kind: FailureKind
    message: str


class DeniedStep(msgspec.Struct, frozen=True):
    """A step that policy denied: its path, and why."""

    path: str
    message: str


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a run: a fixed category, the author's code, and free details."""

    category: OutcomeCategory
    code: str
    meta: dict[str, Any] = field(default_factory=dict)


class BranchOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one lane of a parallel block ended.

    duration: from its first to its last event; absent if it never began
    waited: the part of it spent waiting for people, a free lane or a resume
    """

    index: int
    status: StepStatus
    label: str | None = None
    outcome: Outcome | None = None
    failure: Failure | None = None
    duration: str | None = None
    waited: str | None = None


class Recent(msgspec.Struct, frozen=True, omit_defaults=True):
    """What earlier runs executed in the hour before this one began: how often, by target.

    flaw: why that cannot be said
    """

    executed: dict[str, int] = field(default_factory=dict)
    flaw: str | None = None


class Start(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a run was started, so that another process can resume it.

    file: the runbook
    working: the folder its tools run in
    documents: the digest of every document the run was started with, by path; their bytes are in the ledger
    tools: digests of tools, by entry
    skills: digests of the skills that tools name, by id
    secret_inputs: the names of inputs whose values are not recorded
    policies: policy files that were named
    trace: the file of the mirror, if one was given
    state_dir: where tickets are
    witness: the file or URL that sealed heads are appended to
    record: the folder that a scenario of the run is written to when it has ended
    recent: executions in the hour before, so that a resumed run gets the same decisions
    """

    file: str
    working: str
    documents: dict[str, str] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)
    skills: dict[str, str] = field(default_factory=dict)
    secret_inputs: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    config: str | None = None
    evidence: str | None = None
    approvals: ApprovalMode = "terminal"
    break_glass: str | None = None
    max_parallel: int = 16
    timeout: float | None = None
    trace: str | None = None
    state_dir: str | None = None
    witness: str | None = None
    record: str | None = None
    recent: Recent | None = None
