"""A ticket as a message for Slack, within the limits of Block Kit; texts of a runbook are escaped.

https://docs.slack.dev/reference/block-kit/blocks has the limits, `formatting message text` what is escaped.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from gert.ecosystem.approvals.tickets import TicketView
from gert.ecosystem.host.channels import ticket_summary

HEADER: Final = 150
SECTION: Final = 3000
FIELD: Final = 2000
FIELDS: Final = 10
BLOCKS: Final = 50
CONFIRM: Final = 300
FALLBACK: Final = 1000
MOST_INPUTS: Final = 10
_ESCAPED: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
# Inside a code span, only its end is markup.
_CODE: Final = {**_ESCAPED, "`": "\u02cb"}
Block = dict[str, Any]


def message(
    view: TicketView,
    now: datetime,
    *,
    page_url: str | None,
    buttons: bool,
    last: str | None = None,
    mentions: Iterable[str] = (),
) -> dict[str, Any]:
    """A message about a ticket; `buttons` only if a server handles them and the ticket is open.

    mentions: ids of the users that a rule notifies
    """
    request = view.ticket.request
    is_open = view.status_at(now) == "pending"
    heading = f"Approval needed: {ticket_summary.title_of(request)}" if is_open else ticket_summary.title_of(request)
    blocks: list[Block] = [
        {"type": "header", "text": {"type": "plain_text", "text": ticket_summary.cut(heading, HEADER), "emoji": False}},
        *({"type": "section", "fields": [_field(*row) for row in rows][:FIELDS]} for rows in _rows(view)),
    ]
    called = [f"<@{user}>" for user in mentions if user.isalnum()]
    if is_open and called:
        blocks.append(_section(ticket_summary.cut(f"For {' '.join(called)}", SECTION)))
    if is_open:
        blocks += _details(view)
    if last is not None:
        blocks.append(_section(escaped(last, SECTION)))
    blocks.append({"type": "context", "elements": [_text(_standing(view, now, page_url if is_open else None))]})
    if is_open and buttons:
        blocks.append(_actions(view))
    return {
        "text": escaped(f"{heading} ({ticket_summary.status_text(view, now)})", FALLBACK),
        "blocks": blocks[:BLOCKS],
    }


def escaped(text: str, longest: int, table: dict[str, str] = _ESCAPED) -> str:
    """Escape a text: Slack finds no mention, link or entity in it; limited in length after escaping."""
    whole = "".join(table.get(character, character) for character in text)
    if len(whole) <= longest:
        return whole
    room = longest - len("… (000000000 more characters)")
    kept, used = 0, 0
    for character in text:
        used += len(table.get(character, character))
        if used > room:
            break
        kept += 1
    return "".join(table.get(each, each) for each in text[:kept]) + f"… ({len(text) - kept} more characters)"


def _rows(view: TicketView) -> tuple[Iterable[tuple[str, str]], ...]:
    """What is requested, and of whom, in two blocks of at most ten fields."""
    return ticket_summary.facts(view), ticket_summary.terms(view)


def _field(name: str, value: str) -> Block:
    room = FIELD - len(name) - 8
    return _text(f"*{escaped(name, 100)}*\n`{escaped(value, room, _CODE) or ' '}`")


def _details(view: TicketView) -> Iterable[Block]:
    """Contract, inputs and preview, each in its own block and cut to its limit."""
    contract = [f"{name}: {' '.join(value.split())}" for name, value in ticket_summary.contract(view)]
    if contract:
        yield _code("Contract", "\n".join(contract))
    rows = list(ticket_summary.inputs(view))
    for name, value in rows[:MOST_INPUTS]:
        yield _code(f"Input {name}", value)
    if len(rows) > MOST_INPUTS:
        yield _section(f"*{len(rows) - MOST_INPUTS} more inputs are not shown here.*")
    preview = ticket_summary.preview(view)
    if preview is not None:
        yield _code("Preview", preview)


def _code(name: str, text: str) -> Block:
    label = f"*{escaped(ticket_summary.cut(name, 100), 300, _CODE)}*"
    return _section(f"{label}\n```{escaped(text, SECTION - len(label) - 8, _CODE) or ' '}```")


def _standing(view: TicketView, now: datetime, page_url: str | None) -> str:
    where = f" · <{page_url}|everything about it>" if page_url is not None else ""
    left = f" · {ticket_summary.time_left(view, now)} left" if view.status_at(now) == "pending" else ""
    return (
        f"Ticket `{escaped(view.id, 200, _CODE)}` · {escaped(ticket_summary.status_text(view, now), 100)}{left}{where}"
    )


def _actions(view: TicketView) -> Block:
    approve, reject = _button(view, "approve", "Approve", "primary"), _button(view, "reject", "Reject", "danger")
    return {
        "type": "actions",
        "block_id": "answer",
        # A button cannot sign.
        "elements": [reject] if view.ticket.request.require_signed_approvals else [approve, reject],
    }


def _button(view: TicketView, action: str, word: str, style: str) -> Block:
    request = view.ticket.request
    about = ticket_summary.cut(
        f"{word} step {request.place} of {request.runbook} ({request.risk_level} risk)?", CONFIRM
    )
    return {
        "type": "button",
        "action_id": action,
        "value": button_value(view),
        "style": style,
        "text": {"type": "plain_text", "text": word},
        "confirm": {
            "title": {"type": "plain_text", "text": f"{word}?"},
            "text": {"type": "plain_text", "text": ticket_summary.cut(ticket_summary.plain(about), CONFIRM)},
            "confirm": {"type": "plain_text", "text": word},
            "deny": {"type": "plain_text", "text": "Not yet"},
            "style": style,
        },
    }


def button_value(view: TicketView) -> str:
    """The value of a button: the ticket, and the hash of the request that the message shows."""
    return f"{view.id}:{view.ticket.request.request_hash}"


def _section(text: str) -> Block:
    return {"type": "section", "text": _text(text)}


def _text(text: str) -> Block:
    # Verbatim: text that looks like a channel or an address is not linked.
    return {"type": "mrkdwn", "text": text, "verbatim": True}
