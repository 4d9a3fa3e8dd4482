"""The position of a step in a workflow: the key that finds it again, and whether its order matches the record.

A step is the n-th of its name, independent of concurrent steps. So concurrent steps must have different names or keys.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass

from gert.errors import InputError
from gert.kernel.events.agent import WorkflowStepCompleted, WorkflowStepRequested
from gert.kernel.events.envelope import decode
from gert.kernel.ledger.port import Ledger

_PAGE = 1000
_ANY_STEP = b'"workflow_step_'
_NEEDS_KEYS = "give each of several concurrent steps with one name its own `step_key`"


@dataclass(frozen=True, slots=True)
class StepPosition:
    """The key of a step, the number of steps that began before it, and its name."""

    key: str
    index: int
    name: str


class NumberedKeys:
    """Makes the key of the n-th use of a label: `label`, `label#2`, …"""

    def __init__(self) -> None:
        self._uses: Counter[str] = Counter()
        self._given: set[str] = set()

    def next(self, label: str) -> str:
        """Return the key of the next use of a label; InputError if another label has this key."""
        self._uses[label] += 1
        used = self._uses[label]
        key = label if used == 1 else f"{label}#{used}"
        if key in self._given:
            raise InputError(f"two steps of the workflow have the key `{key}`", hint="choose different keys")
        self._given.add(key)
        return key


class _BegunStep:
    """A step that began, and the one before it in the same task; `concurrent` if others were running beside it."""

    __slots__ = ("before", "concurrent", "positions")

    def __init__(self, positions: "StepPositions", before: "_BegunStep | None", *, concurrent: bool) -> None:
        self.positions = positions
        self.before = before
        self.concurrent = concurrent


_LAST: ContextVar[_BegunStep | None] = ContextVar("gert_workflow_last_step", default=None)
"""The last step of this task, or of its parent task when it started this one."""


class StepPositions:
    """The steps of one execution of a workflow.

    sequential: each step began after all steps before it had completed
    """

    def __init__(self) -> None:
        self.sequential = True
        self._keys = NumberedKeys()
        self._begun = 0
        self._unfinished: set[str] = set()
        self._under_way: dict[str, _BegunStep] = {}
        self._last: dict[str, _BegunStep] = {}

    @contextmanager
    def begin(self, name: str, step_key: str | None) -> Iterator[StepPosition]:
        """Begin a step; it has completed unless the block raises."""
        label = name if step_key is None else step_key
        if label in self._under_way:
            raise InputError(f"another step `{label}` of the workflow is running", hint=_NEEDS_KEYS)
        before = self._before()
        if (last := self._last.get(label)) is not None and last.concurrent and not _follows(last, before):
            raise InputError(f"the step `{label}` is in two branches of the workflow", hint=_NEEDS_KEYS)
        position = StepPosition(self._keys.next(label), self._begun, name)
        self._begun += 1
        self.sequential = self.sequential and not self._unfinished
        self._unfinished.add(position.key)
        step = self._last[label] = _BegunStep(self, before, concurrent=bool(self._under_way))
        for other in self._under_way.values():
            other.concurrent = True
        self._under_way[label] = step
        try:
            yield position
            self._unfinished.discard(position.key)
        finally:
            del self._under_way[label]
            # Steps inside its action come before its end.
            step.before = self._before()
            _LAST.set(step)

    def _before(self) -> _BegunStep | None:
        last = _LAST.get()
        return last if last is not None and last.positions is self else None


@contextmanager
def separate_branches() -> Iterator[None]:
    """Forget the steps of this task when the workflow ends."""
    token = _LAST.set(None)
    try:
        yield
    finally:
        # A task that is garbage-collected is closed in another context than its own.
        with suppress(ValueError):
            _LAST.reset(token)


def _follows(last: _BegunStep, before: _BegunStep | None) -> bool:
    """Whether a step after `before` may follow `last`: in its task, or in one that may have waited for it."""
    return before is None or _is_after(before, last) or _is_after(last, before)


def _is_after(step: _BegunStep | None, other: _BegunStep) -> bool:
    while step is not None and step is not other:
        step = step.before
    return step is other


async def recorded_order(ledger: Ledger, run_id: str) -> tuple[StepPosition, ...]:
    """Return the recorded steps in the order in which they first began, if the workflow was sequential.

    Return nothing if steps were concurrent or followed one that failed: then their order may differ next time.
    """
    steps: dict[str, StepPosition] = {}
    asked: dict[int, str] = {}
    unfinished: set[str] = set()
    since = 0
    while lines := await ledger.lines(run_id, since, _PAGE):
        for seq, line in enumerate(lines, start=since + 1):
            payload = decode(line).payload if _ANY_STEP in line else None
            if isinstance(payload, WorkflowStepRequested):
                key = asked[seq] = payload.step_key if payload.step_key is not None else str(payload.step_index)
                steps.setdefault(key, StepPosition(key, len(steps), payload.step_name))
                unfinished.add(key)
                if len(unfinished) > 1:
                    return ()
            elif isinstance(payload, WorkflowStepCompleted):
                unfinished.discard(asked.get(payload.request_seq, ""))
        since += len(lines)
    return tuple(steps.values())
