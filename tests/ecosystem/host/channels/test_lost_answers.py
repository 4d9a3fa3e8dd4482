"""Answers that could not be recorded, came by a message about something else, or were told to people wrongly."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.ecosystem.approvals.asking import NOON, opened, signed, tickets, yes
from tests.ecosystem.host.channels.connections import House, visit
from tests.ecosystem.host.channels.test_callbacks import as_sent, call
from tests.ecosystem.host.channels.test_http_channel import document
from tests.ecosystem.host.channels.test_slack_channel import SECRET, USERS, inbox, press, pressed
from tests.ecosystem.notify.servers import serving as service
from tests.ecosystem.notify.servers import silence, status

from gert.ecosystem.approvals.tickets import TicketView
from gert.ecosystem.host.channels import status_poll, teams_channel, ticket_summary
from gert.ecosystem.host.channels.page_urls import PageUrls
from gert.ecosystem.host.channels.slack_inbox import SlackInbox
from gert.ecosystem.host.channels.status_poll import StatusPoll
from gert.errors import TraceError

FULL = "the ticket cannot be written: no space left on device"


def once(monkeypatch: pytest.MonkeyPatch, store: Any, problem: Exception) -> None:
    """Let the next answer fail."""
    answer = store.answer

    def fails(*_: Any) -> Any:
        monkeypatch.setattr(store, "answer", answer)
        raise problem

    monkeypatch.setattr(store, "answer", fails)


# --- asking a service


def test_an_answer_that_could_not_be_recorded_is_taken_with_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tickets(tmp_path)
    file = opened(store)
    once(monkeypatch, store, TraceError(FULL))
    with service(document(as_sent(signed(file)))) as server:
        asked = StatusPoll(server.url("/{ticket_id}"), {}, store)
        asyncio.run(asked.round())
        assert store.now(file.id).status == "pending"
        asyncio.run(asked.round())
    assert store.now(file.id).status == "approved"


def second(store: Any) -> TicketView:
    found: TicketView = store.opened(run_id="run-2")
    return found


@pytest.mark.parametrize("bad", [status(500), status(410), status(200, body=b"<html>")], ids=["500", "410", "a page"])
def test_a_ticket_the_service_cannot_tell_about_does_not_stand_before_the_others(tmp_path: Path, bad: Any) -> None:
    store = tickets(tmp_path)
    opened(store)
    other = second(store)
    with service(bad, document(as_sent(signed(other)))) as server:
        assert not asyncio.run(StatusPoll(server.url("/{ticket_id}"), {}, store).round())
    assert store.now(other.id).status == "approved"


def test_a_ticket_the_service_never_answers_about_comes_last_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_poll, "ATTEMPT_SECONDS", 2.0)
    store = tickets(tmp_path)
    opened(store)
    other = second(store)
    with service(silence, document(as_sent(signed(other)))) as server:
        asked = StatusPoll(server.url("/{ticket_id}"), {}, store)
        asyncio.run(asked.round())
        assert len(server.requests) == 1
        asyncio.run(asked.round())
    assert store.now(other.id).status == "approved"


def test_tickets_for_which_there_was_no_room_are_asked_about_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_poll, "MOST_TICKETS", 1)
    store = tickets(tmp_path)
    file, other = opened(store), second(store)
    with service(status(204)) as server:
        asked = StatusPoll(server.url("/{ticket_id}"), {}, store)
        for _ in range(3):
            asyncio.run(asked.round())
        assert [each.target for each in server.requests] == [f"/{file.id}", f"/{other.id}", f"/{file.id}"]


def test_a_proxy_that_is_none_is_a_note_and_not_the_end_of_asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "nonsense://[")
    store = tickets(tmp_path)
    file = opened(store)
    assert not asyncio.run(StatusPoll("https://status.invalid/{ticket_id}", {}, store).round())
    assert store.now(file.id).notes == ("http: the service cannot be reached",)


def test_a_fault_is_not_the_end_of_asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tickets(tmp_path)
    file = opened(store)
    once(monkeypatch, store, RuntimeError("s3cret"))
    with service(document(as_sent(signed(file)))) as server:

        async def run() -> None:
            async with asyncio.timeout(20), StatusPoll(server.url("/{ticket_id}"), {}, store, every=0.01).running():
                while store.now(file.id).status == "pending":
                    await asyncio.sleep(0.01)

        asyncio.run(run())
    assert store.now(file.id).notes == ("http: polling failed: RuntimeError",)


# --- callbacks


def test_a_service_whose_answer_could_not_be_recorded_is_told_to_send_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(house: House) -> None:
        said = as_sent(signed(house.file))
        once(monkeypatch, house.store, TraceError(FULL))
        got = await call(house, said)
        assert got.status == 503
        assert json.loads(got.body) == {
            "ticket_id": house.file.id, "received": False,
            "objection": "the response could not be recorded: send it again",
        }  # fmt: skip
        assert (await call(house, said)).status == 200

    visit(tmp_path, act)


# --- the page


def test_after_a_fault_a_form_can_be_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(house: House) -> None:
        form = await house.fill()
        once(monkeypatch, house.store, RuntimeError("s3cret"))
        assert (await house.send(form)).status == 500
        assert (await house.send(form)).status == 200
        assert house.now().status == "approved"

    visit(tmp_path, act)


def test_names_and_times_in_an_objection_stay_as_they_are(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        got = await house.send(await house.fill(approver="Eve@Example.COM"))
        assert "Eve@Example.COM" in got.text.partition("</h2><p>")[2].partition("</p>")[0]

    visit(tmp_path, act, approvers=(("bob",),), admitted=(("bob",),))


@pytest.mark.parametrize("cookie", ["a" * 20 + '"', "a b" * 8, "a" * 20 + "\\", "a" * 20 + ","])
def test_a_cookie_that_is_not_ours_is_not_repeated(tmp_path: Path, cookie: str) -> None:
    async def act(house: House) -> None:
        got = await house.ask("GET", f"{house.path}?k={house.link}", headers={"Cookie": f"gert_browser={cookie}"})
        assert cookie not in got.header("set-cookie")

    visit(tmp_path, act)


UNSEEN = [
    ("prod\u3164", "prod\ufffd"),
    ("a\u2800b", "a\ufffdb"),
    ("x\U000e0101\U000e0102", "x\ufffd\ufffd"),
    ("a\ufe0f", "a\ufffd"),
    ("\u26a0\ufe0f stop", "\u26a0\ufe0f stop"),
    ("\u26a0\ufe0f\ufe0f", "\u26a0\ufe0f\ufffd"),
    ("\u202eabc\u2066", "\ufffdabc\ufffd"),
]


@pytest.mark.parametrize(("text", "shown"), UNSEEN)
def test_what_cannot_be_seen_is_shown_to_be_there(text: str, shown: str) -> None:
    assert ticket_summary.plain(text) == shown
    assert ticket_summary.shown(text) == shown
    assert ticket_summary.shown({"a": text}) == f'{{\n  "a": "{shown}"\n}}'


# --- Slack


def test_a_button_counts_for_what_its_message_showed(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        before = pressed(house)
        other = house.store.opened(key="other", inputs={"name": "everything"})
        house.store.change(f"UPDATE tickets SET request = (SELECT request FROM tickets WHERE ticket_id = '{other.id}')")
        said = json.loads((await press(house, before)).body)
        assert "what would run has changed" in said["text"]
        assert house.now().status == "pending"

    visit(tmp_path, act, slack=inbox())


@pytest.mark.parametrize("value", ["{id}", "{id}:", ":{hash}", "{id}:{hash}:", "{id} {hash}", "../{id}:{hash}"])
def test_a_button_that_does_not_say_what_it_is_about_answers_nothing(tmp_path: Path, value: str) -> None:
    async def act(house: House) -> None:
        text = value.format(id=house.file.id, hash=house.file.ticket.request.request_hash)
        await press(house, pressed(house, actions=[{"action_id": "approve", "value": text}]))
        assert (house.now().status, house.now().approvals) == ("pending", 0)

    visit(tmp_path, act, slack=inbox())


def test_whose_answer_could_not_be_recorded_is_told_so_in_slack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(house: House) -> None:
        once(monkeypatch, house.store, TraceError(FULL))
        said = json.loads((await press(house, pressed(house))).body)
        assert said["response_type"] == "ephemeral"
        assert said["text"] == "Your approval could not be recorded. Press the button again."
        assert (await press(house, pressed(house))).status == 200
        assert house.now().status == "approved"

    visit(tmp_path, act, slack=inbox())


def test_how_slack_is_reached_is_not_told_when_a_message_is_replaced(tmp_path: Path) -> None:
    def made(urls: PageUrls) -> SlackInbox:
        return SlackInbox(SECRET, USERS, "https://hooks.slack.test/s3cret-path", urls, secrets=("s3cret-path",))

    async def act(house: House) -> None:
        got = await press(house, pressed(house))
        assert house.now().approvals == 1
        assert "curl" in got.text
        assert "s3cret-path" not in got.text

    visit(tmp_path, act, slack=made, min_approvers=2, inputs={"command": "curl s3cret-path"})


@pytest.mark.parametrize("webhook", ["https://[", "https://h:99999/"])
def test_a_webhook_that_cannot_be_read_is_like_no_other(tmp_path: Path, webhook: str) -> None:
    async def act(house: House) -> None:
        assert (await press(house, pressed(house, response_url="https://["))).status == 200

    visit(tmp_path, act, slack=inbox(webhook))


@pytest.mark.parametrize("seconds", [0, 299])
def test_a_pressed_button_that_is_sent_again_counts_once(tmp_path: Path, seconds: int) -> None:
    async def act(house: House) -> None:
        payload = pressed(house)
        await press(house, payload)
        house.clock.now = NOON + timedelta(seconds=seconds)
        said = json.loads((await press(house, payload)).body)
        assert "has already responded" in said["text"]
        assert house.now().approvals == 1

    visit(tmp_path, act, slack=inbox(), min_approvers=2)


def test_an_answer_given_elsewhere_is_not_lost_to_one_from_slack(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        await asyncio.gather(house.store.answer(house.file.id, yes("eve")), press(house, pressed(house)))
        assert house.now().approvals == 2

    visit(tmp_path, act, slack=inbox(), min_approvers=2)


# --- services that say much, or something else later


def test_an_answer_behind_many_that_are_none_is_found(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    file = opened(store)
    junk = [as_sent(yes(f"p{number}", ticket_id=file.id)) for number in range(status_poll.MOST_RESPONSES + 10)]
    with service(document({"responses": [*junk, as_sent(signed(file))]})) as server:
        asked = StatusPoll(server.url("/{ticket_id}"), {}, store)
        for _ in range(2):
            asyncio.run(asked.round())
    assert store.now(file.id).status == "approved"


def test_an_answer_that_is_put_right_is_taken(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    file = opened(store)
    right = as_sent(signed(file))
    with service(document({**right, "key_id": "nobody"}), document(right)) as server:
        asked = StatusPoll(server.url("/{ticket_id}"), {}, store)
        for _ in range(2):
            asyncio.run(asked.round())
    assert store.now(file.id).status == "approved"


# --- Teams


LONG = ["a", "\u5b57", "*", "\U0001f600", '"']


@pytest.mark.parametrize("letter", LONG, ids=["letters", "ideographs", "markup", "emoji", "quotes"])
def test_a_card_is_never_larger_than_teams_takes(tmp_path: Path, letter: str) -> None:
    """A card that is refused tells nobody."""
    long = letter * 5000
    file = opened(
        tickets(tmp_path), title=long, runbook=long, target=long, rule=long, requested_by=long, preview=long,
        inputs={f"{letter * 90}{number}": long for number in range(30)},
        contract={f"c{number}": long for number in range(12)}, notify=(long,),
    )  # fmt: skip
    shown = msgspec.json.encode(teams_channel.message(file, NOON, "https://approvals.example.com/t/x?k=y"))
    assert len(shown) <= teams_channel.MOST_BYTES
    assert b"more characters" in shown
    assert file.id[:5].encode() in shown
    assert b"https://approvals.example.com/t/x?k=y" in shown


@pytest.mark.parametrize(("page_url", "words"), [("https://x/t", "are on the page"), (None, "gert approvals show")])
def test_where_the_other_inputs_are_is_somewhere_one_can_go(tmp_path: Path, page_url: str | None, words: str) -> None:
    file = opened(tickets(tmp_path), inputs={f"i{number}": "x" for number in range(12)})
    (text,) = [
        each["text"] for each in teams_channel.card(file, NOON, page_url)["body"] if "2 more inputs" in str(each)
    ]
    assert words in text


@pytest.mark.parametrize("value", ["v0=\u00e9", "v0=", "v0", "v0=" + "\u00ff" * 64, "v0=" + "0" * 9000])
def test_a_signature_that_is_none_is_refused_and_no_fault(tmp_path: Path, value: str) -> None:
    async def act(house: House) -> None:
        assert (await press(house, pressed(house), X_Slack_Signature=value)).status == 401

    visit(tmp_path, act, slack=inbox())
