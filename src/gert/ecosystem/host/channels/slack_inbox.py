"""What Slack sends when somebody presses a button: checked, mapped to a person, and put to the ticket."""

import base64
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from gert.ecosystem.approvals.tickets import Answered, Tickets
from gert.ecosystem.host.channels import ticket_summary
from gert.ecosystem.host.channels.slack_blocks import SECTION, escaped, message
from gert.ecosystem.host.channels.urls import Front
from gert.ecosystem.host.channels.web import Reply, Request, as_json, fields_of, said
from gert.ecosystem.host.run.notifications import HEADERS
from gert.errors import GertError, IntegrityError, UsageError
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.foundation.names import is_safe_name
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.foundation.signature import HMAC_SHA256, Keys, Signature, parse_key, verify
from gert.kernel.governance.approval import Response

WINDOW: Final = 300
"""Seconds a request of Slack's is good for."""

# Slack gives up on us after three seconds.
_TELLING_SECONDS: Final = 1.5
_VERDICTS: Final = {"approve": True, "reject": False}
_NOT_UNDERSTOOD: Final = "this is not an action that can be read"


class _User(msgspec.Struct):
    id: str


class _Action(msgspec.Struct):
    action_id: str
    value: str = ""
    type: str = ""


class _Pressed(msgspec.Struct):
    """The part of Slack's `block_actions` that matters."""

    type: str
    user: _User
    actions: list[_Action]
    response_url: str = ""


class SlackInbox:
    """Answers from one Slack app.

    users: approvers by Slack user id
    webhook: the app's incoming webhook; what is said in return goes to the same server and nowhere else
    secrets: what nobody in Slack is told: how they are reached, and known
    """

    def __init__(
        self, secret: str, users: Mapping[str, str], webhook: str, front: Front, secrets: Iterable[str] = ()
    ) -> None:
        key = parse_key("base64:" + base64.b64encode(secret.encode()).decode(), "slack")
        self._keys = Keys([key])
        self._users = users
        self._server = _server(webhook)
        self._front = front
        self._redactor = Redactor(secrets)

    async def take(self, request: Request, tickets: Tickets) -> Reply:
        """Take what Slack sends."""
        now = await tickets.time()
        # (1) It is from Slack, and from now: nothing in it is read before.
        if not self._is_genuine(request, now):
            return said(401, "this is not signed by Slack")
        # (2) It is one button that was pressed.
        pressed = _pressed(request.body)
        if pressed is None:
            return said(400, _NOT_UNDERSTOOD)
        action = pressed.actions[0]
        # (3) The person is known.
        approver = self._users.get(pressed.user.id)
        if approver is None:
            return await self._tell(
                pressed,
                _privately(f"Slack user {ticket_summary.plain(pressed.user.id)} is not among the approvers here."),
            )
        # (4) It counts for what the message showed, and for nothing that has taken its place.
        ticket_id, _, request_hash = action.value.partition(":")
        response = Response(
            approver=approver,
            approved=_VERDICTS[action.action_id],
            timestamp=format_timestamp(now),
            ticket_id=ticket_id,
            request_hash=request_hash,
        )
        try:
            answered = await tickets.answer(ticket_id, response)
        except UsageError:
            return await self._tell(pressed, _privately("There is no such request any more."))
        except GertError:
            lost = f"Your {_word(response)} could not be recorded. Press the button again."
            return await self._tell(pressed, _privately(lost))
        return await self._tell(pressed, self._became(answered, response, await tickets.time()))

    def _is_genuine(self, request: Request, now: datetime) -> bool:
        moment, signature = request.header("x-slack-request-timestamp"), request.header("x-slack-signature")
        if moment is None or signature is None or not (moment.isascii() and moment.isdigit() and len(moment) < 16):
            return False
        if abs(now.timestamp() - int(moment)) > WINDOW:
            return False
        version, _, value = signature.partition("=")
        try:
            signed = b"v0:" + moment.encode() + b":" + request.body
            verify(self._keys, Signature(HMAC_SHA256, "slack", value), signed)
        except IntegrityError:
            return False
        return version == "v0"

    def _became(self, answered: Answered, response: Response, now: datetime) -> dict[str, Any]:
        word = _word(response)
        if answered.objection is not None:
            return _privately(f"Your {word} does not count: {ticket_summary.plain(answered.objection)}")
        last = f"{ticket_summary.plain(response.approver)} {'approved' if response.approved else 'rejected'} this."
        page_url = self._front.look_url(answered.view.id)
        shown = message(answered.view, now, page_url=page_url, buttons=not answered.is_decided, last=last)
        return {"replace_original": True, **shown}

    async def _tell(self, pressed: _Pressed, document: dict[str, Any]) -> Reply:
        """Say it in the reply, and where Slack wants to hear it: for buttons it reads only the latter."""
        document = self._redactor.value(document).value
        url = pressed.response_url
        if url and self._server is not None and _server(url) == self._server:
            from gert.ecosystem.notify.webhooks import post

            body = msgspec.json.encode(document)
            await post(url, body, HEADERS, attempts=1, timeout=_TELLING_SECONDS, total=_TELLING_SECONDS)
        return as_json(200, document)


def _pressed(body: bytes) -> _Pressed | None:
    try:
        payload = fields_of(body).get("payload", "")
        pressed = msgspec.json.decode(payload, type=_Pressed)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if pressed.type != "block_actions" or len(pressed.actions) != 1:
        return None
    action = pressed.actions[0]
    ticket_id, _, request_hash = action.value.partition(":")
    return pressed if action.action_id in _VERDICTS and is_safe_name(ticket_id) and request_hash else None


def _word(response: Response) -> str:
    return "approval" if response.approved else "rejection"


def _privately(text: str) -> dict[str, Any]:
    """Words for the one who pressed the button; the message stays as it is."""
    return {"response_type": "ephemeral", "replace_original": False, "text": escaped(text, SECTION)}


def _server(url: str) -> tuple[str, str | None, int | None] | None:
    try:
        found = urlsplit(url)
        return found.scheme, found.hostname, found.port
    except ValueError:
        return None
