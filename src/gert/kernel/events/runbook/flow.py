"""The events about which step comes next: branches, lanes, iterations, jumps and ends."""

from typing import Any, ClassVar

from msgspec import field

from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook.parts import BranchOutcome, Outcome
from gert.kernel.events.vocabulary import StepStatus


class BranchEnter(Payload, frozen=True, kw_only=True):
    """An arm of a branch is entered.

    condition: the arm's condition as written
    explored: in a dry-run, the condition is unknown and every arm is explored
    """

    type: ClassVar[str] = "branch_enter"
    step_id: str
    branch_label: str
    condition: str
    explored: bool = False


class BranchExit(Payload, frozen=True, kw_only=True):
    """An arm of a branch is left."""

    type: ClassVar[str] = "branch_exit"
    step_id: str
    branch_label: str
    status: StepStatus = "success"


class ParallelFork(Payload, frozen=True, kw_only=True):
    """The lanes of a parallel block begin, each with a copy of the state.

    branches: the labels of the lanes, in order; the position is the lane's index
    forked_state_hash: the digest of the state at the fork
    serialized: groups of lanes, by index, that run one after the other because their contracts conflict
    """

    type: ClassVar[str] = "parallel_fork"
    step_id: str
    branch_count: int
    forked_state_hash: str
    branches: tuple[str, ...] = ()
    serialized: tuple[tuple[int, ...], ...] = ()


class ParallelMerge(Payload, frozen=True, kw_only=True):
    """All lanes of a parallel block are done."""

    type: ClassVar[str] = "parallel_merge"
    step_id: str
    branch_outcomes: tuple[BranchOutcome, ...]
    merged_outputs: dict[str, Any] = field(default_factory=dict)


class ForEachStart(Payload, frozen=True, kw_only=True):
    """A step begins to iterate.

    over: the list as written
    variable: the name an item has inside, `as` in the runbook
    keys: the keys of the items, if the step declares one
    explored: in a dry-run or probe, the list is unknown, and one item represents all
    """

    type: ClassVar[str] = "for_each_start"
    step_id: str
    over: Any
    item_count: int
    parallel: bool
    variable: str = field(name="as")
    keys: tuple[str, ...] = ()
    explored: bool = False


class ForEachItem(Payload, frozen=True, kw_only=True):
    """One item of an iteration begins."""

    type: ClassVar[str] = "for_each_item"
    step_id: str
    index: int
    value: Any
    key: str | None = None


class RepeatStart(Payload, frozen=True, kw_only=True):
    """A repeat block begins.

    explored: in a dry-run or probe, the maximum is unknown, and two iterations represent all
    """

    type: ClassVar[str] = "repeat_start"
    step_id: str
    max: int
    until: str | None = None
    explored: bool = False


class RepeatIteration(Payload, frozen=True, kw_only=True):
    """One iteration of a repeat block is done.

    until_result: whether the condition to stop was met; absent without one
    """

    type: ClassVar[str] = "repeat_iteration"
    step_id: str
    index: int
    until_result: bool | None = None


class GroupStart(Payload, frozen=True, kw_only=True):
    """The steps of a group begin; in a loop, those of one item.

    step_count: how many steps the group has
    """

    type: ClassVar[str] = "group_start"
    step_id: str
    step_count: int


class GroupComplete(Payload, frozen=True, kw_only=True):
    """The steps of a group are done."""

    type: ClassVar[str] = "group_complete"
    step_id: str
    status: StepStatus = "success"


class NextTaken(Payload, frozen=True, kw_only=True):
    """A step sent the run to another step with `next`.

    target: the step that follows
    count: how often this jump was taken, this time included
    max: how often it may be taken, for a backward jump
    """

    type: ClassVar[str] = "next_taken"
    step_id: str
    target: str
    count: int
    backward: bool = False
    max: int | None = None


class OutcomeResolved(Payload, frozen=True, kw_only=True):
    """An `end` step was reached.

    notify: people to notify, from the rules on the outcome
    """

    type: ClassVar[str] = "outcome_resolved"
    step_id: str
    structured_outcome: Outcome
    notify: tuple[str, ...] = ()
