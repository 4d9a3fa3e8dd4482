"""The payload of a webhook: the documented fields, a line for Slack, and an event for PagerDuty; bounded in size."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from gert.kernel.events.runbook import Failure, Outcome
from gert.kernel.foundation.duration import format_duration
from gert.kernel.foundation.text import path_text, printable

PAGERDUTY: Final = "https://events.pagerduty.com/v2/enqueue"
DEFAULT_SEVERITY: Final = "error"
"""The default severity of a PagerDuty event."""

MAX_BYTES: Final = 16 * 1024
"""Bytes of the details of an outcome; PagerDuty accepts half a megabyte, Slack far less."""

# Tried one after the other: the longest text, and the most entries of a list or map.
_LIMITS: Final = ((4000, 200), (1000, 50), (200, 20))
_MAX_DEPTH: Final = 8
_DETAILS: Final = ("run_id", "outcome", "status", "failure", "failed_step", "duration", "waited", "trace")
_LONGEST_CODE: Final = 200
_LONGEST_SUMMARY: Final = 1000
_LONGEST_KEY: Final = 255
_SLACK: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_ENCODER: Final = msgspec.json.Encoder(enc_hook=str)


def payload_of(
    *,
    runbook: str,
    run_id: str,
    outcome: Outcome | None,
    duration: float,
    waited: float,
    trace: str | None,
    moment: datetime,
    notify: Sequence[str] = (),
    ending: str | None = None,
    failure: Failure | None = None,
    failed_step: str | None = None,
) -> dict[str, Any]:
    """Return the fields of every webhook; `notify` only if a rule on the outcome names people.

    ending: how a run without an outcome ended; then `failure` says why, and `outcome` is null
    """
    took = duration_of(duration)
    if outcome is not None:
        code = _cut(outcome.code, _LONGEST_CODE)
        ended: dict[str, Any] = {
            "outcome": {"category": outcome.category, "code": code, "meta": shortened(outcome.meta)}
        }
        what = f"{outcome.category} ({code})"
    else:
        why = _cut(failure.message if failure is not None else "no reason given", _LONGEST_SUMMARY)
        kind = failure.kind if failure is not None else None
        ended = {
            "outcome": None,
            "status": ending,
            "failure": {"kind": kind, "message": why},
            "failed_step": failed_step,
        }
        what = f"{ending}{f' at {path_text(failed_step)}' if failed_step else ''} ({why})"
    text = f"{runbook}: {what} after {took}, run {run_id}"
    audience = f", for {', '.join(notify)}" if notify else ""
    return {
        **({"notify": list(notify)} if notify else {}),
        "runbook": runbook,
        "run_id": run_id,
        **ended,
        "duration": took,
        "duration_seconds": round(duration, 3),
        "waited": duration_of(waited),
        "waited_seconds": round(waited, 3),
        "trace": trace,
        "timestamp": moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "text": printable(text + audience).translate(_SLACK),
    }


def pagerduty_event(payload: Mapping[str, Any], severity: str, host: str) -> dict[str, Any]:
    """Return the fields of PagerDuty's Events API v2, without the routing key."""
    outcome, runbook = payload["outcome"], payload["runbook"]
    category, code = payload.get("status"), payload.get("failed_step") or "run"
    if outcome is not None:
        category, code = outcome["category"], outcome["code"]
    summary = f"{runbook}: {category} ({code})"
    return {
        "event_action": "trigger",
        # One incident for each outcome of a runbook, however often it occurs.
        "dedup_key": f"gert/{runbook}/{category}/{code}"[:_LONGEST_KEY],
        "payload": {
            "summary": _cut(printable(summary), _LONGEST_SUMMARY),
            "source": host,
            "severity": severity,
            "timestamp": payload["timestamp"],
            "component": runbook,
            "custom_details": {name: payload[name] for name in _DETAILS if name in payload},
        },
    }


def encoded(payload: Mapping[str, Any]) -> bytes:
    """Encode the body of the request."""
    return _ENCODER.encode(payload)


def duration_of(seconds: float) -> str:
    """Format a duration: `4.2s`; below a second, in milliseconds."""
    digits = 1 if seconds >= 1 else 3
    return format_duration(timedelta(seconds=round(max(seconds, 0.0), digits)))


def shortened(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Cut long texts and lists in the details of an outcome until they fit."""
    if len(_ENCODER.encode(meta)) <= MAX_BYTES:
        return dict(meta)
    for text, entries in _LIMITS:
        short: dict[str, Any] = _short(meta, text, entries, _MAX_DEPTH)
        if len(_ENCODER.encode(short)) <= MAX_BYTES:
            return short
    return {"…": "left out: too large"}


def _short(value: Any, text: int, entries: int, depth: int) -> Any:
    if isinstance(value, str):
        return _cut(value, text)
    if not isinstance(value, Mapping | list | tuple):
        return value
    if depth <= 0:
        return "…"
    first = list(value.items() if isinstance(value, Mapping) else value)[:entries]
    more = len(value) - len(first)
    if isinstance(value, Mapping):
        short = {_cut(str(key), text): _short(item, text, entries, depth - 1) for key, item in first}
        return {**short, "…": f"{more} more"} if more else short
    items = [_short(item, text, entries, depth - 1) for item in first]
    return [*items, f"… {more} more"] if more else items


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
