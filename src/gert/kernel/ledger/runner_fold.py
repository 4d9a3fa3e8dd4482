"""The fold of a runner execution's events: its plan, its status and its end."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from gert.kernel.events.payload import Payload
from gert.kernel.events.runner import PlanCreated, RunnerInDoubt, RunnerRecorded

RunnerStatus = Literal["running", "completed", "failed", "in-doubt"]


class RunnerSnapshot(msgspec.Struct, frozen=True, omit_defaults=True, tag="runner"):
    """The state of an execution.

    exit_code: of the runner, once it is recorded
    """

    skill_id: str = ""
    runner_id: str = ""
    digest: str = ""
    parent_run_id: str | None = None
    actor: str | None = None
    last_type: str = ""
    exit_code: int | None = None
    rule: str | None = None
    message: str | None = None
    in_doubt: bool = False

    @property
    def status(self) -> RunnerStatus:
        """The status: running until there is a record, or until the outcome is declared unknown."""
        if self.exit_code is None:
            return "in-doubt" if self.in_doubt else "running"
        return "completed" if self.exit_code == 0 else "failed"

    @property
    def is_recorded(self) -> bool:
        """Whether the execution has a record."""
        return self.exit_code is not None


def fold(snapshot: RunnerSnapshot, payload: Payload) -> RunnerSnapshot:
    """The snapshot after one more event."""
    change = _CHANGES.get(type(payload))
    changes = {} if change is None else change(payload)
    return msgspec.structs.replace(snapshot, last_type=payload.type, **changes)


def _created(said: PlanCreated) -> dict[str, Any]:
    names = ("skill_id", "runner_id", "digest", "parent_run_id", "actor")
    return {name: getattr(said, name) for name in names}


def _recorded(said: RunnerRecorded) -> dict[str, Any]:
    return {"exit_code": said.exit_code, "rule": said.rule, "message": said.message}


_CHANGES: Final[Mapping[type[Payload], Callable[[Any], dict[str, Any]]]] = {
    PlanCreated: _created,
    RunnerRecorded: _recorded,
    RunnerInDoubt: lambda _: {"in_doubt": True},
}
