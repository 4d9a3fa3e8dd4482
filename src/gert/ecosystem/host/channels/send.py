"""Sending a message about a ticket: where to, with secrets filled in at the last moment, and what went wrong."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gert.ecosystem.host.run.notifications import HEADERS
from gert.ecosystem.notify.addresses import expand
from gert.errors import GertError
from gert.kernel.foundation.redaction import Redactor

# A channel is given five seconds to tell people.
TOTAL_SECONDS: Final = 4.5
ATTEMPT_SECONDS: Final = 2.0


async def send(
    template: str, body: bytes, environ: Mapping[str, str], headers: Mapping[str, str] | None = None
) -> str | None:
    """Post a body to an address with `${NAME}` in it; a text says why nobody was told."""
    from gert.ecosystem.notify.webhooks import post

    try:
        url = expand(template, environ).text
    except GertError as problem:
        return f"nobody was told: {problem.message}"
    delivery = await post(url, body, {**HEADERS, **(headers or {})}, timeout=ATTEMPT_SECONDS, total=TOTAL_SECONDS)
    # Not where to: the address of a webhook is its secret.
    return None if delivery.delivered else f"nobody was told: {delivery.error}"


def encoded(document: Mapping[str, Any], template: str, environ: Mapping[str, str]) -> bytes:
    """A message in which nobody is told how others are reached."""
    try:
        secrets = expand(template, environ).secrets
    except GertError:
        secrets = ()
    return msgspec.json.encode(Redactor(secrets).value(document).value, enc_hook=str)
