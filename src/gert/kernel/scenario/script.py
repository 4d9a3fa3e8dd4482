"""A script: answers the requests of a run from a scenario.

It depends on the request alone, so a run that makes the same requests gets the same answers. A request
without an answer is an error that names the key to add.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from gert.errors import GertError
from gert.kernel.engine.exit_reason import exit_message, reason_line
from gert.kernel.engine.extract import ToolOutput, extract
from gert.kernel.engine.requests import (
    AnyAnswer,
    ApprovalAnswer,
    AwaitApproval,
    CallExtension,
    CallPreview,
    CallTool,
    CollectEvidence,
    EvidenceAnswer,
    Pause,
    PauseAnswer,
    Request,
    SubmitApproval,
    TicketAnswer,
    ToolAnswer,
    failed_answer,
)
from gert.kernel.events.runbook import Failure
from gert.kernel.foundation.duration import parse_duration
from gert.kernel.foundation.principal import Principal
from gert.kernel.foundation.text import path_text, printable
from gert.kernel.governance.approval import ApprovalRequest, Response
from gert.kernel.governance.approval_rules import Ticket, tally
from gert.kernel.governance.decide import person_key
from gert.kernel.runbook.command import call_fault
from gert.kernel.runbook.documents.scenario import ApprovalBlock, FailureBlock, ResponseBlock, Scenario
from gert.kernel.runbook.program import Program
from gert.kernel.runbook.validate.domain.files.scenario_file import EVIDENCE_KEYS
from gert.kernel.scenario.keys import keys_for

METHOD: Final = "scripted"
MOMENT: Final = "1970-01-01T00:00:00Z"
"""The timestamp of scripted responses: a scenario has no clock."""

BY, REJECT, FAILURE, REDACTED, DURATION = "by", "reject", "failure", "redacted", "duration"
"""Keys allowed next to evidence; a step's own evidence of that name takes precedence."""


