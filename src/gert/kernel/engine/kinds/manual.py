"""Asks a person to do something, and collects evidence of it."""

from collections.abc import Iterator
from typing import Any

from gert.kernel.engine.frame import Frame
from gert.kernel.engine.outputs import assumed_result
from gert.kernel.engine.plan import Plan
from gert.kernel.engine.policy_gate import execution_of
from gert.kernel.engine.requests import CollectEvidence, EvidenceAnswer, RequestedEvidence, Steps
from gert.kernel.engine.results import Result, failed, status_of
from gert.kernel.events.runbook import RedactionApplied
from gert.kernel.foundation.redaction import PLACEHOLDER
from gert.kernel.foundation.secret_refs import masked
from gert.kernel.governance.approval import ApprovalRequest
from gert.kernel.runbook.documents.steps import ManualStep


def run_manual(
    step: ManualStep,
    frame: Frame,
    plan: Plan,
    inputs: dict[str, Any],
    keys: Iterator[str],
    approval: ApprovalRequest | None = None,
) -> Steps[Result]:
    """Collect the evidence, which becomes the step's outputs."""
    answer = yield from frame.request(
        CollectEvidence(
            key=next(keys),
            path=frame.path or "",
            step_id=frame.step_id,
            timeout=plan.settings.timeout,
            # Instructions are shown, so their secrets are masked.
            instructions=masked(inputs["instructions"]),
            title=masked(frame.render_text(step.title)) if step.title is not None else None,
            evidence=tuple(
                RequestedEvidence(kind=each.kind, name=each.name, description=each.description, items=each.items)  # type: ignore[arg-type]
                for each in step.required_evidence
            ),
            inputs=inputs,
            contract=plan.settings.contract,
            approval=approval,
            counts=execution_of(frame, plan.settings),
        )
    )
    if answer.redacted:
        yield frame.emit(RedactionApplied(step_id=frame.step_id, pattern_count=answer.redacted))
    return _evidence_result(step, answer, frame, plan)


def _evidence_result(step: ManualStep, answer: EvidenceAnswer, frame: Frame, plan: Plan) -> Result:
    if answer.assumed is not None:
        return assumed_result(frame, plan.settings)
    declared = plan.settings.contract.outputs
    given = {
        name: PLACEHOLDER if name in declared and declared[name].secret and value is not None else value
        for name, value in answer.evidence.items()
    }
    outputs = {name: given[name] for name in declared if name in given}
    if answer.failure is not None:
        return Result(
            status=status_of(answer.failure),
            failure=answer.failure,
            outputs=outputs,
            evidence=given,
            principal=answer.by,
        )
    missing = next((each.name for each in step.required_evidence if given.get(each.name) is None), None)
    if missing is not None:
        message = f"no evidence `{missing}` was given"
        return failed("evidence", message, outputs=outputs, evidence=given, principal=answer.by)
    return Result(outputs=outputs, evidence=given, principal=answer.by)
