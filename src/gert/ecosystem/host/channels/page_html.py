"""The page of one ticket: what exactly would run, who has answered, and two buttons. It needs no script.

Every text in it comes from runbooks, tools and people, and is escaped here and nowhere else.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from html import escape
from typing import Final, Literal

import msgspec

from gert.ecosystem.approvals.responses import MAX_APPROVER, MAX_REASON
from gert.ecosystem.approvals.tickets import Received, TicketView
from gert.ecosystem.host.channels import ticket_summary
from gert.ecosystem.host.channels.page_style import POLICY, SHEET
from gert.ecosystem.host.channels.web_server import Reply
from gert.errors import TraceError

MOST_TEXT: Final = 50_000
MOST_ROWS: Final = 300
_HOT: Final = ("high", "critical")
Tone = Literal["good", "bad", "warn"]


class Notice(msgspec.Struct, frozen=True):
    """A message above the ticket."""

    tone: Tone
    heading: str
    text: str


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """The form: its tokens, what was typed before, and what is wrong with that."""

    link: str
    token: str
    approver: str = ""
    reason: str = ""
    wrong: str | None = None


def page(
    view: TicketView,
    now: datetime,
    *,
    form: Form | None = None,
    notice: Notice | None = None,
    status: int = 200,
    headers: Iterable[tuple[str, str]] = (),
) -> Reply:
    """A ticket, with a form where it can be answered."""
    asked = ticket_summary.title_of(view.ticket.request)
    title = f"{notice.heading}: {asked}" if notice is not None else f"Approve? {asked}"
    return _reply(title, _ticket(view, now, form, notice), status, headers, f"Ticket {view.id}")


def message(status: int, heading: str, text: str, tone: Tone = "bad") -> Reply:
    """A page without a ticket: an error, or a notice."""
    body = (f"<h1>{escape(heading)}</h1>", f'<div class="notice {tone}"><p>{escape(text)}</p></div>')
    return _reply(heading, body, status)


def _reply(
    title: str, body: Iterable[str], status: int, headers: Iterable[tuple[str, str]] = (), footer: str = "gert"
) -> Reply:
    text = "\n".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)} · gert</title>\n<style>{SHEET}</style>\n</head>\n<body>",
            "<header><p><b>gert</b> · request for approval</p></header>\n<main>",
            *body,
            f"</main>\n<footer><p>{escape(footer)}</p></footer>\n</body>\n</html>\n",
        )
    )
    return Reply(
        status=status,
        body=text.encode("utf-8", "replace"),
        content_type="text/html; charset=utf-8",
        policy=POLICY,
        headers=tuple(headers),
    )


def _ticket(view: TicketView, now: datetime, form: Form | None, notice: Notice | None) -> Iterator[str]:
    request = view.ticket.request
    if form is not None:
        yield '<a class="skip" href="#answer">Go to your answer</a>'
    yield f"<h1>{escape(ticket_summary.title_of(request))}</h1>"
    if notice is not None:
        yield (
            f'<div class="notice {notice.tone}" role="{"status" if notice.tone == "good" else "alert"}">'
            f"<h2>{escape(notice.heading)}</h2><p>{escape(notice.text)}</p></div>"
        )
    hot = ' class="hot"' if request.risk_level in _HOT else ""
    yield f'<ul class="tags"><li{hot}>{escape(ticket_summary.plain(request.risk_level))} risk</li>'
    yield f"<li>{escape(ticket_summary.status_text(view, now))}</li>"
    if view.status_at(now) == "pending":
        yield f"<li>{escape(ticket_summary.time_left(view, now))} left</li>"
    yield "</ul>"
    yield from _section("what", "What will run", [_scrolls(_cut(ticket_summary.call(view)), "What will run")])
    # The answer stands right below on a phone and beside everything on a wide screen, so that both are seen at once.
    if form is not None:
        yield from _answering(view, form)
    yield from _section("inputs", "With these inputs", _rows(ticket_summary.inputs(view), "pre") or ["<p>none</p>"])
    shown = ticket_summary.preview(view)
    if shown is not None:
        yield from _section("preview", "Preview", [_diff(_cut(shown))])
    yield from _section("details", "Details", _rows(ticket_summary.facts(view)))
    yield from _section("contract", "Contract", _rows(ticket_summary.contract(view), "code"))
    left = f" ({ticket_summary.time_left(view, now)} left)" if view.status_at(now) == "pending" else ""
    expires = ("Open until", f"{ticket_summary.moment(view.ticket.expires_at)}{left}")
    yield from _section("terms", "Who may approve", _rows([*ticket_summary.terms(view), expires]))
    yield from _section("answers", "Answers so far", _answers(view))


def _section(name: str, heading: str, body: Iterable[str]) -> Iterator[str]:
    yield f'<section aria-labelledby="{name}"><h2 id="{name}">{escape(heading)}</h2>'
    yield from body
    yield "</section>"


def _rows(rows: Iterable[tuple[str, str]], tag: str | None = None) -> list[str]:
    """Names and values; it says how many are left out."""
    found = list(rows)
    if not found:
        return []
    lines = ["<dl>"]
    for name, value in found[:MOST_ROWS]:
        text = escape(_cut(value))
        # A line break right after the tag is not shown, so that one of the value's own is.
        marked = f"<{tag}>\n{text}</{tag}>" if tag == "pre" else f"<{tag}>{text}</{tag}>" if tag else text
        lines.append(f"<dt>{escape(_cut(name))}</dt><dd>{marked}</dd>")
    lines.append("</dl>")
    if len(found) > MOST_ROWS:
        lines.append(f"<p><strong>{len(found) - MOST_ROWS} more are not shown here.</strong></p>")
    return lines


def _scrolls(text: str, label: str) -> str:
    # Only an element with focus can be scrolled with the keyboard.
    return f'<pre tabindex="0" role="region" aria-label="{escape(label)}">\n{escape(text)}</pre>'


def _diff(text: str) -> str:
    """A preview; the lines that a diff adds and removes are marked, by colour and by their first character."""
    marks = {"+": "ins", "-": "del"}
    lines = (
        f"<{mark}>{escape(line)}</{mark}>" if (mark := marks.get(line[:1])) else escape(line)
        for line in text.split("\n")
    )
    body = "\n".join(lines)
    return f'<pre tabindex="0" role="region" aria-label="Preview">\n{body}</pre>'


def _cut(text: str) -> str:
    return ticket_summary.cut(text, MOST_TEXT)


def _answers(view: TicketView) -> Iterator[str]:
    if not view.responses:
        yield '<p class="faint">No response yet.</p>'
        return
    yield '<ul class="answers">'
    yield from (f"<li>{_response(each)}</li>" for each in view.responses)
    yield "</ul>"


def _response(received: Received) -> str:
    said = received.response
    word = "approved" if said.approved else "rejected"
    signed = f", signed with {ticket_summary.plain(said.key_id or 'default')}" if said.signature else ""
    parts = [
        f"<strong>{escape(ticket_summary.plain(said.approver))}</strong> {word}"
        f' <span class="faint">at {escape(_moment(received.received_at))}{escape(signed)}</span>'
    ]
    if said.reason:
        parts.append(f"<br>{escape(ticket_summary.plain(said.reason))}")
    if received.objection is not None:
        why = escape(ticket_summary.plain(received.objection))
        parts.append(f'<br><span class="why">Does not count: {why}</span>')
    elif not received.is_taken:
        parts.append('<br><span class="why">Received; the run has not taken it yet.</span>')
    return "".join(parts)


def _moment(text: str) -> str:
    try:
        return ticket_summary.moment(text)
    except (TraceError, OverflowError):
        return ticket_summary.plain(text)  # the ledger was changed by hand


def _answering(view: TicketView, form: Form) -> Iterator[str]:
    yield '<section id="answer" aria-labelledby="yours"><h2 id="yours">Your answer</h2>'
    if view.ticket.request.require_signed_approvals:
        yield (
            "<p>Only signed approvals count, and this page cannot sign. Approve with "
            f"<code>gert approve {escape(view.id)} --key …</code>. You can reject it here.</p>"
        )
    yield f'<form method="post" action="./{escape(view.id)}" autocomplete="on">'
    # Enter in a field presses the first button of a form. It must not be one that approves.
    yield '<button type="submit" disabled hidden></button>'
    yield f'<input type="hidden" name="k" value="{escape(form.link)}">'
    yield f'<input type="hidden" name="token" value="{escape(form.token)}">'
    yield from _name_field(form)
    yield (
        '<div class="field"><label for="reason">Reason (optional)</label>'
        f'<textarea id="reason" name="reason" maxlength="{MAX_REASON}" rows="1">'
        f"\n{escape(form.reason)}</textarea></div>"
    )
    yield '<div class="buttons">'
    if not view.ticket.request.require_signed_approvals:
        yield '<button class="approve" type="submit" name="verdict" value="approve">Approve</button>'
    yield '<button class="reject" type="submit" name="verdict" value="reject">Reject</button>'
    yield "</div></form></section>"


def _name_field(form: Form) -> Iterator[str]:
    described = "who wrong" if form.wrong is not None else "who"
    yield '<div class="field"><label for="approver">Your name</label>'
    yield '<p class="hint" id="who">As approvers are listed; it is recorded.</p>'
    if form.wrong is not None:
        yield f'<p class="wrong" id="wrong">{escape(form.wrong)}</p>'
    invalid = ' aria-invalid="true" autofocus' if form.wrong is not None else ""
    yield (
        f'<input id="approver" name="approver" value="{escape(form.approver)}" aria-describedby="{described}"{invalid} '
        f'required maxlength="{MAX_APPROVER}" autocomplete="username" spellcheck="false" autocapitalize="none"></div>'
    )
