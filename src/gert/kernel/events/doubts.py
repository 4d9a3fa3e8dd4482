"""Calls of a runbook run that were announced and have no result on record: nobody knows whether they happened."""

from collections.abc import Iterable

import msgspec

from gert.kernel.events.envelope import Envelope
from gert.kernel.events.runbook import StepComplete, StepStart


class Doubtful(msgspec.Struct, frozen=True, kw_only=True):
    """One such call.

    target: the tool or extension, with its action
    idempotent: whoever goes on with the run simply makes it again; otherwise the operator says what became of it
    """

    path: str
    step_id: str
    target: str
    idempotent: bool


def calls_in_doubt(events: Iterable[Envelope]) -> list[Doubtful]:
    """The calls that are open where a record ends, in the order they were announced.

    Steps that direct flow, people and requests for approval are none: those are asked again, and nothing is done twice.
    """
    announced: dict[str, Doubtful] = {}
    for event in events:
        path = event.path or ""
        if event.type == StepComplete.type:
            announced.pop(path, None)
        elif event.type == StepStart.type and (call := _call(event, path)) is not None:
            announced.pop(path, None)
            announced[path] = call
    return list(announced.values())


def _call(event: Envelope, path: str) -> Doubtful | None:
    said = event.data
    target = said.get("tool") or said.get("extension")
    if not isinstance(target, str):
        return None
    action, summary, step_id = said.get("action"), said.get("contract_summary"), said.get("step_id")
    return Doubtful(
        path=path,
        step_id=step_id if isinstance(step_id, str) else path,
        target=f"{target}:{action}" if isinstance(action, str) else target,
        # What is not said counts as what needs more care.
        idempotent=isinstance(summary, dict) and summary.get("idempotent") is True,
    )
