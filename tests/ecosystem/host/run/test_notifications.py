"""Notices: what is told and to whom, what is kept from them, and what is recorded."""

import asyncio
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from tests.ecosystem.notify.servers import Server, serving, silence, status

from gert.ecosystem.host.config.settings import Settings, notices_for
from gert.ecosystem.host.run.notifications import send_notices
from gert.ecosystem.notify.payloads import MAX_BYTES, duration_of, payload_of, shortened
from gert.kernel.engine.run import RunResult
from gert.kernel.events.runbook import Outcome, WebhookSent
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.foundation.secret_refs import secret_ref
from gert.kernel.runbook.documents.runbook import RunbookMeta
from gert.kernel.runbook.documents.shared import OnOutcome, OutcomeNotice

NOON = datetime(2026, 2, 28, 14, 30, 0, 987654, tzinfo=UTC)
OUTCOME = Outcome("escalated", "unknown_failure", {"status_code": "418"})
CANARY = "cANARY/pass+word"


def notice_of(**said: Any) -> OutcomeNotice:
    return OutcomeNotice(**said)


def meta_of(**said: Any) -> RunbookMeta:
    return RunbookMeta(**said)


def result(outcome: Outcome | None = OUTCOME, duration: float = 4.213) -> RunResult:
    return RunResult(status="completed" if outcome else "failed", duration=duration, outcome=outcome)


def told(*notices: OutcomeNotice, **more: Any) -> list[WebhookSent]:
    known: dict[str, Any] = {
        "runbook": "service-health-check",
        "run_id": "run-1",
        "result": result(),
        "trace": "/var/log/gert/run-1.jsonl",
        "moment": NOON,
        "environ": {},
        "redactor": Redactor([CANARY]),
    }
    return asyncio.run(send_notices(notices, **{**known, **more}))


def one(server: Server) -> dict[str, Any]:
    (request,) = server.requests
    return request.said


def test_the_documented_payload_with_a_line_for_slack() -> None:
    with serving(status(200)) as server:
        sent = told(notice_of(webhook=server.url()))
    assert sent == [
        WebhookSent(url=server.url(), delivered=True, attempts=1, category="escalated", status_code=200, error=None)
    ]
    assert one(server) == {
        "runbook": "service-health-check",
        "run_id": "run-1",
        "outcome": {"category": "escalated", "code": "unknown_failure", "meta": {"status_code": "418"}},
        "duration": "4.2s",
        "duration_seconds": 4.213,
        "waited": "0s",
        "waited_seconds": 0.0,
        "trace": "/var/log/gert/run-1.jsonl",
        "timestamp": "2026-02-28T14:30:00Z",
        "text": "service-health-check: escalated (unknown_failure) after 4.2s, run run-1",
    }
    assert server.requests[0].headers["user-agent"].startswith("gert/")
    assert server.requests[0].headers["content-type"] == "application/json"


def test_an_event_for_pagerduty() -> None:
    notice = {"pagerduty_severity": "critical", "pagerduty_routing_key": "${PD_KEY}"}
    with serving(status(202)) as server:
        told(notice_of(webhook=server.url(), **notice), environ={"PD_KEY": "r0uting-key"}, host="srv1")
    said = one(server)
    assert said["routing_key"] == "r0uting-key"
    assert said["event_action"] == "trigger"
    assert said["dedup_key"] == "gert/service-health-check/escalated/unknown_failure"
    assert said["payload"] == {
        "summary": "service-health-check: escalated (unknown_failure)",
        "source": "srv1",
        "severity": "critical",
        "timestamp": "2026-02-28T14:30:00Z",
        "component": "service-health-check",
        "custom_details": {name: said[name] for name in ("run_id", "outcome", "duration", "waited", "trace")},
    }


@pytest.mark.parametrize(
    ("notice", "has"),
    [
        pytest.param({}, set(), id="nothing for pagerduty"),
        pytest.param({"pagerduty_severity": "info"}, {"event_action", "payload", "dedup_key"}, id="a severity alone"),
        pytest.param(
            {"pagerduty_routing_key": "${PD_KEY}"},
            {"event_action", "payload", "dedup_key", "routing_key"},
            id="a key alone",
        ),
    ],
)
def test_what_makes_it_an_event_for_pagerduty(notice: dict[str, str], has: set[str]) -> None:
    with serving(status(200)) as server:
        told(notice_of(webhook=server.url(), **notice), environ={"PD_KEY": "r0uting-key"})
    assert one(server).keys() & {"event_action", "payload", "dedup_key", "routing_key"} == has


def test_the_same_ending_of_a_runbook_is_the_same_incident() -> None:
    with serving(status(200)) as server:
        for run in ("run-1", "run-2"):
            told(notice_of(webhook=server.url(), pagerduty_severity="info"), run_id=run)
    first, second = (request.said["dedup_key"] for request in server.requests)
    assert first == second


# --- whom


