"""The records of a safety policy in a run: decisions, approvals and intent plans, as summaries."""

from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

import msgspec
from pydantic import ValidationError

from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.agent.safety.config import IntentPlanRecord
from gert.kernel.events.agent import RunSummary
from gert.kernel.events.envelope import decode
from gert.kernel.events.payload import Payload
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps
from gert.kernel.ledger.agent_approvals import APPROVAL
from gert.kernel.ledger.build_batch import Entry

POLICY_DECISION: Final = "policy_decision"
INTENT_PLAN: Final = "policy::intent_plan"
_MOST_PLANS: Final = 100
"""How many of the newest plans are searched for one that covers a tool."""


class Call(NamedTuple):
    """A tool call that a policy decides about.

    fingerprint: the hash of the tool and its arguments
    """

    run_id: str
    tenant: str
    tool_name: str
    arguments_json: str
    fingerprint: str
    step_key: str | None = None


class ApprovalRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who approved or rejected a call, and what the approval is bound to.

    by: the person or the model; `approvers` everyone whose approval counted
    request_hash: the request that was answered; empty if no ticket was open
    round: how often a critic has been asked about the call
    """

    approval_key: str
    approved: bool
    mode: Literal["human", "critic"]
    reason: str = ""
    by: str | None = None
    approvers: tuple[str, ...] = ()
    ticket_id: str | None = None
    request_hash: str = ""
    tool_name: str | None = None
    reusable: bool = False
    round: int = 1


class Recorded(NamedTuple):
    """The newest record of an approval, with the number and time of its event."""

    record: ApprovalRecord
    seq: int
    timestamp: str


_RECORD: Final = msgspec.json.Decoder(ApprovalRecord)
_SORTED: Final = msgspec.json.Encoder(order="sorted")


def decision(call: Call, *, outcome: Literal["allow", "deny"], rule_id: str, reason: str, **more: Any) -> Entry:
    """Return the entry that records a decision about a call."""
    facts = {
        "tool_name": call.tool_name,
        "fingerprint": call.fingerprint,
        "outcome": outcome,
        "rule_id": rule_id,
        "reason": reason,
        **{name: value for name, value in more.items() if value is not None},
    }
    return Entry(
        RunSummary(summary_type=POLICY_DECISION, summary_json=_SORTED.encode(facts).decode(), step_key=call.step_key)
    )


def approval_key_of(call: Call, semantic_key: str | None) -> str:
    """Return the key of an approval: equal calls of a tenant have the same."""
    return sha256_hex(msgspec.json.encode((call.tenant, call.tool_name, call.arguments_json, semantic_key)))


def approval_entry(record: ApprovalRecord, step_key: str | None, parent_step_key: str | None = None) -> Entry:
    """Return the entry that records an approval or a rejection."""
    text = canonical_json_dumps(msgspec.to_builtins(record))
    summary = RunSummary(summary_type=APPROVAL + record.approval_key, summary_json=text, step_key=step_key)
    return Entry(summary, parent_step_key)


async def latest_approval(log: RunLog, run_id: str, approval_key: str) -> Recorded | None:
    """Return the newest record about an approval key; one that cannot be read is none."""
    line = await log.ledger.summary(run_id, APPROVAL + approval_key)
    if line is None:
        return None
    event = decode(line)
    payload = event.payload
    try:
        record = _RECORD.decode(payload.summary_json) if isinstance(payload, RunSummary) else None
    except (msgspec.MsgspecError, RecursionError):
        return None
    return None if record is None else Recorded(record, event.seq, event.timestamp)


async def latest_intent(log: RunLog, run_id: str, tool_name: str) -> tuple[IntentPlanRecord, str] | None:
    """Return the newest intent plan that covers a tool, and when it was recorded."""
    for most in (1, _MOST_PLANS):
        lines = await log.ledger.summaries(run_id, INTENT_PLAN, most)
        for line in lines:
            event = decode(line)
            plan = _plan(event.payload)
            if plan is not None and plan.covers(tool_name):
                return plan, event.timestamp
        if len(lines) < most:
            break
    return None


def _plan(payload: Payload) -> IntentPlanRecord | None:
    return _read_plan(payload.summary_json) if isinstance(payload, RunSummary) else None


@lru_cache(maxsize=256)
def _read_plan(text: str) -> IntentPlanRecord | None:
    """Return the plan in a summary; None if it is none. Every call of a tool reads the same plan."""
    try:
        return IntentPlanRecord.model_validate_json(text)
    except ValidationError:
        return None
