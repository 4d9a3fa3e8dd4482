"""State: constants stay constant, exports exist and do not conflict, visibility is well formed and consistent."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Final

import msgspec

from gert.errors import GertError
from gert.kernel.foundation.globs import Visibility, parse_glob, split_path
from gert.kernel.foundation.names import listing, suggestion
from gert.kernel.foundation.text import shorten
from gert.kernel.runbook.documents.runbook import Runbook
from gert.kernel.runbook.documents.steps import BranchStep, ExtensionStep, Step, ToolStep
from gert.kernel.runbook.finding import Finding, Path, error, warning
from gert.kernel.runbook.program import Program, step_lists
from gert.kernel.runbook.validate.case import Case
from gert.kernel.runbook.validate.domain.names.scopes import ANY_SEGMENT, is_path, scope_key
from gert.kernel.runbook.validate.domain.parallel import global_names
from gert.kernel.runbook.validate.domain.templates import templates_of

# How many earlier owners of a name are compared, so that checking stays linear.
MAX_OWNERS: Final = 20

_COUNTER: Final = frozenset({"repeat"})


def constant_names(case: Case) -> Iterator[Finding]:
    """D27: no output has the name of a constant; an output that hides an input is a warning."""
    meta = case.program.runbook.meta
    for step in case.program.steps:
        for name in global_names(case.program, step):
            if name in meta.constants:
                message = f"{step.label} sets `{name}`, which is a constant"
                yield error("D27", step.path, message, "rename the constant, or put the output in a `scope`")
            elif name in meta.inputs and name not in step.export:
                message = f"{step.label} sets `{name}`, which hides the input of that name"
                yield warning("D27", step.path, message, "rename one of them, or put the output in a `scope`")


def exported_outputs(case: Case) -> Iterator[Finding]:
    """D29: a step exports only its own outputs, under a name that nothing else has."""
    meta = case.program.runbook.meta
    owners: defaultdict[str, list[Step]] = defaultdict(list)
    branches = {step.path for step in case.program.steps if isinstance(step, BranchStep)}
    for step in case.program.steps:
        contract = case.program.contract_of(step)
        outputs = case.program.outputs_of(step)
        for index, name in enumerate(step.export):
            path = step.at("export", index)
            if contract is not None and name not in outputs:
                hint = suggestion(name, outputs) or f"it has {listing(outputs)}"
                yield error("D29", path, f"{step.label} has no output `{shorten(name)}` to export", hint)
            elif step.for_each is not None:
                continue  # a loop exports under its own id, which is unique
            elif name in meta.inputs or name in meta.constants:
                what = "an input" if name in meta.inputs else "a constant"
                yield error("D29", path, f"`{name}` is already the name of {what}")
            else:
                others = [each for each in owners[name][:MAX_OWNERS] if not are_exclusive(each, step, branches)]
                owners[name].append(step)
                if others:
                    message = f"`{name}` is already exported by {others[0].label}"
                    yield error("D29", path, message, "export it from one step only")


def are_exclusive(one: Step, other: Step, branches: set[Path]) -> bool:
    """Return whether two steps are in different arms of one branch, so that only one of them can run."""
    for depth, (here, there) in enumerate(zip(one.path, other.path, strict=False)):
        if here != there:
            return depth > 0 and one.path[depth - 1] == "branches" and one.path[: depth - 1] in branches
    return False


def scope_paths(case: Case) -> Iterator[Finding]:
    """D47: a scope is a path of names, as far as is known before templates are rendered."""
    for step in case.program.steps:
        if step.scope is not None and not is_path(step.scope):
            message = f"`{shorten(step.scope.source)}` is not a valid scope path"
            yield error("D47", step.at("scope"), message, "use a path such as `round/0`")


def visibility_globs(case: Case) -> Iterator[Finding]:
    """D30: visibility globs are well formed. D31: a step does not read what it hides from itself."""
    for step, items in _with_items(case.program.runbook):
        if step.visibility is None:
            continue
        problems = list(_malformed(step))
        yield from problems
        if not problems:
            allow, deny = step.visibility.allow, step.visibility.deny
            yield from _hidden_reads(step, items, Visibility(allow, None), Visibility(None, deny), case.program)


def _with_items(runbook: Runbook) -> Iterator[tuple[Step, frozenset[str]]]:
    """Yield every step, and the items of its enclosing loops, which are always visible."""
    within: dict[int, frozenset[str]] = {}
    for steps in step_lists(runbook):
        around = within[id(steps.owner)] if steps.owner is not None else _COUNTER
        for step in steps.steps:
            own = {step.for_each.as_} if step.for_each is not None else set()
            within[id(step)] = items = around | own
            yield step, items


def _malformed(step: Step) -> Iterator[Finding]:
    block = step.visibility
    if block is None:
        return
    for side, globs in (("allow", block.allow), ("deny", block.deny)):
        for index, text in enumerate(globs or ()):
            try:
                parse_glob(text)
                if odd := set(text) & set("[]{}()?!"):
                    message = f"`{min(odd)}` has no meaning in a path: only `*` and `**` are wildcards"
                    yield error("D30", block.at(side, index), message)
            except GertError as problem:
                yield error("D30", block.at(side, index), problem.message, problem.hint)


def _hidden_reads(
    step: Step, items: frozenset[str], allow: Visibility, deny: Visibility, program: Program
) -> Iterator[Finding]:
    for path, template in templates_of(step):
        for reference in template.references:
            # A computed key is unknown, but it is below the path before it.
            words = [str(segment) for segment in takewhile(lambda each: isinstance(each, str), reference.path)]
            if words and words[0] not in items and _is_hidden(words, allow, deny, program):
                yield msgspec.structs.replace(_hidden_finding(step, words, path), offset=reference.offset)
    for source, path in step.spread if isinstance(step, ToolStep | ExtensionStep) else ():
        words = list(split_path(source))
        if words[0] not in items and _is_hidden(words, allow, deny, program):
            yield _hidden_finding(step, words, path)


def _is_hidden(words: list[str], allow: Visibility, deny: Visibility, program: Program) -> bool:
    """Return whether a read value is hidden, whichever step stored it: hiding one of its names hides all of them."""
    stored = [[".".join(name) for name in names] for names in _names(words, program)]
    is_allowed = any(map(_sees(allow), {name for names in stored for name in names if ANY_SEGMENT not in name}))
    # The path of a templated scope is known only at run time.
    is_allowed = is_allowed or any(ANY_SEGMENT in name for names in stored for name in names)
    return not is_allowed or all(not all(map(_sees(deny), names)) for names in stored)


def _names(words: list[str], program: Program) -> Iterator[list[list[str]]]:
    """Yield all names of each output that may be stored under a name; other values have one or two."""
    head, rest = words[0], words[1:]
    if head == "step" and rest:
        head, rest = rest[0], rest[1:]
    if head == "scope":
        makers = [(each, name, list(rest[depth:])) for depth in range(1, len(rest) + 1) for each in program.steps
                  if each.scope is not None and (name := rest[depth - 1]) in program.outputs_of(each)]  # fmt: skip
        yield from ([words, *_names_of(each, name, below, program)] for each, name, below in makers)
        if not makers:
            yield [words]
        return
    step = program.by_id.get(head)
    if step is not None and rest and rest[0] in program.outputs_of(step) and step.for_each is None:
        yield [words, *_names_of(step, rest[0], rest[1:], program)]
    elif step is None and (owners := [each for each in program.steps if head in global_names(program, each)]):
        yield from ([words, *_names_of(each, head, rest, program)] for each in owners[:MAX_OWNERS])
    else:
        yield [[head, *rest], ["step", head, *rest]]


def _names_of(step: Step, output: str, below: list[str], program: Program) -> Iterator[list[str]]:
    """Yield the names of a part of an output of a step."""
    if step.id is not None:
        yield [step.id, output, *below]
        yield ["step", step.id, output, *below]
    if output in global_names(program, step):
        yield [output, *below]
    if step.scope is not None:
        yield ["scope", *scope_key(step.scope), output, *below]


def _hidden_finding(step: Step, words: list[str], path: Path) -> Finding:
    message = f"{step.label} reads `.{'.'.join(words)}`, which its `visibility` hides"
    return error("D31", path, message, "allow it, or do not read it")


def _sees(sight: Visibility) -> Callable[[str], bool]:
    return lambda name: sight.sees(name) or sight.sees_into(name)
