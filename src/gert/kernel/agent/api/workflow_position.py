"""Where in a workflow a step stands: what it is found by again, and whether that is where it stood before.

A step is the n-th of its name, whatever other steps do meanwhile. So steps that are taken at the same time must differ
in their names, or in keys they are given.
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
_APART = "give steps of one name that are taken at the same time a `step_key` each"


@dataclass(frozen=True, slots=True)
class Place:
    """A step of a workflow: the key it is found by, how many began before it, and its name."""

    key: str
    index: int
    name: str


class Keys:
    """Gives the n-th use of a label its key: `label`, `label#2`, …"""

    def __init__(self) -> None:
        self._uses: Counter[str] = Counter()
        self._given: set[str] = set()

    def next(self, label: str) -> str:
        """The key of the next use of a label; InputError where another label has been given the same."""
        self._uses[label] += 1
        used = self._uses[label]
        key = label if used == 1 else f"{label}#{used}"
        if key in self._given:
            raise InputError(f"two places of the workflow have the key `{key}`", hint="choose other keys")
        self._given.add(key)
        return key


class _Step:
    """A step that was begun, and the one before it in the same task; `crowded` if others were under way with it."""

    __slots__ = ("before", "crowded", "places")

    def __init__(self, places: "Places", before: "_Step | None", *, crowded: bool) -> None:
        self.places = places
        self.before = before
        self.crowded = crowded


_LAST: ContextVar[_Step | None] = ContextVar("gert_workflow_last_step", default=None)
"""The last step that was taken in this task, or in the one that started it before it did."""


class Places:
    """The steps of one execution of a workflow.

    orderly: each step began when all before it had been taken
    """

    def __init__(self) -> None:
        self.orderly = True
        self._keys = Keys()
        self._begun = 0
        self._unfinished: set[str] = set()
        self._under_way: dict[str, _Step] = {}
        self._last: dict[str, _Step] = {}

    @contextmanager
    def taking(self, name: str, step_key: str | None) -> Iterator[Place]:
        """Begin a step; it was taken unless something is raised."""
        label = name if step_key is None else step_key
        if label in self._under_way:
            raise InputError(f"another step `{label}` of the workflow is under way", hint=_APART)
        before = self._before()
        if (last := self._last.get(label)) is not None and last.crowded and not _follows(last, before):
            raise InputError(f"the step `{label}` is taken in two branches of the workflow", hint=_APART)
        place = Place(self._keys.next(label), self._begun, name)
        self._begun += 1
        self.orderly = self.orderly and not self._unfinished
        self._unfinished.add(place.key)
        step = self._last[label] = _Step(self, before, crowded=bool(self._under_way))
        for other in self._under_way.values():
            other.crowded = True
        self._under_way[label] = step
        try:
            yield place
            self._unfinished.discard(place.key)
        finally:
            del self._under_way[label]
            # Steps its action took stand before its end.
            step.before = self._before()
            _LAST.set(step)

    def _before(self) -> _Step | None:
        last = _LAST.get()
        return last if last is not None and last.places is self else None


@contextmanager
def own_branches() -> Iterator[None]:
    """Forget, at the end, which steps a workflow has taken in this task."""
    token = _LAST.set(None)
    try:
        yield
    finally:
        # A task nobody kept is closed by whoever collects it, and that is somewhere else.
        with suppress(ValueError):
            _LAST.reset(token)


def _follows(last: _Step, before: _Step | None) -> bool:
    """Whether a step after `before` may come after `last`: in its task, or in one that may have waited for it."""
    return before is None or _comes_to(before, last) or _comes_to(last, before)


def _comes_to(step: _Step | None, other: _Step) -> bool:
    while step is not None and step is not other:
        step = step.before
    return step is other


async def recorded_order(ledger: Ledger, run_id: str) -> tuple[Place, ...]:
    """The steps on record in the order in which they first began, if each began when all before it had been taken.

    Otherwise nothing: an order of steps that were taken at the same time, or after one that failed, says nothing about
    the next.
    """
    steps: dict[str, Place] = {}
    asked: dict[int, str] = {}
    unfinished: set[str] = set()
    since = 0
    while lines := await ledger.lines(run_id, since, _PAGE):
        for seq, line in enumerate(lines, start=since + 1):
            said = decode(line).payload if _ANY_STEP in line else None
            if isinstance(said, WorkflowStepRequested):
                key = asked[seq] = said.step_key if said.step_key is not None else str(said.step_index)
                steps.setdefault(key, Place(key, len(steps), said.step_name))
                unfinished.add(key)
                if len(unfinished) > 1:
                    return ()
            elif isinstance(said, WorkflowStepCompleted):
                unfinished.discard(asked.get(said.request_seq, ""))
        since += len(lines)
    return tuple(steps.values())
