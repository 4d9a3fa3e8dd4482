"""The pages of tickets and their forms: a form is accepted once, from the browser it was shown to."""

import asyncio
import re
from collections.abc import Callable
from datetime import datetime
from typing import Final

from gert.ecosystem.approvals.tickets import Answered, Tickets, TicketView
from gert.ecosystem.host.channels import ticket_summary
from gert.ecosystem.host.channels.page_html import Form, Notice, message, page
from gert.ecosystem.host.channels.page_tokens import new_browser
from gert.ecosystem.host.channels.page_urls import PageUrls
from gert.ecosystem.host.channels.web_server import Reply, Request, fields_of
from gert.errors import GertError, UsageError
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.governance.approval import Response

COOKIE: Final = "gert_browser"
FORM: Final = "application/x-www-form-urlencoded"
_VERDICTS: Final = {"approve": True, "reject": False}
_BROWSER: Final = re.compile(r"[A-Za-z0-9_-]{16,64}")
_NO_LINK: Final = "This link does not open a request. Ask the sender for the whole address, or for a new one."


class TicketPages:
    """Shows the pages of tickets, and posts the responses of their forms."""

    def __init__(self, urls: PageUrls, tickets: Tickets) -> None:
        self._urls = urls
        self._tickets = tickets

    async def show(self, request: Request, ticket_id: str) -> Reply:
        """Show the page of a ticket to a reader with a link; nothing is changed."""
        link = request.query_field("k")
        found = await self._found(ticket_id, link, self._urls.links.shows)
        if isinstance(found, Reply):
            return found
        browser = _browser(request) or new_browser()
        cookie = f"{COOKIE}={browser}; HttpOnly; SameSite=Lax{'; Secure' if self._urls.is_secure else ''}"
        now = await self._tickets.time()
        may_respond = await asyncio.to_thread(self._urls.links.fits, ticket_id, link)
        form = self._form(found, link, browser, now) if may_respond else None
        notice = _closed(found, now) or (None if may_respond else _VIEW_ONLY)
        return page(found, now, form=form, notice=notice, headers=[("Set-Cookie", cookie)])

    async def answer(self, request: Request, ticket_id: str) -> Reply:
        """Accept the form of a page."""
        # (1) It is a form, and its `Origin` is one of our pages.
        if (request.header("content-type") or "").partition(";")[0].strip().lower() != FORM:
            return message(415, "Not a form", "Answers are sent with the form of the page.")
        if self._is_foreign(request):
            return message(403, "Not from this page", "The answer was sent by another page. Nothing was recorded.")
        fields = fields_of(request.body)
        # (2) The sender has the link.
        found = await self._found(ticket_id, fields.get("k", ""), self._urls.links.fits)
        if isinstance(found, Reply):
            return found
        # (3) The form was shown to this browser, for this request.
        browser, token, now = _browser(request), fields.get("token", ""), await self._tickets.time()
        if not self._urls.forms.fits(token, ticket_id, found.ticket.request.request_hash, browser, now):
            return message(
                403, "The form cannot be used", "Open the link again and answer there. Nothing was recorded."
            )
        # (4) It has an approver and a verdict.
        verdict, approver = _VERDICTS.get(fields.get("verdict", "")), fields.get("approver", "").strip()
        reason = fields.get("reason", "").strip()
        if verdict is None or not approver:
            wrong = None if approver else "Write your name: an answer without one cannot count."
            form = Form(link=fields["k"], token=token, approver=approver, reason=reason, wrong=wrong)
            return page(found, now, form=form, notice=_UNSAID, status=422)
        # (5) It is sent for the first time.
        if not self._urls.forms.use(token):
            return self._again(found, token, now)
        response = Response(
            approver=approver,
            approved=verdict,
            timestamp=format_timestamp(now),
            reason=reason or None,
            ticket_id=ticket_id,
            request_hash=found.ticket.request.request_hash,
        )
        return await self._put(response, fields["k"], browser, token)

    async def _put(self, response: Response, link: str, browser: str, token: str) -> Reply:
        try:
            answered = await self._tickets.answer(response.ticket_id, response)
        except GertError as problem:
            # Sending the form again must not be refused as a repetition.
            self._urls.forms.release(token)
            return message(503, "Not recorded", f"The answer could not be recorded: {problem.message}. Try again.")
        except Exception:
            self._urls.forms.release(token)
            raise
        now = await self._tickets.time()
        notice = _notice(answered, response.approved)
        self._urls.forms.set_result(token, notice.text)
        # After an objection, such as a mistyped name, the approver may try again.
        form = self._form(answered.view, link, browser, now) if answered.objection is not None else None
        return page(answered.view, now, form=form, notice=notice, status=200 if answered.objection is None else 409)

    def _again(self, view: TicketView, token: str, now: datetime) -> Reply:
        text = self._urls.forms.result(token) or "It was sent a moment ago."
        notice = Notice("warn", "This answer was sent already", f"It was not recorded a second time. {text}")
        return page(view, now, notice=notice, status=409)

    async def _found(self, ticket_id: str, link: str, admits: Callable[[str, str], bool]) -> TicketView | Reply:
        try:
            # A reader without a link does not learn which tickets exist.
            if not await asyncio.to_thread(admits, ticket_id, link):
                return message(403, "No access", _NO_LINK)
            return await self._tickets.get(ticket_id)
        except UsageError:
            return message(404, "Gone", "There is no such request any more.")
        except GertError as problem:
            return message(503, "Not readable", f"The request cannot be read: {problem.message}.")

    def _form(self, view: TicketView, link: str, browser: str, now: datetime) -> Form | None:
        if view.status_at(now) != "pending":
            return None
        token = self._urls.forms.token(view.id, view.ticket.request.request_hash, browser, now)
        return Form(link=link, token=token)

    def _is_foreign(self, request: Request) -> bool:
        origin, site = request.header("origin"), request.header("sec-fetch-site")
        is_repeated = any(sum(key == name for key, _ in request.headers) > 1 for name in ("origin", "sec-fetch-site"))
        return (
            is_repeated
            or (origin is not None and not self._urls.is_origin(origin))
            or (site is not None and site not in ("same-origin", "none"))
        )


