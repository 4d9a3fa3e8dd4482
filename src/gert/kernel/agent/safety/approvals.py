"""Approvals of tool calls by people: ordinary tickets in the ledger, under the same rules as those of runbooks."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple

import msgspec

from gert.errors import PolicyViolationError, UsageError
from gert.kernel.agent.ports.approvals import ApprovalPort, TicketState
from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.agent.safety.config import ApprovalGatePolicy
from gert.kernel.agent.safety.records import ApprovalRecord, Call, Recorded, approval_entry, latest_approval
from gert.kernel.agent.types.api import ToolFingerprint
from gert.kernel.events.envelope import format_timestamp, parse_timestamp
from gert.kernel.events.runbook import ApprovalOutdated
from gert.kernel.governance.approval import ApprovalRequest, Response, ticket_id_for
from gert.kernel.governance.approval_rules import Tally, Ticket, hash_of, tally
from gert.kernel.ledger.agent_approvals import OpenTicket
from gert.kernel.ledger.approval_events import decided, resolved_event, response_event, submitted_event
from gert.kernel.ledger.build_batch import Entry
from gert.kernel.ledger.record import Head
from gert.kernel.ledger.runbook_fold import TICKET

PARENT: Final = "parent_run_id"
"""The extension of a request that names the run whose step the agent is."""
HUMAN: Final = "approval:human"
CHANGED: Final = "the tool, the place of its program or the demands on an approval have changed"

Standing = Literal["usable", "rejected", "missing"]


class _Settled(Exception):
    """Another process has closed the ticket meanwhile."""


class ProgramPlace(NamedTuple):
    """Where the program of a tool is found and would run."""

    program: str
    folder: str
    host: str


class CallDetails(NamedTuple):
    """What a call would do, as its approver sees it and its approval binds it.

    contract: what the tool declares about itself
    command: the command or call that would be made, without the values of secrets
    program: where the program of the tool is found; an approval covers no other
    plan: what a runner would execute; its id and its date are given when the call is made
    """

    contract: Mapping[str, Any] = {}
    command: dict[str, Any] | None = None
    program: ProgramPlace | None = None
    plan: dict[str, Any] | None = None


NO_DETAILS: Final = CallDetails()


class GatedCall(NamedTuple):
    """A call that needs the approval of people, and the request as they see it."""

    call: Call
    approval_key: str
    request: ApprovalRequest
    ttl: int | None = None


class Approvals:
    """Requests, takes and records approvals of tool calls."""

    def __init__(self, log: RunLog, port: ApprovalPort | None) -> None:
        self._log = log
        self._port = port

    @property
    def port(self) -> ApprovalPort:
        """Return the port to people."""
        if self._port is None:
            raise UsageError("approval cannot be requested", hint="pass the middleware to an `ArtanaKernel`")
        return self._port

    def gated_call(
        self,
        call: Call,
        gate: ApprovalGatePolicy,
        key: str,
        arguments: Any,
        tool: ToolFingerprint | None,
        details: CallDetails = NO_DETAILS,
    ) -> GatedCall:
        """Build the request for a call, bound to the tool, its arguments and what an approval must satisfy."""
        names, program = [*gate.approvers], details.program
        contract: dict[str, Any] = {**details.contract, "approval": gate.demands}
        if tool is not None:
            contract |= {"tool_version": tool.tool_version, "schema_version": tool.schema_version}
        if program is not None:
            # Part of the hash, unlike in runbooks: an agent that continues on another host asks again.
            contract["program"] = program._asdict()
        request = ApprovalRequest(
            run_id=call.run_id,
            runbook=f"agent:{call.tenant}",
            step_id=call.tool_name,
            title=None,
            risk_level="high" if tool is None else tool.risk_level,
            rule=HUMAN,
            contract=contract,
            target=call.tool_name,
            inputs=arguments,
            request_hash="",
            min_approvers=gate.min_approvers,
            approvers=(tuple(sorted(names)),) if names else (),
            admitted=(tuple(sorted(self.port.people(names))),) if names else (),
            separation_of_duties=gate.separation_of_duties,
            require_signed_approvals=gate.require_signed_approvals or self.port.must_sign(self._log.ledger),
            requested_by=self.port.actor,
            approval_timeout=float(gate.timeout_seconds),
            notify=gate.notify,
            tool_digest=None if tool is None else f"sha256:{tool.schema_hash}",
            command=details.command,
            plan=details.plan,
            run_kind="agent",
            program=program.program if program is not None else None,
            folder=program.folder if program is not None else None,
            host=program.host if program is not None else None,
            extensions={
                "approval_key": key,
                "tenant_id": call.tenant,
                "step_key": call.step_key,
                "reusable": gate.reusable,
                **({PARENT: parent} if (parent := self._log.started_by.parent_run_id) is not None else {}),
            },
        )
        request = msgspec.structs.replace(request, request_hash=hash_of(request))
        return GatedCall(call, key, request, gate.approval_ttl_seconds)

    async def standing(self, gated: GatedCall) -> tuple[Standing, Recorded | None]:
        """Return whether a call has an approval that it can use, after taking the responses that were received."""
        call, head = gated.call, await self._log.head(gated.call.run_id)
        if head.agent is not None and gated.approval_key in head.agent.tickets:
            await self._take(call.run_id, call.tenant, gated.approval_key, current_hash=gated.request.request_hash)
            head = await self._log.head(call.run_id)
        found = await latest_approval(self._log, call.run_id, gated.approval_key)
        if found is None or found.record.mode != "human" or not self._is_bound(gated, found.record):
            return "missing", None
        if not found.record.approved:
            return "rejected", found
        is_fresh = not is_expired(found, gated.ttl, self._log.ledger.now())
        return ("usable", found) if is_fresh and can_use(head, gated.approval_key, found.seq) else ("missing", None)

    async def opening(self, gated: GatedCall) -> "Opening":
        """Return the entries that open a ticket, unless one is open when they are appended."""
        now = await self._log.ledger.time()
        return Opening(gated, now)

    async def announce(self, ticket_id: str) -> None:
        """Tell people about a ticket."""
        await self.port.announce(self._log.ledger, ticket_id)

    async def respond(self, run_id: str, tenant: str, record: ApprovalRecord, parent_step_key: str | None) -> int:
        """Record an approval or a rejection that the caller reports, and return the number of its event.

        With an open ticket it is a response to it, and counts by the rules of tickets; otherwise it is recorded, and
        counts once a call asks for it.
        """
        if record.by is None:
            record = msgspec.structs.replace(record, by=self.port.actor or "api")
        head = await self._log.head(run_id)
        key = record.approval_key
        if record.mode == "critic" or head.agent is None or key not in head.agent.tickets:
            written = await self._log.append(run_id, tenant, (approval_entry(record, None, parent_step_key),))
            return written.last
        now = format_timestamp(await self._log.ledger.time())
        response = Response(approver=record.by or "", approved=record.approved, timestamp=now, reason=record.reason)
        seq, taking = await self._take(run_id, tenant, key, also=response, parent_step_key=parent_step_key)
        if taking is None:
            # The ticket was closed meanwhile: the response is recorded without it.
            return await self.respond(run_id, tenant, record, parent_step_key)
        objection = taking.count.objections[-1]
        if objection is not None:
            raise PolicyViolationError(
                code="approval_refused", message=f"the response does not count: {objection}", tool_name=taking.tool_name
            )
        return seq

    def listening(self, ticket_id: str) -> AbstractAsyncContextManager[None]:
        """Collect responses over channels while a caller waits."""
        return self.port.listening(self._log.ledger, ticket_id)

    async def take(self, run_id: str, tenant: str, approval_key: str) -> Recorded | None:
        """Take the responses to an open ticket, and return the newest record about its key."""
        head = await self._log.head(run_id)
        if head.agent is not None and approval_key in head.agent.tickets:
            await self._take(run_id, tenant, approval_key)
        return await latest_approval(self._log, run_id, approval_key)

    async def _take(
        self,
        run_id: str,
        tenant: str,
        key: str,
        *,
        also: Response | None = None,
        current_hash: str | None = None,
        parent_step_key: str | None = None,
    ) -> "tuple[int, _Taking | None]":
        """Record the responses to an open ticket, and what they decide.

        also: a response of the caller itself, which needs no signature of its own unless the policy asks for one
        current_hash: the hash of the current call; a ticket for another one is withdrawn
        """
        head = await self._log.head(run_id)
        open_ticket = head.agent.tickets.get(key) if head.agent is not None else None
        if open_ticket is None:
            return 0, None
        state = await self.port.look(self._log.ledger, run_id, open_ticket.ticket_id)
        taking = _Taking(state, key, also, is_outdated=current_hash not in (None, open_ticket.request_hash))
        entries = [Entry(entry.payload, parent_step_key) for entry in taking.entries()]
        if not entries:
            return 0, None

        def guard(now: Head) -> None:
            if now.agent is None or now.agent.tickets.get(key) != open_ticket:
                raise _Settled

        taken = [each.message_id for each in state.received if each.message_id is not None]
        try:
            written = await self._log.append(run_id, tenant, entries, guard=guard, taken=taken)
        except _Settled:
            return 0, None
        return written.last, taking

    def _is_bound(self, gated: GatedCall, record: ApprovalRecord) -> bool:
        """Whether a record is about this request; one without a ticket is evaluated by the same rules now."""
        if record.request_hash:
            return record.request_hash == gated.request.request_hash
        response = Response(approver=record.by or "", approved=record.approved, timestamp="")
        return not tally(Ticket(id="", request=_own_demands(gated.request)), (response,)).is_open


class Opening:
    """Opens a ticket inside an append, unless one is open."""

    def __init__(self, gated: GatedCall, now: datetime) -> None:
        self._gated = gated
        self._now = now
        self.ticket_id: str | None = None
        self.is_new = False

    def __call__(self, head: Head) -> Sequence[Entry]:
        """Return the entries that open it."""
        gated = self._gated
        known: OpenTicket | None = head.agent.tickets.get(gated.approval_key) if head.agent is not None else None
        if known is not None:
            self.ticket_id, self.is_new = known.ticket_id, False
            return ()
        self.ticket_id, self.is_new = ticket_id_for(gated.call.run_id, f"{gated.approval_key}:{head.count}"), True
        until = self._now + timedelta(seconds=gated.request.approval_timeout)
        ticket = Ticket(
            id=self.ticket_id,
            request=gated.request,
            created_at=format_timestamp(self._now),
            expires_at=format_timestamp(until),
        )
        return (Entry(submitted_event(ticket, TICKET)),)


class _Taking:
    """What the responses to a ticket lead to."""

    def __init__(self, state: TicketState, key: str, also: Response | None, *, is_outdated: bool) -> None:
        self._state = state
        self._key = key
        ticket = state.ticket
        given = (*state.received, also) if also is not None else state.received
        self._new = tuple(given)
        self.tool_name = ticket.request.target
        if also is not None:
            ticket = msgspec.structs.replace(ticket, request=_own_demands(ticket.request))
            # Responses from the inbox were evaluated with the demands of the ledger when they were read.
            self._new = tuple(each if each is also else _as_demanded(each, state.ticket) for each in given)
        count = tally(ticket, (*state.counted, *self._new))
        # A rejection does not depend on the exact call: it counts even if the call has changed.
        self._outdated = is_outdated and not count.is_rejected
        self.count = count.outdated(CHANGED) if self._outdated else count

    def entries(self) -> list[Entry]:
        """Return the events of the responses, of the decision, and the record of the approval."""
        ticket, request = self._state.ticket, self._state.ticket.request
        named: dict[str, Any] = {"ticket_id": ticket.id, "step_id": request.step_id, "method": TICKET}
        objections = self.count.objections[len(self._state.counted) :]
        made = [
            Entry(response_event(each, objection, **named))
            for each, objection in zip(self._new, objections, strict=True)
        ]
        if self._outdated:
            void = ApprovalOutdated(
                ticket_id=ticket.id, step_id=request.step_id, reason=CHANGED, request_hash=request.request_hash
            )
            return [*made, Entry(void)]
        ending = decided(self.count, expired=self._state.is_over)
        if ending is None:
            return made
        made.append(Entry(resolved_event(self.count, *ending, **named)))
        if ending[0] in ("approved", "rejected"):
            made.append(approval_entry(self._record(self.count), _step_key(request)))
        return made

    def _record(self, count: Tally) -> ApprovalRecord:
        request, by = self._state.ticket.request, count.resolved_by
        return ApprovalRecord(
            approval_key=self._key,
            approved=by is not None and by.approved,
            mode="human",
            reason=(by.reason or "") if by is not None else "",
            by=by.approver if by is not None else None,
            approvers=tuple(each.approver for each in count.approvals),
            ticket_id=self._state.ticket.id,
            request_hash=request.request_hash,
            tool_name=request.target,
            reusable=bool(request.extensions.get("reusable")),
        )


def is_expired(found: Recorded, ttl: int | None, now: datetime) -> bool:
    """Whether an approval is too old to be used."""
    return ttl is not None and now - parse_timestamp(found.timestamp) > timedelta(seconds=ttl)


def can_use(head: Head, key: str, seq: int) -> bool:
    """Whether the approval that event `seq` records, or an equal one since, can still be used."""
    grant = head.agent.approvals.get(key) if head.agent is not None else None
    return grant is not None and (grant.reusable or (grant.seq == seq and grant.used_by is None))


def _own_demands(request: ApprovalRequest) -> ApprovalRequest:
    """Return a request with the demands of its policy alone, without those of a ledger that others can write to."""
    demands = request.contract.get("approval", {})
    return msgspec.structs.replace(request, require_signed_approvals=demands.get("require_signed_approvals", True))


def _as_demanded(response: Response, ticket: Ticket) -> Response:
    """Mark a response from the inbox that lacks the signature the ledger demands."""
    is_unsigned = response.approved and ticket.request.require_signed_approvals and not response.verified
    return msgspec.structs.replace(response, unfit="the response has no valid signature") if is_unsigned else response


def _step_key(request: ApprovalRequest) -> str | None:
    key = request.extensions.get("step_key")
    return key if isinstance(key, str) else None
