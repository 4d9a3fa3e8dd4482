"""A ticket as rows of names and values, the same for every channel; secrets are masked."""

import shlex
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from gert.ecosystem.approvals.request_text import command_rows, hidden_note
from gert.ecosystem.approvals.responses import UNSEEN
from gert.ecosystem.approvals.tickets import TicketView
from gert.kernel.events.envelope import parse_timestamp
from gert.kernel.foundation.duration import format_duration
from gert.kernel.foundation.secret_refs import masked
from gert.kernel.foundation.text import PRINTED_NOTHING, REPLACEMENT, printable
from gert.kernel.governance.approval import ApprovalRequest

NOT_SHOWN: Final = ("inputs", "outputs")


def title_of(request: ApprovalRequest) -> str:
    """What is requested, on one line; steps in loops and lanes also show their path."""
    if not request.title:
        return plain(f"{request.runbook}: {request.place}")
    return plain(request.title if _is_alone(request) else f"{request.title} ({request.place})")


def _is_alone(request: ApprovalRequest) -> bool:
    """Whether a step is in no loop, lane or other block."""
    return not {"/", "["} & set(request.place)


def facts(view: TicketView) -> Iterator[tuple[str, str]]:
    """What an approver must know first."""
    request = view.ticket.request
    yield "Step", plain(request.place)
    if request.description:
        yield "Description", plain(request.description)
    yield request.run_kind.capitalize(), plain(request.origin)
    yield "Run", plain(request.run_id)
    yield "Calls", plain(request.target)
    for name, value in command_rows(request):
        yield name.capitalize(), plain(shown(value))
    yield "Risk", plain(request.risk_level)
    yield "Rule that asks", plain(request.rule or "the default for this risk")
    yield "Asked by", plain(request.requested_by or "the kernel")


def call(view: TicketView) -> str:
    """The command or call that would be made, or what the step would do."""
    request = view.ticket.request
    for name, value in command_rows(request):
        if name in ("command", "call"):
            return lines(shown(value))
    return plain(request.description or request.target)


def terms(view: TicketView) -> Iterator[tuple[str, str]]:
    """Who may approve, and how many approvals are needed."""
    request = view.ticket.request
    yield "Approvers", plain(" and ".join(f"one of {', '.join(names)}" for names in request.approvers) or "anyone")
    yield "Needed", people(view.needed)
    if request.separation_of_duties:
        yield "Barred", plain(f"the person who started the run ({request.requested_by or 'not known'})")
    if request.require_signed_approvals:
        yield "Signature", "only signed approvals count"
    if request.notify:
        yield "Notified", plain(", ".join(request.notify))
    yield "Request hash", plain(request.request_hash)


def contract(view: TicketView) -> Iterator[tuple[str, str]]:
    """What the step declares about itself."""
    for name, value in view.ticket.request.contract.items():
        if name not in NOT_SHOWN:
            yield plain(name), _declared(masked(value))


def inputs(view: TicketView) -> Iterator[tuple[str, str]]:
    """The inputs of the step, with their line breaks."""
    for name, value in view.ticket.request.inputs.items():
        yield plain(name), shown(value) + hidden_note(view.ticket.request, name)


def preview(view: TicketView) -> str | None:
    """What the preview of the step printed, or why it was not run, below its command."""
    request = view.ticket.request
    if request.preview_skipped is not None:
        return shown(f"$ {shlex.join(request.preview_command)}\nnot run: {request.preview_skipped}")
    if request.preview is None:
        return None
    command = f"$ {shlex.join(request.preview_command)}\n" if request.preview_command else ""
    return shown(f"{command}{request.preview or PRINTED_NOTHING}")


def shown(value: Any) -> str:
    """A value as text; a list or map as JSON."""
    bare = masked(value)
    text = bare if isinstance(bare, str) else msgspec.json.format(msgspec.json.encode(bare, enc_hook=str)).decode()
    return lines(text)


def _declared(value: Any) -> str:
    """A part of a contract as short text."""
    if value is None:
        return "not declared"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return plain(", ".join(value)) or "none"
    return plain(value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode())


def plain(text: str) -> str:
    """One line of text without control characters."""
    return _visible(" ".join(str(masked(text)).splitlines()))


def lines(text: str) -> str:
    """Lines of text without other control characters."""
    return "\n".join(_visible(line.replace("\t", "    ")) for line in text.replace("\r\n", "\n").split("\n"))


def _visible(text: str) -> str:
    """A line in which every character is visible: an invisible one would be approved, too."""
    if text.isascii() and text.isprintable():
        return text
    return UNSEEN.sub(lambda found: found[0] if _is_drawn(text, found.start()) else REPLACEMENT, printable(text))


def _is_drawn(text: str, at: int) -> bool:
    """Whether a character only selects how the symbol before it is drawn, as in many emoji."""
    return text[at] in "\ufe0e\ufe0f" and at > 0 and unicodedata.category(text[at - 1]) == "So"


def cut(text: str, longest: int) -> str:
    """The beginning of a text, with how much is cut: what is not seen is approved, too."""
    if len(text) <= longest:
        return text
    more = f"… ({len(text) - longest} more characters)"
    return text[: max(0, longest - len(more))] + more


def people(count: int) -> str:
    """`1 person`, `2 people`."""
    return "1 person" if count == 1 else f"{count} people"


def time_left(view: TicketView, now: datetime) -> str:
    """How long the ticket is still open."""
    left = parse_timestamp(view.ticket.expires_at or "") - now
    if left <= timedelta():
        return "none"
    seconds = int(left.total_seconds())
    # Seconds matter only in the last two minutes.
    return format_duration(timedelta(seconds=seconds if seconds < 120 else seconds - seconds % 60))


def moment(text: str | None) -> str:
    """A time as people read it; to the second, which is all they need."""
    return f"{parse_timestamp(text or '').astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def status_text(view: TicketView, now: datetime) -> str:
    """The status of a ticket, with its approvals."""
    count = f"{view.approvals} of {view.needed} {'approval' if view.needed == 1 else 'approvals'}"
    if view.waiting:
        count += f", {len(view.waiting)} received"
    status = view.status_at(now)
    return f"open, {count}" if status == "pending" else f"{status}, {count}"
