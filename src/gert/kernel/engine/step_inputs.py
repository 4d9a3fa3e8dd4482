"""Prepares the inputs of a step: spread, rendered, completed by defaults, and checked against the contract."""

from collections.abc import Mapping
from typing import Any, Final

from gert.errors import GertError, InputError
from gert.kernel.engine.frame import Frame
from gert.kernel.engine.inputs import fit
from gert.kernel.engine.plan import Plan
from gert.kernel.engine.state import STEP
from gert.kernel.foundation.globs import split_path
from gert.kernel.foundation.redaction import PLACEHOLDER
from gert.kernel.foundation.secret_refs import refs_in
from gert.kernel.governance.contract import Contract
from gert.kernel.governance.parameter import Parameter
from gert.kernel.runbook.documents.steps import ExtensionStep, ToolStep
from gert.kernel.template.unknown import UNKNOWN, is_unknown
from gert.kernel.template.values import field

FACTS: Final = frozenset({"status", "exit_code", "retry_count"})


def inputs_for(step: ToolStep | ExtensionStep, frame: Frame, plan: Plan) -> dict[str, Any]:
    """Return the inputs of a step; InputError if one is missing or does not fit."""
    contract = plan.settings.contract
    inputs, is_guess = _spread(step, frame, contract) if step.inputs_from is not None else ({}, False)
    for name, value in plan.inputs.items():
        rendered = value if type(value) is str else frame.render(value)
        # A template that renders to nothing leaves the input to its default.
        if rendered is not None:
            inputs[name] = rendered
    for name, parameter in contract.inputs.items():
        if name in inputs:
            inputs[name] = _checked(name, inputs[name], parameter)
        elif is_guess:
            inputs[name] = UNKNOWN
        elif parameter.has_default:
            inputs[name] = parameter.default
        elif parameter.required:
            raise InputError(f"no value for the required input `{name}` of `{plan.settings.target}`")
    return inputs


def masked_inputs(inputs: Mapping[str, Any], contract: Contract) -> dict[str, Any]:
    """Return the inputs as recorded and shown, with the contract's secret inputs masked."""
    hidden = {name for name, parameter in contract.inputs.items() if parameter.secret}
    return {name: PLACEHOLDER if name in hidden else value for name, value in inputs.items()}


def _checked(name: str, value: Any, parameter: Parameter) -> Any:
    if type(value) is str:
        if refs_in(value):
            return value  # the secret's value is not known here
        if parameter.type == "string" and parameter.is_unbounded:
            return value
    elif is_unknown(value):
        return value
    try:
        return fit(value, parameter)
    except InputError as error:
        raise InputError(f"the input `{name}`: {error.message}", hint=error.hint) from None


def _spread(step: ToolStep | ExtensionStep, frame: Frame, contract: Contract) -> tuple[dict[str, Any], bool]:
    """Merge the objects named in `inputs_from`, later ones win; and return whether further keys are unknown."""
    inputs: dict[str, Any] = {}
    is_guess = False
    frame.mark_reader()
    for source, _ in step.spread:
        value: Any = frame.data
        path = split_path(source)
        for segment in path:
            value = field(value, segment)
        if is_unknown(value) and not isinstance(value, Mapping):
            # Its keys are unknown, so it may replace any earlier one.
            is_guess = True
            inputs = dict.fromkeys(inputs, UNKNOWN)
            continue
        if not isinstance(value, Mapping):
            raise InputError(f"`inputs_from` names `{source}`, which is not an object here")
        named = path[1:] if path[0] == STEP else path
        is_record = len(named) == 1 and named[0] in frame.data.get(STEP, {})
        inputs.update(
            (name, each)
            for name, each in value.items()
            if each is not None and not (is_record and name in FACTS and name not in contract.inputs)
        )
    return inputs, is_guess


def error_line(error: GertError) -> str:
    """Format an error in one line, with its hint."""
    return f"{error.message} ({error.hint})" if error.hint else error.message
