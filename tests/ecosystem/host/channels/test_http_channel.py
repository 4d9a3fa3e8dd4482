"""The channel `http`: a request that can be checked, and answers that are asked for."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.approvals.asking import ANN_KEY, BOB_KEY, Clock, no, opened, public, signed, tickets, yes
from tests.ecosystem.host.channels.test_callbacks import as_sent
from tests.ecosystem.notify.servers import Answer, Request, closed_port, flood, raw, serving, silence, status

from gert.ecosystem.approvals.tickets import Tickets, TicketView
from gert.ecosystem.host.channels import status_poll
from gert.ecosystem.host.channels.http_channel import HttpChannel
from gert.ecosystem.host.channels.page_urls import Listen, PageUrls
from gert.ecosystem.host.channels.status_poll import StatusPoll
from gert.errors import IntegrityError
from gert.kernel.foundation.signature import Key, Keys, Signature, parse_key, verify
from gert.kernel.runbook.documents.project import HttpApprovals

SHARED_TEXT = "base64:c2hhcmVkIHNlY3JldCBvZiB0aGUgc2VydmljZQ=="
ANN_TEXT = "ed25519:QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY="


def announced(tmp_path: Path, url: str, key_id: str | None = None, **environ: str) -> tuple[TicketView, str | None]:
    settings = HttpApprovals(url=url, status_url=None, signing_key=key_id)
    urls = PageUrls(str(tmp_path / "approvals"), Listen("127.0.0.1", 8765))
    file = opened(tickets(tmp_path), preview="- a\n+ b")
    return file, asyncio.run(HttpChannel(settings, environ, urls, Clock()).announce(file))


def checked(request: Request, key: Key) -> dict[str, str]:
    """Check a request as a service would, with nothing but its header and body."""
    parts = dict(each.split("=", 1) for each in request.headers["x-gert-signature"].split(","))
    message = parts["t"].encode() + b"." + request.body
    verify(Keys([key]), Signature(parts["alg"], parts["kid"], parts["v1"]), message)
    return parts


def test_a_request_is_signed_and_holds_what_is_documented(tmp_path: Path) -> None:
    with serving(status(200)) as server:
        file, note = announced(tmp_path, server.url(), GERT_APPROVAL_SIGNING_KEY=SHARED_TEXT)
        (request,) = server.requests
    assert note is None
    parts = checked(request, parse_key(SHARED_TEXT))
    assert (parts["alg"], parts["kid"]) == ("hmac-sha256", "default")
    said = request.said
    documented = ("run_id", "step_id", "runbook_name", "description", "risk_level", "contract", "inputs",
                  "min_approvers", "requested_by", "extensions", "timeout", "ticket_id", "created")  # fmt: skip
    assert set(documented) < set(said)
    assert said["ticket_id"] == file.id
    assert said["expires_at"] == file.ticket.expires_at
    assert said["request_hash"] == file.ticket.request.request_hash
    assert said["callback_url"] == f"http://127.0.0.1:8765/callback/{file.id}"
    assert said["page_url"].startswith(f"http://127.0.0.1:8765/t/{file.id}?k=")
    assert said["inputs"]["token"] == "Bearer [REDACTED]"
    assert said["timeout"] == "30m"
    assert said["preview"] == "- a\n+ b"


def test_a_named_key_signs(tmp_path: Path) -> None:
    with serving(status(200)) as server:
        _, note = announced(tmp_path, server.url(), "ann", GERT_APPROVAL_KEY_ANN=ANN_TEXT)
        (request,) = server.requests
    assert note is None
    assert checked(request, public(ANN_KEY))["kid"] == "ann"


def test_a_request_that_was_changed_does_not_hold(tmp_path: Path) -> None:
    with serving(status(200)) as server:
        announced(tmp_path, server.url(), GERT_APPROVAL_SIGNING_KEY=SHARED_TEXT)
        (request,) = server.requests
    request.body = request.body.replace(b"high", b"low")
    with pytest.raises(IntegrityError):
        checked(request, parse_key(SHARED_TEXT))


@pytest.mark.parametrize(
    ("key_id", "environ", "why"),
    [
        pytest.param(None, {}, "`GERT_APPROVAL_SIGNING_KEY` is not set", id="no key"),
        pytest.param(
            "ann", {"GERT_APPROVAL_SIGNING_KEY": SHARED_TEXT}, "`GERT_APPROVAL_KEY_ANN` is not set", id="another"
        ),
        pytest.param(
            None, {"GERT_APPROVAL_SIGNING_KEY": public(ANN_KEY).public_text}, "cannot sign", id="a public key"
        ),
        pytest.param(None, {"GERT_APPROVAL_SIGNING_KEY": "short"}, "too short", id="a short key"),
    ],
)
def test_what_cannot_be_signed_is_not_sent(
    tmp_path: Path, key_id: str | None, environ: dict[str, str], why: str
) -> None:
    with serving(status(200)) as server:
        _, note = announced(tmp_path, server.url(), key_id, **environ)
        assert not server.requests
    assert note is not None
    assert why in note


# --- asking for answers


def polled(
    tmp_path: Path, answer: Callable[[TicketView], Answer], rounds: int = 1, **request: Any
) -> tuple[Tickets, TicketView, int]:
    store = tickets(tmp_path)
    file = opened(store, **request)
    with serving(answer(file)) as server:
        asked = StatusPoll(server.url("/status/{ticket_id}"), {}, store)

        async def run() -> None:
            for _ in range(rounds):
                await asked.round()

        asyncio.run(run())
        for each in server.requests:
            assert each.target == f"/status/{file.id}"
        return store, store.now(file.id), len(server.requests)


def document(value: Any) -> Answer:
    return status(200, "Content-Type: application/json", body=json.dumps(value).encode())


@pytest.mark.parametrize("alone", [True, False], ids=["one answer by itself", "a list of answers"])
@pytest.mark.parametrize(("answer", "expected"), [(yes(), "approved"), (no(), "rejected")], ids=["yes", "no"])
def test_an_answer_is_taken_once(tmp_path: Path, alone: bool, answer: Any, expected: str) -> None:
    def says(file: TicketView) -> Answer:
        said = as_sent(signed(file, BOB_KEY, answer))
        return document(said if alone else {"ticket_id": file.id, "status": expected, "responses": [said, said]})

    _, file, asked = polled(tmp_path, says, rounds=3)
    assert file.status == expected
    assert len(file.responses) == 1
    assert asked == 3  # it is open until the run has taken the response


def test_an_answer_that_was_taken_before_is_not_taken_again_by_another_process(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    file = opened(store, min_approvers=2)
    said = signed(file)
    asyncio.run(store.answer(file.id, said))
    with serving(document(as_sent(said))) as server:
        asyncio.run(StatusPoll(server.url("/{ticket_id}"), {}, store).round())
    assert len(store.now(file.id).responses) == 1


QUIET: list[Any] = [
    pytest.param(lambda _: status(204), id="nothing yet"),
    pytest.param(lambda _: status(404), id="not known yet"),
    pytest.param(lambda _: document({"status": "pending"}), id="pending"),
    pytest.param(lambda _: document({"status": "approved"}), id="a status alone is no approval"),
    pytest.param(lambda _: document({"status": "approved", "responses": []}), id="approved without a name"),
]


@pytest.mark.parametrize("answer", QUIET)
def test_a_service_that_has_no_answer_changes_nothing(tmp_path: Path, answer: Any) -> None:
    _, file, _ = polled(tmp_path, answer, rounds=2)
    assert (file.status, file.responses, file.notes) == ("pending", (), ())


BAD: list[Any] = [
    pytest.param(lambda _: status(500), "the service answered 500", id="failing"),
    pytest.param(lambda _: status(302, "Location: http://evil.example"), "the service answered 302", id="elsewhere"),
    pytest.param(lambda _: status(200, body=b"<html>"), "service cannot be read", id="a page"),
    pytest.param(lambda _: status(200, body=b"\xff"), "service cannot be read", id="no text"),
    pytest.param(lambda _: document([]), "service cannot be read", id="a list"),
    pytest.param(lambda _: document({"approved": True}), "service cannot be read", id="half an answer"),
    pytest.param(lambda _: status(200, body=b"[" * 60_000), "service cannot be read", id="nested without end"),
    pytest.param(lambda _: flood, "is longer than 65536 bytes", id="a flood"),
    pytest.param(lambda _: raw(b"nonsense\r\n\r\n"), "cannot be reached", id="nonsense"),
    pytest.param(
        lambda file: document(as_sent(yes(ticket_id=file.id))), "a response must be signed", id="an unsigned answer"
    ),
    pytest.param(
        lambda file: document({**as_sent(signed(file)), "approved": False}), "no valid signature", id="flipped"
    ),
    pytest.param(
        lambda file: document({**as_sent(signed(file)), "ticket_id": "x"}), "another ticket", id="another ticket"
    ),
]


@pytest.mark.parametrize(("answer", "why"), BAD)
def test_a_service_that_says_nonsense_is_one_note_and_no_approval(tmp_path: Path, answer: Any, why: str) -> None:
    _, file, _ = polled(tmp_path, answer, rounds=3)
    assert file.status == "pending"
    assert not file.responses
    (note,) = file.notes
    assert note.startswith("http: ")
    assert why in note


def test_a_service_that_is_not_there_is_a_note(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    file = opened(store)
    assert not asyncio.run(StatusPoll(f"http://127.0.0.1:{closed_port()}/{{ticket_id}}", {}, store).round())
    assert store.now(file.id).notes == ("http: the service cannot be reached",)


def test_a_service_that_never_answers_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_poll, "ATTEMPT_SECONDS", 0.1)
    _, file, _ = polled(tmp_path, lambda _: silence)
    assert file.notes == ("http: the service did not answer within 0.1 s",)


def test_asking_ends_with_the_wait(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    file = opened(store)
    with serving(status(204), document(as_sent(signed(file)))) as server:

        async def run() -> None:
            async with StatusPoll(server.url("/{ticket_id}"), {}, store, every=0.01).running():
                while store.now(file.id).status == "pending":
                    await asyncio.sleep(0.01)
            assert len(asyncio.all_tasks()) == 1

        asyncio.run(run())
    assert store.now(file.id).status == "approved"
