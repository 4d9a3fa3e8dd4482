"""A program: a runbook together with the tools it declares, and the contract of each of its steps."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import msgspec

from gert.kernel.foundation.duration import parse_duration
from gert.kernel.governance.contract import ASSERT_CONTRACT, NOTHING, Contract, Declared, manual_contract, resolve
from gert.kernel.governance.parameter import Parameter
from gert.kernel.governance.risk import Risk
from gert.kernel.governance.rules import ContractMatch, Limits, Policy, Rule
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runbook.document import Document
from gert.kernel.runbook.documents.contract import ContractBlock
from gert.kernel.runbook.documents.governance import GovernanceBlock, MatchBlock, RuleBlock
from gert.kernel.runbook.documents.policy import PolicyFile
from gert.kernel.runbook.documents.runbook import Runbook
from gert.kernel.runbook.documents.skill import Skill
from gert.kernel.runbook.documents.steps import (
    AssertStep,
    BranchStep,
    ExtensionStep,
    GroupStep,
    ManualStep,
    ParallelStep,
    RepeatStep,
    Step,
    ToolStep,
)
from gert.kernel.runbook.documents.tool import RUNNER, ActionBlock, Tool
from gert.kernel.runbook.finding import Path
from gert.kernel.runbook.tools import name_of

RUNBOOK_POLICY: Final = "runbook"
PASSED: Final = Parameter(type="bool")
EVIDENCE_TYPES: Final = {"text": "string", "checklist": "list", "attachment": "object"}


class ToolLookup(msgspec.Struct, frozen=True):
    """The lookup of one entry of `tools`: the document found, or the places searched."""

    entry: str
    searched: tuple[str, ...]
    file: str | None = None
    document: Document | None = None

    @property
    def tool(self) -> Tool | None:
        """The tool, if it was found and is valid."""
        return self.document.model if self.document is not None else None


class SkillLookup(msgspec.Struct, frozen=True):
    """The lookup of a skill by its id: where it is, and its document."""

    id: str
    file: str
    document: Document

    @property
    def skill(self) -> Skill | None:
        """The skill, if it is valid."""
        return self.document.model if self.document.is_sound else None


class StepList(msgspec.Struct, frozen=True):
    """Steps that follow each other: the top level, an arm, a lane, a repeated body, a group or `finally`."""

    role: str
    steps: tuple[Step, ...]
    path: Path
    owner: Step | None = None


class Program:
    """A runbook and its tools, as one thing that can be checked and run.

    skills: the skills that its tools name and that were found, by id
    """

    def __init__(
        self,
        runbook: Runbook,
        tools: Mapping[str, ToolLookup],
        skills: Mapping[str, SkillLookup] = MappingProxyType({}),
    ) -> None:
        self.runbook = runbook
        self.lookups = tools
        self.skills = skills
        self.tool_names: dict[str, ToolLookup] = {}
        """Declared tools by entry and by name."""
        for entry, lookup in tools.items():
            self.tool_names.setdefault(entry, lookup)
            self.tool_names.setdefault(name_of(entry), lookup)
        self._action_contracts: dict[tuple[str, str | None], Contract] = {}
        self._contracts: dict[int, Contract | None] = {}
        self._outputs: dict[int, Mapping[str, Parameter]] = {}

    @cached_property
    def lists(self) -> tuple[StepList, ...]:
        """Every list of steps, outermost first."""
        return tuple(step_lists(self.runbook))

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Every step at any depth, in document order."""
        return tuple(walk(self.runbook.steps)) + tuple(walk(self.runbook.finally_))

    @cached_property
    def by_id(self) -> dict[str, Step]:
        """Steps by id; for a duplicate id, the first one."""
        found: dict[str, Step] = {}
        for step in self.steps:
            if step.id is not None:
                found.setdefault(step.id, step)
        return found

    def tool_of(self, step: ToolStep) -> Tool | None:
        """Return the tool of a step, if it is declared, found and valid."""
        lookup = self.tool_names.get(step.tool)
        return lookup.tool if lookup is not None else None

    def action_of(self, step: ToolStep) -> tuple[str, ActionBlock] | None:
        """Return the action of a step; the tool's only one if the step names none."""
        tool = self.tool_of(step)
        if tool is None:
            return None
        if step.action is None:
            return next(iter(tool.actions.items())) if len(tool.actions) == 1 else None
        action = tool.actions.get(step.action)
        return (step.action, action) if action is not None else None

    def contract_of(self, step: Step) -> Contract | None:
        """Return the contract of a step; None for a step that only directs flow, or whose tool is unknown."""
        key = id(step)
        if key not in self._contracts:
            self._contracts[key] = self._resolve(step)
        return self._contracts[key]

    def base_contract_of(self, step: ToolStep) -> Contract | None:
        """Return the contract of a step's tool and action, without the step's own contract."""
        key = (step.tool, step.action)
        if key not in self._action_contracts:
            tool, action = self.tool_of(step), self.action_of(step)
            if tool is None or action is None:
                return None
            self._action_contracts[key] = self.contract_of_action(tool, action[1])
        return self._action_contracts[key]

    def contract_of_action(self, tool: Tool, action: ActionBlock) -> Contract:
        """Return the contract of an action: of its skill, if it calls one, then of the tool, then its own."""
        return contract_of_action(tool, action, self.skill_of(action))

    def skill_of(self, action: ActionBlock) -> Skill | None:
        """Return the skill that an action names, if it was found and is valid."""
        return skill_named(self.skills, action)

    def outputs_of(self, step: Step) -> Mapping[str, Parameter]:
        """Return the outputs that a step can set: for a `stdio` action, those it extracts."""
        key = id(step)
        if key not in self._outputs:
            self._outputs[key] = self._find_outputs(step)
        return self._outputs[key]

    def _find_outputs(self, step: Step) -> Mapping[str, Parameter]:
        contract = self.contract_of(step)
        if contract is None:
            return {}
        if isinstance(step, ToolStep):
            tool, action = self.tool_of(step), self.action_of(step)
            if tool is not None and action is not None and tool.meta.transport == "stdio":
                return {name: each for name, each in contract.outputs.items() if name in action[1].extract}
        return contract.outputs

    def inputs_of(self, step: ToolStep | ExtensionStep) -> Mapping[str, Any]:
        """Return a step's inputs as written; for an input declared as text, its source text (`1.10`, not 1.1)."""
        contract = self.contract_of(step)
        if contract is None or not step.inputs.texts:
            return step.inputs
        declared_as = contract.inputs
        return {
            name: step.inputs.texts.get(name, value)
            if value is not None and name in declared_as and declared_as[name].type == "string"
            else value
            for name, value in step.inputs.items()
        }

    def _resolve(self, step: Step) -> Contract | None:
        if isinstance(step, ToolStep):
            base = self.base_contract_of(step)
            return base.tightened(step.contract.declared()) if base and step.contract else base
        if isinstance(step, ExtensionStep):
            return resolve(step.contract.declared())
        if isinstance(step, ManualStep):
            contract = manual_contract(declared(step.contract))
            evidence = {e.name: Parameter(type=EVIDENCE_TYPES[e.kind]) for e in step.required_evidence}  # type: ignore[arg-type]
            return msgspec.structs.replace(contract, outputs={**evidence, **contract.outputs}) if evidence else contract
        if isinstance(step, AssertStep):
            return _ASSERT
        return None


