"""Validation in three phases: structural, semantic, domain. A phase runs only when the one before is sound."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from gert.kernel.runbook.document import Document
from gert.kernel.runbook.documents.project import Config
from gert.kernel.runbook.finding import Finding, Severity, error, in_order
from gert.kernel.runbook.program import Program
from gert.kernel.runbook.validate.case import Case
from gert.kernel.runbook.validate.domain import (
    contracts,
    environment,
    evidence,
    flow,
    governance,
    identity,
    installation,
    parallel,
    secrets,
    state,
    tools,
    variables,
)
from gert.kernel.runbook.validate.domain.policy_test_file import policy_test_file
from gert.kernel.runbook.validate.domain.scenario_file import scenario_file, test_file
from gert.kernel.runbook.validate.domain.tool_file import tool_file
from gert.kernel.runbook.validate.facts import NO_FACTS, Facts
from gert.kernel.runbook.validate.semantic import semantic

__all__ = ["NO_FACTS", "Facts", "validate"]

RUNBOOK_RULES: Final[tuple[Callable[[Case], Iterator[Finding]], ...]] = (
    identity.unique_ids,
    identity.reserved_names,
    identity.one_meaning,
    identity.outputs_beside_ids,
    identity.loops_are_named,
    flow.every_path_ends,
    flow.jumps,
    flow.branches,
    flow.guards,
    flow.ends,
    flow.repeats,
    parallel.lanes,
    parallel.clashes,
    parallel.conflicts,
    tools.found,
    tools.declared,
    tools.inputs,
    secrets.command_lines,
    variables.variables,
    state.constants,
    state.exports,
    state.scopes,
    state.visibility,
    contracts.tightening,
    contracts.parameters,
    contracts.deprecated,
    contracts.extensions,
    contracts.writes,
    contracts.retries,
    evidence.assertions,
    evidence.evidence,
    governance.runbook_rules,
    environment.secrets,
    environment.platforms,
    environment.bindings,
    environment.inputs,
    installation.runnable,
    environment.webhooks,
)


def _runbook(model: Any, program: Program | None, facts: Facts) -> Iterator[Finding]:
    case = Case(program or Program(model, {}), facts)
    for rule in RUNBOOK_RULES:
        yield from rule(case)


def _config(model: Config, program: Program | None, facts: Facts) -> Iterator[Finding]:
    """D45: a floor that is not there would let everything through, so no run begins without it."""
    yield from governance.flat_groups(model.groups)
    for index, path in enumerate(model.policies):
        if path in facts.absent:
            yield error(
                "D45", ("policies", index), f"there is no policy at `{path}`", "paths are relative to this file"
            )
        elif path in facts.refused:
            hint = "every file in a folder of policies is one, or a test of one: move, rename or correct it"
            yield error("D45", ("policies", index), f"every run is refused: {facts.refused[path]}", hint)


DOMAIN: Final[Mapping[str, Callable[[Any, Program | None, Facts], Iterator[Finding]]]] = {
    "runbook": _runbook,
    "tool": lambda model, _, facts: tool_file(model, facts),
    "policy": lambda model, _, facts: governance.policy_rules(model, facts),
    "policy-test": lambda model, _, __: policy_test_file(model),
    "project": _config,
    "config": _config,
    "scenario": lambda model, program, _: scenario_file(model, program),
    "test": lambda model, program, _: test_file(model, program),
}


def validate(document: Document, program: Program | None = None, facts: Facts = NO_FACTS) -> Document:
    """Carry a loaded document through the semantic and domain phases; findings are placed and in order.

    `program` is the runbook with its tools: the document itself for a runbook, the one a scenario or test
    belongs to for those. All findings of a phase are reported at once.
    """
    if document.model is None or not document.is_sound:
        return document
    place = document.tree.place
    found = [*document.findings, *map(place, semantic(document))]
    if all(finding.severity < Severity.ERROR for finding in found):
        found += map(place, DOMAIN[document.kind](document.model, program, facts))
    return msgspec.structs.replace(document, findings=in_order(found))
