"""The five stages of a review, in order; the first that denies decides."""

import math
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from gert.errors import ApprovalRequiredError, GertError, Refused
from gert.kernel.agent.middleware.conditions import Refusal
from gert.kernel.agent.safety.approvals import HUMAN, can_use
from gert.kernel.agent.safety.config import ApprovalGatePolicy, InvariantRule, ToolLimitPolicy
from gert.kernel.agent.safety.critic import CRITIC, ask_critic
from gert.kernel.agent.safety.invariants import Facts, recipients_of, violation_of
from gert.kernel.agent.safety.records import approval_key_of, latest_intent
from gert.kernel.agent.safety.review import Denial, Office, Review
from gert.kernel.agent.safety.semantic_key import MissingField, key_of_call, require
from gert.kernel.agent.steps.tool_events import duplicate_call
from gert.kernel.events.agent import RunSummary
from gert.kernel.events.envelope import decode, parse_timestamp
from gert.kernel.foundation.json_path import Absent, follow
from gert.kernel.foundation.lenient_json import json_object
from gert.kernel.ledger.record import CallLimit, Head, Held

RUN_LIMIT: Final = "limit:max_calls_per_run"
RATE_LIMIT: Final = "limit:max_calls_per_tenant_window"
AMOUNT_LIMIT: Final = "limit:max_amount_usd_per_call"
_FEW_VERIFICATIONS: Final = 16
_MOST_VERIFICATIONS: Final = 1000
"""How many of the newest verifications are searched for a recipient."""

Stage = Callable[[Review, Office], Awaitable[Denial | None]]


async def check_intent(review: Review, office: Office) -> Denial | None:
    """(1) An intent plan covers the tool, and is not too old."""
    required = review.policy.intent
    if required is None or not required.require_intent:
        return None
    found = await latest_intent(office.log, review.call.run_id, review.call.tool_name)
    if found is None:
        return review.deny("intent", "missing_intent_plan", "no intent plan covers it")
    plan, recorded_at = found
    # The plan says when it was made, the ledger when it was recorded: a plan from the future is not younger.
    age = review.now - min(plan.created_at, parse_timestamp(recorded_at))
    if required.max_age_seconds is not None and age > timedelta(seconds=required.max_age_seconds):
        return review.deny("intent", "missing_intent_plan", f"the intent plan `{plan.intent_id}` is stale")
    review.intent_id = plan.intent_id
    return None


async def check_semantic_key(review: Review, office: Office) -> Denial | None:
    """(2) No call with the same semantic key has happened, or may have."""
    required, call = review.policy.semantic_idempotency, review.call
    if required is None:
        return None
    try:
        for path in required.required_fields:
            require(review.arguments, path)
        own = {"tenant_id": call.tenant, "tool_name": call.tool_name, "run_id": call.run_id}
        key = key_of_call(required.template, own, review.arguments)
    except MissingField as missing:
        return review.deny("semantic_idempotency", "semantic_missing_field", str(missing))
    except (GertError, ValueError) as error:
        return review.deny("semantic_idempotency", "semantic_template_error", str(error))

    async def check() -> Denial | None:
        holders = await office.log.ledger.holders(call.tenant, call.tool_name, key)
        held = next((each for each in holders if each.held), None)
        return None if held is None else held_denial(review, Held(held))

    review.deferred.append(check)
    review.semantic_key = key
    return None


def held_denial(review: Review, found: Held) -> Denial:
    """Return the denial of a call whose semantic key another call holds."""
    error = duplicate_call(review.call.tool_name, found.call)
    error.fingerprint = review.call.fingerprint
    return Denial("semantic_idempotency", error, error.message, error.code)


