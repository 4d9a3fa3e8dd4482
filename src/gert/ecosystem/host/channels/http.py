"""The channel `http`: a signed request to a service of the user's own, whose signed answers come back.

`X-Gert-Signature: t=<unix>,kid=<key>,alg=<algorithm>,v1=<signature>` covers `<unix>.<body>`. Answers come as callbacks
where the page is served, or are asked for at `status_url`.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final

from gert.ecosystem.approvals.tickets import Tickets, TicketView
from gert.ecosystem.host.approvals.ticket_document import request_document as described
from gert.ecosystem.host.channels import ticket_summary
from gert.ecosystem.host.channels.polling import Poll
from gert.ecosystem.host.channels.send import encoded, send
from gert.ecosystem.host.channels.urls import Front
from gert.ecosystem.host.config.keys.approval_keys import NAMED_KEY, SIGNING_KEY, environment_key
from gert.ecosystem.host.config.keys.key_files import with_key_files
from gert.ecosystem.host.run.record.journal import now
from gert.ecosystem.notify.payloads import shortened
from gert.errors import GertError, InputError
from gert.kernel.foundation.signature import Key, find_approval_key_names, sign
from gert.kernel.runbook.documents.project import HttpApprovals

SIGNATURE: Final = "X-Gert-Signature"
MOST_PREVIEW: Final = 16_000
_UNBOUNDED: Final = ("command", "contract", "inputs", "extensions")


class HttpChannel:
    """Tells a service, and hears it where it answers."""

    name = "http"

    def __init__(
        self, settings: HttpApprovals, environ: Mapping[str, str], front: Front, clock: Callable[[], datetime] = now
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._environ = environ
        self._front = front

    async def announce(self, view: TicketView) -> str | None:
        """Post the request; one that cannot be signed is not sent."""
        try:
            key = signing_key(self._settings.signing_key, self._environ)
        except GertError as problem:
            return f"nobody was told: {problem.message}"
        template = self._settings.url
        body = encoded(request_document(view, self._front), template, self._environ)
        return await send(template, body, self._environ, {SIGNATURE: signature_of(body, key, self._clock())})

    @asynccontextmanager
    async def listening(self, tickets: Tickets) -> AsyncIterator[None]:
        """Ask for answers where the service gives them; callbacks come in where the page is served."""
        if self._settings.status_url is None:
            yield
            return
        async with Poll(self._settings.status_url, self._environ, tickets).going_on():
            yield


def request_document(view: TicketView, front: Front) -> dict[str, Any]:
    """The documented fields of a request, what it is bound to, and where to answer; bounded in size."""
    ticket = view.ticket
    document = described(ticket.request)
    bounded = {name: shortened(document[name]) for name in _UNBOUNDED if document[name] is not None}
    preview = ticket_summary.preview(view)
    return {
        "ticket_id": ticket.id,
        "status": view.status,
        "created": ticket.created_at,
        "expires_at": ticket.expires_at,
        **document,
        **bounded,
        "preview": ticket_summary.cut(preview, MOST_PREVIEW) if preview is not None else None,
        "callback_url": front.callback_url(ticket.id),
        "page_url": front.page_url(ticket.id),
    }


def signature_of(body: bytes, key: Key, moment: datetime) -> str:
    """The header that says who sent a body, and when."""
    seconds = int(moment.timestamp())
    signed = sign(key, f"{seconds}.".encode() + body)
    return f"t={seconds},kid={key.id},alg={signed.alg},v1={signed.value}"


def signing_key(key_id: str | None, environ: Mapping[str, str]) -> Key:
    """The key that requests are signed with."""
    environ = with_key_files(environ)
    name = SIGNING_KEY if key_id is None else find_approval_key_names(key_id)[0]
    if not environ.get(name, "").strip():
        raise InputError(f"there is no key to sign the request with: `{name}` is not set")
    key = environment_key(environ, name, key_id if name.startswith(NAMED_KEY) else None)
    if not key.can_sign:
        raise InputError(f"the key in `{name}` is public and cannot sign the request")
    return key
