"""Names: step ids are unique, and no name is reserved or used for something else."""

from collections.abc import Iterator
from typing import Final

from gert.kernel.runbook.documents.steps import ManualStep, Step
from gert.kernel.runbook.finding import Finding, Path, error, warning
from gert.kernel.runbook.program import Program
from gert.kernel.runbook.validate.case import Case
from gert.kernel.runbook.validate.domain.names.scopes import ARCHIVE, scope_key
from gert.kernel.runbook.validate.domain.parallel import global_names

RESERVED: Final = {
    "step": "`.step.<id>` reads the outputs of a step",
    "scope": "`.scope.<path>` reads a scope",
    "repeat": "`.repeat.index` counts iterations",
}


def unique_ids(case: Case) -> Iterator[Finding]:
    """D01: step ids are unique in the whole runbook, at every depth."""
    program = case.program
    seen: dict[str, Step] = {}
    for step in program.steps:
        if step.id is None:
            continue
        if step.id in seen:
            first = seen[step.id]
            yield error(
                "D01",
                step.at("id"),
                f"the step id `{step.id}` is used twice",
                f"first by a `{first.type}` step",
            )
        else:
            seen[step.id] = step


def reserved_names(case: Case) -> Iterator[Finding]:
    """D02: `step`, `scope` and `repeat` are namespaces of the language."""
    program = case.program
    for name, path, what in _declared_names(program):
        if name in RESERVED:
            yield error("D02", path, f"`{name}` cannot be the name of {what}", RESERVED[name], on_key=True)
    for step in program.steps:
        head = scope_key(step.scope)[:1] if step.scope is not None else ()
        if head in ((ARCHIVE,), ("step",)):
            hint = "repeated blocks store their iterations there" if head == (ARCHIVE,) else RESERVED["step"]
            yield error("D02", step.at("scope"), f"a scope cannot begin with `{head[0]}`", hint)


def duplicate_names(case: Case) -> Iterator[Finding]:
    """D03: a name means one thing: an input, a constant, a step or a loop's item."""
    program = case.program
    owners: dict[str, str] = {}
    for name, path, what in _declared_names(program):
        if what == "an output":
            continue
        taken = owners.setdefault(name, what)
        if taken != what:
            message = f"`{name}` is already the name of {taken}"
            # An item shadows a name only inside its loop; everything else conflicts everywhere.
            yield (warning if what == "a loop's item" else error)(
                "D03", path, message, "rename one of them", on_key=True
            )


def hidden_step_ids(case: Case) -> Iterator[Finding]:
    """D03: an output with the name of a step hides that step: `.name` is the output."""
    program = case.program
    said: set[str] = set()
    for step in program.steps:
        for name in global_names(program, step):
            if name in program.by_id and name not in said and name not in RESERVED:
                said.add(name)
                message = f"`{name}` is a step and also an output of {step.label}; `.{name}` is the output"
                yield warning("D03", program.by_id[name].at("id"), message, "rename the step")


def _declared_names(program: Program) -> Iterator[tuple[str, Path, str]]:
    meta = program.runbook.meta
    for name in meta.inputs:
        yield name, ("meta", "inputs", name), "an input"
    for name in meta.constants:
        yield name, ("meta", "constants", name), "a constant"
    for step in program.steps:
        if step.id is not None:
            yield step.id, step.at("id"), "a step"
    for step in program.steps:
        if step.for_each is not None:
            yield step.for_each.as_, step.for_each.at("as"), "a loop's item"
        if isinstance(step, ManualStep):
            for evidence in step.required_evidence:
                yield evidence.name, evidence.at("name"), "an output"
        if step.contract is not None:
            for name in step.contract.outputs:
                yield name, step.contract.at("outputs", name), "an output"


def loop_ids(case: Case) -> Iterator[Finding]:
    """D04: a loop needs an id, under which its results are stored."""
    program = case.program
    for step in program.steps:
        if step.for_each is not None and step.id is None:
            message = f"a `{step.type}` step with `for_each` needs an `id`"
            yield error("D04", step.path, message, "its results are stored under that id")
