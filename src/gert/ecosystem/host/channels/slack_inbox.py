"""Handles buttons that are pressed in Slack: the signature is verified, the user is mapped to an approver."""

import base64
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from gert.ecosystem.approvals.tickets import Answered, Tickets
from gert.ecosystem.host.channels import ticket_summary
from gert.ecosystem.host.channels.page_urls import PageUrls
from gert.ecosystem.host.channels.slack_blocks import SECTION, escaped, message
from gert.ecosystem.host.channels.web_server import Reply, Request, fields_of, json_reply, text_reply
from gert.ecosystem.host.run.notifications import HEADERS
from gert.errors import GertError, IntegrityError, UsageError
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.foundation.names import is_safe_name
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.foundation.signature import HMAC_SHA256, Keys, Signature, parse_key, verify
from gert.kernel.governance.approval import Response

WINDOW: Final = 300
"""Seconds that a request of Slack is valid."""

# Slack waits three seconds for a reply.
_REPLY_SECONDS: Final = 1.5
_VERDICTS: Final = {"approve": True, "reject": False}
_UNREADABLE: Final = "the action cannot be read"


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
    """Posts the responses of one Slack app.

    users: approvers by Slack user id
    webhook: the app's incoming webhook; replies are sent only to the same server
    secrets: texts that are redacted in replies
    """

    def __init__(
        self, secret: str, users: Mapping[str, str], webhook: str, urls: PageUrls, secrets: Iterable[str] = ()
    ) -> None:
        key = parse_key("base64:" + base64.b64encode(secret.encode()).decode(), "slack")
        self._keys = Keys([key])
        self._users = users
        self._server = _server(webhook)
        self._urls = urls
        self._redactor = Redactor(secrets)

    async def handle(self, request: Request, tickets: Tickets) -> Reply:
        """Handle a request of Slack."""
        now = await tickets.time()
        # (1) It is signed by Slack, and recent; nothing else is read before that.
        if not self._is_genuine(request, now):
            return text_reply(401, "this is not signed by Slack")
        # (2) It is one pressed button.
        pressed = _pressed(request.body)
        if pressed is None:
            return text_reply(400, _UNREADABLE)
        action = pressed.actions[0]
        # (3) The user is a known approver.
        approver = self._users.get(pressed.user.id)
        if approver is None:
            return await self._reply(
                pressed,
                _privately(f"Slack user {ticket_summary.plain(pressed.user.id)} is not among the approvers here."),
            )
        # (4) It counts only for the request that the message showed.
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
            return await self._reply(pressed, _privately("There is no such request any more."))
        except GertError:
            lost = f"Your {_word(response)} could not be recorded. Press the button again."
            return await self._reply(pressed, _privately(lost))
        return await self._reply(pressed, self._result(answered, response, await tickets.time()))

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

    def _result(self, answered: Answered, response: Response, now: datetime) -> dict[str, Any]:
        word = _word(response)
        if answered.objection is not None:
            return _privately(f"Your {word} does not count: {ticket_summary.plain(answered.objection)}")
        last = f"{ticket_summary.plain(response.approver)} {'approved' if response.approved else 'rejected'} this."
        page_url = self._urls.look_url(answered.view.id)
        shown = message(answered.view, now, page_url=page_url, buttons=not answered.is_decided, last=last)
        return {"replace_original": True, **shown}

    async def _reply(self, pressed: _Pressed, document: dict[str, Any]) -> Reply:
        """Reply, and post the same to the response URL: for buttons, Slack reads only the latter."""
        document = self._redactor.value(document).value
        url = pressed.response_url
        if url and self._server is not None and _server(url) == self._server:
            from gert.ecosystem.notify.webhooks import post

            body = msgspec.json.encode(document)
            await post(url, body, HEADERS, attempts=1, timeout=_REPLY_SECONDS, total=_REPLY_SECONDS)
        return json_reply(200, document)


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
    """A text that only the user who pressed the button sees; the message does not change."""
    return {"response_type": "ephemeral", "replace_original": False, "text": escaped(text, SECTION)}


def _server(url: str) -> tuple[str, str | None, int | None] | None:
    try:
        found = urlsplit(url)
        return found.scheme, found.hostname, found.port
    except ValueError:
        return None