_VIEW_ONLY: Final = Notice("warn", "View only", "Respond with the buttons of the message.")
_UNSAID: Final = Notice("bad", "Not sent yet", "Say who you are, and approve or reject.")


def _browser(request: Request) -> str:
    """The value of our cookie; empty where it is missing, repeated or malformed."""
    pairs = [each.strip().partition("=") for each in (request.header("cookie") or "").split(";")]
    found = [value for name, _, value in pairs if name == COOKIE]
    return found[0] if len(found) == 1 and _BROWSER.fullmatch(found[0]) else ""


def _closed(view: TicketView, now: datetime) -> Notice | None:
    status = view.status_at(now)
    if status == "pending":
        return None
    words = {
        "approved": ("good", "Approved", "Enough people have approved. Nothing is left to answer."),
        "rejected": ("bad", "Rejected", "This was rejected. Nothing is left to answer."),
        "expired": ("warn", "Expired", "The time to answer is over, and what was asked for will not run."),
        "abandoned": ("warn", "Abandoned", "The run does not wait for an answer any more."),
    }
    tone, heading, text = words[status]
    return Notice(tone, heading, text)  # type: ignore[arg-type]


def _notice(answered: Answered, approved: bool) -> Notice:
    word, view = "approval" if approved else "rejection", answered.view
    if answered.objection is not None:
        why = ticket_summary.plain(answered.objection)
        # Only the first letter: names and times stay as they are.
        return Notice("bad", f"Your {word} does not count", f"{why[:1].upper()}{why[1:]}.")
    if answered.is_decided and approved:
        return Notice("good", "Your approval was received", "It is the last one needed: the step may run.")
    if answered.is_decided:
        return Notice("good", "Your rejection was received", "The step will not run.")
    more = view.needed - view.approvals - sum(1 for each in view.waiting if each.approved)
    if not approved or more < 1:
        return Notice("good", f"Your {word} was received", "The run verifies it before it counts.")
    return Notice(
        "good",
        "Your approval was received",
        f"{ticket_summary.people(more)} more must approve before the step may run.",
    )
