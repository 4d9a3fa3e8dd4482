"""Channels as settings name them: which there are, and that none of them can do more than carry words."""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.approvals.asking import BOB_KEY, Clock, Run, Store
from tests.ecosystem.approvals.asking import signed as signed_by
from tests.ecosystem.host.channels.connections import House
from tests.ecosystem.host.channels.test_callbacks import as_sent
from tests.ecosystem.notify.servers import closed_port, flood, raw, serving, silence, status

from gert.ecosystem.host.channels.channels_for import channels_for, page_urls_for
from gert.ecosystem.host.channels.page_urls import PageUrls
from gert.ecosystem.host.channels.web_server import fields_of
from gert.ecosystem.host.config.settings import Settings, settings_for
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.run.record.journal import now
from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger
from gert.errors import DocumentError
from gert.kernel.engine.requests import ApprovalAnswer
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.governance.approval import Response
from gert.kernel.governance.approval_rules import tally

KEYS = {"GERT_APPROVAL_SIGNING_KEY": "base64:c2hhcmVkIHNlY3JldCBvZiB0aGUgc2VydmljZQ=="}


def settings(folder: Path, approvals: Any, **more: Any) -> Settings:
    folder.mkdir(exist_ok=True)
    (folder / "gert-project.yaml").write_text(json.dumps({"name": "p", "approvals": approvals, **more}))
    return settings_for(Workspace(str(folder)), str(folder), None, {})


def names(found: Settings, state: Path) -> list[str]:
    return [channel.name for channel in channels_for(found, {}, str(state))]


HTTP = {"url": "https://a.example.com"}
HOOK = {"webhook": "${HOOK}"}


@pytest.mark.parametrize(
    ("approvals", "expected"),
    [
        pytest.param({}, [], id="none"),
        pytest.param({"listen": "127.0.0.1:8765"}, ["page"], id="only the page"),
        pytest.param({"http": HTTP}, ["http"], id="a service, without a page"),
        pytest.param({"listen": "[::1]:8765", "teams": HOOK, "slack": HOOK, "http": HTTP},
                     ["page", "http", "slack", "teams"], id="all"),
    ],
)  # fmt: skip
def test_the_channels_that_are_named(tmp_path: Path, approvals: Any, expected: list[str]) -> None:
    assert names(settings(tmp_path, approvals), tmp_path) == expected


def test_without_settings_there_are_none(tmp_path: Path) -> None:
    assert channels_for(Settings(), {}, str(tmp_path)) == []


def test_a_stronger_file_replaces_channel_by_channel(tmp_path: Path) -> None:
    (tmp_path / "gert-config.yaml").write_text(
        json.dumps({"approvals": {"http": {"url": "https://b.example.com"}, "base_url": "https://x.example.com/"}})
    )
    found = settings(tmp_path, {"http": HTTP, "slack": HOOK, "listen": "127.0.0.1:8765"}).approvals
    assert found is not None
    assert found.http is not None
    assert found.http.url == "https://b.example.com"
    assert (found.base_url, found.listen) == ("https://x.example.com/", "127.0.0.1:8765")
    assert found.slack is not None


@pytest.mark.parametrize(
    "approvals",
    [
        pytest.param({"listen": "0.0.0.0:8765"}, id="every address"),
        pytest.param({"listen": "10.0.0.7:8765"}, id="an address others reach"),
        pytest.param({"listen": "127.0.0.1"}, id="no port"),
        pytest.param({"listen": "127.0.0.1:0"}, id="any port"),
        pytest.param({"listen": "127.0.0.1.evil.example:80"}, id="a name that looks like an address"),
        pytest.param({"base_url": "http://approvals.example.com"}, id="links over plain http"),
        pytest.param({"base_url": "https://a.example.com/?x"}, id="a query"),
        pytest.param({"base_url": "javascript:alert(1)"}, id="a script"),
        pytest.param({"http": {"url": "http://a.example.com"}}, id="a service over plain http"),
        pytest.param({"http": {"url": "https://a", "status_url": "https://a/x"}}, id="a status without the ticket"),
        pytest.param({"http": {}}, id="a service without an address"),
        pytest.param(
            {"slack": {"webhook": "https://a", "signing_secret": "8f742231b10e8888abcd99"}}, id="a secret in a file"
        ),
        pytest.param({"slack": {**HOOK, "users": {"bob": "bob"}}}, id="a user who is no id"),
        pytest.param({"slack": {**HOOK, "users": {"U123": ""}}}, id="a user without a name"),
        pytest.param({"email": {}}, id="a channel there is not"),
    ],
)
def test_settings_that_are_refused(tmp_path: Path, approvals: Any) -> None:
    with pytest.raises(DocumentError):
        settings(tmp_path, approvals)


# --- while a run waits


async def waited(
    tmp_path: Path,
    found: Settings,
    environ: Mapping[str, str],
    act: Callable[[PageUrls, Store, str], Any],
    **request: Any,
) -> tuple[ApprovalAnswer, Store, str]:
    """Request approval, wait, let an approver act, and return what the run takes."""
    store = Store(tmp_path, Clock(now()))
    urls = page_urls_for(found, str(tmp_path))
    channels = channels_for(found, environ, str(tmp_path), urls)
    store.db.parent.mkdir(exist_ok=True)
    async with SqliteLedger(store.db, poll_interval=0.02) as ledger:
        run = Run(ledger)
        asks = run.provider(*channels)
        ask = await run.opened(asks, **request)
        waiting = asyncio.create_task(asks.wait(ask))
        async with asyncio.timeout(30):
            await act(urls, store, ask.ticket_id)
            answer = await waiting
    assert tally(store.now(ask.ticket_id).ticket, answer.responses).is_open is False
    return answer, store, ask.ticket_id


