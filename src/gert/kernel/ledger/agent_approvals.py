"""The approvals of an agent run, folded from its events: open tickets, and approvals that a call can still use.

An approval is used inside the append that requests the call, so it is used once, however many calls wait for it.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gert.kernel.events.agent import RunSummary, ToolCompleted, ToolRequested
from gert.kernel.events.runbook import ApprovalOutdated, ApprovalResolved, ApprovalSubmitted

APPROVAL: Final = "policy::approval::"
"""The type of the summary that records an approval begins with this; the approval key follows."""

FREED: Final = frozenset({"transient_error", "permanent_error"})
"""Outcomes of a call that is known not to have happened: its approval can be used again."""


class Grant(msgspec.Struct, frozen=True, omit_defaults=True):
    """An approval that was given.

    seq: the number of the summary that records it
    used_by: the number of the request that uses it; it is available again if that call did not happen
    """

    seq: int
    used_by: int | None = None
    reusable: bool = False


class OpenTicket(msgspec.Struct, frozen=True, omit_defaults=True):
    """A ticket that waits for people."""

    ticket_id: str
    request_hash: str
    expires_at: str = ""


class _Record(msgspec.Struct, frozen=True):
    """What the fold reads of the record of an approval."""

    approved: bool = False
    reusable: bool = False


_RECORD: Final = msgspec.json.Decoder(_Record)


def approval_key_of(request: Mapping[str, Any] | None) -> str | None:
    """Return the approval key of the request of a ticket."""
    extensions = (request or {}).get("extensions")
    key = extensions.get("approval_key") if isinstance(extensions, dict) else None
    return key if isinstance(key, str) else None


def after_record(grants: dict[str, Grant], said: RunSummary, seq: int) -> dict[str, Grant]:
    """Return the approvals after one more record; a rejection withdraws an approval that was not used."""
    key = said.summary_type.removeprefix(APPROVAL)
    others = {name: grant for name, grant in grants.items() if name != key}
    try:
        record = _RECORD.decode(said.summary_json)
    except (msgspec.MsgspecError, RecursionError):
        return others
    return {**others, key: Grant(seq, reusable=record.reusable)} if record.approved else others


def after_request(grants: dict[str, Grant], said: ToolRequested, seq: int) -> dict[str, Grant]:
    """Return the approvals after a call that uses one."""
    key = said.approval_key
    if key is None or key not in grants or grants[key].reusable:
        return grants
    return {**grants, key: msgspec.structs.replace(grants[key], used_by=seq)}


def after_end(grants: dict[str, Grant], said: ToolCompleted) -> dict[str, Grant]:
    """Return the approvals after a call has ended: its own is used up, or available again."""
    for key, grant in grants.items():
        if grant.used_by == said.request_seq:
            if said.outcome in FREED:
                return {**grants, key: msgspec.structs.replace(grant, used_by=None)}
            if said.outcome == "success":
                return {name: each for name, each in grants.items() if name != key}
    return grants


def after_submission(tickets: dict[str, OpenTicket], said: ApprovalSubmitted) -> dict[str, OpenTicket]:
    """Return the open tickets after one more."""
    key = approval_key_of(said.request)
    ticket = OpenTicket(said.ticket_id, said.request_hash, said.expires_at or "")
    return tickets if key is None else {**tickets, key: ticket}


def after_resolution(
    tickets: dict[str, OpenTicket], said: ApprovalResolved | ApprovalOutdated
) -> dict[str, OpenTicket]:
    """Return the open tickets after one was decided or withdrawn."""
    return {key: ticket for key, ticket in tickets.items() if ticket.ticket_id != said.ticket_id}
