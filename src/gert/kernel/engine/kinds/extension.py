"""Hand a step to an extension runner."""

from collections.abc import Iterator
from typing import Any

import msgspec

from gert.kernel.engine.frame import Frame
from gert.kernel.engine.outputs import keep_declared
from gert.kernel.engine.plan import Plan
from gert.kernel.engine.policy_gate import execution_of
from gert.kernel.engine.requests import CallExtension, Steps
from gert.kernel.engine.results import Result
from gert.kernel.governance.approval import ApprovalRequest
from gert.kernel.runbook.documents.steps import ExtensionStep


def run_extension(
    step: ExtensionStep,
    frame: Frame,
    plan: Plan,
    inputs: dict[str, Any],
    keys: Iterator[str],
    approval: ApprovalRequest | None = None,
) -> Steps[Result]:
    """Pass the inputs and the visible state to the extension, and keep the declared outputs."""
    answer = yield from frame.request(
        CallExtension(
            key=next(keys),
            path=frame.path or "",
            step_id=frame.step_id,
            timeout=plan.settings.timeout,
            extension=step.extension,
            inputs=inputs,
            view=dict(frame.data),
            contract=plan.settings.contract,
            approval=approval,
            counts=execution_of(frame, plan.settings),
        )
    )
    result, remarks = keep_declared(answer, frame, plan, inputs)
    if result.principal is not None and (step.principal is not None or frame.lane.item_key is not None):
        # The step, or its keyed item, says who acts (DECISIONS 32); the runner's own principal is a default.
        result = msgspec.structs.replace(result, principal=None)
    for remark in remarks:
        yield frame.emit(remark)
    return result
