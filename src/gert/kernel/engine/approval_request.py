"""Builds an approval request: what the approver sees of a step, and what the approval covers."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gert.kernel.engine.frame import Frame
from gert.kernel.engine.plan import StepSettings
from gert.kernel.engine.requests import Subject
from gert.kernel.engine.step_inputs import masked_inputs
from gert.kernel.foundation.secret_refs import all_refs
from gert.kernel.governance.approval import ApprovalRequest
from gert.kernel.governance.decide import Approvers
from gert.kernel.runbook.command import masked_call
from gert.kernel.runbook.documents.steps import ExtensionStep, Step, ToolStep

RUNBOOK: Final = "runbook"
TOOL: Final = "tool"


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a preview: its command, and its output or the reason it was not run."""

    command: tuple[str, ...]
    output: str | None = None
    skipped: str | None = None


NO_PREVIEW: Final = Preview(command=())


def build_request(
    step: Step,
    frame: Frame,
    settings: StepSettings,
    inputs: dict[str, Any],
    preview: Preview,
    lists: frozenset[Approvers],
) -> ApprovalRequest:
    """Build the request; the host adds the program, the HMACs of secrets, and the hash."""
    setup, decision = frame.run.setup, settings.decision
    shown = masked_inputs(inputs, settings.contract)
    digest, command = _call(step, frame, shown)
    return ApprovalRequest(
        run_id=setup.run_id,
        runbook=setup.program.runbook.meta.name,
        step_id=frame.step_id,
        path=frame.path or "",
        step_type=step.type,
        title=frame.render_text(step.title) if step.title is not None else None,
        description=frame.render_text(step.description) if step.description is not None else None,
        risk_level=settings.risk,
        rule=settings.rule,
        contract=settings.full,
        target=settings.target,
        inputs=shown,
        tool_digest=digest,
        command=command,
        hidden=_hidden(step, frame, settings, inputs),
        preview=preview.output,
        preview_command=preview.command,
        preview_skipped=preview.skipped,
        runbook_hash=setup.started.runbook_hash,
        request_hash="",
        min_approvers=max(1, decision.min_approvers),
        approvers=approver_lists(lists),
        admitted=tuple(tuple(sorted(each.all_people(setup.groups))) for each in _sorted(lists)),
        # An agent that starts a run is never one of its approvers (DECISIONS 77).
        separation_of_duties=decision.separation_of_duties or setup.started.principal is not None,
        require_signed_approvals=decision.require_signed_approvals or setup.started.require_signed,
        requested_by=setup.actor,
        approval_timeout=decision.approval_timeout,
        notify=tuple(sorted(decision.notify)),
        extensions=step.extensions,
    )


def subject_of(step: Step, frame: Frame, settings: StepSettings, inputs: dict[str, Any]) -> Subject:
    """Return the call that a request is about."""
    if isinstance(step, ToolStep):
        call = frame.key or ""
        return Subject(
            inputs=inputs, contract=settings.contract, tool=step.tool, action=settings.action or "", call=call
        )
    extension = step.extension if isinstance(step, ExtensionStep) else None
    return Subject(inputs=inputs, contract=settings.contract, extension=extension)


def approver_lists(lists: frozenset[Approvers]) -> tuple[tuple[str, ...], ...]:
    """Return the lists of approvers as the policy declares them."""
    return tuple(tuple(sorted(each.listed)) for each in _sorted(lists))


def _sorted(lists: frozenset[Approvers]) -> list[Approvers]:
    return sorted(lists, key=lambda each: sorted(each.listed))


def _call(step: Step, frame: Frame, shown: Mapping[str, Any]) -> tuple[str | None, dict[str, Any] | None]:
    """Return the digest of the tool file and the command of a tool step."""
    if not isinstance(step, ToolStep):
        return None, None
    lookup = frame.run.program.tool_names[step.tool]
    action = frame.run.program.action_of(step)
    if lookup.document is None or lookup.tool is None or action is None:
        return None, None
    return lookup.document.digest, masked_call(lookup.tool, action[0], action[1], shown)


def _hidden(step: Step, frame: Frame, settings: StepSettings, inputs: Mapping[str, Any]) -> dict[str, str]:
    """Return the inputs hidden from the approver, and whether the runbook or the tool marks them secret."""
    own = frame.run.program.base_contract_of(step) if isinstance(step, ToolStep) else None
    by_tool = {name for name, each in own.inputs.items() if each.secret} if own is not None else set()
    by_contract = {name for name, each in settings.contract.inputs.items() if each.secret}
    return {
        name: TOOL if name in by_tool else RUNBOOK
        for name, value in inputs.items()
        if name in by_contract or all_refs(value)
    }