def test_a_run_that_was_cancelled_has_no_notice() -> None:
    with serving(status(200)) as server:
        cancelled = RunResult(status="cancelled", duration=1.0)
        assert told(notice_of(webhook=server.url()), result=cancelled) == []
    assert not server.requests


def test_a_run_without_an_outcome_is_told_with_its_failure() -> None:
    with serving(status(200)) as server:
        (sent,) = told(notice_of(webhook=server.url()), result=result(None))
    assert (sent.category, sent.status) == (None, "failed")
    assert server.requests[0].said["failure"]["message"] == "no reason given"


def test_a_notice_without_an_address_is_not_sent() -> None:
    assert told(notice_of(), notice_of(pagerduty_severity="critical")) == []


def test_equal_addresses_are_told_once_and_different_ones_each() -> None:
    with serving(status(200)) as server:
        notices = [notice_of(webhook=url) for url in (server.url("/a"), server.url("/${A}"), server.url("/b"))]
        sent = told(*notices, environ={"A": "a"})
    assert [each.url for each in sent] == [server.url("/a"), server.url("/b")]
    assert {request.target for request in server.requests} == {"/a", "/b"}


def test_behind_one_address_each_key_is_told_once() -> None:
    """PagerDuty has one address for everybody: the key says whose service it is."""
    with serving(status(202)) as server:
        keys = ("${TEAM}", "b" * 32, "a" * 32)
        sent = told(
            *(notice_of(webhook=server.url("/enqueue"), pagerduty_routing_key=key) for key in keys),
            environ={"TEAM": "a" * 32},
        )
    assert sorted(request.said["routing_key"] for request in server.requests) == ["a" * 32, "b" * 32]
    assert [each.url for each in sent] == [server.url("/enqueue")] * 2


def test_one_that_fails_does_not_keep_others_from_being_told() -> None:
    with serving(status(404)) as bad, serving(status(200)) as good:
        sent = told(*(notice_of(webhook=each.url()) for each in (bad, good)))
    assert [(each.delivered, each.status_code) for each in sent] == [(False, 404), (True, 200)]


@pytest.mark.parametrize(
    ("category", "runbook", "settings", "expected"),
    [
        pytest.param("escalated", ["escalated"], ["escalated"], ["runbook", "settings"], id="both, the runbook first"),
        pytest.param("escalated", ["resolved"], ["escalated"], ["settings"], id="settings alone"),
        pytest.param("escalated", ["escalated"], ["resolved"], ["runbook"], id="the runbook alone"),
        pytest.param("no_action", ["escalated"], ["resolved"], [], id="another category"),
        pytest.param(None, ["escalated"], ["resolved"], [], id="no outcome"),
    ],
)
def test_whom_a_runbook_and_the_settings_want_to_be_told(
    category: Any, runbook: list[str], settings: list[str], expected: list[str]
) -> None:
    def on(who: str, categories: list[str]) -> dict[str, Any]:
        return {each: notice_of(webhook=f"https://{who}") for each in categories}

    meta = meta_of(name="a", on_outcome=OnOutcome(**on("runbook", runbook)))
    outcome = Outcome(category, "x") if category else None
    found = notices_for(meta, Settings(on_outcome=on("settings", settings)), result(outcome))
    assert [each.webhook for each in found] == [f"https://{who}" for who in expected]


def test_a_runbook_without_notices() -> None:
    assert notices_for(meta_of(name="a"), Settings(), result()) == []


# --- secrets


def test_what_is_recorded_of_an_address_holds_no_secret() -> None:
    with serving(status(500)) as server:
        url = server.url("/hooks/${TOKEN}/x?key=${KEY}").replace("//", "//user:${PASS}@", 1)
        environ = {"TOKEN": CANARY, "KEY": "k3y-canary", "PASS": "p4ss-canary"}
        (sent,) = told(notice_of(webhook=url), environ=environ)
    assert sent.url == server.url("/hooks/${TOKEN}/x")
    assert sent.error == "the server answered 500"
    assert server.requests[0].target == f"/hooks/{CANARY}/x?key=k3y-canary"
    assert server.requests[0].headers["authorization"].startswith("Basic ")


def test_secrets_of_the_run_and_of_addresses_are_not_sent() -> None:
    meta = {
        "said": f"x{CANARY}y",
        CANARY: 1,
        "token": "t0ken-canary",
        "ref": secret_ref("password"),
        "n": [{"a": CANARY}],
    }
    with serving(status(200)) as server:
        told(
            notice_of(webhook=server.url("/${TOKEN}"), pagerduty_severity="error", pagerduty_routing_key="${PD_KEY}"),
            result=result(Outcome("escalated", f"code {CANARY}", meta)),
            environ={"TOKEN": "t0ken-canary", "PD_KEY": "r0uting-key"},
        )
    body = server.requests[0].body.decode()
    assert CANARY not in body
    assert "t0ken-canary" not in body
    assert "\ufdd0" not in body
    assert body.count("r0uting-key") == 1
    assert one(server)["outcome"]["meta"]["ref"] == "[REDACTED]"