def signed(store: Store, ticket_id: str, *, approved: bool = True) -> Response:
    said = Response(approver="bob", approved=approved, timestamp=format_timestamp(now()))
    return signed_by(store.now(ticket_id), BOB_KEY, said)


async def is_listening(urls: PageUrls) -> House:
    assert urls.listen is not None
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", urls.listen.port)
        except OSError:
            await asyncio.sleep(0.01)
            continue
        writer.close()
        return House(urls, None, None, None)  # type: ignore[arg-type]


def test_a_callback_lets_a_run_go_on(tmp_path: Path) -> None:
    with serving(status(200)) as service:
        found = settings(tmp_path, {"listen": f"127.0.0.1:{closed_port()}", "http": {"url": service.url()}})

        async def act(urls: PageUrls, store: Store, ticket_id: str) -> None:
            house = await is_listening(urls)
            (request,) = service.requests
            path = "/" + request.said["callback_url"].split("/", 3)[3]
            body = json.dumps(as_sent(signed(store, ticket_id))).encode()
            got = await house.ask("POST", path, body, {"Content-Type": "application/json"})
            assert got.status == 200

        answer, _, _ = asyncio.run(waited(tmp_path, found, KEYS, act, require_signed_approvals=True))
    assert [response.verified for response in answer.responses] == [True]


def test_a_service_that_is_asked_lets_a_run_go_on(tmp_path: Path) -> None:
    answers: list[Any] = [status(200), status(204)]
    with serving(*answers) as service:
        found = settings(tmp_path, {"http": {"url": service.url(), "status_url": service.url("/s/{ticket_id}")}})

        async def act(urls: PageUrls, store: Store, ticket_id: str) -> None:
            body = json.dumps(as_sent(signed(store, ticket_id))).encode()
            service.answers.append(status(200, body=body))

        answer, store, ticket_id = asyncio.run(waited(tmp_path, found, KEYS, act))
    assert answer.responses[0].verified
    assert store.now(ticket_id).notes == ()


BROKEN = [
    pytest.param(status(500), id="failing"),
    pytest.param(status(301, "Location: /elsewhere"), id="elsewhere"),
    pytest.param(raw(b"HTTP/1.1 200 OK\r\nContent-Le"), id="half an answer"),
    pytest.param(raw(b"\0" * 100 + b"\r\n\r\n"), id="nonsense"),
    pytest.param(flood, id="a flood"),
    pytest.param(silence, id="silence"),
]


@pytest.mark.parametrize("broken", BROKEN)
def test_channels_that_fail_are_notes_and_approvers_can_still_answer(
    tmp_path: Path, broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gert.ecosystem.host.channels import send, status_poll

    monkeypatch.setattr(send, "ATTEMPT_SECONDS", 0.2)
    monkeypatch.setattr(send, "TOTAL_SECONDS", 0.3)
    monkeypatch.setattr(status_poll, "ATTEMPT_SECONDS", 0.2)
    with serving(broken) as service:
        found = settings(
            tmp_path,
            {
                "http": {"url": service.url(), "status_url": service.url("/{ticket_id}")},
                "slack": {"webhook": service.url(), "signing_secret": "${MISSING}"},
                "teams": {"webhook": "${MISSING}"},
            },
        )

        async def act(urls: PageUrls, store: Store, ticket_id: str) -> None:
            while not any("does not listen" in note for note in store.now(ticket_id).notes):
                await asyncio.sleep(0.01)
            assert store.now(ticket_id).status == "pending"
            await store.answer(ticket_id, signed(store, ticket_id, approved=False))

        answer, store, ticket_id = asyncio.run(waited(tmp_path, found, KEYS, act))
    assert [response.approved for response in answer.responses] == [False]
    notes = store.now(ticket_id).notes
    assert any(note == "teams: not sent: the environment variable `MISSING` is not set" for note in notes)
    assert any(note.startswith("slack: it does not listen") for note in notes)


def test_an_address_that_another_server_has_is_a_note(tmp_path: Path) -> None:
    with serving(status(200)) as somebody:
        found = settings(tmp_path, {"listen": f"127.0.0.1:{somebody.port}"})

        async def act(urls: PageUrls, store: Store, ticket_id: str) -> None:
            while not store.now(ticket_id).notes:
                await asyncio.sleep(0.01)
            await store.answer(ticket_id, signed(store, ticket_id))

        _, store, ticket_id = asyncio.run(waited(tmp_path, found, {}, act))
    (note,) = store.now(ticket_id).notes
    assert note.startswith("page: it does not listen: cannot listen at")


def test_a_server_for_the_same_tickets_will_do(tmp_path: Path) -> None:
    found = settings(tmp_path, {"listen": f"127.0.0.1:{closed_port()}"})

    async def run() -> tuple[str, ...]:
        first = channels_for(found, {}, str(tmp_path))[0]
        store = Store(tmp_path)
        async with first.listening(store):

            async def act(urls: PageUrls, store: Store, ticket_id: str) -> None:
                await asyncio.sleep(0.1)
                await store.answer(ticket_id, signed(store, ticket_id))

            _, _, ticket_id = await waited(tmp_path, found, {}, act)
            return store.now(ticket_id).notes

    assert asyncio.run(run()) == ()


@pytest.mark.parametrize("form", ["a=1&a=2", "a=%ff", b"\xff=1", "&".join(f"a{i}=1" for i in range(100))])
def test_forms_that_are_not_read(form: str | bytes) -> None:
    assert fields_of(form) == {}
