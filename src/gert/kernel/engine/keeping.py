"""What a step gave, held against its contract: declared outputs are kept, violations are said (ecosystem-v0 §12)."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gert.errors import InputError
from gert.kernel.engine.asks import Steps, ToolAnswer
from gert.kernel.engine.frame import Frame
from gert.kernel.engine.plan import Plan
from gert.kernel.engine.results import Result, failed, status_of
from gert.kernel.engine.unknown import UNKNOWN
from gert.kernel.events.runbook import ContractViolation
from gert.kernel.events.vocabulary import Severity, ViolationKind
from gert.kernel.foundation.values import coerce

_AS_KEY = msgspec.json.Encoder(order="deterministic", enc_hook=str)


def keep_declared(answer: ToolAnswer, frame: Frame, plan: Plan, inputs: Mapping[str, Any]) -> Steps[Result]:
    """The result of a call, with the outputs its contract declares."""
    if answer.assumed is not None:
        return assumed(frame, plan)
    outputs, violations = _held(answer.outputs, plan, complete=answer.failure is None)
    if plan.contract.deterministic and answer.failure is None:
        violations += _differing(answer, outputs, frame, plan, inputs)
    for kind, message, severity in violations:
        strict: Severity = "error" if plan.decision.violations_deny else severity
        yield frame.say(ContractViolation(step_id=frame.step_id, kind=kind, message=message, severity=strict))
    if violations and plan.decision.violations_deny:
        return failed("contract_violation", violations[0][1], outputs=outputs, exit_code=answer.exit_code)
    return Result(
        status=status_of(answer.failure),
        outputs=outputs,
        failure=answer.failure,
        exit_code=answer.exit_code,
        principal=answer.principal,
    )


def assumed(frame: Frame, plan: Plan) -> Result:
    """The result of a step nobody executed: everything it would have set is unknown."""
    return Result(
        status="skipped",
        reason=frame.run.assumption,
        outputs=dict.fromkeys(plan.outputs, UNKNOWN),
        assumed=True,
    )


Violation = tuple[ViolationKind, str, Severity]


def _held(outputs: Mapping[str, Any], plan: Plan, *, complete: bool) -> tuple[dict[str, Any], list[Violation]]:
    """The declared outputs in their declared types, and where the contract was not kept."""
    declared = plan.contract.outputs
    kept: dict[str, Any] = {}
    violations: list[Violation] = []
    for name, value in outputs.items():
        if name not in declared:
            message = f"`{plan.target}` produced the output `{name}`, which its contract does not declare"
            violations.append(("undeclared_output", message, "warning"))
            continue
        try:
            kept[name] = coerce(value, declared[name].type)
        except InputError as error:
            violations.append(("wrong_type", f"the output `{name}` of `{plan.target}`: {error.message}", "warning"))
    if complete:
        violations += _missing(outputs, plan)
    return kept, violations


def _missing(outputs: Mapping[str, Any], plan: Plan) -> Iterator[Violation]:
    for name, parameter in plan.contract.outputs.items():
        if name not in outputs and (parameter.required or name in plan.extracted):
            message = f"`{plan.target}` did not produce the output `{name}`, which its contract declares"
            yield "missing_output", message, "warning"


def _differing(
    answer: ToolAnswer, outputs: dict[str, Any], frame: Frame, plan: Plan, inputs: Mapping[str, Any]
) -> Iterator[Violation]:
    """A contract that says `deterministic` gives equal outputs for equal inputs."""
    earlier = frame.run.before(f"{plan.target} {plan.evaluated.step_id}", _AS_KEY.encode(inputs), outputs)
    again = None if answer.again is None else _held(answer.again, plan, complete=False)[0]
    differing = next((each for each in (earlier, again) if each is not None and each != outputs), None)
    if differing is not None:
        names = sorted(n for n in {*outputs, *differing} if outputs.get(n) != differing.get(n))
        listed = ", ".join(f"`{name}`" for name in names)
        message = f"`{plan.target}` is declared deterministic and gave another {listed} for equal inputs"
        yield "nondeterministic", message, "error"