async def check_limits(review: Review, office: Office) -> Denial | None:
    """(3) The tool is not called too often, nor with too high an amount."""
    limits = review.policy.limits
    if limits is None:
        return None
    if limits.max_calls_per_run is not None:
        _limit_run(review, office, limits.max_calls_per_run)
    if limits.max_calls_per_tenant_window is not None and limits.tenant_window_seconds is not None:
        _limit_rate(review, office, limits.max_calls_per_tenant_window, limits.tenant_window_seconds)
    return _check_amount(review, limits)


def _limit_run(review: Review, office: Office, most: int) -> None:
    """Let the append count the calls of the run."""
    limit = CallLimit(review.call.tenant, review.call.tool_name, most)

    async def check() -> Denial | None:
        head = await office.log.head(review.call.run_id)
        counted = head.agent.calls_by_tool.get(limit.name, 0) if head.agent is not None else 0
        return limit_denial(review, limit) if counted >= most else None

    review.deferred.append(check)
    review.limits.append(limit)


def _limit_rate(review: Review, office: Office, most: int, seconds: int) -> None:
    """Let the append count the calls of the tenant."""
    limit = CallLimit(review.call.tenant, review.call.tool_name, most, float(seconds))

    async def check() -> Denial | None:
        since = review.now - timedelta(seconds=seconds)
        counted = await office.log.ledger.count_calls(limit.name, tenant=limit.tenant, since=since)
        return limit_denial(review, limit) if counted >= most else None

    review.deferred.append(check)
    review.limits.append(limit)


def limit_denial(review: Review, limit: CallLimit) -> Denial:
    """Return the denial of a call that was made too often, in its run or by its tenant."""
    if limit.seconds is None:
        return review.deny(RUN_LIMIT, "tool_limit_exceeded", f"it may be called {limit.most} times in a run")
    reason = f"tenant `{limit.tenant}` may call it {limit.most} times in {limit.seconds:g} s"
    return review.deny(RATE_LIMIT, "tool_rate_limited", reason)


def _check_amount(review: Review, limits: ToolLimitPolicy) -> Denial | None:
    if limits.amount_arg_path is None:
        return None
    try:
        amount = _amount(follow(review.arguments, limits.amount_arg_path))
    except Absent:
        amount = None
        if limits.max_amount_usd_per_call is not None:
            return review.deny(AMOUNT_LIMIT, "tool_amount_missing", f"expected an amount in `{limits.amount_arg_path}`")
    except ValueError as error:
        return review.deny(AMOUNT_LIMIT, "tool_amount_invalid", f"`{limits.amount_arg_path}`: {error}")
    if amount is not None and limits.max_amount_usd_per_call is not None and amount > limits.max_amount_usd_per_call:
        reason = f"its amount may be {limits.max_amount_usd_per_call:g} USD at most"
        return review.deny(AMOUNT_LIMIT, "tool_amount_exceeded", reason)
    review.amount_usd = amount
    return None


def _amount(value: Any) -> float:
    """Read an amount: a number, or text that is one; never negative."""
    if isinstance(value, str):
        try:
            value = float(Decimal(value.strip()))
        except (InvalidOperation, OverflowError):
            raise ValueError("it is not a number") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("it is not a number")
    if not math.isfinite(value) or value < 0:
        raise ValueError("it is not a finite number that is not negative")
    return float(value)


async def check_approval(review: Review, office: Office) -> Denial | None:
    """(4) A person or a critic has approved the call."""
    gate = review.policy.approval
    if gate is None:
        return None
    # No one is asked about a call that is not allowed anyway.
    return await review.deferred_denial() or await _GATES[gate.mode](review, office, gate)


