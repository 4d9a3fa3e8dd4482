"""Checks a step's outputs against its contract: declared outputs are kept, violations reported (ecosystem-v0 §12)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gert.errors import GertError
from gert.kernel.engine.frame import Frame
from gert.kernel.engine.plan import Plan, StepSettings
from gert.kernel.engine.requests import ToolAnswer
from gert.kernel.engine.results import Result, status_of
from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook import ContractViolation, Failure, RedactionApplied
from gert.kernel.events.vocabulary import Severity, SkipReason, ViolationKind
from gert.kernel.foundation.canonical import require_canonical
from gert.kernel.foundation.names import listing
from gert.kernel.foundation.redaction import PLACEHOLDER
from gert.kernel.foundation.values import coerce
from gert.kernel.governance.parameter import Parameter
from gert.kernel.template.unknown import UNKNOWN

_NOTHING: Final[Sequence[Payload]] = ()
_ENCODER = msgspec.json.Encoder(order="sorted", enc_hook=str)


def keep_declared(
    answer: ToolAnswer, frame: Frame, plan: Plan, inputs: Mapping[str, Any]
) -> tuple[Result, Sequence[Payload]]:
    """Return the result of a call with the declared outputs, and the events about redaction and violations."""
    if answer.assumed is not None:
        return assumed_result(frame, plan.settings, answer.assumed), _NOTHING
    settings = plan.settings
    outputs, violations = _check(answer.outputs, settings, complete=answer.failure is None)
    if answer.reconciled:
        # A result reconciled by the operator is not an execution, so it violates no contract (DECISIONS 70).
        violations = []
    elif settings.contract.deterministic and answer.failure is None:
        violations += _determinism_violations(answer, outputs, frame, plan, inputs)
    failure = answer.failure
    if violations and settings.decision.violations_deny:
        failure = Failure("contract_violation", violations[0][1])
        violations = [(kind, message, "error") for kind, message, _ in violations]
    result = Result(
        status=status_of(failure),
        outputs=outputs,
        failure=failure,
        exit_code=answer.exit_code,
        principal=answer.principal,
        child_run_id=answer.child_run_id,
    )
    if not violations and not answer.redacted:
        return result, _NOTHING
    masked = [RedactionApplied(step_id=frame.step_id, pattern_count=answer.redacted)] if answer.redacted else []
    broken = [
        ContractViolation(step_id=frame.step_id, kind=kind, message=message, severity=severity)
        for kind, message, severity in violations
    ]
    return result, [*masked, *broken]


def assumed_result(frame: Frame, settings: StepSettings, reason: SkipReason | None = None) -> Result:
    """Return the result of a step that was not executed: all its outputs are unknown."""
    frame.run.guesses += 1
    if settings.contract.may_write or settings.contract.hides_writes:
        frame.run.skipped_write = True
        frame.state.skip_write()
    return Result(
        status="skipped",
        reason=reason or frame.run.assumption,
        outputs=dict.fromkeys(settings.contract.outputs, UNKNOWN),
        assumed=True,
    )


Violation = tuple[ViolationKind, str, Severity]


def _check(
    outputs: Mapping[str, Any], settings: StepSettings, *, complete: bool
) -> tuple[dict[str, Any], list[Violation]]:
    expected = settings.expected if complete else frozenset()
    return check_outputs(outputs, settings.contract.outputs, expected, settings.target)


def check_outputs(
    outputs: Mapping[str, Any], declared: Mapping[str, Parameter], expected: frozenset[str], target: str
) -> tuple[dict[str, Any], list[Violation]]:
    """Return the declared outputs in their declared types, and the violations of the contract.

    expected: outputs that must be there
    """
    kept: dict[str, Any] = {}
    violations: list[Violation] = []
    for name, value in outputs.items():
        parameter = declared.get(name)
        if parameter is None:
            message = f"`{target}` produced the output `{name}`, which its contract does not declare"
            violations.append(("undeclared_output", message, "warning"))
            continue
        try:
            kept[name] = PLACEHOLDER if parameter.secret else _coerced(value, parameter.type)
        except GertError as error:
            violations.append(("wrong_type", f"the output `{name}` of `{target}`: {error.message}", "warning"))
    if not expected <= outputs.keys():
        for name in declared:
            if name in expected and name not in outputs:
                message = f"`{target}` did not produce the output `{name}`, which its contract declares"
                violations.append(("missing_output", message, "warning"))
    return kept, violations


def _coerced(value: Any, type_name: str) -> Any:
    fitting = coerce(value, type_name)
    if type_name not in _SCALAR_TYPES:
        require_canonical(fitting)
    return fitting


_SCALAR_TYPES: Final = frozenset({"string", "int", "float", "bool"})
"""Types whose values need no further check once coerced."""


def _determinism_violations(
    answer: ToolAnswer, outputs: dict[str, Any], frame: Frame, plan: Plan, inputs: Mapping[str, Any]
) -> Iterator[Violation]:
    """Report a step declared `deterministic` that gave different outputs for equal inputs."""
    settings = plan.settings
    earlier = frame.run.earlier_outputs(f"{settings.target} {plan.step_id}", _ENCODER.encode(inputs), outputs)
    again = None if answer.again is None else _check(answer.again, settings, complete=False)[0]
    given = _ENCODER.encode(outputs)
    differing = next((each for each in (earlier, again) if each is not None and _ENCODER.encode(each) != given), None)
    if differing is not None:
        both = {*outputs, *differing}
        names = sorted(n for n in both if _ENCODER.encode(outputs.get(n)) != _ENCODER.encode(differing.get(n)))
        listed = listing(names)
        message = f"`{settings.target}` is declared deterministic and gave a different {listed} for equal inputs"
        yield "nondeterministic", message, "error"
