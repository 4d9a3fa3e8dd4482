"""Explaining a runbook before it runs: the contract and risk of each step, and the rule that decides."""

import os
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from gert.ecosystem.host.config.policies import floor_for, require_sound
from gert.ecosystem.host.config.settings import settings_for
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.run.boundary import Crossing, crossings
from gert.errors import DocumentError, UsageError
from gert.kernel.engine.plan import preview_contract, preview_refusal
from gert.kernel.foundation.names import suggestion
from gert.kernel.governance.contract import END_CONTRACT, Contract
from gert.kernel.governance.decide import decide
from gert.kernel.governance.explain import Explanation, explain
from gert.kernel.governance.rules import Policy
from gert.kernel.runbook.documents.steps import EndStep, ExtensionStep, Step, ToolStep
from gert.kernel.runbook.finding import path_text
from gert.kernel.runbook.program import Program


class ExplainedPreview(msgspec.Struct, frozen=True):
    """The preview of a step: its command as in the tool file, its contract, and why a policy forbids it."""

    command: tuple[str, ...]
    contract: Contract
    refusal: str | None

    def as_json(self) -> dict[str, Any]:
        """The preview as JSON."""
        return {"command": list(self.command), "contract": self.contract.full(), "not_run": self.refusal}


class ExplainedStep(msgspec.Struct, frozen=True):
    """A step with its contract and the decision about it."""

    step: Step
    target: str
    contract: Contract
    explanation: Explanation
    preview: ExplainedPreview | None = None

    @property
    def name(self) -> str:
        """The step's id, or its path."""
        return self.step.id or path_text(self.step.path)

    def as_json(self) -> dict[str, Any]:
        """The step as JSON."""
        verdict = self.explanation.decision
        return {
            "step": self.name,
            "step_type": self.step.type,
            "target": self.target,
            "path": path_text(self.step.path),
            "contract": self.contract.full(),
            "risk_level": self.explanation.risk.word,
            "risk_reason": self.explanation.reason,
            **verdict.summary(),
            "rule": verdict.rule,
            **({"description": self.step.description.source} if self.step.description is not None else {}),
            **({"preview": self.preview.as_json()} if self.preview is not None else {}),
            "considered": [
                {
                    "policy": match.policy,
                    "contract_of": "tool" if match.of_tool else "step",
                    "decision": match.verdict.word,
                    "rules": [{"rule": str(each.rule), "failed": each.failed} for each in match.considered],
                }
                for match in self.explanation.policies
            ],
        }


class Explained(msgspec.Struct, frozen=True):
    """A runbook, its steps, and inputs and webhooks that need no step."""

    program: Program
    steps: list[ExplainedStep]
    crossings: list[Crossing]


def explain_runbook(
    file: str, step_id: str | None = None, policy_files: Iterable[str] = ()
) -> tuple[Program, list[ExplainedStep]]:
    """Explain the steps of a sound runbook, or one of them."""
    explained = explain_file(file, step_id, policy_files)
    return explained.program, explained.steps


def explain_file(file: str, step_id: str | None = None, policy_files: Iterable[str] = ()) -> Explained:
    """Explain a sound runbook, or one step of it, under its own policy and any external ones."""
    workspace = Workspace()
    checked = workspace.program(file)
    program = require_sound(checked).program
    if program is None:
        raise DocumentError(f"`{file}` is not a runbook")
    settings = settings_for(workspace, os.path.dirname(os.path.abspath(file)), files=workspace.files_of(file, program))
    policies = floor_for(workspace, file, program, policy_files, settings).policies
    explained = list(explained_steps(program, policies))
    if step_id is None:
        crossed = list(crossings(program.runbook.meta, policies, settings, os.environ))
        return Explained(program, explained, crossed)
    chosen = [each for each in explained if each.name == step_id]
    if not chosen:
        raise UsageError(_missing(program, step_id), hint=suggestion(step_id, [each.name for each in explained]))
    return Explained(program, chosen, [])


def explained_steps(program: Program, policies: list[Policy]) -> Iterator[ExplainedStep]:
    """Explain every step that has a contract, or an outcome that a rule names."""
    for step in program.steps:
        if isinstance(step, EndStep):
            category = step.outcome.category
            judged = explain(END_CONTRACT, policies, outcome=category)
            if any(match.considered for match in judged.policies):
                yield ExplainedStep(step, category, END_CONTRACT, judged)
        contract = program.contract_of(step)
        if contract is not None:
            within = program.base_contract_of(step) if isinstance(step, ToolStep) else None
            explanation = explain(contract, policies, within=within)
            preview = _preview(program, step, contract, within, policies)
            yield ExplainedStep(step, _target(program, step), contract, explanation, preview)


def _preview(
    program: Program, step: Step, contract: Contract, within: Contract | None, policies: list[Policy]
) -> ExplainedPreview | None:
    action = program.action_of(step) if isinstance(step, ToolStep) else None
    preview = action[1].preview if action is not None else None
    if preview is None:
        return None
    command = tuple(word.source for word in preview.argv) if preview.argv is not None else (preview.mcp_tool or "",)
    own = preview_contract(contract)
    decision = decide(own, policies, within=preview_contract(within) if within is not None else None)
    return ExplainedPreview(command, own, preview_refusal(decision))


def _target(program: Program, step: Step) -> str:
    if isinstance(step, ToolStep):
        action = program.action_of(step)
        return f"{step.tool}:{action[0]}" if action is not None else step.tool
    return step.extension if isinstance(step, ExtensionStep) else ""


def _missing(program: Program, step_id: str) -> str:
    step = program.by_id.get(step_id)
    if step is not None:
        return f"`{step_id}` is a `{step.type}` step, which has no contract"
    return f"the runbook has no step `{step_id}`"
