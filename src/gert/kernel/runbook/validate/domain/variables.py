"""Variables: every name a template uses is set on the way to it (kernel-v0 §7).

The walk goes through the steps in order, adding what each one sets. Arms and lanes start from the same
names; after them a name is certain if every way through sets it. A loop body is an overlay.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from gert.kernel.foundation.names import did_you_mean
from gert.kernel.runbook.documents.steps import (
    AssertStep,
    BranchStep,
    EndStep,
    ExtensionStep,
    ManualStep,
    ParallelStep,
    RepeatStep,
    Step,
    ToolStep,
)
from gert.kernel.runbook.finding import Finding, Path, Severity
from gert.kernel.runbook.program import walk
from gert.kernel.runbook.reader import shorten
from gert.kernel.runbook.validate.case import Case
from gert.kernel.runbook.validate.domain.names import Binding, Names
from gert.kernel.runbook.validate.domain.scopes import Scopes
from gert.kernel.runbook.validate.domain.shapes import (
    ANYTHING,
    Dead,
    Items,
    Keyed,
    Record,
    Scalar,
    Shape,
    follow,
    shape_of_parameter,
    shape_of_value,
)
from gert.kernel.template import Reference, Template, templates_in

STATUS: Final = Scalar("string")
COUNT: Final = Scalar("int")
ITERATION: Final = Record({"index": COUNT, "round": COUNT})


def variables(case: Case) -> Iterator[Finding]:
    """D24: every name resolves. D25: on every path. D26: an item inside its loop, a list as a list."""
    found = _Walk(case)
    found.run()
    yield from found.findings


class _Walk:
    """One pass over a runbook."""

    def __init__(self, case: Case) -> None:
        program = case.program
        self.program = program
        self.flow = case.flow
        self.names = Names()
        self.records = Names()
        self.scopes = Scopes()
        self.findings: list[Finding] = []
        self.asked: Counter[str] = Counter()
        self.jumpers = {
            target for step in program.steps if step.next is not None for target in (step.id, step.next.step)
        }
        # Where a name lives that is not in force here, for hints.
        self.items = {s.for_each.as_: s for s in program.steps if s.for_each is not None}
        self._makers: dict[str, Step] | None = None

    def run(self) -> None:
        """Check constants, then steps, then `finally`."""
        meta = self.program.runbook.meta
        for name, block in meta.inputs.items():
            self.names.bind(name, shape_of_parameter(block.parameter()))
        for name, value in meta.constants.items():
            self.check_value(value, ("meta", "constants", name))
            self.names.bind(name, shape_of_value(value))
        before = self.names.mark(), self.records.mark()
        self.list(self.program.runbook.steps)
        # `finally` runs however the run ended, so nothing a step set is certain there.
        made = self.names.undo(before[0]), self.records.undo(before[1])
        for known, bindings in zip((self.names, self.records), made, strict=True):
            for name, binding in bindings.items():
                known.bind(name, binding.shape, certain=False)
        self.finally_names()
        self.list(self.program.runbook.finally_)

    def finally_names(self) -> None:
        """Whatever any step may have set may be there in `finally`, also from arms that ended the run."""
        if not self.program.runbook.finally_:
            return
        for name, maker in self.makers.items():
            contract = self.program.contract_of(maker)
            if contract is not None and self.names.get(name) is None:
                self.names.bind(name, shape_of_parameter(contract.outputs[name]), certain=False)
        for step in self.program.steps:
            if step.id is not None and self.records.get(step.id) is None:
                self.records.bind(step.id, self.record(step), certain=False)

    # --- lists and blocks

    def list(self, steps: tuple[Step, ...]) -> None:
        """Check steps that follow each other, minding the jumps among them."""
        index_of = {step.id: index for index, step in enumerate(steps) if step.id is not None}
        seen_back = 0
        doubts: dict[int, list[int]] = {}
        furthest_back = _back_edges(steps, index_of)
        marks: list[tuple[int, int]] = []
        for index, step in enumerate(steps):
            for start in doubts.pop(index, ()):
                self.doubt_since(marks[start])
            # A jump back brings along what the loop has set, if it was taken.
            reach = furthest_back.get(index)
            if reach is not None:
                for later in walk(steps[max(index, seen_back) : reach + 1]):
                    self.sets(later, certain=False)
                seen_back = max(seen_back, reach + 1)
            self.step(step)
            marks.append((self.names.mark(), self.records.mark()))
            target = index_of.get(step.next.step) if step.next is not None else None
            if target is not None and target > index:
                # What lies between is skipped, so after the target it is in doubt.
                doubts.setdefault(target, []).append(index)

    def doubt_since(self, marks: tuple[int, int]) -> None:
        """What was set between a jump and its target may have been skipped."""
        for known, mark in zip((self.names, self.records), marks, strict=True):
            for name in known.since(mark):
                known.doubt(name)

    def step(self, step: Step) -> None:
        """Check what a step reads, then add what it sets."""
        if step.for_each is not None:
            self.check_value(step.for_each.over, step.for_each.at("over"), step)
            before = self.names.mark(), self.records.mark()
            self.names.bind(step.for_each.as_, ANYTHING)
            self.check(step.for_each.key, step.for_each.at("key"), step)
            self.body(step)
            self.names.undo(before[0])
            self.records.undo(before[1])
        else:
            self.body(step)
        self.sets(step, certain=step.when is None)

    def body(self, step: Step) -> None:
        """Check the templates of a step and the steps inside it."""
        if step.id is not None and step.id in self.jumpers:
            self.records.bind(step.id, Record({"retry_count": COUNT}), certain=True)
        self.check(step.when, step.at("when"), step)
        for path, template in _templates(step):
            self.check(template, path, step)
        if isinstance(step, BranchStep):
            self.arms(step)
        elif isinstance(step, ParallelStep):
            self.lanes(step)
        elif isinstance(step, RepeatStep):
            self.iterations(step)

    def arms(self, step: BranchStep) -> None:
        """Each arm starts from the same names; what all that go on have set is certain afterwards."""
        covered = any(arm.is_default for arm in step.branches) and step.when is None and step.for_each is None
        ways: list[tuple[dict[str, Binding], dict[str, Binding]]] = []
        for index, arm in enumerate(step.branches):
            if not arm.is_default:
                self.check(arm.condition, step.at("branches", index, "condition"), step)
            before = self.names.mark(), self.records.mark()
            asked = [_subject(reference) for reference in arm.condition.references]
            self.asked.update(asked)
            self.list(arm.steps)
            self.asked.subtract(asked)
            made = self.names.undo(before[0]), self.records.undo(before[1])
            if self.flow.falls_through(arm.steps):
                ways.append(made)
        for which, known in enumerate((self.names, self.records)):
            for name in dict.fromkeys(name for way in ways for name in way[which]):
                bindings = [way[which][name] for way in ways if name in way[which]]
                certain = covered and len(bindings) == len(ways) and all(b.certain for b in bindings)
                known.bind(name, _common(bindings), certain=certain)

    def lanes(self, step: ParallelStep) -> None:
        """Each lane has its own copy; afterwards all of them have happened."""
        certain = step.when is None and step.for_each is None
        gathered = []
        for lane in step.branches:
            before = self.names.mark(), self.records.mark()
            self.list(lane.steps)
            gathered.append((self.names.undo(before[0]), self.records.undo(before[1])))
        for made in gathered:
            for known, bindings in zip((self.names, self.records), made, strict=True):
                for name, binding in bindings.items():
                    known.bind(name, binding.shape, certain=binding.certain and certain)

    def iterations(self, step: RepeatStep) -> None:
        """A body is an overlay: only what it exports survives it, into the next iteration and beyond."""
        self.check_bound(step.repeat.max, step.repeat.at("max"), step)
        exports: dict[str, Shape] = {}
        for inner in step.body:
            exports.update(self.exported(inner))
        before = self.names.mark(), self.records.mark()
        self.names.bind("repeat", ITERATION)
        for name, shape in exports.items():
            self.names.bind(name, shape, certain=False)
        self.list(step.body)
        self.check(step.repeat.until, step.repeat.at("until"), step)
        made = self.names.undo(before[0])
        self.records.undo(before[1])
        self.scopes.declare_repeat(step.id)
        for name in exports:
            self.names.bind(name, made[name].shape, certain=made[name].certain and step.when is None)

    # --- what steps set

    def sets(self, step: Step, *, certain: bool) -> None:
        """Add what a step sets once it has run."""
        if step.id is not None:
            self.records.bind(step.id, self.record(step), certain=certain)
        contract = self.program.contract_of(step)
        if step.scope is not None and contract is not None:
            self.scopes.declare(step.scope, contract.outputs, is_open=step.for_each is not None)
        if step.for_each is None and contract is not None and step.scope is None:
            for name, parameter in contract.outputs.items():
                self.names.bind(name, shape_of_parameter(parameter), certain=certain)
        for name, shape in self.exported(step).items():
            self.names.bind(name, shape, certain=certain)

    def exported(self, step: Step) -> dict[str, Shape]:
        """Names a step makes global; inside a loop they are kept under the step's id instead."""
        if not step.export or step.for_each is not None:
            return {}
        contract = self.program.contract_of(step)
        outputs = contract.outputs if contract is not None else {}
        return {name: shape_of_parameter(outputs[name]) if name in outputs else ANYTHING for name in step.export}

    def record(self, step: Step) -> Shape:
        """What `.step_id` holds."""
        contract = self.program.contract_of(step)
        if contract is None:
            if step.for_each is not None:
                return Keyed(ANYTHING) if step.for_each.key is not None else Items(ANYTHING, step.id)
            unknown = isinstance(step, ToolStep)
            return ANYTHING if unknown else Record({"status": STATUS, "retry_count": COUNT})
        fields: dict[str, Shape] = {"status": STATUS, "retry_count": COUNT}
        if isinstance(step, ToolStep | ExtensionStep):
            fields["exit_code"] = COUNT
        fields.update((name, shape_of_parameter(parameter)) for name, parameter in contract.outputs.items())
        record = Record(fields)
        if step.for_each is None:
            return record
        return Keyed(record) if step.for_each.key is not None else Items(record, step.id)

    # --- what steps read

    def check_value(self, value: Any, path: Path, step: Step | None = None) -> None:
        """Check every template in a nested value."""
        for below, template in templates_in(value):
            self.check(template, path + below, step)

    def check_bound(self, bound: Any, path: Path, step: Step) -> None:
        """Check a bound that may be a template."""
        if isinstance(bound, Template):
            self.check(bound, path, step)

    def check(self, template: Template | None, path: Path, step: Step | None = None) -> None:
        """Check every reference of one template."""
        if template is None or template.is_text:
            return
        for reference in template.references:
            if reference.path and isinstance(reference.path[0], str):
                self.resolve(reference, path, step)

    def resolve(self, reference: Reference, path: Path, step: Step | None) -> None:
        """Look a reference up in the namespaces, in the order the engine does."""
        head = str(reference.path[0])
        rest = reference.path[1:]
        if head == "scope":
            dead = self.scopes.follow(rest)
            if dead is not None:
                self.report("D24", dead, reference, path)
            return
        said = f".{head}"
        if head == "step":
            if not rest or not isinstance(rest[0], str):
                return
            head, rest, said = rest[0], rest[1:], f".step.{rest[0]}"
            binding = self.records.get(head)
            if binding is not None and rest[:1] == ("status",):
                rest = ()
        else:
            binding = self.names.get(head) or self.records.get(head)
        if binding is None:
            self.unknown(head, said, reference, path)
            return
        dead = follow(binding.shape, rest, said)
        if dead is not None and not (head in self.jumpers and rest == ("retry_count",)):
            self.report("D26" if dead.is_list else "D24", dead, reference, path)
        elif not binding.certain and not reference.tolerant and not self.is_asked(reference, step):
            message = f"`{said}` is not set on every path to here"
            hint = f'give it a fallback, as in `default "" {said}`, or guard the step with `when`'
            self.report("D25", Dead(message, hint), reference, path, Severity.WARNING)

    def is_asked(self, reference: Reference, step: Step | None) -> bool:
        """Whether the author has asked before: by a `when` on the step, or by the condition of an arm around it."""
        return (step is not None and step.when is not None) or self.asked[_subject(reference)] > 0

    def unknown(self, head: str, said: str, reference: Reference, path: Path) -> None:
        """Say why a name is not known here, as precisely as possible."""
        name = shorten(head)
        if head in self.items:
            loop = self.items[head]
            message = f"`{said}` exists only inside the loop of {loop.label}"
            self.report("D26", Dead(message, f"its results are in the list `.{loop.id}`"), reference, path)
        elif head == "repeat":
            self.report("D24", Dead("`.repeat` exists only inside a `repeat` block"), reference, path)
        elif (maker := self.makers.get(head)) is not None or (maker := self.program.by_id.get(head)) is not None:
            rule, dead = self.elsewhere(name, said, maker)
            self.report(rule, dead, reference, path)
        else:
            guess = did_you_mean(head, chain(self.names.bound, self.records.bound))
            dead = Dead(f"nothing here is called `{said}`", f"did you mean `.{guess}`?" if guess else None)
            self.report("D24", dead, reference, path)

    def elsewhere(self, name: str, said: str, maker: Step) -> tuple[str, Dead]:
        """A name that exists, but not here."""
        if maker.id == name:
            return "D24", Dead(f"the step `{name}` has not run on any path to here")
        if maker.for_each is not None:
            keyed = maker.for_each.key is not None
            hint = f'use `index .{maker.id} {"<key>" if keyed else "0"} "{name}"`'
            return "D26", Dead(f"`{said}` is set inside the loop of {maker.label}", hint)
        if maker.scope is not None:
            return "D24", Dead(
                f"`{said}` is kept in the scope `{shorten(maker.scope.source)}`",
                f"read `.{maker.id}.{name}`, or add `export: [{name}]` to {maker.label}",
            )
        return "D24", Dead(f"`{said}` is set by {maker.label}, which has not run on any path to here")

    @property
    def makers(self) -> Mapping[str, Step]:
        """For every output name, the first step that sets it; worked out only when needed."""
        if self._makers is None:
            self._makers = {}
            for step in self.program.steps:
                contract = self.program.contract_of(step)
                for name in contract.outputs if contract is not None else ():
                    self._makers.setdefault(name, step)
        return self._makers

    def report(
        self, rule: str, dead: Dead, reference: Reference, path: Path, severity: Severity = Severity.ERROR
    ) -> None:
        """Keep a finding at the reference itself."""
        self.findings.append(
            Finding(
                rule=rule,
                severity=severity,
                path=path,
                message=dead.message,
                hint=dead.hint,
                offset=reference.offset,
            )
        )