class Script:
    """Answers the requests of one run from a scenario."""

    def __init__(self, scenario: Scenario, program: Program, actor: str = "") -> None:
        self._scenario = scenario
        self._program = program
        self._actor = actor
        self._used: dict[tuple[str, str], int] = {}
        self._built: dict[tuple[Any, ...], ToolAnswer] = {}
        self._stopped: Failure | None = None
        self._late: dict[str, None] = {}
        self.missing: list[str] = []
        """Requests without an answer, as messages."""
        self.approved_by_default: list[str] = []
        self._answers: Mapping[type[Request[Any]], Callable[[Any], AnyAnswer]] = {
            CallTool: self._call,
            CallPreview: self._preview,
            CallExtension: self._extend,
            CollectEvidence: self._evidence,
            SubmitApproval: self._ticket,
            AwaitApproval: self._approval,
            Pause: lambda ask: PauseAnswer(duration=ask.seconds),
        }

    def answer(self, ask: Request[Any]) -> AnyAnswer:
        """Return the next answer to a request."""
        cancelled = self._scenario.cancelled
        if cancelled is not None and ask.key in cancelled.questions:
            self._stopped = Failure("cancelled", cancelled.reason)
            return failed_answer(ask, self._stopped)
        return self._answers[type(ask)](ask)

    def unused(self) -> Iterator[str]:
        """Yield unused answers as `section.key`, for example for a step that is no longer reached."""
        for section in ("tool_responses", "extension_responses", "evidence", "approvals", "previews"):
            for key, given in getattr(self._scenario, section).items():
                used = self._used.get((section, key), 0)
                if used == 0 or (isinstance(given, list | tuple) and used < len(given)):
                    yield f"{section}.{key}"
        yield from self._late

    # --- lookup

    def _key(self, section: str, ask: Request[Any]) -> str | None:
        """Return the most specific key that the section has for a request."""
        given: Mapping[str, Any] = getattr(self._scenario, section)
        return next((key for key in keys_for(ask) if key in given), None)

    def _next(self, section: str, ask: Request[Any]) -> Any:
        """Return the next entry for a request, or a failure that names what is missing."""
        given: Mapping[str, Any] = getattr(self._scenario, section)
        keys = keys_for(ask)
        key = self._key(section, ask)
        if key is None:
            own = keys[-2] if isinstance(ask, CallTool) else keys[-1]
            also = f" or `{own}`" if own != ask.step_id else ""
            # In a loop, its id would answer for every item.
            wanted = f"`{ask.path}`" if "[" in ask.path else f"`{ask.step_id}`{also}"
            return self._stop(ask) or self._miss(
                f"the scenario has no answer for `{path_text(ask.path)}`: add {wanted} to `{section}`"
            )
        entry = given[key]
        used = self._used.get((section, key), 0)
        self._used[section, key] = used + 1
        if not isinstance(entry, list | tuple):
            return entry
        if used < len(entry):
            return entry[used]
        count = f"{len(entry)} answer" if len(entry) == 1 else f"{len(entry)} answers"
        return self._stop(ask) or self._miss(
            f"the scenario has only {count} under `{key}` in `{section}`, and `{ask.path}` needs another"
        )

    def _peek(self, section: str, ask: Request[Any]) -> Any:
        """Return the entry that `_next` would return, if there is one."""
        given: Mapping[str, Any] = getattr(self._scenario, section)
        key = self._key(section, ask)
        entry = given[key] if key is not None else None
        if not isinstance(entry, list | tuple) or key is None:
            return entry
        used = self._used.get((section, key), 0)
        return entry[used] if used < len(entry) else None

    def _stop(self, ask: Request[Any]) -> Failure | None:
        """Return why a request is not answered: the run was cancelled before its lane began."""
        return self._stopped if not ask.path.startswith("finally/") else None

    def _miss(self, message: str) -> Failure:
        self.missing.append(message)
        return Failure("not_found", message)

    # --- answers

    def _call(self, ask: CallTool) -> ToolAnswer:
        found = self._next("tool_responses", ask)
        if isinstance(found, Failure):
            return ToolAnswer(failure=found)
        tool = self._program.tool_names[ask.tool].tool
        fault = call_fault(tool, tool.actions[ask.action], ask.inputs) if tool is not None else None
        if fault is not None and found.failure is None:
            return ToolAnswer(failure=Failure("evaluation", fault))
        # One response answers many calls; the block outlives the script, so its identity can be a key.
        key = (id(found), ask.tool, ask.action, id(ask.contract))
        answer = self._built.get(key)
        if answer is None:
            answer = self._built[key] = self._built_for(found, ask)
        return answer

    def _built_for(self, block: ResponseBlock, ask: CallTool) -> ToolAnswer:
        code = block.exit_code if block.exit_code is not None or block.failure is not None else 0
        failure = _failure(block.failure) or _exit_failure(ask.tool, code, block)
        outputs = block.outputs
        tool = self._program.tool_names[ask.tool].tool
        if outputs is None and tool is not None and (block.failure is None or code is not None):
            printed = ToolOutput(exit_code=code or 0, stdout=block.stdout, stderr=block.stderr)
            found = extract(tool.actions[ask.action], ask.contract.outputs, printed)
            outputs, failure = found.outputs, failure or found.failure
        return ToolAnswer(
            outputs=dict(outputs or {}),
            exit_code=code,
            stdout=block.stdout,
            stderr=block.stderr,
            failure=failure,
            again=dict(block.again) if block.again is not None else None,
            redacted=block.redacted,
            duration=_seconds(block.duration),
        )

    def _preview(self, ask: CallPreview) -> ToolAnswer:
        """Answer a preview; one that is not in the scenario prints nothing."""
        found = self._next("previews", ask) if self._has("previews", ask) else None
        if found is None or isinstance(found, Failure):
            return ToolAnswer(failure=found)
        return ToolAnswer(stdout=found.stdout, failure=_failure(found.failure), duration=_seconds(found.duration))

    def _extend(self, ask: CallExtension) -> ToolAnswer:
        found = self._next("extension_responses", ask)
        if isinstance(found, Failure):
            return ToolAnswer(failure=found)
        return ToolAnswer(
            outputs=dict(found.outputs or {}),
            exit_code=found.exit_code,
            stdout=found.stdout,
            stderr=found.stderr,
            failure=_failure(found.failure) or _exit_failure(ask.extension, found.exit_code, found),
            redacted=found.redacted,
            principal=_principal(found),
            duration=_seconds(found.duration),
        )

    def _evidence(self, ask: CollectEvidence) -> EvidenceAnswer:
        found = self._next("evidence", ask) if ask.evidence or self._has("evidence", ask) else {}
        if isinstance(found, Failure):
            return EvidenceAnswer(failure=found)
        wanted = {each.name: each for each in ask.evidence}
        beside = {name: found[name] for name in EVIDENCE_KEYS if name in found and name not in wanted}
        given = {
            name: list(wanted[name].items) if value is True and name in wanted and wanted[name].items else value
            for name, value in found.items()
            if name not in beside
        }
        try:
            failure = _refused(beside) or (_incomplete_checklist(ask, given) if REDACTED not in beside else None)
            duration = _seconds(str(beside[DURATION])) if DURATION in beside else 0.0
            redacted = int(beside.get(REDACTED, 0))
        except (TypeError, ValueError, GertError) as problem:
            missed = self._miss(f"`by` or `reject` of the evidence of `{ask.step_id}` is invalid: {problem}")
            return EvidenceAnswer(failure=missed)
        by = Principal("human", str(beside.get(BY) or self._actor or METHOD))
        return EvidenceAnswer(evidence=given, by=by, failure=failure, redacted=redacted, duration=duration)

    def _has(self, section: str, ask: Request[Any]) -> bool:
        return self._key(section, ask) is not None

    def _ticket(self, ask: SubmitApproval) -> TicketAnswer:
        refused = self._peek("approvals", ask)
        if isinstance(refused, ApprovalBlock) and not refused.submitted:
            self._next("approvals", ask)
            failure = _failure(refused.failure) or Failure("transport", "the request could not be submitted")
            return TicketAnswer(failure=failure, duration=_seconds(refused.duration))
        return TicketAnswer(ticket_id=f"ticket-{ask.key}", method=METHOD)

    def _approval(self, ask: AwaitApproval) -> ApprovalAnswer:
        if not self._has("approvals", ask):
            self.approved_by_default.append(ask.path)
            return ApprovalAnswer(responses=tuple(self._required_approvals(ask.request)))
        found = self._next("approvals", ask)
        if isinstance(found, Failure):
            return ApprovalAnswer(failure=found)
        responses = tuple(self._responses(found, ask.request))
        self._note_late(ask, responses)
        return ApprovalAnswer(
            responses=responses,
            expired=found.expired,
            failure=_failure(found.failure),
            duration=_seconds(found.duration),
        )

    def _note_late(self, ask: AwaitApproval, responses: tuple[Response, ...]) -> None:
        """Note the responses that come after the decision: the rule needs fewer than the scenario has."""
        by = tally(Ticket(id=ask.ticket_id, request=ask.request), responses).resolved_by
        decided = next((at for at, each in enumerate(responses) if each is by), len(responses))
        key = self._key("approvals", ask)
        for each in responses[decided + 1 :]:
            self._late[f"approvals.{key}: the response of {printable(each.approver)}"] = None

    def _responses(self, block: ApprovalBlock, request: ApprovalRequest) -> Iterable[Response]:
        if block.responses:
            # These responses were recorded: whether they are enough, signatures included, is decided again.
            return [
                Response(
                    approver=each.approver,
                    approved=each.approved,
                    reason=each.reason,
                    timestamp=each.timestamp or MOMENT,
                    # A replay cannot check the signature that it stands for.
                    scripted=each.signed,
                )
                for each in block.responses
            ]
        if block.approved and block.approver is None:
            return self._required_approvals(request, block.reason)
        if block.approved is None:
            return []
        return [_response(block.approver or METHOD, block.approved, block.reason)]

    def _required_approvals(self, request: ApprovalRequest, reason: str | None = None) -> Iterator[Response]:
        """Yield the required approvals, from people who may approve; else from others, which the run refuses."""
        listed = request.admitted
        # One person, in any spelling of the name.
        known = [{person_key(who) for who in each} for each in listed]
        first = {person_key(who): who for who in reversed(listed[0] if listed else ())}
        barred = person_key(request.requested_by or "") if request.separation_of_duties else None
        admitted = [key for key in first if key != barred and all(key in each for each in known)]
        people = [first[key] for key in reversed(admitted)]
        strangers = (f"{METHOD}-{number}" for number in range(1, request.min_approvers + 1))
        for who in [*people, *strangers][: max(1, request.min_approvers)]:
            yield _response(who, True, reason)


