"""Summarizes the events of a run: how it ended, the steps it visited, their outputs, and decisions."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Self
from urllib.parse import unquote

from gert.kernel.engine.plan import Plan, Planner
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook import (
    ApprovalSubmitted,
    BranchEnter,
    ContractViolation,
    Failure,
    ForEachStart,
    GovernanceDecision,
    Outcome,
    OutcomeResolved,
    PreviewCaptured,
    RunComplete,
    RunStart,
    StepComplete,
    StepStart,
)
from gert.kernel.events.vocabulary import RunStatus
from gert.kernel.governance.decide import Decision
from gert.kernel.governance.risk import Risk
from gert.kernel.governance.rules import Policy
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runbook.documents.steps import EndStep
from gert.kernel.runbook.program import Program
from gert.kernel.runbook.validate.domain.files.scenario_file import step_of
from gert.kernel.scenario.commands import Command, ToolCall


class RunObservation:
    """A fold over the events of one run.

    visited: the steps that ran, in order: by id, and iterations also as `id[index]` or `id[key]`
    loops: the loops that ran, by path
    paths: where steps ran; `arms` which arms were entered, `ends` where outcomes were resolved
    outputs: the last value of every output, by name; `by_step` by its step
    decisions, risks: the strictest, by step
    calls: the calls of tools, in order, by path
    program: renders their commands; None for a trace, which has those that were approved
    policies: decide about its steps; a trace has their verdicts
    pending: expected events that have not occurred yet
    """

    def __init__(
        self, wanted: Sequence[str] = (), program: Program | None = None, policies: Sequence[Policy] = ()
    ) -> None:
        self.program = program
        self._planner = Planner(program, policies) if program is not None else None
        self.calls: dict[str, list[ToolCall]] = {}
        self._approved: dict[str, Mapping[str, Any]] = {}
        self._previewed: dict[str, tuple[str, ...]] = {}
        self._called_as: dict[str, list[ToolCall]] = {}
        self.runbook: str | None = None
        self.runbook_hash: str | None = None
        self.status: RunStatus | None = None
        self.outcome: Outcome | None = None
        self.failure: Failure | None = None
        self.failed_step: str | None = None
        self.duration: str | None = None
        self.visited: dict[str, None] = {}
        self._spelled: dict[str, str] = {}
        self._names: set[str] = set()
        self._named = 0
        self.loops: dict[str, ForEachStart] = {}
        self._loops: dict[str, bool] = {}
        self._times: Counter[str] = Counter()
        self._decided_at: dict[str, tuple[Verdict, Risk]] = {}
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
            if payload.type == kind and (step is None or step in named or self._is_at(step, payload, path)):
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
        """Return whether a step ran, by its id or the end of its path; items may be left out."""
        if name in self.visited or name in self.paths:
            return True
        if "/" not in name and "[" not in name:
            return False
        if self._named != len(self.paths):
            self._named = len(self.paths)
            self._names = {each for path in self.paths for each in _spellings(path)}
        return name in self._names or any(_is_spelled(name, path) for path in self.paths if _is_deep(path))

    def is_failed_at(self, name: str) -> bool:
        """Return whether the run failed at a step, by its id or the end of its path."""
        return self.failed_step is not None and _is_spelled(name, self.failed_step)

    def decision_on(self, name: str) -> tuple[Verdict, Risk] | None:
        """Return the strictest decision on a step, and its highest risk, by its id or the end of its path."""
        step = self.spelled(name)
        if step in self.decisions:
            return self.decisions[step], self.risks[step]
        found = [each for path, each in self._decided_at.items() if _is_spelled(name, path)]
        return (max(verdict for verdict, _ in found), max(risk for _, risk in found)) if found else None

    def rules_on(self, name: str) -> Decision | None:
        """Return what the policies require of a step, by its id or the end of its path; None for a trace."""
        step = self.program.by_id.get(step_of(name)) if self.program is not None else None
        if self._planner is None or step is None:
            return None
        plan = self._planner.end_settings(step) if isinstance(step, EndStep) else self._planner.plan(step)
        settings = plan.settings if isinstance(plan, Plan) else plan
        return settings.decision if settings is not None else None

    def commands(self, name: str) -> list[tuple[ToolCall, Command | None]]:
        """Return the calls of a step with their commands, in order, by its id or the end of its path."""
        if not self._called_as:
            for path, calls in self.calls.items():
                for spelled in set(_spellings(path)):
                    self._called_as.setdefault(spelled, []).extend(calls)
        named = self._called_as.get(name) or [
            call for path, calls in self.calls.items() if _is_deep(path) and _is_spelled(name, path) for call in calls
        ]
        return [(call, call.command(self.program)) for call in named]

    def _is_at(self, step: str, payload: Payload, path: str | None) -> bool:
        """Return whether an event is about a step, or about an item of it that has events of its own only."""
        if isinstance(payload, StepStart | StepComplete):
            return self.spelled(step) in (payload.step_id, path)
        return path is not None and _is_spelled(step, path)

    def spelled(self, name: str) -> str:
        """Return a name as it is in events: people write `step[a/b]`, events have `step[a%2Fb]`."""
        return self._spelled.get(name, name)

    def _loop(self, payload: ForEachStart, path: str) -> None:
        """Take back that a loop with items was reached: it is, once one of them ran."""
        self.loops[path] = payload
        if payload.item_count == 0 or path in self._loops:
            return
        self._loops[path] = False
        if self.paths.pop(path, self) is None:
            self._times[payload.step_id] -= 1
            if not self._times[payload.step_id]:
                del self.visited[payload.step_id]

    def _visit(self, step_id: str, path: str) -> None:
        if not self._loops.get(path, True):
            return
        for at in (match.start() for match in _ITEM.finditer(path)):
            self._loops[path[:at]] = True
        names = (step_id.partition("[")[0], step_id) if step_id.endswith("]") else (step_id,)
        for name in names:
            self.visited[name] = None
        if path not in self.paths:
            self.paths[path] = None
            self._times.update(names)

    def _step_start(self, payload: StepStart, path: str) -> None:
        self._visit(payload.step_id, path)
        if payload.tool is not None:
            approved = self._approved.pop(path, None)
            writes = payload.contract_summary.get("writes") != []
            called = (payload.tool, payload.action or "", payload.inputs, writes)
            call = ToolCall(path, payload.step_id, *called, approved, self._previewed.pop(path, ()))
            self.calls.setdefault(path, []).append(call)

    def _preview(self, payload: PreviewCaptured, path: str) -> None:
        self._previewed[path] = payload.command

    def _submitted(self, payload: ApprovalSubmitted, path: str) -> None:
        command = (payload.request or {}).get("command")
        if isinstance(command, Mapping):
            self._approved[path] = command

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

    def _decided(self, payload: GovernanceDecision, path: str) -> None:
        verdict, risk = _VERDICTS[payload.decision], _RISKS[payload.risk_level]
        self._decided_at[path] = verdict, risk
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
    ApprovalSubmitted: RunObservation._submitted,
    PreviewCaptured: RunObservation._preview,
    ForEachStart: RunObservation._loop,
    BranchEnter: RunObservation._branch,
    OutcomeResolved: RunObservation._end,
    GovernanceDecision: RunObservation._decided,
    ContractViolation: RunObservation._violated,
    RunComplete: RunObservation._complete,
}
_KNOWN = frozenset(each.type for each in _FOLDS)


_ITEM: Final = re.compile(r"\[")
_MOST_ITEMS: Final = 3


def _is_deep(path: str) -> bool:
    """Return whether a path has so many items that its spellings are not listed."""
    return path.count("[") > _MOST_ITEMS


def _spellings(path: str) -> Iterator[str]:
    """Yield the ways to write the path of a call, if it is not deep, which `_is_spelled` accepts."""
    ends = [""]
    for segment in () if _is_deep(path) else reversed(path.split("/")):
        ends = [f"{way}/{end}" if end else way for way in _ways(segment) for end in ends]
        yield from ends


def _is_spelled(name: str, path: str) -> bool:
    """Return whether a name is the end of a path, with or without items, as in events or as people read it."""
    rests = {name}
    for segment in reversed(path.split("/")):
        cut = {rest[: len(rest) - len(way)] for rest in rests for way in _ways(segment) if rest.endswith(way)}
        if "" in cut:
            return True
        rests = {rest[:-1] for rest in cut if rest.endswith("/")}
    return False


def _ways(segment: str) -> Iterable[str]:
    names = (segment, segment.partition("[")[0])
    return dict.fromkeys(each for name in names for each in (name, unquote(name)))


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
