"""Secrets: a secret value reaches no command line, and what a tool takes as a secret is one from the beginning."""

from collections.abc import Iterator, Mapping
from typing import Any

from gert.kernel.foundation.text import PLACEHOLDER
from gert.kernel.governance.contract import Contract
from gert.kernel.governance.parameter import Parameter
from gert.kernel.runbook.documents.steps import ExtensionStep, Step, ToolStep
from gert.kernel.runbook.documents.tool import RUNNER, ActionBlock
from gert.kernel.runbook.finding import Finding, Path, error, warning
from gert.kernel.runbook.program import Program
from gert.kernel.runbook.validate.case import Case
from gert.kernel.runbook.validate.domain.origins import Origin, Origins, calls


def secrets_on_command_lines(case: Case) -> Iterator[Finding]:
    """D54: no secret on a command line, where every user of the machine can read it."""
    origins = case.origins
    if origins.everything.secret is None and not any(_adds_secrets(step) for step in case.program.steps):
        return
    for step, items in calls(case.program, origins):
        if isinstance(step, ToolStep):
            yield from _call(case.program, step, origins, items)


def _adds_secrets(step: Step) -> bool:
    return step.contract is not None and any(block.secret for block in step.contract.inputs.values())


def _call(program: Program, step: ToolStep, origins: Origins, items: Mapping[str, Origin]) -> Iterator[Finding]:
    action, contract = program.action_of(step), program.contract_of(step)
    if action is None or contract is None:
        return
    is_runner = _is_runner(program, step)
    exposed = set(step.inputs) if is_runner else exposed_inputs(action[1], contract.inputs)
    finding = plan_finding if is_runner else command_line_finding
    for name, value in step.inputs.items():
        if name in exposed and (secret := origins.of(value, items).secret):
            yield finding(secret, step.at("inputs", name))
    for source, path in step.spread:
        leaked = (origins.spread(source, name, items).secret for name in sorted(exposed))
        if secret := next(filter(None, leaked), None):
            yield finding(secret, path)
    for name, block in (step.contract.inputs if step.contract is not None else {}).items():
        if block.secret and (name in exposed or is_runner):
            yield finding(name, block.path)


def _is_runner(program: Program, step: ToolStep | ExtensionStep) -> bool:
    tool = program.tool_of(step) if isinstance(step, ToolStep) else None
    return tool is not None and tool.meta.transport == RUNNER


def plain_secrets(case: Case) -> Iterator[Finding]:
    """D58: a secret input of a tool gets a secret; anything else is recorded and shown before the tool gets it."""
    for name, block in case.program.runbook.meta.inputs.items():
        if block.secret:
            yield from _plain(
                f"the default of the secret input `{name}`", _default(block.parameter()), block.at("default")
            )
    for step, items in calls(case.program, case.origins):
        contract = case.program.contract_of(step)
        # A runner takes no secret as an input (D83).
        if contract is not None and not _is_runner(case.program, step):
            yield from _passed(step, contract, case.origins, items)


def _passed(
    step: ToolStep | ExtensionStep, contract: Contract, origins: Origins, items: Mapping[str, Origin]
) -> Iterator[Finding]:
    callee = f"`{step.tool}`" if isinstance(step, ToolStep) else f"`{step.extension}`"
    for name, parameter in contract.inputs.items():
        if not parameter.secret:
            continue
        what = target = f"the secret input `{name}` of {callee}"
        value = step.inputs.get(name)
        if value is not None:
            yield from _plain(what, origins.of(value, items), step.at("inputs", name))
            what = f"if `inputs` gives it nothing, {what}"
        # A template that renders to nothing leaves the input to `inputs_from`, and then to its default.
        if not origins.may_be_nothing(value, items):
            continue
        for source, path in step.spread:
            yield from _plain(what, origins.spread(source, name, items), path)
        if not step.spread:
            yield from _plain(f"the default of {target}", _default(parameter), step.path)


def _default(parameter: Parameter) -> Origin:
    return Origin(literal=parameter.default not in (None, ""))


def _plain(what: str, origin: Origin, path: Path) -> Iterator[Finding]:
    """D58: report a value that is not secret; beside a secret it may be meant to be known, so it is no error."""
    name = origin.input or origin.part
    if origin.withheld is not None:
        message = f"{what} gets `{PLACEHOLDER}`: the output `{origin.withheld}` is secret, so later steps do not see it"
        yield warning("D58", path, message, _ONE_TOOL)
    elif name is not None:
        hint = f"mark the input `{name}` as `secret: true`"
        if origin.input is None:
            hint = "a secret is passed whole: make it an input of its own, with `secret: true`"
        report = error if origin.secret is None else warning
        message = f"{what} gets the input `{name}` of the runbook, which is not secret, so gert records it"
        yield report("D58", path, message, hint)
    elif origin.output is not None:
        message = f"{what} gets the output `{origin.output}`, which is not secret, so gert records it"
        yield warning("D58", path, message, _ONE_TOOL)
    elif origin.literal and origin.secret is None:
        hint = "make it an input of the runbook with `secret: true`, and pass it with `--input NAME=@FILE`"
        yield warning("D58", path, f"{what} is written in a file that gert records", hint)


_ONE_TOOL = "let the tool that needs the secret get it itself, or make it an input of the runbook with `secret: true`"


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