def _response(approver: str, approved: bool, reason: str | None) -> Response:
    return Response(approver=approver, approved=approved, reason=reason, timestamp=MOMENT, scripted=True)


def _failure(block: FailureBlock | None) -> Failure | None:
    return Failure(block.kind, block.message) if block is not None else None  # type: ignore[arg-type]


def _refused(beside: Mapping[str, Any]) -> Failure | None:
    """Return why a person gave no evidence."""
    if FAILURE in beside:
        return msgspec.convert(beside[FAILURE], Failure)
    if REJECT not in beside:
        return None
    reason = beside[REJECT]
    return Failure("rejected", "rejected without a reason" if reason is True else str(reason))


def _incomplete_checklist(ask: CollectEvidence, given: Mapping[str, Any]) -> Failure | None:
    """Return the failure for an incomplete checklist, as in a real run."""
    for each in ask.evidence:
        if each.kind != "checklist" or each.name not in given:
            continue
        done = given[each.name] or ()
        if not isinstance(done, list | tuple):
            return Failure("evidence", f"expected `true` or the items of `{each.name}` that are done")
        left = next((item for item in each.items if item not in map(str, done)), None)
        if left is not None:
            return Failure("rejected", f"`{left}` of `{each.name}` was not confirmed")
    return None


def _exit_failure(name: str, code: int | None, block: ResponseBlock) -> Failure | None:
    """Return the failure for an exit code, with the reason that the tool printed."""
    if not code:
        return None
    return Failure("exit_code", exit_message(f"`{name}`", code, reason_line(block.stderr, block.stdout)))


def _principal(block: ResponseBlock) -> Principal | None:
    by = block.by
    return Principal(by.kind, by.id, by.role, by.model) if by is not None else None  # type: ignore[arg-type]


def _seconds(duration: str | None) -> float:
    return parse_duration(duration).total_seconds() if duration is not None else 0.0
