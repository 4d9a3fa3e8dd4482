"""Variables: every name that a template uses is set before it (kernel-v0 §7).

The walk goes through the steps in order, adding what each one sets. Arms and lanes start from the same
names; after them a name is certain if every path sets it. A loop body is an overlay.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gert.errors import InputError
from gert.kernel.foundation.globs import split_path
from gert.kernel.foundation.text import with_article
from gert.kernel.foundation.values import coerce, show
from gert.kernel.runbook.documents.modifiers import ForEachBlock
from gert.kernel.runbook.documents.steps import (
    AssertStep,
    BranchStep,
    ExtensionStep,
    GroupStep,
    ParallelStep,
    RepeatStep,
    Step,
    ToolStep,
)
from gert.kernel.runbook.finding import Finding, Path, error
from gert.kernel.runbook.program import walk
from gert.kernel.runbook.validate.case import Case
from gert.kernel.runbook.validate.domain.guards import guess_template
from gert.kernel.runbook.validate.domain.names.known import Known, Marks, subjects
from gert.kernel.runbook.validate.domain.names.scopes import ANY_SEGMENT, ARCHIVE, Scopes, scope_key
from gert.kernel.runbook.validate.domain.names.shapes import (
    ANYTHING,
    KeyedShape,
    ListShape,
    RecordShape,
    ScalarShape,
    Shape,
    StatusShape,
    never_fits,
    shape_of_parameter,
    shape_of_value,
    type_of,
)
from gert.kernel.runbook.validate.domain.templates import templates_of
from gert.kernel.runbook.validate.domain.tools import literal_objection, without_secret
from gert.kernel.template import Template, templates_in

STATUS: Final = StatusShape("string")
COUNT: Final = ScalarShape("int")
ITERATION: Final = RecordShape({"index": COUNT, "round": COUNT})


def resolved_variables(case: Case) -> Iterator[Finding]:
    """D24: every name resolves. D25: on every path. D26: an item inside its loop, a list as a list.

    D28: `inputs_from` names objects that are known there.
    """
    found = _Walk(case)
    found.run()
    yield from found.findings


class _Walk:
    """One pass over a runbook."""

    def __init__(self, case: Case) -> None:
        self.program = case.program
        self.flow = case.flow
        self.known = Known(case.program)
        self.constants: dict[str, Shape] = {}
        self.findings: list[Finding] = []

    def run(self) -> None:
        """Check constants, then steps, then `finally`."""
        known, meta = self.known, self.program.runbook.meta
        for name, block in meta.inputs.items():
            known.names.bind(name, shape_of_parameter(block.parameter()))
        for name, value in meta.constants.items():
            self.check_value(value, ("meta", "constants", name))
            self.constants[name] = shape_of_value(value)
            known.names.bind(name, self.constants[name])
        before = known.mark()
        self.list(self.program.runbook.steps)
        if not self.program.runbook.finally_:
            return
        # `finally` always runs: anything may have been set, and nothing is certain.
        known.undo(before)
        for step in walk(self.program.runbook.steps):
            self.sets(step, certain=False)
        self.list(self.program.runbook.finally_)

    # --- lists and blocks

    def list(self, steps: tuple[Step, ...]) -> None:
        """Check a list of steps, including the jumps between them."""
        index_of = {step.id: index for index, step in enumerate(steps) if step.id is not None}
        jumped_from: dict[int, int] = {}
        looped_to = _back_edges(steps, index_of)
        brought = 0
        marks: list[Marks] = []
        for index, step in enumerate(steps):
            if index in jumped_from:
                self.known.doubt_since(marks[jumped_from[index]])
            # After a jump back, names set by the steps between may be set.
            reach = looped_to.get(index)
            if reach is not None:
                for later in walk(steps[max(index, brought) : reach + 1]):
                    self.sets(later, certain=False)
                brought = max(brought, reach + 1)
            self.step(step)
            marks.append(self.known.mark())
            target = index_of.get(step.next.step) if step.next is not None else None
            if target is not None and target > index:
                # The steps between are skipped: their names are uncertain from the target on, by the earliest jump.
                jumped_from.setdefault(target, index)

    def step(self, step: Step) -> None:
        """Check what a step reads, then add what it sets."""
        if step.for_each is not None:
            self.check_value(step.for_each.over, step.for_each.at("over"), step)
            item = self.check_items(step.for_each)
            before = self.known.mark()
            self.known.names.bind(step.for_each.as_, item)
            self.check(step.for_each.key, step.for_each.at("key"), step)
            self.body(step)
            _, _, filled = self.known.undo(before)
            # Names set by its steps do not survive an item; their scopes do, if there was an item.
            goes = isinstance(step.for_each.over, list) and bool(step.for_each.over) and step.when is None
            self.known.absorb(({}, {}, filled), certain=goes)
        else:
            self.body(step)
        # The `when` of a loop is evaluated for each item, so its list always exists.
        self.sets(step, certain=step.when is None or step.for_each is not None)

    def body(self, step: Step) -> None:
        """Check the templates of a step and the steps inside it."""
        self.check(step.when, step.at("when"), step)
        for path, template in templates_of(step):
            self.check(template, path, step)
        if step.next is not None and isinstance(step.next.max, Template):
            self.check(step.next.max, step.next.at("max"), step)
            self.check_bound(step.next.max, step.next.at("max"), "D08")
        if isinstance(step, ToolStep | ExtensionStep):
            for source, path in step.spread:
                self.findings += self.known.source(source, path)
            self.check_types(step)
        elif isinstance(step, BranchStep):
            self.arms(step)
        elif isinstance(step, ParallelStep):
            self.lanes(step)
        elif isinstance(step, RepeatStep):
            self.iterations(step)
        elif isinstance(step, GroupStep):
            self.group(step)

    def check_types(self, step: ToolStep | ExtensionStep) -> None:
        """D20: an input that is set to a single name gets a value of its type."""
        contract = self.program.contract_of(step)
        for name, value in step.inputs.items() if contract is not None else ():
            parameter = contract.inputs.get(name) if contract is not None else None
            found = self.known.shape_of(value) if parameter is not None else None
            if parameter is None or found is None:
                continue
            shape, said = found
            why = None
            if never_fits(shape, parameter.type):
                why = f" takes {parameter.type}, and `{said}` is {_noun(shape)}"
            elif (constant := self.constant(shape, said)) is not None:
                why = without_secret(literal_objection(constant, parameter), parameter)
                why = why and f": `{said}` does not fit: {why}"
            if why is not None:
                self.findings.append(error("D20", step.at("inputs", name), f"the input `{name}`{why}"))

    def constant(self, shape: Shape, said: str) -> Any:
        """Return the value of the constant that a name refers to; None if it is not a constant, or has templates."""
        head, *rest = split_path(said.removeprefix("."))
        found: Any = self.program.runbook.meta.constants.get(head)
        binding = self.known.names.get(head)
        if not isinstance(shape, ScalarShape) or binding is None or binding.shape is not self.constants.get(head):
            return None  # an item of a loop may have the same name
        for segment in rest:
            found = found[segment] if isinstance(found, Mapping) else None
        return None if isinstance(found, Template) else found

    def check_items(self, loop: ForEachBlock) -> Shape:
        """D20: a loop needs a list, or text that is a JSON list. Return the shape of its items."""
        over = loop.over
        if isinstance(over, list):
            shape = shape_of_value(over)
        elif over.is_text:
            shape = shape_of_value(self.listed(loop))
        elif (found := self.known.shape_of(over)) is None:
            return ANYTHING
        else:
            shape, said = found
            if never_fits(shape, "list"):
                message = f"`over` takes a list, and `{said}` is {_noun(shape)}"
                self.findings.append(error("D20", loop.at("over"), message))
        return shape.item if isinstance(shape, ListShape) else ANYTHING

    def listed(self, loop: ForEachBlock) -> Any:
        """D20: text in `over` must be a JSON list; other text is not split."""
        try:
            return coerce(loop.over.source, "list")
        except InputError:
            message = f"`over` takes a list, found the text {show(loop.over.source)}"
            guess = guess_template(loop.over.source.strip()) if loop.over.source.strip().startswith(".") else None
            hint = f"use `'{guess}'`" if guess else "use a list, as in `over: [a, b]`"
            self.findings.append(error("D20", loop.at("over"), message, hint))
            return []

    def check_bound(self, bound: Template, path: Path, rule: str) -> None:
        """D08, D14: a `max` that is a single name is a number, or text that may be one."""
        found = self.known.shape_of(bound)
        if found is not None and never_fits(found[0], "int"):
            message = f"`max` takes a whole number, and `{found[1]}` is {_noun(found[0])}"
            self.findings.append(error(rule, path, message))

    def arms(self, step: BranchStep) -> None:
        """Check the arms; each starts from the same names, and names set by all that continue are certain after."""
        ways = []
        for index, arm in enumerate(step.branches):
            if not arm.is_default:
                self.check(arm.condition, step.at("branches", index, "condition"), step)
            before = self.known.mark()
            asked = subjects(arm.condition)
            self.known.asked.update(asked)
            self.list(arm.steps)
            self.known.asked.subtract(asked)
            made = self.known.undo(before)
            if self.flow.falls_through(arm.steps):
                ways.append(made)
        covered = any(arm.is_always_taken for arm in step.branches) and step.when is None
        self.known.absorb_any(ways, covered=covered)

    def lanes(self, step: ParallelStep) -> None:
        """Check the lanes; each has its own copy, and afterwards all of them have run."""
        gathered = []
        for lane in step.branches:
            before = self.known.mark()
            self.list(lane.steps)
            gathered.append(self.known.undo(before))
        for made in gathered:
            self.known.absorb(made, certain=step.when is None)

    def group(self, step: GroupStep) -> None:
        """Check a group; its steps set names as if they were outside it."""
        before = self.known.mark()
        self.list(step.steps)
        self.known.absorb(self.known.undo(before), certain=step.when is None)

    def iterations(self, step: RepeatStep) -> None:
        """Check a repeated body; it is an overlay, and only its exports survive an iteration."""
        if isinstance(step.repeat.max, Template):
            self.check(step.repeat.max, step.repeat.at("max"), step)
            self.check_bound(step.repeat.max, step.repeat.at("max"), "D14")
        exports: dict[str, Shape] = {}
        for inner in walk(step.body):
            exports.update(self.exported(inner))
        before = self.known.mark()
        self.known.names.bind("repeat", ITERATION)
        for name, shape in exports.items():
            self.known.names.bind(name, shape, certain=False)
        self.list(step.body)
        self.check(step.repeat.until, step.repeat.at("until"), step)
        names, _, filled = self.known.undo(before)
        surviving = {name: names[name] for name in exports}
        self.known.absorb((surviving, {}, filled), certain=step.when is None)
        archived = [name for inner in walk(step.body) for name in (*self.program.outputs_of(inner), inner.id) if name]
        for key in ((ARCHIVE, step.id), (ARCHIVE, step.id, ANY_SEGMENT)):
            Scopes.fill(self.known.filled, key, archived, certain=step.when is None)

    # --- what steps set

    def sets(self, step: Step, *, certain: bool) -> None:
        """Add what a step sets once it has run."""
        if step.id is not None:
            self.known.records.bind(step.id, self.record(step), certain=certain)
        contract = self.program.contract_of(step)
        if contract is None and isinstance(step, ToolStep):
            self.known.is_blind = True
        if contract is not None and step.scope is not None:
            outputs = tuple(self.program.outputs_of(step))
            Scopes.fill(self.known.filled, scope_key(step.scope), outputs, certain=certain)
        elif contract is not None and step.for_each is None and not isinstance(step, AssertStep):
            for name, parameter in self.program.outputs_of(step).items():
                self.known.names.bind(name, shape_of_parameter(parameter), certain=certain)
        for name, shape in self.exported(step).items():
            self.known.names.bind(name, shape, certain=certain)

    def exported(self, step: Step) -> dict[str, Shape]:
        """Return the names that a step makes global; in a loop they are stored under the step's id instead."""
        if not step.export or step.for_each is not None:
            return {}
        outputs = self.program.outputs_of(step)
        return {name: shape_of_parameter(outputs[name]) if name in outputs else ANYTHING for name in step.export}

    def record(self, step: Step) -> Shape:
        """Return the shape of `.step_id`."""
        contract = self.program.contract_of(step)
        if contract is None and isinstance(step, ToolStep):
            item: Shape = ANYTHING
        else:
            fields: dict[str, Shape] = {"status": STATUS}
            if step.id in self.known.jumpers:
                fields["retry_count"] = COUNT
            if isinstance(step, ToolStep | ExtensionStep):
                fields["exit_code"] = COUNT
            for name, parameter in self.program.outputs_of(step).items():
                fields[name] = shape_of_parameter(parameter)
            # The results of a block depend on its own steps.
            item = ANYTHING if contract is None and step.for_each is not None else RecordShape(fields)
        if step.for_each is None:
            return item
        return KeyedShape(item) if step.for_each.key is not None else ListShape(item)

    # --- what steps read

    def check(self, template: Template | None, path: Path, step: Step | None = None) -> None:
        """Check every reference of one template."""
        self.findings += self.known.check(template, path, step)

    def check_value(self, value: Any, path: Path, step: Step | None = None) -> None:
        """Check every template in a nested value."""
        for below, template in templates_in(value):
            self.check(template, path + below, step)


def _noun(shape: Shape) -> str:
    noun = type_of(shape) or "value"
    return "a map" if noun == "object" else with_article(noun)


def _back_edges(steps: Sequence[Step], index_of: Mapping[str, int]) -> dict[int, int]:
    """Return, for each target of a backward jump, the last step that jumps to it."""
    furthest: dict[int, int] = {}
    for index, step in enumerate(steps):
        target = index_of.get(step.next.step) if step.next is not None else None
        if target is not None and target <= index:
            furthest[target] = max(furthest.get(target, 0), index)
    return furthest
