"""The channel `slack`: a message with two buttons, sent to an incoming webhook."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from gert.ecosystem.approvals.tickets import Tickets, TicketView
from gert.ecosystem.host.channels.page_urls import PageUrls
from gert.ecosystem.host.channels.send import WebhookChannel, encoded, send
from gert.ecosystem.host.channels.slack_blocks import message
from gert.ecosystem.host.channels.slack_inbox import SlackInbox
from gert.ecosystem.notify.addresses import expand
from gert.errors import InputError, IntegrityError
from gert.kernel.governance.decide import person_key
from gert.kernel.runbook.documents.project import SlackApprovals


class SlackChannel(WebhookChannel[SlackApprovals]):
    """Announces tickets in Slack; buttons that are pressed reach the page server."""

    name = "slack"

    async def announce(self, view: TicketView) -> str | None:
        """Post the message."""
        # A button needs a server that handles it.
        buttons = self._settings.signing_secret is not None and self._urls.base is not None
        # With buttons, Slack identifies the approver; on the page, any reader of the channel could use any name.
        page_url = self._urls.look_url(view.id) if buttons else self._urls.page_url(view.id)
        wanted = {person_key(name) for name in view.ticket.request.notify}
        mentions = [user for user, person in self._settings.users.items() if person_key(person) in wanted]
        shown = message(view, self._clock(), page_url=page_url, buttons=buttons, mentions=mentions)
        template = self._settings.webhook
        return await send(template, encoded(shown, template, self._environ), self._environ)

    @asynccontextmanager
    async def listening(self, tickets: Tickets) -> AsyncIterator[None]:
        """Report a missing secret; the page server listens."""
        slack_inbox(self._settings, self._environ, self._urls)
        yield


def slack_inbox(settings: SlackApprovals, environ: Mapping[str, str], urls: PageUrls) -> SlackInbox | None:
    """The handler of Slack's buttons; None without a signing secret."""
    if settings.signing_secret is None:
        return None
    secret = expand(settings.signing_secret, environ).text
    webhook = expand(settings.webhook, environ)
    try:
        return SlackInbox(secret, settings.users, webhook.text, urls, secrets=(*webhook.secrets, secret))
    except IntegrityError:
        raise InputError("the signing secret of the Slack app is too short to be one") from None
