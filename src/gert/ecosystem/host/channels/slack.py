"""The channel `slack`: a message with two buttons, sent to an incoming webhook."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime

from gert.ecosystem.approvals.tickets import Tickets, TicketView
from gert.ecosystem.host.channels.send import encoded, send
from gert.ecosystem.host.channels.slack_blocks import message
from gert.ecosystem.host.channels.slack_inbox import SlackInbox
from gert.ecosystem.host.channels.urls import Front
from gert.ecosystem.host.run.record.journal import now
from gert.ecosystem.notify.addresses import expand
from gert.errors import InputError, IntegrityError
from gert.kernel.governance.decide import person_key
from gert.kernel.runbook.documents.project import SlackApprovals


class SlackChannel:
    """Tells people in Slack; what they press comes in where the page is served."""

    name = "slack"

    def __init__(
        self, settings: SlackApprovals, environ: Mapping[str, str], front: Front, clock: Callable[[], datetime] = now
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._environ = environ
        self._front = front

    async def announce(self, view: TicketView) -> str | None:
        """Post the message."""
        # A button nobody hears is worse than none.
        buttons = self._settings.signing_secret is not None and self._front.base is not None
        # With buttons, Slack says who answers: on the page, everybody in the channel could be anybody.
        page_url = self._front.look_url(view.id) if buttons else self._front.page_url(view.id)
        wanted = {person_key(name) for name in view.ticket.request.notify}
        mentions = [user for user, person in self._settings.users.items() if person_key(person) in wanted]
        shown = message(view, self._clock(), page_url=page_url, buttons=buttons, mentions=mentions)
        template = self._settings.webhook
        return await send(template, encoded(shown, template, self._environ), self._environ)

    @asynccontextmanager
    async def listening(self, tickets: Tickets) -> AsyncIterator[None]:
        """Nothing to do but to say what is missing: the server listens."""
        slack_inbox(self._settings, self._environ, self._front)
        yield


def slack_inbox(settings: SlackApprovals, environ: Mapping[str, str], front: Front) -> SlackInbox | None:
    """Where Slack's buttons lead to; none without a secret to know Slack by."""
    if settings.signing_secret is None:
        return None
    secret = expand(settings.signing_secret, environ).text
    webhook = expand(settings.webhook, environ)
    try:
        return SlackInbox(secret, settings.users, webhook.text, front, secrets=(*webhook.secrets, secret))
    except IntegrityError:
        raise InputError("the signing secret of the Slack app is too short to be one") from None
