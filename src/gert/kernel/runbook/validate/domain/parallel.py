"""Parallel blocks: at least two lanes, no two that set the same name, conflicts are reported."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from gert.kernel.foundation.names import listing
from gert.kernel.runbook.documents.steps import Lane, ParallelStep, Step
from gert.kernel.runbook.finding import Finding, error, warning
from gert.kernel.runbook.program import Program, inner_lists, walk
from gert.kernel.runbook.validate.case import Case
from gert.kernel.runbook.validate.domain.flow import duplicate_labels
from gert.kernel.runbook.validate.domain.names.scopes import ANY_SEGMENT, scope_key

SCOPE: Final = ".scope"
"""The prefix of a scope path; no global name is equal to it."""


def lane_count(case: Case) -> Iterator[Finding]:
    """D11: a parallel block has at least two lanes, and each has steps."""
    for step in _blocks(case.program):
        if len(step.branches) < 2:
            message = f"{step.label} needs at least two lanes, found {len(step.branches)}"
            yield error("D11", step.at("branches"), message, "use the steps without `parallel`")
        for lane in step.branches:
            if not lane.steps:
                yield error("D11", lane.path, "this lane has no steps")
        yield from duplicate_labels("D11", step, "lane")


def lane_name_conflicts(case: Case) -> Iterator[Finding]:
    """D12: two lanes that set the same name would overwrite each other; there is no silent precedence."""
    for block in _blocks(case.program):
        owner: dict[tuple[str, ...], int] = {}
        names = block.names
        for index, lane in enumerate(block.branches):
            for step, place in _lasting_names(case.program, lane.steps):
                first = owner.setdefault(place, index)
                if first != index:
                    what = f"write the scope `{'/'.join(place[1:])}`" if place[0] == SCOPE else f"set `{place[0]}`"
                    message = f"lane `{names[first]}` and lane `{names[index]}` both {what}"
                    hint = "give each lane its own scope"
                    if place[0] != SCOPE:
                        hint = "give the outputs different names, or different scopes"
                    yield error("D12", step.path, message, hint)


def _lasting_names(
    program: Program, steps: tuple[Step, ...], *, exports_only: bool = False
) -> Iterator[tuple[Step, tuple[str, ...]]]:
    """Yield the scopes and global names that steps set; of a repeated body only exports."""
    for step in steps:
        if step.for_each is not None:
            continue  # stored under the step's own id
        contract = program.contract_of(step)
        if step.scope is not None and contract is not None:
            key = scope_key(step.scope)
            # The path of a template is known only at run time; the same template renders to the same path.
            yield step, (SCOPE, *(key if ANY_SEGMENT not in key else (step.scope.source,)))
        for name in step.export if exports_only else global_names(program, step):
            yield step, (name,)
        for inner in inner_lists(step):
            yield from _lasting_names(program, inner.steps, exports_only=exports_only or inner.role == "body")


def global_names(program: Program, step: Step) -> tuple[str, ...]:
    """Return the global names that a step sets: its outputs, or its exports from a scope."""
    if step.for_each is not None:
        return ()
    contract = program.contract_of(step)
    # `.passed` of an assertion is read through its step id and never conflicts.
    if contract is None or step.scope is not None or step.type == "assert":
        return step.export
    return tuple(dict.fromkeys([*program.outputs_of(step), *step.export]))


def lane_resource_conflicts(case: Case) -> Iterator[Finding]:
    """D13: warn about lanes that contend for a resource, because they run one after the other."""
    for block in _blocks(case.program):
        writers: defaultdict[str, list[int]] = defaultdict(list)
        touching: defaultdict[str, list[int]] = defaultdict(list)
        called = block.names
        for index, lane in enumerate(block.branches):
            reads, writes = _resources(case.program, lane)
            for tag in writes:
                writers[tag].append(index)
            for tag in reads | writes:
                touching[tag].append(index)
        for tag in sorted(writers):
            if len(touching[tag]) > 1:
                others = [index for index in touching[tag] if index != writers[tag][0]]
                names = listing((called[index] for index in others), 4)
                message = f"lane `{called[writers[tag][0]]}` writes `{tag}`, which {names} also use"
                yield warning("D13", block.at("branches"), message, "these lanes will run one after the other")


def _resources(program: Program, lane: Lane) -> tuple[set[str], set[str]]:
    reads: set[str] = set()
    writes: set[str] = set()
    for step in walk(lane.steps):
        contract = program.contract_of(step)
        if contract is not None:
            reads |= contract.reads
            writes |= contract.writes
    return reads, writes


def _blocks(program: Program) -> Iterator[ParallelStep]:
    for step in program.steps:
        if isinstance(step, ParallelStep):
            yield step
