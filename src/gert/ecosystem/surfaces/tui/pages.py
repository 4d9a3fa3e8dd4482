"""What the pages of a run say, as lines: variables, contract, explanation, the line of an event, the last words."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from gert.ecosystem.host.policy.explain_runbook import Explained
from gert.ecosystem.surfaces.tui.steps import Node, StepTree
from gert.ecosystem.surfaces.tui.text import json_lines
from gert.kernel.events import runbook as says
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import Payload
from gert.kernel.foundation.globs import HIDDEN, Marks, Visibility, visible_part
from gert.kernel.foundation.text import one_line, printable
from gert.kernel.runbook.documents.steps import Step
from gert.kernel.runbook.program import Program

_LONGEST: Final = 500
_MOST_STEPS: Final = 200


def variables(tree: StepTree, node: Node | None, program: Program | None) -> Iterator[str]:
    """Inputs and outputs as the record has them, redacted: those that the step may see (DECISIONS 66)."""
    seen = _Seen(_visibility(node, program), program)
    for name, value, source in tree.inputs:
        if seen.shown([(name,)], value) is not HIDDEN:
            yield printable(f"{name} = {one_line(str(value), _LONGEST)}  ({source})")
    for each in tree.walk():
        outputs = each.complete.outputs if each.complete is not None else None
        kept = seen.outputs(each, outputs) if outputs else {}
        if kept:
            yield printable(f"{each.path}:")
            yield from (f"  {line}" for line in json_lines(kept))
    if seen.hidden:
        yield f"({seen.hidden} hidden by the `visibility` of this step)"


def _visibility(node: Node | None, program: Program | None) -> Visibility | None:
    if node is None:
        return None
    if node.visibility is not None:
        return Visibility(node.visibility.allow, node.visibility.deny)
    step = step_of(node, program)
    block = step.visibility if step is not None else None
    return Visibility(block.allow, block.deny) if block is not None else None


class _Seen:
    """Filters values by all the names that they have, and counts those that are hidden."""

    def __init__(self, visibility: Visibility | None, program: Program | None) -> None:
        self._start = None if visibility is None else Marks.start(visibility)
        self._program = program
        self.hidden = 0

    def shown(self, names: list[tuple[str, ...]], value: Any) -> Any:
        """The visible part of a value, or HIDDEN."""
        if self._start is None:
            return value
        marks: list[Marks] = []
        for name in names:
            at = self._start
            for segment in name:
                at = at.below(segment)
            marks.append(at)
        found = visible_part(value, Marks.any_of(marks))
        self.hidden += found is HIDDEN
        return found

    def outputs(self, node: Node, outputs: dict[str, Any]) -> dict[str, Any]:
        """The visible outputs of a step."""
        step = step_of(node, self._program)
        step_id = node.start.step_id if node.start is not None else node.name
        scope = tuple(step.scope.source.split("/")) if step is not None and step.scope is not None else ()
        kept = {}
        for name, value in outputs.items():
            names = [(step_id, name), ("step", step_id, name)]
            names.append(("scope", *scope, name) if scope else (name,))
            found = self.shown(names, value)
            if found is not HIDDEN:
                kept[name] = found
        return kept


def step_of(node: Node, program: Program | None) -> Step | None:
    """The step of the runbook that a node of the tree runs."""
    if program is None:
        return None
    wanted = node.start.step_id if node.start is not None else node.name
    return next((each for each in program.steps if each.id == wanted), None)


def contract(node: Node) -> list[str]:
    """The contract of a step, and the rule that decided."""
    decision, start = node.decision, node.start
    rows = [
        ("step", node.path),
        ("title", node.title),
        ("type", node.kind),
        ("status", node.status),
        ("risk", node.risk),
        ("decision", decision.decision if decision is not None else "not decided yet"),
        ("rule", decision.rule if decision is not None else ""),
    ]
    return [*pairs(rows), "", *json_lines(start.contract_summary if start is not None else {})]


def explained(found: Explained) -> list[str]:
    """Risk, decision and deciding rule of each step of a runbook."""
    return [
        printable(
            f"{each.name:<24} {each.explanation.risk.word:<9} {each.explanation.decision.verdict.word:<17} "
            f"{each.explanation.decision.rule or 'no rule matches'}"
        )
        for each in found.steps
    ]


def pairs(rows: Iterable[tuple[str, Any]]) -> list[str]:
    """Rows of a name and a value, aligned."""
    listed = [(name, printable(str(value))) for name, value in rows if value not in (None, "")]
    width = max((len(name) for name, _ in listed), default=0) + 2
    return [f"{name + ':':<{width}}{value}" for name, value in listed]


def event_summary(event: Envelope, said: Payload) -> list[str]:
    """The line of an event in the output, if it has one."""
    where = printable(event.path or "")
    if isinstance(said, says.GovernanceDecision) and said.decision != "allow":
        return [f"▪ {where}: {said.decision} ({printable(said.rule or 'no rule')})"]
    if isinstance(said, says.StepStart) and said.step_type in ("tool", "extension", "manual"):
        target = " ".join(filter(None, (said.tool, said.action, said.extension)))
        return [f"→ {where} {printable(target)}"]
    if isinstance(said, says.BranchEnter):
        return [f"▪ {where}: branch {printable(str(said.branch_label))}"]
    if isinstance(said, says.StepComplete) and said.failure is not None:
        return [f"✗ {where}: {one_line(said.failure.message, _LONGEST)}"]
    if isinstance(said, says.ApprovalResolved):
        return [f"▪ {where}: {'approved' if said.approved else 'not approved'}"]
    if isinstance(said, says.RunComplete):
        return [f"▪ the run has ended: {said.status}"]
    return []


def exit_summary(run_id: str, status: str, tree: StepTree, command: str | None) -> list[str]:
    """What is printed on the normal screen afterwards: the steps, what failed, and the next command."""
    lines = [f"run {run_id}: {status}"]
    begun = [node for node in tree.walk() if node.status not in ("pending", "part")]
    for node in begun[:_MOST_STEPS]:
        lines.append(f"{'  ' * node.path.count('/')}{node.mark} {node.name} {node.duration}".rstrip())
    if len(begun) > _MOST_STEPS:
        lines.append(f"… and {len(begun) - _MOST_STEPS:,} more steps")
        lines += [f"{node.mark} {node.path}" for node in begun[_MOST_STEPS:] if node.has_failed][:_MOST_STEPS]
    if tree.outcome:
        lines.append(f"outcome: {tree.outcome}")
    if tree.failure:
        lines.append(f"failed: {one_line(tree.failure, _LONGEST)}")
    if command is not None:
        lines.append(f"next: {command}")
    return [printable(line) for line in lines]
