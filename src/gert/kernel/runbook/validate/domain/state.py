"""State: constants stay constant, exports exist and do not clash, visibility is well formed and consistent."""

from collections.abc import Iterator

from gert.errors import GertError
from gert.kernel.foundation.globs import Visibility, parse_glob
from gert.kernel.foundation.names import did_you_mean
from gert.kernel.runbook.documents.steps import Step
from gert.kernel.runbook.finding import Finding, error, warning
from gert.kernel.runbook.model import listing
from gert.kernel.runbook.reader import shorten
from gert.kernel.runbook.validate.case import Case
from gert.kernel.runbook.validate.domain.parallel import global_names
from gert.kernel.runbook.validate.domain.templates import templates_of


def constants(case: Case) -> Iterator[Finding]:
    """D27: no output takes the name of a constant; one that hides an input is at least said so."""
    meta = case.program.runbook.meta
    for step in case.program.steps:
        for name in global_names(case.program, step):
            if name in meta.constants:
                message = f"{step.label} sets `{name}`, which is a constant"
                yield error("D27", step.path, message, "rename the constant, or keep the output in a `scope`")
            elif name in meta.inputs and name not in step.export:
                message = f"{step.label} sets `{name}`, which hides the input of that name"
                yield warning("D27", step.path, message, "rename one of them, or keep the output in a `scope`")


def exports(case: Case) -> Iterator[Finding]:
    """D29: a step exports only outputs it has, and under a name nobody else owns."""
    meta = case.program.runbook.meta
    owner: dict[str, Step] = {}
    for step in case.program.steps:
        contract = case.program.contract_of(step)
        for index, name in enumerate(step.export):
            path = step.at("export", index)
            if contract is not None and name not in contract.outputs:
                guess = did_you_mean(name, contract.outputs)
                hint = f"did you mean `{guess}`?" if guess else f"it has {listing(contract.outputs)}"
                yield error("D29", path, f"{step.label} has no output `{shorten(name)}` to export", hint)
            elif step.for_each is not None:
                continue  # a loop exports under its own id, which is unique
            elif name in meta.inputs or name in meta.constants:
                what = "an input" if name in meta.inputs else "a constant"
                yield error("D29", path, f"`{name}` is already the name of {what}")
            elif owner.setdefault(name, step) is not step:
                message = f"`{name}` is already exported by {owner[name].label}"
                yield error("D29", path, message, "export it from one step only")


def visibility(case: Case) -> Iterator[Finding]:
    """D30: visibility globs are well formed. D31: a step does not read what it hides from itself."""
    for step in case.program.steps:
        if step.visibility is None:
            continue
        problems = list(_malformed(step))
        yield from problems
        if not problems:
            yield from _blind(step, Visibility(step.visibility.allow, step.visibility.deny))


def _malformed(step: Step) -> Iterator[Finding]:
    block = step.visibility
    if block is None:
        return
    for side, globs in (("allow", block.allow), ("deny", block.deny)):
        for index, text in enumerate(globs or ()):
            try:
                parse_glob(text)
            except GertError as problem:
                yield error("D30", block.at(side, index), problem.message, problem.hint)


def _blind(step: Step, sight: Visibility) -> Iterator[Finding]:
    item = step.for_each.as_ if step.for_each is not None else None
    for path, template in templates_of(step):
        for reference in template.references:
            words = [segment for segment in reference.path if isinstance(segment, str)]
            if not words or words[0] == item or len(words) < len(reference.path):
                continue
            if not sight.sees(".".join(words)) and not sight.sees_into(".".join(words)):
                message = f"{step.label} reads `.{'.'.join(words)}`, which its `visibility` hides"
                yield error("D31", path, message, "allow it, or do not read it")
