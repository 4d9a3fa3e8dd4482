"""Approval at the terminal: the person there sees what would run, and approves or rejects.

Responses are only collected here. Which of them count, and whether they suffice, the kernel decides.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Final, Protocol

from gert.ecosystem.approvals.request_text import summary
from gert.errors import InputError
from gert.kernel.engine.requests import ApprovalAnswer, AwaitApproval, SubmitApproval, TicketAnswer
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.governance.approval import ApprovalRequest, Response
from gert.kernel.governance.approval_rules import approver_objection

METHOD: Final = "terminal"
ATTEMPTS: Final = 5
_YES: Final = frozenset({"y", "yes"})
_NO: Final = frozenset({"", "n", "no"})


class Asker(Protocol):
    """The terminal: where a person reads and types."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Keep a dialogue together."""
        ...

    def say(self, text: str) -> None:
        """Show lines of text."""
        ...

    async def line(self, prompt: str, *, fresh: bool = False) -> str | None:
        """Ask for a line; `fresh` takes nothing that was typed before the question was shown."""
        ...


class TerminalApprovals:
    """Requests approval at the console of the run; text typed for an earlier prompt is never used for this one."""

    def __init__(self, console: Asker, actor: str, clock: Callable[[], datetime], new_id: Callable[[], str]) -> None:
        self._console = console
        self._actor = actor
        self._clock = clock
        self._new_id = new_id
        self._expiry: dict[str, datetime] = {}

    async def submit(self, ask: SubmitApproval) -> TicketAnswer:
        """Give the request a ticket; the person is asked when the run waits for it."""
        ticket_id = self._new_id()
        created = self._clock()
        expires = created + timedelta(seconds=ask.request.approval_timeout)
        self._expiry[ticket_id] = expires
        return TicketAnswer(
            ticket_id=ticket_id,
            method=METHOD,
            created_at=format_timestamp(created),
            expires_at=format_timestamp(expires),
        )

    async def withdraw(self, ask: AwaitApproval, outdated: Failure) -> ApprovalAnswer:
        """Close a ticket without responses: the terminal asks only while it waits."""
        return ApprovalAnswer(failure=outdated)

    async def wait(self, ask: AwaitApproval) -> ApprovalAnswer:
        """Ask until there are enough approvals, a rejection, no more input, or the time is over."""
        request = ask.request
        if request.require_signed_approvals:
            message = (
                "`require_signed_approvals` needs signed responses; the terminal cannot sign, use --wait or --detach"
            )
            return ApprovalAnswer(failure=Failure("denied", message))
        responses: list[Response] = []
        try:
            async with asyncio.timeout(self._left(ask)), self._console.turn():
                for line in summary(request):
                    self._console.say(line)
                await self._gather(ask, responses)
        except TimeoutError:
            return ApprovalAnswer(responses=tuple(responses), expired=True)
        except InputError as problem:
            # A line that cannot be read is no approval; the responses before it are kept, and are too few.
            self._console.say(f"  {problem.message}")
        return ApprovalAnswer(responses=tuple(responses))

    def _left(self, ask: AwaitApproval) -> float:
        """The seconds a ticket still has; one of an earlier process has its whole time again."""
        expires = self._expiry.get(ask.ticket_id)
        if expires is None:
            return ask.request.approval_timeout
        return max(0.0, (expires - self._clock()).total_seconds())

    async def _gather(self, ask: AwaitApproval, responses: list[Response]) -> None:
        request = ask.request
        while len(responses) < max(1, request.min_approvers):
            approver = await self._approver(request, {response.approver for response in responses})
            response = await self._verdict(approver, ask) if approver is not None else None
            if response is None:
                return
            responses.append(response)
            if not response.approved:
                return

    async def _approver(self, request: ApprovalRequest, counted: set[str]) -> str | None:
        """Who responds: the actor, unless the request restricts who may."""
        if request.min_approvers <= 1 and not request.approvers and not request.separation_of_duties:
            return self._actor
        barred = {request.requested_by} if request.separation_of_duties else set()
        default = self._actor if self._actor not in counted | barred else ""
        for _ in range(ATTEMPTS):
            answer = await self._console.line(f"approver{f' [{default}]' if default else ''}: ", fresh=True)
            if answer is None:
                return None
            name = answer.strip() or default
            if name in barred:
                self._console.say(f"  `{name}` started the run, and `separation_of_duties` needs another person")
            elif name and (objection := approver_objection(request, name)) is not None:
                self._console.say(f"  {objection}")
            elif name in counted:
                self._console.say(f"  `{name}` has already answered")
            elif name:
                return name
        return None

    async def _verdict(self, approver: str, ask: AwaitApproval) -> Response | None:
        for _ in range(ATTEMPTS):
            answer = await self._console.line("approve? [y/N, and an optional reason]: ", fresh=True)
            if answer is None:
                return None
            word, _, reason = answer.strip().partition(" ")
            if word.lower() in _YES | _NO:
                return Response(
                    approver=approver,
                    approved=word.lower() in _YES,
                    timestamp=format_timestamp(self._clock()),
                    reason=reason.strip() or None,
                    ticket_id=ask.ticket_id,
                    request_hash=ask.request.request_hash,
                )
            self._console.say("  answer y to approve or n to reject; a reason may follow")
        return None
