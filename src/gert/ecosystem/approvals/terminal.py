"""Approval at the terminal: the person there sees what would run, and approves or rejects.

Responses are only collected here. Which of them count, and whether they suffice, the kernel decides.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import datetime, timedelta
from typing import Final, Protocol

from gert.ecosystem.approvals.request_text import StyledLine, compact, name_of, reminder, rule_line, whole
from gert.errors import InputError
from gert.kernel.engine.requests import ApprovalAnswer, AwaitApproval, SubmitApproval, TicketAnswer
from gert.kernel.events.envelope import format_timestamp, parse_timestamp
from gert.kernel.events.path import split
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.duration import format_duration
from gert.kernel.governance.approval import ApprovalRequest, Response
from gert.kernel.governance.approval_rules import approver_objection

TERMINAL: Final = "terminal"
STDIN: Final = "stdin"
"""How an answer was given: by a person at a terminal, or by what a pipe or file holds."""
ATTEMPTS: Final = 5
_YES: Final = frozenset({"y", "yes"})
_NO: Final = frozenset({"", "n", "no"})
_ALL: Final = frozenset({"a", "all"})
_NO_NAMES: Final = (_YES | _NO | _ALL | {"?"}) - {""}
"""Answers that people type by habit where a name is asked for."""
_STALE: Final = timedelta(minutes=1)
_MOST_TOGETHER: Final = 20
"""More requests at once cannot be read before they are approved."""

_SHORT: Final = 12
_LONG: Final = 120
"""Columns of the name of a step in a question at least, and of a question where no terminal shows it."""

_ARRIVAL: Final = 0.1
_MOST_WAITS: Final = 5
"""Seconds without a new request of the same loop, and how often to wait for that."""


NO_INPUT: Final = "standard input ended before an approver answered; add --wait to ask people elsewhere"


class _InputEndedError(Exception):
    """There is no further line to read."""


class Asker(Protocol):
    """The terminal: where a person reads and types."""

    @property
    def is_terminal(self) -> bool:
        """Whether what is read is typed at a terminal."""
        ...

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Keep a dialogue together."""
        ...

    def say(self, text: str, style: str | None = None) -> None:
        """Show lines of text."""
        ...

    @property
    def width(self) -> int:
        """The columns of the terminal now; a narrower one breaks what was shown again."""
        ...

    def fits(self, lines: Iterable[str]) -> bool:
        """Whether lines can be seen at once above a question."""
        ...

    async def line(self, prompt: str, *, fresh: bool = False) -> str | None:
        """Ask for a line; `fresh` takes nothing that was typed before the question was shown."""
        ...


