"""What events of a runbook run are made of."""

from typing import Any

import msgspec
from msgspec import field

from gert.kernel.events.vocabulary import FailureKind, OutcomeCategory, StepStatus


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a step or a run failed: a kind for policies and metrics, a message for people."""

    kind: FailureKind
    message: str


class DeniedStep(msgspec.Struct, frozen=True):
    """A step that policy denied: its path, and why."""

    path: str
    message: str


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run came to: a fixed category, the author's code, and free details."""

    category: OutcomeCategory
    code: str
    meta: dict[str, Any] = field(default_factory=dict)


class BranchOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one lane of a parallel block ended.

    duration: from its first to its last event; absent where it never began
    waited: the part of it in which something waited for people, a free lane or a resume
    """

    index: int
    status: StepStatus
    label: str | None = None
    outcome: Outcome | None = None
    failure: Failure | None = None
    duration: str | None = None
    waited: str | None = None
