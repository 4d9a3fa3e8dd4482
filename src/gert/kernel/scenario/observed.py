"""Summarizes the events of a run: how it ended, the steps it visited, their outputs, and decisions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self
from urllib.parse import unquote

from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook import (
    BranchEnter,
    ContractViolation,
    Failure,
    GovernanceDecision,
    Outcome,
    OutcomeResolved,
    RunComplete,
    RunStart,
    StepComplete,
    StepStart,
)
from gert.kernel.events.vocabulary import RunStatus
from gert.kernel.governance.risk import Risk
from gert.kernel.governance.verdict import Verdict


class RunObservation:
    """A fold over the events of one run.

    visited: the steps that ran, in order: by id, and iterations also as `id[index]` or `id[key]`
    paths: where steps ran; `arms` which arms were entered, `ends` where outcomes were resolved
    outputs: the last value of every output, by name; `by_step` by its step
    decisions, risks: the strictest, by step
    pending: expected events that have not occurred yet
    """

    def __init__(self, wanted: Sequence[str] = ()) -> None:
        self.runbook: str | None = None
        self.runbook_hash: str | None = None
        self.status: RunStatus | None = None
        self.outcome: Outcome | None = None
        self.failure: Failure | None = None
        self.failed_step: str | None = None
        self.duration: str | None = None
        self.visited: dict[str, None] = {}
        self._spelled: dict[str, str] = {}
        self.paths: dict[str, None] = {}
        self.arms: dict[tuple[str, str], None] = {}
        self.ends: dict[str, Outcome] = {}
        self.outputs: dict[str, Any] = {}
        self.by_step: dict[str, dict[str, Any]] = {}
        self.decisions: dict[str, Verdict] = {}
        self.risks: dict[str, Risk] = {}
        self.violations: list[str] = []
        self.events = 0
        self.pending = [_event(each) for each in reversed(wanted)]

    def take(self, payload: Payload, path: str | None) -> None:
        """Add one event."""
        self.events += 1
        if path is not None and "%" in path:
            for escaped in (path, getattr(payload, "step_id", None) or path):
                self._spelled[unquote(escaped)] = escaped
        if self.pending:
            kind, step = self.pending[-1]
            named = (getattr(payload, "step_id", None), path)
            if payload.type == kind and (step is None or step in named or self.spelled(step) in named):
                self.pending.pop()
        fold = _FOLDS.get(type(payload))
        if fold is not None:
            fold(self, payload, path or "")

    def take_all(self, events: Iterable[Envelope]) -> Self:
        """Add recorded events; events unknown to this version are ignored."""
        for event in events:
            if event.type in _KNOWN:
                self.take(event.payload, event.path)
            else:
                self.events += 1
        return self

    def output(self, name: str) -> tuple[bool, Any]:
        """Return whether an output exists, and its value, by name, `step.name`, or a path into one."""
        if name in self.outputs:
            return True, self.outputs[name]
        step, dot, _ = name.rpartition(".")
        while dot:
            if (found := self.by_step.get(step) or self.by_step.get(self.spelled(step))) is not None:
                return _value_at(found, name[len(step) + 1 :])
            if step in self.outputs:
                return _value_at(self.outputs[step], name[len(step) + 1 :])
            step, dot, _ = step.rpartition(".")
        return False, None

    def _start(self, payload: RunStart, _: str) -> None:
        self.runbook, self.runbook_hash = payload.runbook, payload.runbook_hash

    def is_reached(self, name: str) -> bool:
        """Return whether a step ran, by id or path, as in events or as people write the keys of items."""
        return any(each in self.visited or each in self.paths for each in (name, self.spelled(name)))

    def spelled(self, name: str) -> str:
        """Return a name as it is in events: people write `step[a/b]`, events have `step[a%2Fb]`."""
        return self._spelled.get(name, name)

    def _visit(self, step_id: str, path: str) -> None:
        self.visited[step_id] = None
        if step_id.endswith("]"):
            self.visited[step_id.partition("[")[0]] = None
        self.paths[path] = None

    def _step_start(self, payload: StepStart, path: str) -> None:
        self._visit(payload.step_id, path)

    def _step_complete(self, payload: StepComplete, path: str) -> None:
        if payload.status != "skipped":
            self._visit(payload.step_id, path)
        if payload.outputs:
            self.outputs.update(payload.outputs)
            self.by_step[payload.step_id] = payload.outputs

    def _branch(self, payload: BranchEnter, path: str) -> None:
        self.arms[path, payload.branch_label] = None

    def _end(self, payload: OutcomeResolved, path: str) -> None:
        self.ends[path] = payload.structured_outcome

    def _decided(self, payload: GovernanceDecision, _: str) -> None:
        verdict, risk = _VERDICTS[payload.decision], _RISKS[payload.risk_level]
        step = payload.step_id
        for name in (step, step.partition("[")[0]) if step.endswith("]") else (step,):
            self.decisions[name] = max(verdict, self.decisions.get(name, verdict))
            self.risks[name] = max(risk, self.risks.get(name, risk))

    def _violated(self, payload: ContractViolation, _: str) -> None:
        self.violations.append(f"{payload.kind} at {payload.step_id}")

    def _complete(self, payload: RunComplete, _: str) -> None:
        self.status, self.outcome, self.duration = payload.status, payload.outcome, payload.duration
        self.failure, self.failed_step = payload.failure, payload.failed_step


_VERDICTS: Mapping[str, Verdict] = {each.word: each for each in Verdict}
_RISKS: Mapping[str, Risk] = {each.word: each for each in Risk}
_FOLDS: Mapping[type[Payload], Callable[[RunObservation, Any, str], None]] = {
    RunStart: RunObservation._start,
    StepStart: RunObservation._step_start,
    StepComplete: RunObservation._step_complete,
    BranchEnter: RunObservation._branch,
    OutcomeResolved: RunObservation._end,
    GovernanceDecision: RunObservation._decided,
    ContractViolation: RunObservation._violated,
    RunComplete: RunObservation._complete,
}
_KNOWN = frozenset(each.type for each in _FOLDS)


def _event(text: str) -> tuple[str, str | None]:
    kind, _, step = text.strip().partition(" ")
    return kind, step.strip() or None


def _value_at(value: Any, path: str) -> tuple[bool, Any]:
    """Return whether a dotted path exists in maps and lists, and its value."""
    for segment in path.split("."):
        if isinstance(value, Mapping) and segment in value:
            value = value[segment]
        elif isinstance(value, list) and segment.isdecimal() and len(segment) < 9 and int(segment) < len(value):
            value = value[int(segment)]
        else:
            return False, None
    return True, value
