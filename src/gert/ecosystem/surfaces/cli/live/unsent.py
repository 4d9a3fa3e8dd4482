"""Webhooks that were not delivered, where a run has no view of its own."""

import click

from gert.ecosystem.host.run.observer import SilentObserver
from gert.ecosystem.surfaces.cli.render.text import DOUBTFUL, LONGEST_NAME, clip
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook import WebhookSent


class Unsent(SilentObserver):
    """Collects webhooks that were not delivered; everything else of a run is in its trace."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def said(self, event: Envelope, payload: Payload) -> None:
        """Keep a failed delivery."""
        if isinstance(payload, WebhookSent) and not payload.delivered:
            self._lines.append(f"{clip(payload.url, LONGEST_NAME)}: {clip(payload.error or 'not delivered')}")

    def show(self) -> None:
        """Print the failed deliveries, after the line of their run."""
        lines, self._lines = self._lines, []
        for line in lines:
            click.echo(f"{click.style('warning:', fg=DOUBTFUL)} webhook not delivered to {line}", err=True)