_ASSERT: Final = msgspec.structs.replace(ASSERT_CONTRACT, outputs={"passed": PASSED})


def contract_of_action(tool: Tool, action: ActionBlock, skill: Skill | None) -> Contract:
    """Return the contract of an action: of its skill, if it calls one, then of the tool, then its own."""
    outer = _skill_contract(skill, action) if skill is not None and tool.meta.transport == RUNNER else NOTHING
    return resolve(outer, declared(tool.contract), declared(action.contract))


def skill_named(skills: Mapping[str, SkillLookup], action: ActionBlock) -> Skill | None:
    """Return the skill that an action names, if it was found and is valid."""
    lookup = skills.get(action.skill or "")
    return lookup.skill if lookup is not None else None


def _skill_contract(skill: Skill, action: ActionBlock) -> Declared:
    """Return the contract of an action's skill: the outermost layer, which the tool can only tighten."""
    said = skill.contract.declared()
    # Nothing is executed, so there is nothing that outputs could be taken from.
    return msgspec.structs.replace(said, outputs={}) if action.is_authorized_only else said


def skills_named(tools: Iterable[Tool]) -> list[str]:
    """Return the ids of the skills that runner actions name, in order."""
    actions = (action for tool in tools if tool.meta.transport == RUNNER for action in tool.actions.values())
    return list(dict.fromkeys(action.skill for action in actions if action.skill is not None))


