"""Post a message about a ticket to a webhook; secrets in its address are expanded at the last moment."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

import msgspec

from gert.ecosystem.approvals.tickets import Tickets
from gert.ecosystem.host.channels.page_urls import PageUrls
from gert.ecosystem.host.run.notifications import HEADERS
from gert.ecosystem.host.run.record.journal import now
from gert.ecosystem.notify.addresses import expand
from gert.errors import GertError
from gert.kernel.foundation.redaction import Redactor

S = TypeVar("S")

# A channel has five seconds to announce a ticket.
TOTAL_SECONDS: Final = 4.5
ATTEMPT_SECONDS: Final = 2.0


class WebhookChannel(Generic[S]):
    """A channel that announces tickets to a webhook of its settings; it receives nothing unless it says so."""

    def __init__(
        self, settings: S, environ: Mapping[str, str], urls: PageUrls, clock: Callable[[], datetime] = now
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._environ = environ
        self._urls = urls

    @asynccontextmanager
    async def listening(self, tickets: Tickets) -> AsyncIterator[None]:
        """Do nothing."""
        yield


async def send(
    template: str, body: bytes, environ: Mapping[str, str], headers: Mapping[str, str] | None = None
) -> str | None:
    """Post a body to an address with `${NAME}` in it; returns why it was not delivered, or None."""
    from gert.ecosystem.notify.webhooks import post

    try:
        url = expand(template, environ).text
    except GertError as problem:
        return f"not sent: {problem.message}"
    delivery = await post(url, body, {**HEADERS, **(headers or {})}, timeout=ATTEMPT_SECONDS, total=TOTAL_SECONDS)
    # Without the address: that of a webhook is secret.
    return None if delivery.delivered else f"not sent: {delivery.error}"


def encoded(document: Mapping[str, Any], template: str, environ: Mapping[str, str]) -> bytes:
    """Encode a message; secrets of the webhook's address are redacted in it."""
    try:
        secrets = expand(template, environ).secrets
    except GertError:
        secrets = ()
    return msgspec.json.encode(Redactor(secrets).value(document).value, enc_hook=str)
