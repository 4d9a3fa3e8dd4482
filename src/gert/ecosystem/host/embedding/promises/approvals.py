"""The promises of approval providers."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, Protocol

from msgspec.structs import replace

from gert.ecosystem.approvals import port
from gert.ecosystem.approvals.signatures import NO_KEYS
from gert.ecosystem.host.embedding.approvals import EmbeddedApprovals
from gert.ecosystem.host.embedding.ports import ApprovalProvider
from gert.ecosystem.host.embedding.promises import MOMENT, Promise, cancel, promises, require
from gert.ecosystem.host.run.record.journal import now
from gert.kernel.engine.requests import AwaitApproval, SubmitApproval
from gert.kernel.governance.approval import ApprovalRequest, Response
from gert.kernel.governance.approval_rules import Tally, Ticket, hash_of, tally


class Respond(Protocol):
    """Makes a person respond to a ticket, in the way that the provider is told of it."""

    def __call__(self, ticket_id: str, approver: str, approved: bool) -> Awaitable[None] | None:
        """Respond."""


class Desk(NamedTuple):
    """A provider under test, as a run uses it, and the people behind it."""

    provider: port.ApprovalProvider
    respond: Respond

    async def responds(self, ticket_id: str, approver: str = "bob", approved: bool = True) -> None:
        """Make a person respond."""
        told = self.respond(ticket_id, approver, approved)
        if inspect.isawaitable(told):
            await told

    async def opened(self, key: str = "restart", **changes: Any) -> AwaitApproval:
        """Submit a request; what the run waits for then."""
        request = example_request(**changes)
        ticket = await self.provider.submit(SubmitApproval(key=key, path="restart", step_id="restart", request=request))
        require(ticket.failure is None, f"`submit` failed: {ticket.failure}")
        return AwaitApproval(
            key=f"{key}!wait",
            path="restart",
            step_id="restart",
            ticket_id=ticket.ticket_id,
            request=request,
            created_at=ticket.created_at,
            expires_at=ticket.expires_at,
        )

    async def decided(self, ask: AwaitApproval) -> Tally:
        """Wait until the responses decide, as a run does."""
        given: list[Response] = []
        asked = Ticket(id=ask.ticket_id, request=ask.request, created_at=ask.created_at, expires_at=ask.expires_at)
        while True:
            answer = await self.provider.wait(ask)
            require(answer.failure is None, f"`wait` failed: {answer.failure}")
            given += answer.responses
            count = tally(asked, given)
            if not (answer.more and count.is_open):
                return count

    async def waits(self, ask: AwaitApproval) -> "asyncio.Task[Tally]":
        """Begin to wait."""
        task = asyncio.create_task(self.decided(ask))
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # a check may fail before
        await asyncio.sleep(MOMENT)
        return task


def example_request(**changes: Any) -> ApprovalRequest:
    """A request for approval, with changes."""
    request = ApprovalRequest(
        run_id="run-1",
        runbook="restart-service",
        step_id="restart",
        title="Restart the service",
        risk_level="high",
        rule="policy rule 1",
        contract={"effects": ["kubernetes"], "writes": ["service"]},
        target="kubectl/restart",
        inputs={"name": "web"},
        request_hash="",
        min_approvers=1,
        approvers=(),
        admitted=(),
        separation_of_duties=False,
        require_signed_approvals=False,
        requested_by="ann",
        approval_timeout=600.0,
    )
    request = replace(request, **changes)
    return replace(request, request_hash=hash_of(request))


async def _gives_a_ticket(desk: Desk) -> None:
    """a request gets a ticket at once, without a response of a person."""
    ask = await desk.opened()
    require(ask.ticket_id, "the ticket has no id")
    require(ask.created_at is not None and ask.expires_at is not None, "the ticket does not say when it expires")


async def _gives_each_its_own(desk: Desk) -> None:
    """every request gets its own ticket."""
    first, second = await desk.opened("first"), await desk.opened("second")
    require(first.ticket_id != second.ticket_id, f"two requests have the ticket `{first.ticket_id}`")


async def _counts_an_approval(desk: Desk) -> None:
    """an approval is returned with its approver, and counts."""
    ask = await desk.opened()
    waiting = await desk.waits(ask)
    await desk.responds(ask.ticket_id)
    count = await waiting
    require(count.objections == [None], f"the response does not count: {count.objections}")
    by = count.resolved_by
    require(by is not None and by.approved and by.approver == "bob", f"expected an approval by bob, found {by}")


async def _counts_a_rejection(desk: Desk) -> None:
    """a rejection is returned as a rejection."""
    ask = await desk.opened()
    waiting = await desk.waits(ask)
    await desk.responds(ask.ticket_id, approved=False)
    count = await waiting
    require(count.is_rejected, f"expected a rejection, found {count.resolved_by or count.objections}")


async def _approves_nothing_itself(desk: Desk) -> None:
    """without a response of a person, it waits."""
    waiting = await desk.waits(await desk.opened())
    require(not waiting.done(), f"it returned without a response: {waiting}")
    await cancel(waiting, "`wait`")


async def _can_be_cancelled(desk: Desk) -> None:
    """a wait can be cancelled, and waiting again takes the response."""
    ask = await desk.opened()
    await cancel(await desk.waits(ask), "`wait`")
    waiting = await desk.waits(ask)
    await desk.responds(ask.ticket_id)
    require((await waiting).objections == [None], "the response to the second wait does not count")


async def _counts_two_people(desk: Desk) -> None:
    """where two approvals are needed, both are returned, each once."""
    ask = await desk.opened(min_approvers=2)
    waiting = await desk.waits(ask)
    await desk.responds(ask.ticket_id, "bob")
    await asyncio.sleep(MOMENT)
    require(not waiting.done(), "one approval was enough where two are needed")
    await desk.responds(ask.ticket_id, "carol")
    count = await waiting
    found = sorted(each.approver for each in count.approvals)
    require(found == ["bob", "carol"], f"expected bob and carol, found {found} and {count.objections}")


async def _keeps_tickets_apart(desk: Desk) -> None:
    """a response to one ticket is not returned for another."""
    first, second = await desk.opened("first"), await desk.opened("second")
    waiting = await desk.waits(first)
    await desk.responds(second.ticket_id, approved=False)
    await asyncio.sleep(MOMENT)
    require(not waiting.done(), "the response to another ticket was returned")
    await desk.responds(first.ticket_id)
    require((await waiting).objections == [None], "the response to the ticket does not count")


_CHECKS: Final = (
    _gives_a_ticket,
    _gives_each_its_own,
    _counts_an_approval,
    _counts_a_rejection,
    _approves_nothing_itself,
    _can_be_cancelled,
    _counts_two_people,
)


def desk_promises(
    make: Callable[[], Any], adapt: Callable[[Any], Desk] = lambda made: made, *, is_dialogue: bool = False
) -> list[Promise]:
    """The promises of a provider as a run uses it; `make` returns a `Desk`, or what `adapt` turns into one.

    is_dialogue: it asks at one place, where a response belongs to the ticket that is shown
    """
    return promises(_CHECKS if is_dialogue else (*_CHECKS, _keeps_tickets_apart), make, adapt)


def approval_provider_promises(make: Callable[[], Any]) -> list[Promise]:
    """The promises of an approval provider.

    make: returns a new provider, and a function `respond(ticket_id, approver, approved)` that makes a person respond;
        either may be async
    """

    def desk(made: tuple[ApprovalProvider, Respond]) -> Desk:
        provider, respond = made
        return Desk(EmbeddedApprovals(provider, NO_KEYS, now), respond)

    return desk_promises(make, desk)