class TerminalApprovals:
    """Requests approval at the console of the run; text typed for an earlier prompt is never used for this one."""

    def __init__(
        self,
        console: Asker,
        actor: str,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
        *,
        rests: bool = False,
    ) -> None:
        """Ask at a console.

        rests: ask only where the run rests, so that written answers meet the same questions in every run
        """
        self._console = console
        self._method = TERMINAL if console.is_terminal else STDIN
        self._rests = rests
        self._order: dict[str, int] = {}
        self._queue: list[str] = []
        self._changed = asyncio.Event()
        self._actor = actor
        self._clock = clock
        self._new_id = new_id
        self._expiry: dict[str, datetime] = {}
        self._waiting: dict[str, AwaitApproval] = {}
        self._given: dict[str, Response] = {}
        self._answered: dict[str | None, set[str]] = defaultdict(set)
        self._width = 0
        self._unseen: list[AwaitApproval] = []

    async def submit(self, ask: SubmitApproval) -> TicketAnswer:
        """Give the request a ticket; the person is asked when the run waits for it."""
        ticket_id = self._new_id()
        created = self._clock()
        expires = created + timedelta(seconds=ask.request.approval_timeout)
        self._expiry[ticket_id] = expires
        return TicketAnswer(
            ticket_id=ticket_id,
            method=self._method,
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
            message = "`require_signed_approvals` needs signed responses; the terminal cannot sign, add --wait"
            return ApprovalAnswer(failure=Failure("denied", message))
        responses: list[Response] = []
        self._waiting[ask.ticket_id] = ask
        try:
            async with asyncio.timeout(self._left(ask)):
                await self._comes_next(ask)
                async with self._console.turn():
                    given = self._given.pop(ask.ticket_id, None)
                    if given is not None:
                        responses.append(given)
                    else:
                        await self._ask(ask, responses)
        except TimeoutError:
            return ApprovalAnswer(responses=tuple(responses), expired=True)
        except InputError as problem:
            # A line that cannot be read is no approval; the responses before it are kept, and are too few.
            self._console.say(f"  {problem.message}")
        except _InputEndedError:
            return ApprovalAnswer(responses=tuple(responses), failure=Failure("denied", NO_INPUT))
        finally:
            del self._waiting[ask.ticket_id]
            if ask.ticket_id in self._queue:
                self._queue.remove(ask.ticket_id)
            self._wake()
            self._answered[_loop_of(request)].add(ask.path)
        return ApprovalAnswer(responses=tuple(responses))

    def rest(self, keys: Sequence[str]) -> None:
        """Learn the open requests of the run, in the order of its lanes; no lane can go on without an answer."""
        self._order = {key: at for at, key in enumerate(keys)}
        self._line_up_at_rest()

    def _line_up_at_rest(self) -> None:
        if self._rests and self._order and self._order.keys() <= {each.key for each in self._waiting.values()}:
            self._line_up()

    def _line_up(self) -> None:
        """Put the open requests in the order of lanes; those that come later wait until these are answered."""
        if not self._queue:
            self._queue = [each.ticket_id for each in sorted(self._waiting.values(), key=self._place)]
            self._wake()

    def _place(self, ask: AwaitApproval) -> int:
        return self._order.get(ask.key, len(self._order))

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _comes_next(self, ask: AwaitApproval) -> None:
        """Wait until the request is the next one to ask about."""
        ticket_id = ask.ticket_id
        if self._rests:
            self._line_up_at_rest()
            # A call that takes very long must not use up the time of the ticket.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._left(ask) / 2):
                    while ticket_id not in self._queue and ticket_id not in self._given:
                        await self._changed.wait()
        else:
            await self._siblings_arrive(ask)
        while self._queue[:1] != [ticket_id] and ticket_id not in self._given:
            if self._queue:
                await self._changed.wait()
            else:
                self._line_up()

    async def _siblings_arrive(self, ask: AwaitApproval) -> None:
        """Let the other items of a loop request their approvals, so that one dialogue can show all of them."""
        if _loop_of(ask.request) is None:
            return
        for _ in range(_MOST_WAITS):
            before = len(self._waiting)
            await asyncio.sleep(_ARRIVAL)
            if len(self._waiting) == before:
                return

    async def _ask(self, ask: AwaitApproval, responses: list[Response]) -> None:
        """Show what is decided on, then ask."""
        together = self._together(ask)
        self._show(ask, together)
        await self._gather(ask, responses, together[1:])

    def _show(self, ask: AwaitApproval, together: list[AwaitApproval]) -> None:
        """Show the requests, of several at once as many as can be seen above the question."""
        self._width = self._console.width
        count = len(together)
        heading = StyledLine(f"{count} approvals needed for the items of `{_loop_of(ask.request)}`", "bold")
        before = [StyledLine(""), *([heading] if count > 1 else [])]
        after = self._reasons(ask, count)
        items = [list(compact(each.request, number=_number(at, count))) for at, each in enumerate(together, 1)]
        for shown in range(count, 0, -1):
            lines = [*before, *(line for item in items[:shown] for line in item), *_more(count - shown, count), *after]
            if fits := self._console.fits(line.text for line in lines):
                break
        self._unseen = together[shown:]
        if not fits:
            # What would run is above the screen, or will be: it is shown again where the question is.
            lines += reminder(ask.request, number=_number(1, count))
        for line in lines:
            self._console.say(*line)

    def _show_unseen(self, ask: AwaitApproval, together: list[AwaitApproval]) -> None:
        """Show the other requests, however many rows they take."""
        self._width = max(self._width, self._console.width)
        count = len(together)
        for at, each in enumerate(together, 1):
            for line in compact(each.request, number=_number(at, count)) if each in self._unseen else ():
                self._console.say(*line)
        self._unseen = []
        for line in (*self._reasons(ask, count), *reminder(ask.request, number=_number(1, count))):
            self._console.say(*line)

    def _show_whole(self, together: list[AwaitApproval]) -> None:
        """Show all about the requests; the one that `y` and `n` decide stands last, where the question is."""
        numbered = [*enumerate(together, 1)]
        for at, each in (*numbered[1:], numbered[0]):
            for line in whole(each.request, number=_number(at, len(together))):
                self._console.say(*line)

    def _reasons(self, ask: AwaitApproval, count: int) -> list[StyledLine]:
        """Why approval is needed, how old the preview is, and how many more items of the loop may need approval."""
        lines = [rule_line(ask.request)]
        if ask.request.preview is not None and (age := self._age(ask)) >= _STALE:
            text = f"  {'preview:'.ljust(15)}from {format_duration(age)} ago; what it shows may have changed since"
            lines.append(StyledLine(text, "yellow"))
        answered = self._answered[_loop_of(ask.request)]
        if ask.path in answered:
            answered.clear()  # the loop runs again
        left = ask.items - count - len(answered)
        if left > 0:
            text = f"up to {left} of the loop's {ask.items} items may need approval later"
            lines.append(StyledLine(f"  {'more:'.ljust(15)}{text}"))
        return lines

    def _together(self, ask: AwaitApproval) -> list[AwaitApproval]:
        """The request, and those of the other items of its loop that are open now and need the same one person."""
        loop = _loop_of(ask.request)
        if loop is None or not _needs_one(ask.request):
            return [ask]
        others = [
            each
            for each in self._waiting.values()
            if each is not ask
            and each.ticket_id not in self._given
            and (each.ticket_id in self._queue or not self._rests)
            and _loop_of(each.request) == loop
            and each.request.rule == ask.request.rule
            and _needs_one(each.request)
        ]
        return [ask, *sorted(others, key=self._place)[: _MOST_TOGETHER - 1]]

    def _age(self, ask: AwaitApproval) -> timedelta:
        """How long ago the request was made: a resumed run shows what was recorded then."""
        made = parse_timestamp(ask.created_at) if ask.created_at is not None else self._clock()
        return timedelta(seconds=int((self._clock() - made).total_seconds()))

    def _left(self, ask: AwaitApproval) -> float:
        """The seconds a ticket still has; one of an earlier process has its whole time again."""
        expires = self._expiry.get(ask.ticket_id)
        if expires is None:
            return ask.request.approval_timeout
        return max(0.0, (expires - self._clock()).total_seconds())

    async def _gather(self, ask: AwaitApproval, responses: list[Response], others: list[AwaitApproval]) -> None:
        request = ask.request
        while len(responses) < max(1, request.min_approvers):
            approver = await self._approver(request, {response.approver for response in responses})
            response = await self._verdict(approver, ask, others) if approver is not None else None
            if response is None:
                return
            responses.append(response)
            if not response.approved:
                return

    async def _approver(self, request: ApprovalRequest, counted: set[str]) -> str | None:
        """Who responds: the actor, unless the request restricts who may."""
        if _needs_one(request):
            return self._actor
        barred = {request.requested_by} if request.separation_of_duties else set()
        default = self._actor if self._actor not in counted | barred else ""
        for _ in range(ATTEMPTS):
            answer = await self._line(f"name of the approver{f' [{default}]' if default else ''}: ")
            name = answer.strip() or default
            if name.lower() in _NO_NAMES:
                self._console.say("  type the name or address of the person who decides; the decision comes next")
            elif name in barred:
                self._console.say(f"  `{name}` started the run, and `separation_of_duties` needs another person")
            elif name and (objection := approver_objection(request, name)) is not None:
                self._console.say(f"  {objection}")
            elif name in counted:
                self._console.say(f"  `{name}` has already answered")
            elif name:
                return name
        return None

    async def _verdict(self, approver: str, ask: AwaitApproval, others: list[AwaitApproval]) -> Response | None:
        asked = 0
        while asked < ATTEMPTS:
            answer = await self._line(self._question(ask, len(others) + 1))
            word, _, reason = answer.strip().partition(" ")
            word = word.lower()
            if self._console.width < self._width:
                # The terminal broke the rows again, and a value may have drawn some that look like ours.
                self._console.say("  the terminal became narrower: read it again, and answer then")
                self._show(ask, [ask, *others])
                continue
            if self._unseen and word in {"?"} | _ALL:
                if word in _ALL:
                    self._console.say("  not all of them were shown: read the others, and answer then")
                self._show_unseen(ask, [ask, *others])
                continue
            if word == "?":
                self._show_whole([ask, *others])
                continue
            if word in _YES | _NO or (others and word in _ALL):
                for each in others if word in _ALL else ():
                    if each.ticket_id in self._waiting:
                        self._given[each.ticket_id] = self._response(approver, each, reason, approved=True)
                self._wake()
                return self._response(approver, ask, reason, approved=word not in _NO)
            asked += 1
            self._console.say("  answer y to approve or n to reject; a reason may follow")
        return None

    def _question(self, ask: AwaitApproval, count: int) -> str:
        """The question; of several requests it names the one that `y` and `n` decide: another may stand above it."""
        if count == 1:
            return "approve? [y/N, ? = more; a reason may follow]: "
        # What a person could not see is not approved with the rest.
        every = f"a = all {count}, " if not self._unseen else ""
        begun, end = f"approve? [y/n = only {_number(1, count)}, `", f"`, {every}? = more]: "
        # On one row, because the lines of other items are inserted above the last row.
        room = (self._console.width or _LONG) - len(begun) - len(end) - len("y ok")
        return f"{begun}{name_of(ask.request, max(room, _SHORT))}{end}"

    async def _line(self, prompt: str) -> str:
        answer = await self._console.line(prompt, fresh=True)
        if answer is None:
            raise _InputEndedError
        return answer

    def _response(self, approver: str, ask: AwaitApproval, reason: str, *, approved: bool) -> Response:
        return Response(
            approver=approver,
            approved=approved,
            timestamp=format_timestamp(self._clock()),
            reason=reason.strip() or None,
            ticket_id=ask.ticket_id,
            request_hash=ask.request.request_hash,
            method=self._method,
        )


def _number(at: int, count: int) -> str | None:
    """Which request it is of those that are shown together."""
    return f"{at} of {count}" if count > 1 else None


def _more(count: int, of: int) -> list[StyledLine]:
    """Say how many requests are not shown."""
    return [StyledLine(f"… {count} more; ? shows them, then `a` approves all {of}", "yellow")] if count else []


def _loop_of(request: ApprovalRequest) -> str | None:
    """The path of the step without its items, where it is in a loop: the same for all of them."""
    if "[" not in request.path:
        return None
    return "/".join(segment.name for segment in split(request.path))


def _needs_one(request: ApprovalRequest) -> bool:
    """Whether any one person may approve it."""
    return request.min_approvers <= 1 and not request.approvers and not request.separation_of_duties
