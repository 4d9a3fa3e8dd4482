"""The channel `teams`: an Adaptive Card with a link to the page, sent to a workflow's webhook.

Workflows cannot send a signed answer back, so people answer on the page.
"""

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final

import msgspec

from gert.ecosystem.approvals.tickets import Tickets, TicketView
from gert.ecosystem.host.channels import ticket_summary
from gert.ecosystem.host.channels.send import encoded, send
from gert.ecosystem.host.channels.urls import Front
from gert.ecosystem.host.run.record.journal import now
from gert.kernel.runbook.documents.project import TeamsApprovals

LONGEST_FACT: Final = 300
LONGEST_TEXT: Final = 2500
MOST_INPUTS: Final = 10
SHORTEST: Final = 80
MOST_BYTES: Final = 24_000
"""Teams refuses messages of more than 28 KB, and then nobody is told."""

_INPUT: Final = 500
_SHARES: Final = (1.0, 0.5, 0.25, 0.1)
# Also what a renderer would put another character or a date in place of.
_MARKUP: Final = re.compile(r"([\\`*_\[\]<>~#|!&{}])")
_LIST: Final = re.compile(r"^(\s*)([-+=]|[0-9]+[.)](?=\s|\Z))", re.MULTILINE)


class TeamsChannel:
    """Tells people in Teams."""

    name = "teams"

    def __init__(
        self, settings: TeamsApprovals, environ: Mapping[str, str], front: Front, clock: Callable[[], datetime] = now
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._environ = environ
        self._front = front

    async def announce(self, view: TicketView) -> str | None:
        """Post the card."""
        template = self._settings.webhook
        shown = message(view, self._clock(), self._front.page_url(view.id))
        return await send(template, encoded(shown, template, self._environ), self._environ)

    @asynccontextmanager
    async def listening(self, tickets: Tickets) -> AsyncIterator[None]:
        """Nothing comes back this way."""
        yield


def message(view: TicketView, moment: datetime, page_url: str | None) -> dict[str, Any]:
    """The card in the envelope that a workflow expects, with as much of each text as there is room for."""
    shown: dict[str, Any] = {}
    for share in _SHARES:
        attachment = {
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": None,
            "content": card(view, moment, page_url, share),
        }
        shown = {"type": "message", "attachments": [attachment]}
        if len(msgspec.json.encode(shown)) <= MOST_BYTES:
            break
    return shown


def card(view: TicketView, moment: datetime, page_url: str | None, share: float = 1.0) -> dict[str, Any]:
    """A ticket as an Adaptive Card; `share` is how much of the longest is shown of each text."""
    fact, most, text = (max(int(share * longest), SHORTEST) for longest in (LONGEST_FACT, _INPUT, LONGEST_TEXT))
    request = view.ticket.request
    rows = [
        *ticket_summary.facts(view),
        *ticket_summary.contract(view),
        *ticket_summary.terms(view),
        ("Time left", ticket_summary.time_left(view, moment)),
    ]
    body: list[dict[str, Any]] = [
        _text(f"Approval needed: {ticket_summary.title_of(request)}", LONGEST_FACT, size="Large", weight="Bolder"),
        {"type": "FactSet", "facts": [{"title": escaped(name, 100), "value": _fact(row, fact)} for name, row in rows]},
    ]
    inputs = list(ticket_summary.inputs(view))
    for name, value in inputs[:MOST_INPUTS]:
        body.append(_text(f"{name}: {value}", most, fontType="Monospace"))
    if len(inputs) > MOST_INPUTS:
        where = "are on the page" if page_url else f"are shown by: gert approvals show {view.id}"
        body.append(_text(f"{len(inputs) - MOST_INPUTS} more inputs {where}", LONGEST_FACT))
    preview = ticket_summary.preview(view)
    if preview is not None:
        body.append(_text(preview, text, fontType="Monospace"))
    if page_url is None:
        body.append(_text(f"Answer with: gert approve {view.id}, or gert reject {view.id}", LONGEST_FACT))
    return {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "fallbackText": escaped(f"Approval needed: {ticket_summary.title_of(request)}", LONGEST_FACT),
        "body": body,
        "actions": [{"type": "Action.OpenUrl", "title": "Look and answer", "url": page_url}] if page_url else [],
        "msteams": {"width": "Full"},
    }


def escaped(text: str, longest: int) -> str:
    """Text in which Teams finds no markup."""
    marked = _MARKUP.sub(r"\\\1", ticket_summary.cut(text, longest))
    # A line that begins like an item of a list would be made one, and one that underlines another a heading of it.
    return _LIST.sub(lambda found: f"{found[1]}{found[2][:-1]}\\{found[2][-1]}", marked)


def _fact(value: str, longest: int) -> str:
    return escaped(" ".join(value.split()), longest) or "-"


def _text(text: str, longest: int, **more: str) -> dict[str, Any]:
    return {"type": "TextBlock", "text": escaped(text, longest) or "-", "wrap": True, **more}