@pytest.mark.parametrize(
    ("notice", "error"),
    [
        pytest.param(
            {"webhook": "https://a.example/${NOPE}"}, "the environment variable `NOPE` is not set", id="of the address"
        ),
        pytest.param(
            {"webhook": "https://a.example/", "pagerduty_routing_key": "${NOPE}"},
            "the environment variable `NOPE` is not set",
            id="of the key",
        ),
        pytest.param(
            {
                "webhook": "https://a.example/${KEY",
            },
            "`${` does not begin a reference",
            id="half a reference",
        ),
        pytest.param(
            {"webhook": "https://a.example/${GERT_TRACE_SIGNING_KEY}"},
            "the variable `GERT_TRACE_SIGNING_KEY` is gert's own and is not sent",
            id="our own key",
        ),
        pytest.param(
            {"webhook": "${PLAIN}"}, "the URL must be https, or http on this machine", id="plain http by reference"
        ),
        pytest.param(
            {"webhook": "http://localhost${EVIL}/"},
            "the URL must be https, or http on this machine",
            id="another host by reference",
        ),
        pytest.param(
            {"webhook": "https://a.example/${LINES}"}, "the URL contains an invalid character", id="line breaks"
        ),
        pytest.param(
            {"webhook": "http://a.example/"}, "the URL must be https, or http on this machine", id="plain http"
        ),
    ],
)
def test_what_is_not_sent_at_all(notice: dict[str, str], error: str) -> None:
    environ = {
        "GERT_TRACE_SIGNING_KEY": "key-canary",
        "PLAIN": "http://canary.example/",
        "EVIL": ".canary.example",
        "LINES": "canary\r\nX: y",
    }
    (sent,) = told(notice_of(**notice), environ=environ)
    assert (sent.delivered, sent.attempts, sent.status_code, sent.error) == (False, 0, None, error)
    assert "canary" not in json.dumps([sent.url, sent.error])


def test_cancelled_it_says_what_it_gave_up() -> None:
    async def give_up(server: Server) -> list[WebhookSent]:
        telling = asyncio.ensure_future(
            send_notices(
                [notice_of(webhook=server.url())],
                runbook="a",
                run_id="r",
                result=result(),
                trace=None,
                moment=NOON,
                environ={},
                redactor=Redactor(),
            )
        )
        while not server.requests:
            await asyncio.sleep(0.005)
        telling.cancel()
        return await telling

    with serving(silence) as server:
        (sent,) = asyncio.run(give_up(server))
    assert (sent.delivered, sent.attempts, sent.error) == (False, 1, "interrupted")


# --- form and size


def test_slack_reads_no_markup_in_it() -> None:
    payload = payload_of(
        runbook="a",
        run_id="r",
        outcome=Outcome("resolved", "<!channel> & \n\x1b[31m"),
        duration=1,
        waited=0,
        trace=None,
        moment=NOON,
    )
    assert "&lt;!channel&gt; &amp; " in payload["text"]
    assert payload["text"].isprintable()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0s"), (0.0451, "45ms"), (0.9999, "1s"), (4.213, "4.2s"), (12.0, "12s"), (65.25, "1m5.2s"), (-1.0, "0s")],
)
def test_durations_at_a_glance(seconds: float, text: str) -> None:
    assert duration_of(seconds) == text


def test_times_are_told_in_utc() -> None:
    there = datetime(2026, 2, 28, 16, 30, tzinfo=timezone(timedelta(hours=2)))
    payload = payload_of(runbook="a", run_id="r", outcome=OUTCOME, duration=1, waited=0, trace=None, moment=there)
    assert payload["timestamp"] == "2026-02-28T14:30:00Z"


def deep(levels: int) -> Any:
    value: Any = "end"
    for _ in range(levels):
        value = {"a": [value, "x" * 2000]}
    return value


@pytest.mark.parametrize(
    "meta",
    [
        pytest.param({"log": "x" * 1_000_000}, id="a long text"),
        pytest.param({f"k{n}": n for n in range(100_000)}, id="many entries"),
        pytest.param({"k" * 100_000: 1}, id="a long key"),
        pytest.param({"rows": [{"text": "y" * 500}] * 5000}, id="many rows"),
        pytest.param({"deep": deep(90)}, id="deep"),
        pytest.param({f"{n}": {f"{m}": "é" * 300 for m in range(50)} for n in range(50)}, id="broad"),
    ],
)
def test_large_details_are_shortened(meta: dict[str, Any]) -> None:
    short = shortened(meta)
    assert short
    assert len(json.dumps(short, ensure_ascii=False).encode()) <= 2 * MAX_BYTES
    payload = payload_of(
        runbook="a",
        run_id="r",
        outcome=Outcome("resolved", "c" * 10_000, meta),
        duration=1,
        waited=0,
        trace=None,
        moment=NOON,
    )
    assert len(payload["text"]) < 1000


def test_small_details_are_told_whole() -> None:
    meta = {"a": [1, 2.5, None, True, {"b": "c"}], "d": "x" * 5000}
    assert shortened(meta) == meta
