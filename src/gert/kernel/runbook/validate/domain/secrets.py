"""Secrets: a secret value does not reach a command line, directly or through outputs and constants."""

from collections.abc import Iterator, Mapping
from typing import Any

from gert.kernel.runbook.documents.steps import Step, ToolStep
from gert.kernel.runbook.documents.tool import RUNNER, ActionBlock
from gert.kernel.runbook.finding import Finding, Path, error, warning
from gert.kernel.runbook.program import Program, inner_lists
from gert.kernel.runbook.validate.case import Case
from gert.kernel.template import Template, templates_in


def secrets_on_command_lines(case: Case) -> Iterator[Finding]:
    """D54: no secret on a command line, where every user of the machine can read it."""
    secrets = _Secrets(case.program)
    if not secrets.names and not any(_adds_secrets(step) for step in case.program.steps):
        return
    for steps in (case.program.runbook.steps, case.program.runbook.finally_):
        yield from _steps(case.program, steps, secrets, frozenset())


def _adds_secrets(step: Step) -> bool:
    return step.contract is not None and any(block.secret for block in step.contract.inputs.values())


def _steps(program: Program, steps: tuple[Step, ...], secrets: "_Secrets", items: frozenset[str]) -> Iterator[Finding]:
    for step in steps:
        inside = items
        if step.for_each is not None and secrets.in_value(step.for_each.over, items):
            inside |= {step.for_each.as_}  # the items of a secret list are secret
        if isinstance(step, ToolStep):
            yield from _call(program, step, secrets, inside)
        for inner in inner_lists(step):
            yield from _steps(program, inner.steps, secrets, inside)


def _call(program: Program, step: ToolStep, secrets: "_Secrets", items: frozenset[str]) -> Iterator[Finding]:
    action, contract = program.action_of(step), program.contract_of(step)
    if action is None or contract is None:
        return
    tool = program.tool_of(step)
    is_runner = tool is not None and tool.meta.transport == RUNNER
    exposed = set(step.inputs) if is_runner else exposed_inputs(action[1], contract.inputs)
    finding = plan_finding if is_runner else command_line_finding
    for name, value in step.inputs.items():
        if name in exposed and (secret := secrets.in_value(value, items)):
            yield finding(secret, step.at("inputs", name))
    for source, path in step.spread:
        spread = program.runbook.meta.constants.get(source)
        if isinstance(spread, Mapping):
            leaked = [secrets.in_value(spread[key], items) for key in sorted(exposed & spread.keys())]
        else:
            leaked = [source if source in secrets.names else None]
        for secret in filter(None, leaked):
            yield finding(secret, path)
    for name, block in (step.contract.inputs if step.contract is not None else {}).items():
        if block.secret and (name in exposed or is_runner):
            yield finding(name, block.path)


def exposed_inputs(action: ActionBlock, inputs: Mapping[str, Any]) -> set[str]:
    """Return the inputs of an action that its command line contains; all of them if a word renders everything."""
    preview = action.preview.argv if action.preview is not None else None
    heads = {
        reference.path[0] if reference.path and isinstance(reference.path[0], str) else None
        for word in (*(action.argv or ()), *(preview or ()))
        for reference in word.references
    }
    return set(inputs) if None in heads else {str(head) for head in heads}


def plan_finding(secret: str, path: Path) -> Finding:
    """Return the finding for a secret among the inputs of a skill: a plan is a file that people read."""
    message = f"the secret `{secret}` would be written into a plan"
    return error("D83", path, message, "a skill names its secret in `requiredSecrets`, and the runner resolves it")


def command_line_finding(name: str, path: Path) -> Finding:
    """D54: report a secret on a command line."""
    message = f"the secret `{name}` is on a command line, where others can read it"
    return warning("D54", path, message, "pass it through `env` or `stdin` of the action")


class _Secrets:
    """Every name with a secret value: inputs, outputs, and constants made from them."""

    def __init__(self, program: Program) -> None:
        meta = program.runbook.meta
        self.names = {name for name, block in meta.inputs.items() if block.secret}
        self.records: dict[str, set[str]] = {}
        for step in program.steps:
            contract = program.contract_of(step)
            outputs = (
                {name for name, each in contract.outputs.items() if each.secret} if contract is not None else set()
            )
            if outputs:
                self.names |= outputs
                self.records[step.id or ""] = outputs
        for name, value in meta.constants.items():
            if self.in_value(value, frozenset()):
                self.names.add(name)

    def in_value(self, value: Any, items: frozenset[str]) -> str | None:
        """Return the name of a secret that a value contains, if any."""
        if not self.names and not items:
            return None
        for _, template in templates_in(value):
            found = self._in_template(template, items)
            if found is not None:
                return found
        return None

    def _in_template(self, template: Template, items: frozenset[str]) -> str | None:
        for reference in template.references:
            path = reference.path[1:] if reference.path[:1] == ("step",) else reference.path
            if not path or not isinstance(path[0], str):
                return min(self.names | items)  # everything there is
            head = path[0]
            if head in self.names or head in items:
                return head
            if head in self.records and (
                len(path) == 1 or path[1] in self.records[head] or not isinstance(path[1], str)
            ):
                return f"{head}.{min(self.records[head])}"
        return None
