"""Tools of the transport `runner`: each action names a skill that is there, and one plan is one execution."""

from collections.abc import Iterator

from gert.kernel.foundation.names import suggestion
from gert.kernel.runbook.documents.skill import Skill
from gert.kernel.runbook.documents.steps import ToolStep
from gert.kernel.runbook.documents.tool import RUNNER, ActionBlock, Tool
from gert.kernel.runbook.finding import Finding, error
from gert.kernel.runbook.validate.case import Case

_ONCE = "a plan is executed once; run the step again with a new approval"


def runner_meta(tool: Tool) -> Iterator[Finding]:
    """D82: a tool does not repeat keys of its skill."""
    for path, secrets in ((("secrets",), tool.secrets), (("meta", "secrets"), tool.meta.secrets)):
        if secrets:
            hint = "set `secret_ref` on the action; only the runner resolves it"
            yield error("D82", path, "a `runner` tool gets no secret from the environment", hint)
    if tool.meta.binary is not None:
        yield error("D82", ("meta", "binary"), "a `runner` tool starts no program of its own")


def runner_action(name: str, action: ActionBlock) -> Iterator[Finding]:
    """D82: an action names its skill, and is not repeated."""
    if action.skill is None:
        yield error(
            "D82", action.path, f"the action `{name}` has no `skill`", "a `runner` action names a skill by its id"
        )
    if action.retry is not None:
        yield error("D82", action.at("retry"), f"the action `{name}` cannot be retried", _ONCE)
    for output in action.extract:
        yield error("D82", action.at("extract", output), "the skill says where outputs come from", on_key=True)


def known_skills(case: Case) -> Iterator[Finding]:
    """D82: a step that a runner executes names a skill that was found and is valid, and is not retried."""
    program = case.program
    for step in program.steps:
        tool = program.tool_of(step) if isinstance(step, ToolStep) else None
        if not isinstance(step, ToolStep) or tool is None or tool.meta.transport != RUNNER:
            continue
        if step.retry is not None:
            yield error("D82", step.at("retry"), f"{step.label} cannot be retried", _ONCE)
        action = program.action_of(step)
        if action is None or action[1].skill is None:
            continue
        found = program.skill_of(action[1])
        if found is not None:
            yield from _secret(step, action[1], found)
            continue
        skill = action[1].skill
        if skill in program.skills:
            message = f"{step.label} uses the skill `{skill}`, which is not valid"
            yield error("D82", step.at("tool"), message, f"run `gert validate {program.skills[skill].file}`")
        else:
            hint = suggestion(skill, program.skills) or "`gert skill list` shows the skills there are"
            yield error("D82", step.at("tool"), f"{step.label} uses the skill `{skill}`, which is not there", hint)


def _secret(step: ToolStep, action: ActionBlock, skill: Skill) -> Iterator[Finding]:
    """D82: a skill that needs a secret gets a `secret_ref`, and no other skill does."""
    if action.plan is None and bool(skill.required_secrets) is not (action.secret_ref is not None):
        message = "needs a `secret_ref`" if skill.required_secrets else "takes no `secret_ref`"
        hint = "set `secret_ref` on the action of the tool" if skill.required_secrets else "remove it from the tool"
        yield error("D82", step.at("tool"), f"{step.label} calls the skill `{skill.id}`, which {message}", hint)