async def _ask_people(review: Review, office: Office, gate: ApprovalGatePolicy) -> Denial | None:
    call, approvals = review.call, office.approvals
    if gate.require_signed_approvals and not approvals.port.can_verify:
        reason = "it needs signed approvals, and no key to verify them with is set (GERT_APPROVAL_KEY_…)"
        return review.deny(HUMAN, "approval_unverifiable", reason)
    key = approval_key_of(call, review.semantic_key)
    try:
        details = await office.details(call, review.arguments)
    except Refused as refusal:
        return review.deny(HUMAN, "call_refused", f"{refusal.message} ({refusal.rule})")
    gated = approvals.gated_call(call, gate, key, review.arguments, office.fingerprint(call.tool_name), details)
    standing, found = await approvals.standing(gated)
    if standing == "rejected" and found is not None:
        by = f"`{found.record.by}`" if found.record.by else "an approver"
        return review.deny(HUMAN, "approval_rejected", f"{by} rejected it: {found.record.reason or 'no reason given'}")
    reason = "it waits for an approval"
    error = ApprovalRequiredError(
        tool_name=call.tool_name,
        approval_key=key,
        mode="human",
        message=f"`{call.tool_name}` needs an approval before it is called",
        fingerprint=call.fingerprint,
        arguments_json=call.arguments_json,
        run_id=call.run_id,
    )
    if found is None:
        return Denial(HUMAN, error, reason, also=await approvals.opening(gated))
    _use(review, key, found.seq, Denial(HUMAN, error, "another call has used its approval"))
    return None


async def _ask_model(review: Review, office: Office, gate: ApprovalGatePolicy) -> Denial | None:
    key = approval_key_of(review.call, review.semantic_key)
    found = await ask_critic(review, office, gate, key)
    if not found.record.approved:
        return review.deny(CRITIC, "critic_denied", f"the critic denied it: {found.record.reason or 'no reason given'}")
    withdrawn = review.deny(CRITIC, "critic_denied", "its approval was withdrawn")
    _use(review, key, found.seq, withdrawn)
    return None


def _use(review: Review, key: str, seq: int, otherwise: Denial) -> None:
    """Use an approval, unless another call has used it when the request is recorded."""

    def guard(head: Head) -> Refusal | None:
        return None if can_use(head, key, seq) else otherwise.refusal(review.call)

    review.approval_key = key
    review.guards.append(guard)


async def check_invariants(review: Review, office: Office) -> Denial | None:
    """(5) Every invariant holds."""
    for rule in review.policy.invariants:
        facts = Facts(review.arguments)
        if rule.type == "recipient_must_be_verified":
            facts = Facts(review.arguments, await _verifications(review, office, rule))
        problem = violation_of(rule, facts)
        if problem is not None:
            return review.deny(f"invariant:{rule.type}", "invariant_violation", problem)
    return None


async def _verifications(review: Review, office: Office, rule: InvariantRule) -> dict[str, bool]:
    """Return what the newest record about each recipient says."""
    wanted = set(recipients_of(rule, review.arguments))
    found: dict[str, bool] = {}
    for most in (_FEW_VERIFICATIONS, _MOST_VERIFICATIONS):
        lines = await office.log.ledger.summaries(review.call.run_id, rule.verification_summary_type, most)
        for line in lines:
            payload = decode(line).payload
            said = _read_verification(payload.summary_json) if isinstance(payload, RunSummary) else {}
            found = {**{name: value for name, value in said.items() if name in wanted}, **found}
        if len(lines) < most or wanted <= found.keys():
            break
    return found


def _read_verification(text: str) -> dict[str, bool]:
    """Read a verification: `{"recipient": "…", "verified": true}`, or `{"verified_recipients": ["…"]}`."""
    data = json_object(text)
    listed = data.get("verified_recipients")
    said = {name: True for name in listed if isinstance(name, str)} if isinstance(listed, list) else {}
    if isinstance(data.get("recipient"), str):
        said[data["recipient"]] = data.get("verified") is True
    return said


_GATES: Final[Mapping[str, Callable[[Review, Office, ApprovalGatePolicy], Awaitable[Denial | None]]]] = {
    "human": _ask_people,
    "critic": _ask_model,
}

STAGES: Final[tuple[Stage, ...]] = (
    check_intent,
    check_semantic_key,
    check_limits,
    check_approval,
    check_invariants,
)
