"""Notices of the outcome of a run, sent once it is recorded; a failure here does not change the run."""

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from gert._version import __version__
from gert.ecosystem.host.config.settings import ending_of
from gert.ecosystem.host.run.driver.signals import INTERRUPTED, Relay, interruptible
from gert.ecosystem.host.run.record.journal import Journal, now
from gert.ecosystem.notify.addresses import expand, shown
from gert.ecosystem.notify.payloads import DEFAULT_SEVERITY, PAGERDUTY, encoded, pagerduty_event, payload_of
from gert.errors import GertError
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.requests import Emit
from gert.kernel.engine.run import RunResult
from gert.kernel.events.runbook import WebhookSent
from gert.kernel.events.vocabulary import OutcomeCategory
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.foundation.secret_refs import masked
from gert.kernel.foundation.text import printable
from gert.kernel.runbook.documents.shared import OutcomeNotice

HEADERS: Final[Mapping[str, str]] = {"Content-Type": "application/json", "User-Agent": f"gert/{__version__}"}
_LONGEST_SHOWN: Final = 500
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class _Delivery(msgspec.Struct, frozen=True):
    """A notice to send: the address, the body, and what may be recorded about it.

    key: what leads it on from there, to one of the services behind an address
    """

    shown: str
    category: OutcomeCategory | None
    status: str | None = None
    url: str = ""
    key: str = ""
    body: bytes = b""
    error: str | None = None

    def __repr__(self) -> str:
        return f"_Delivery({self.shown!r})"

    def sent(self, *, delivered: bool, attempts: int, status_code: int | None, error: str | None) -> WebhookSent:
        """What is recorded."""
        return WebhookSent(
            url=self.shown,
            category=self.category,
            status=self.status,
            delivered=delivered,
            attempts=attempts,
            status_code=status_code,
            error=error,
        )

    def given_up(self, attempts: int) -> WebhookSent:
        """What is recorded when the operator interrupts the sending."""
        return self.sent(delivered=False, attempts=attempts, status_code=None, error=INTERRUPTED)


async def send_notices(
    notices: Iterable[OutcomeNotice],
    *,
    runbook: str,
    run_id: str,
    result: RunResult,
    trace: str | None,
    moment: datetime,
    environ: Mapping[str, str],
    redactor: Redactor,
    host: str = "gert",
) -> list[WebhookSent]:
    """Send all notices of a run concurrently, and report the result of each.

    Cancelled, it gives up what is still under way, and says that.
    """
    outcome, ending = result.outcome, ending_of(result)
    if outcome is None and ending is None:
        return []
    category = outcome.category if outcome is not None else None
    letters = []
    for notice in notices:
        template = notice.webhook or (PAGERDUTY if notice.pagerduty_routing_key else None)
        if template is None:
            continue  # it names no receiver
        where = printable(redactor.text(shown(template)).value)[:_LONGEST_SHOWN]
        try:
            payload = payload_of(
                runbook=runbook,
                run_id=run_id,
                outcome=_masked(outcome),
                ending=ending,
                failure=_masked(result.failure),
                failed_step=result.failed_step,
                duration=result.duration,
                waited=result.waited,
                trace=trace,
                moment=moment,
                notify=result.notify,
            )
            url, key, body = _render(notice, template, payload, environ, redactor, host)
            letters.append(_Delivery(where, category, ending, url, key, body))
        except GertError as problem:
            letters.append(_Delivery(where, category, ending, error=problem.message))
        except Exception as problem:
            error = f"the notice could not be written ({type(problem).__name__})"
            letters.append(_Delivery(where, category, ending, error=error))
    return await _send_all(list(_once(letters)))


def _masked(value: _Struct | None) -> _Struct | None:
    if value is None:
        return None
    return msgspec.convert(masked(msgspec.to_builtins(value, enc_hook=str)), type(value))


async def record_notices(
    notices: list[OutcomeNotice],
    journal: Journal,
    setup: Setup,
    result: RunResult,
    *,
    trace: str | None,
    environ: Mapping[str, str],
    redactor: Redactor,
    relay: Relay,
) -> None:
    """Tell, and record it after the end of the run; Ctrl-C gives up the telling and nothing else."""
    if not notices:
        return
    telling = asyncio.ensure_future(
        send_notices(
            notices,
            runbook=setup.program.runbook.meta.name,
            run_id=setup.run_id,
            result=result,
            trace=os.path.abspath(trace) if trace is not None else None,
            moment=now(),
            environ=environ,
            redactor=redactor,
            host=setup.started.host,
        )
    )
    # Cancelled before it began, it has nothing to say; and a bug in it is not one of the run.
    with interruptible(telling, lambda: None, relay), suppress(asyncio.CancelledError, Exception):
        await telling
    if not telling.cancelled() and telling.exception() is None:
        # The run is sealed: it stays valid although a notice about it cannot be recorded.
        with suppress(GertError, OSError):
            for sent in telling.result():
                journal.say(Emit(sent, None, None))
            await journal.settle()
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError  # the caller wants everything to end, not only the sending


def _render(
    notice: OutcomeNotice,
    template: str,
    payload: Mapping[str, Any],
    environ: Mapping[str, str],
    redactor: Redactor,
    host: str,
) -> tuple[str, str, bytes]:
    """A notice as it will be sent: where to, by which key, and with what."""
    url = expand(template, environ)
    key = expand(notice.pagerduty_routing_key or "", environ)
    told = dict(payload)
    severity = notice.pagerduty_severity or (DEFAULT_SEVERITY if key.text else None)
    if severity is not None:
        told |= pagerduty_event(payload, severity, host)
    # A notice holds no secret of the run and no address of another receiver; only the key is meant for its receiver.
    told = redactor.also((*url.secrets, *key.secrets)).value(told).value
    if key.text:
        told["routing_key"] = key.text
    return url.text, key.text, encoded(told)


def _once(letters: Iterable[_Delivery]) -> Iterator[_Delivery]:
    """Each address once: the runbook and the settings may mean the same; behind one, keys lead to different people."""
    seen: set[tuple[str, str]] = set()
    for letter in letters:
        whom = (letter.url or letter.shown, letter.key)
        if whom not in seen:
            seen.add(whom)
            yield letter


async def _send_all(letters: list[_Delivery]) -> list[WebhookSent]:
    sending = [asyncio.ensure_future(_send(letter)) for letter in letters]
    if not sending:
        return []
    try:
        await asyncio.wait(sending)
    except asyncio.CancelledError:
        for task in sending:
            task.cancel()
        await asyncio.wait(sending)
    # One that was cancelled before it began could not say so itself.
    return [
        letter.given_up(0) if task.cancelled() else task.result() for letter, task in zip(letters, sending, strict=True)
    ]


async def _send(letter: _Delivery) -> WebhookSent:
    if letter.error is not None:
        return letter.sent(delivered=False, attempts=0, status_code=None, error=letter.error)
    # Only now: a run that sends nothing does not load the library.
    from gert.ecosystem.notify.webhooks import post

    attempts: list[None] = []
    try:
        delivery = await post(letter.url, letter.body, HEADERS, on_attempt=lambda: attempts.append(None))
    except asyncio.CancelledError:
        return letter.given_up(len(attempts))
    return letter.sent(
        delivered=delivery.delivered,
        attempts=delivery.attempts,
        status_code=delivery.status_code,
        error=delivery.error,
    )