def declared(block: ContractBlock | None) -> Declared:
    """Return a contract block for governance; an empty one if there is none."""
    return block.declared() if block is not None else NOTHING


def walk(steps: tuple[Step, ...]) -> Iterator[Step]:
    """Yield every step at any depth, parents before children."""
    for step in steps:
        yield step
        for inner in inner_lists(step):
            yield from walk(inner.steps)


def inner_lists(step: Step) -> Iterator[StepList]:
    """Yield the lists of steps that a step contains."""
    if isinstance(step, BranchStep):
        for index, arm in enumerate(step.branches):
            yield StepList("arm", arm.steps, step.at("branches", index, "steps"), step)
    elif isinstance(step, ParallelStep):
        for index, lane in enumerate(step.branches):
            yield StepList("lane", lane.steps, step.at("branches", index, "steps"), step)
    elif isinstance(step, RepeatStep):
        yield StepList("body", step.body, step.body_path, step)
    elif isinstance(step, GroupStep):
        yield StepList("group", step.steps, step.at("steps"), step)


def step_lists(runbook: Runbook) -> Iterator[StepList]:
    """Yield every list of steps in a runbook, outermost first."""
    pending = [StepList("steps", runbook.steps, ("steps",))]
    if runbook.finally_:
        pending.append(StepList("finally", runbook.finally_, ("finally",)))
    while pending:
        current = pending.pop()
        yield current
        for step in current.steps:
            pending.extend(inner_lists(step))


def policy_of(governance: GovernanceBlock | None, name: str = RUNBOOK_POLICY) -> Policy:
    """Return the policy that a governance block describes."""
    if governance is None:
        return Policy(name=name)
    timeout = governance.approval_timeout
    return Policy(
        name=name,
        rules=tuple(rule_of(block) for block in governance.rules),
        approval_timeout=parse_duration(timeout).total_seconds() if timeout else None,
        require_signed_approvals=governance.require_signed_approvals or governance.require_verified_approval,
        separation_of_duties=governance.separation_of_duties,
    )


def policy_file(document: PolicyFile) -> Policy:
    """Return the policy that a policy file describes."""
    policy = policy_of(document.governance, document.meta.name)
    groups = {name: frozenset(people) for name, people in document.groups.items()}
    return msgspec.structs.replace(policy, groups=groups)


def rule_of(block: RuleBlock) -> Rule:
    """Return a rule for governance."""
    risk = (block.risk,) if isinstance(block.risk, str) else block.risk
    return Rule(
        name=block.name,
        risk=frozenset(Risk.from_word(word) for word in risk) if risk is not None else None,
        contract=ContractMatch(**_matchers(block.contract)) if block.contract is not None else None,
        default=Verdict.from_word(block.default) if block.default else None,
        action=Verdict.from_word(block.action) if block.action else None,
        contract_violations="deny" if block.contract_violations else None,
        min_approvers=block.min_approvers,
        approvers=frozenset(block.approvers or ()),
        separation_of_duties=bool(block.separation_of_duties),
        notify=frozenset(block.notify or ()),
        on_timeout=block.on_timeout,  # type: ignore[arg-type]
        escalate_to=frozenset(block.escalate_to or ()),
        limits=Limits(max_targets=block.limits.max_targets, max_per_hour=block.limits.max_per_hour)
        if block.limits
        else Limits(),
        break_glass=bool(block.break_glass),
        serialize=bool(block.serialize),
        outcome=frozenset(block.outcome) if block.outcome is not None else None,
        **_matchers(block),
    )


def _matchers(block: MatchBlock) -> dict[str, Any]:
    tags = {name: getattr(block, name) for name in ("effects", "writes", "reads")}
    return {
        **{name: frozenset(listed) if listed is not None else None for name, listed in tags.items()},
        "deterministic": block.deterministic,
        "idempotent": block.idempotent,
    }
