"""Approval at the terminal: whoever sits there sees what would run, and says yes or no.

Only words are collected here. Which of them count, and whether they are enough, the kernel decides.
"""

import asyncio
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

import msgspec

from gert.errors import InputError
from gert.kernel.engine.requests import (
    ApprovalAnswer,
    ApprovalRequest,
    AwaitApproval,
    Response,
    SubmitApproval,
    TicketAnswer,
)
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.secret_refs import masked
from gert.kernel.foundation.text import printable

METHOD: Final = "terminal"
ATTEMPTS: Final = 5
_MAX_SHOWN: Final = 2000
_MAX_COMMAND: Final = 64 * 1024
"""What is started is shown whole; a longer command is not one that can be read."""
_MAX_LINES: Final = 200
_YES: Final = frozenset({"y", "yes"})
_NO: Final = frozenset({"", "n", "no"})


class Asker(Protocol):
    """Where people read and type."""

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
    """Asks at the console of this run; an answer typed for an earlier question is never taken for this one."""

    def __init__(self, console: Asker, actor: str, clock: Callable[[], datetime], new_id: Callable[[], str]) -> None:
        self._console = console
        self._actor = actor
        self._clock = clock
        self._new_id = new_id
        self._expiry: dict[str, datetime] = {}

    async def submit(self, ask: SubmitApproval) -> TicketAnswer:
        """Give a ticket at once; nobody is asked yet."""
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
        """Nothing is left open and nothing was answered: the terminal asks when it waits."""
        return ApprovalAnswer(failure=outdated)

    async def wait(self, ask: AwaitApproval) -> ApprovalAnswer:
        """Ask until there are enough approvals, somebody says no, nobody is there, or the time is over."""
        request = ask.request
        if request.require_signed_approvals:
            message = (
                "`require_signed_approvals` wants signed answers; the terminal cannot sign, use --wait or --detach"
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
            # A line that cannot be read is no approval; those before it stand, and are too few.
            self._console.say(f"  {problem.message}")
        return ApprovalAnswer(responses=tuple(responses))

    def _left(self, ask: AwaitApproval) -> float:
        """The seconds a ticket still has; one of an earlier process is given its whole time again."""
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
        """Who answers: the actor, unless it matters who it is."""
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
                self._console.say(f"  `{name}` started the run, and `separation_of_duties` asks for somebody else")
            elif name in counted:
                self._console.say(f"  `{name}` has already answered")
            elif name:
                return name
        return None

    async def _verdict(self, approver: str, ask: AwaitApproval) -> Response | None:
        for _ in range(ATTEMPTS):
            answer = await self._console.line("approve? [y/N, and why if you like]: ", fresh=True)
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


def summary(request: ApprovalRequest) -> Iterator[str]:
    """What whoever decides must see, line by line; secrets are masked."""
    title = f": {_shown(request.title)}" if request.title else ""
    yield from ("", f"approval needed for step `{_shown(request.place)}`{title}")
    rows: list[tuple[str, Any]] = [
        *([("description", request.description)] if request.description else []),
        ("runbook", request.runbook),
        ("run", request.run_id),
        ("target", request.target),
        *command_rows(request),
        ("risk", request.risk_level),
        ("rule", request.rule or "the default for this risk"),
        *((name, value) for name, value in request.contract.items() if name not in ("inputs", "outputs")),
        ("asked by", request.requested_by or "the kernel"),
        ("approvers", _approvers(request)),
        ("needed", f"{request.min_approvers} different people" if request.min_approvers > 1 else "one"),
        *([("to hear of it", ", ".join(request.notify))] if request.notify else []),
        ("request", request.request_hash),
    ]
    started = dict(command_rows(request))
    for name, value in rows:
        yield f"  {f'{name}:'.ljust(15)}{_shown(value, _MAX_COMMAND if name in started else _MAX_SHOWN)}"
    if request.inputs:
        yield "  inputs:"
    for name, value in request.inputs.items():
        yield f"    {printable(name)}: {_shown(value)}{hidden_note(request, name)}"
    if request.preview_skipped is not None:
        command = _shown(shlex.join(request.preview_command))
        yield f"  preview:       not run, {_shown(request.preview_skipped)}: {command}"
    if request.preview is not None:
        yield f"  preview:       {_shown(shlex.join(request.preview_command))}"
        lines = masked(request.preview).splitlines()
        yield from (f"    │ {printable(line.expandtabs(4))}" for line in lines[:_MAX_LINES])
        if len(lines) > _MAX_LINES:
            yield f"    │ … ({len(lines) - _MAX_LINES} more lines)"


def command_rows(request: ApprovalRequest) -> Iterator[tuple[str, Any]]:
    """What would be started, and where it was found."""
    call = request.command
    if call is None:
        return
    if "transport" in call:
        yield "call", f"{call.get('call')} ({call['transport']})"
    else:
        yield "command", shlex.join([call.get("program", ""), *call.get("arguments", ())])
    yield from ((name, call[name]) for name in ("env", "cwd", "stdin") if name in call)
    if request.program is not None:
        yield "program", request.program
    if request.folder is not None:
        yield "folder", request.folder


def hidden_note(request: ApprovalRequest, name: str) -> str:
    """What an approver is told about an input that is not shown and that the tool does not call secret."""
    return " (marked secret by the runbook, not by the tool)" if request.hidden.get(name) == "runbook" else ""


def _approvers(request: ApprovalRequest) -> str:
    who = " and ".join(f"one of {', '.join(names)}" for names in request.approvers) or "anyone"
    return f"{who}, but not whoever started the run" if request.separation_of_duties else who


def _shown(value: Any, most: int = _MAX_SHOWN) -> str:
    """A value on one line; how much was cut is said, since what is not seen is approved too."""
    if value is None:
        return "not declared"
    plain = masked(value)
    text = printable(plain if isinstance(plain, str) else msgspec.json.encode(plain).decode())
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text) - most} more characters; `gert approvals show --json` has all of them)"
