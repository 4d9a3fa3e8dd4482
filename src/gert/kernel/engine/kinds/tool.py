"""Call an action of a tool."""

from collections.abc import Iterator
from typing import Any

from gert.kernel.engine.frame import Frame
from gert.kernel.engine.outputs import keep_declared
from gert.kernel.engine.plan import Plan
from gert.kernel.engine.policy_gate import execution_of
from gert.kernel.engine.requests import CallTool, Steps, ToolAnswer
from gert.kernel.engine.results import Result
from gert.kernel.governance.approval import ApprovalRequest
from gert.kernel.runbook.documents.steps import ToolStep


def run_tool(
    step: ToolStep,
    frame: Frame,
    plan: Plan,
    inputs: dict[str, Any],
    keys: Iterator[str],
    approval: ApprovalRequest | None = None,
) -> Steps[Result]:
    """Call the tool, and keep its declared outputs."""
    answer: ToolAnswer = yield (
        CallTool(
            key=next(keys),
            path=frame.path or "",
            step_id=frame.step_id,
            timeout=plan.settings.timeout,
            tool=step.tool,
            action=plan.settings.action or "",
            inputs=inputs,
            contract=plan.settings.contract,
            after_skipped_write=frame.state.skipped_write,
            approval=approval,
            counts=execution_of(frame, plan.settings),
        )
    )
    frame.take_answer(answer)
    result, remarks = keep_declared(answer, frame, plan, inputs)
    for remark in remarks:
        yield frame.emit(remark)
    return result