def _subject(reference: Reference) -> str:
    """What a reference is about: the name, or the step behind `.step`."""
    named = reference.path[1:] if reference.path[:1] == ("step",) else reference.path
    return str(named[0]) if named else ""


def _templates(step: Step) -> Iterator[tuple[Path, Template]]:
    """The templates of a step that are not conditions of its flow."""
    for name in ("title", "description", "scope"):
        template = getattr(step, name)
        if template is not None:
            yield step.at(name), template
    if step.principal is not None:
        for name in ("id", "role", "model"):
            template = getattr(step.principal, name)
            if template is not None:
                yield step.principal.at(name), template
    if step.next is not None and isinstance(step.next.max, Template):
        yield step.next.at("max"), step.next.max
    if isinstance(step, ToolStep | ExtensionStep):
        yield from _nested(step.inputs, step.at("inputs"))
    elif isinstance(step, ManualStep):
        yield step.at("instructions"), step.instructions
    elif isinstance(step, AssertStep):
        for assertion in step.assert_:
            yield from _nested(assertion.value, assertion.at("value"))
            for name in ("expected", "message"):
                template = getattr(assertion, name)
                if template is not None:
                    yield assertion.at(name), template
    elif isinstance(step, EndStep):
        yield step.outcome.at("code"), step.outcome.code
        yield from _nested(step.outcome.meta, step.outcome.at("meta"))


def _nested(value: Any, path: Path) -> Iterator[tuple[Path, Template]]:
    for below, template in templates_in(value):
        yield path + below, template


def _back_edges(steps: Sequence[Step], index_of: Mapping[str, int]) -> dict[int, int]:
    """For each step that is jumped back to, the last step that does so."""
    furthest: dict[int, int] = {}
    for index, step in enumerate(steps):
        target = index_of.get(step.next.step) if step.next is not None else None
        if target is not None and target <= index:
            furthest[target] = max(furthest.get(target, 0), index)
    return furthest


def _common(bindings: Iterable[Binding]) -> Shape:
    shapes = [binding.shape for binding in bindings]
    return shapes[0] if all(shape == shapes[0] for shape in shapes) else ANYTHING
