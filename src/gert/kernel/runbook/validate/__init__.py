"""Validation in three phases: structural, semantic, domain. A phase runs only if the one before found no errors."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from gert.kernel.runbook.document import Document
from gert.kernel.runbook.documents.policy import PolicyFile
from gert.kernel.runbook.documents.project import PROJECT_FILE, Config
from gert.kernel.runbook.finding import Finding, Severity, error, in_order, note
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
    providers,
    runner_steps,
    secrets,
    state,
    tools,
)
from gert.kernel.runbook.validate.domain.files.policy_test_file import policy_test_file
from gert.kernel.runbook.validate.domain.files.scenario_file import scenario_file, test_file
from gert.kernel.runbook.validate.domain.files.skill_file import runner_settings, secrets_policy_file, skill_file
from gert.kernel.runbook.validate.domain.files.tool_file import tool_file
from gert.kernel.runbook.validate.domain.names import variables
from gert.kernel.runbook.validate.facts import NO_FACTS, Facts
from gert.kernel.runbook.validate.semantic import semantic

__all__ = ["NO_FACTS", "Facts", "validate"]

RUNBOOK_RULES: Final[tuple[Callable[[Case], Iterator[Finding]], ...]] = (
    identity.unique_ids,
    identity.reserved_names,
    identity.duplicate_names,
    identity.hidden_step_ids,
    identity.loop_ids,
    flow.every_path_ends,
    flow.jump_targets,
    flow.branch_arms,
    flow.constant_guards,
    flow.misplaced_ends,
    flow.repeated_blocks,
    parallel.lane_count,
    parallel.lane_name_conflicts,
    parallel.lane_resource_conflicts,
    tools.tool_lookups,
    tools.declared_tools,
    tools.tool_inputs,
    runner_steps.known_skills,
    secrets.secrets_on_command_lines,
    secrets.plain_secrets,
    variables.resolved_variables,
    state.constant_names,
    state.exported_outputs,
    state.scope_paths,
    state.visibility_globs,
    contracts.tightened_contracts,
    contracts.contract_parameters,
    contracts.deprecated_contracts,
    contracts.extension_effects,
    contracts.declared_writes,
    contracts.safe_retries,
    evidence.assertions,
    evidence.evidence_blocks,
    governance.runbook_rules,
    environment.missing_secrets,
    environment.tool_platforms,
    environment.input_bindings,
    environment.input_limits,
    installation.supported_steps,
    environment.webhook_hosts,
)


def _runbook(model: Any, program: Program | None, facts: Facts) -> Iterator[Finding]:
    case = Case(program or Program(model, {}), facts)
    for rule in RUNBOOK_RULES:
        yield from rule(case)


def _config(model: Config, program: Program | None, facts: Facts) -> Iterator[Finding]:
    """D45: a missing policy would let everything through, so no run begins without it."""
    yield from governance.flat_groups(model.groups)
    yield from providers.provider_blocks(model.providers, facts)
    yield from runner_settings(model, facts)
    for index, path in enumerate(model.policies):
        if path in facts.absent:
            yield error(
                "D45", ("policies", index), f"there is no policy at `{path}`", "paths are relative to this file"
            )
        elif path in facts.refused:
            hint = "a folder of policies may contain only policies and their tests: move, rename or correct the file"
            yield error("D45", ("policies", index), f"every run is refused: {facts.refused[path]}", hint)


def _policy(model: PolicyFile, program: Program | None, facts: Facts) -> Iterator[Finding]:
    """D55: a policy that no run applies looks like a rule and is none."""
    yield from governance.policy_rules(model, facts)
    if facts.is_unapplied:
        message = "the project does not name this policy, so its runs apply it only if `--policy` or GERT_POLICY does"
        yield note("D55", (), message, f"add it, or its folder, to `policies` of {PROJECT_FILE}")


DOMAIN: Final[Mapping[str, Callable[[Any, Program | None, Facts], Iterator[Finding]]]] = {
    "runbook": _runbook,
    "tool": lambda model, _, facts: tool_file(model, facts),
    "policy": _policy,
    "policy-test": lambda model, _, __: policy_test_file(model),
    "skill": lambda model, _, __: skill_file(model),
    "secrets-policy": lambda model, _, __: secrets_policy_file(model),
    "project": _config,
    "config": _config,
    "scenario": lambda model, program, _: scenario_file(model, program),
    "test": lambda model, program, _: test_file(model, program),
}


def validate(document: Document, program: Program | None = None, facts: Facts = NO_FACTS) -> Document:
    """Run the semantic and domain phases on a loaded document; findings have positions and are in order.

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
