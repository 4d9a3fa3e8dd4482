"""Slack: messages within its limits, buttons that only Slack can press, and people who are known."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.ecosystem.approvals.asking import NOON, Clock, no, opened, tickets, yes
from tests.ecosystem.host.channels.connections import Got, House, visit
from tests.ecosystem.notify.servers import closed_port, raw, status
from tests.ecosystem.notify.servers import serving as posted_to

from gert.ecosystem.host.channels import slack_blocks
from gert.ecosystem.host.channels.page_urls import Listen, PageUrls
from gert.ecosystem.host.channels.slack_blocks import message
from gert.ecosystem.host.channels.slack_channel import SlackChannel
from gert.ecosystem.host.channels.slack_inbox import SlackInbox
from gert.kernel.runbook.documents.project import SlackApprovals

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
USERS = {"U2CERLKJA": "bob", "U0ANN": "ann"}
NOW = int(NOON.timestamp())


def inbox(webhook: str = "https://hooks.slack.test/services/T/B/x") -> Callable[[PageUrls], SlackInbox]:
    return lambda urls: SlackInbox(SECRET, USERS, webhook, urls)


# Nothing in these tests leaves this machine: `.invalid` and `.test` lead nowhere.
def pressed(house: House, action: str = "approve", user: str = "U2CERLKJA", **changes: Any) -> dict[str, Any]:
    """The payload of a button, in the shape Slack documents for `block_actions`."""
    return {
        "type": "block_actions",
        "user": {"id": user, "username": "bob", "name": "bob", "team_id": "T9TK3CUKW"},
        "api_app_id": "A0CA5",
        "token": "Shh_its_a_seekrit",
        "container": {"type": "message", "message_ts": "1548261231.000200", "channel_id": "CBR2V3XEX"},
        "trigger_id": "12321423423.333649436676.d8c1bb837935619ccad0f624c448ffb3",
        "team": {"id": "T9TK3CUKW", "domain": "example"},
        "channel": {"id": "CBR2V3XEX", "name": "ops"},
        "message": {"type": "message", "subtype": "bot_message", "text": "…", "ts": "1548261231.000200"},
        "response_url": "https://hooks.slack.invalid/actions/AABA1ABCD/1232321423432/D09sSasdasdAS9091209",
        "actions": [
            {
                "action_id": action,
                "block_id": "answer",
                "text": {"type": "plain_text", "text": "Approve", "emoji": True},
                "value": f"{house.file.id}:{house.file.ticket.request.request_hash}",
                "type": "button",
                "action_ts": "1548426417.840180",
            }
        ],
        **changes,
    }


def signature(body: bytes, moment: str, secret: str = SECRET) -> str:
    return "v0=" + hmac.new(secret.encode(), f"v0:{moment}:".encode() + body, hashlib.sha256).hexdigest()


async def press(house: House, payload: Any, moment: str = str(NOW), **headers: str | None) -> Got:
    body = urlencode({"payload": payload if isinstance(payload, str) else json.dumps(payload)}).encode()
    said = {
        "Content-Type": "application/x-www-form-urlencoded",
        "X-Slack-Request-Timestamp": moment,
        "X-Slack-Signature": signature(body, moment),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    return await house.ask("POST", "/slack/actions", body, {k: v for k, v in said.items() if v is not None})


def test_the_scheme_is_slacks_own() -> None:
    """The example of Slack's documentation, verbatim."""
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&"
        b"channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&"
        b"response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F"
        b"96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    expected = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    assert signature(body, "1531420618") == expected


def test_an_approval_counts_and_replaces_the_message(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        got = await press(house, pressed(house))
        assert got.status == 200
        said = json.loads(got.body)
        assert said["replace_original"] is True
        assert "bob approved this" in json.dumps(said)
        assert not [block for block in said["blocks"] if block["type"] == "actions"]
        assert house.now().status == "approved"
        assert house.now().responses[0].response.approver == "bob"

    visit(tmp_path, act, slack=inbox())


def test_a_rejection_counts(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        assert "bob rejected this" in (await press(house, pressed(house, "reject"))).text
        assert house.now().status == "rejected"

    visit(tmp_path, act, slack=inbox())


def test_the_first_of_two_leaves_the_buttons(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        said = json.loads((await press(house, pressed(house))).body)
        assert [block for block in said["blocks"] if block["type"] == "actions"]
        assert "0 of 2 approvals, 1 received" in json.dumps(said)
        again = json.loads((await press(house, pressed(house))).body)
        assert again["response_type"] == "ephemeral"
        assert again["replace_original"] is False
        assert "has already responded" in again["text"]
        assert house.now().approvals == 1

    visit(tmp_path, act, slack=inbox(), min_approvers=2)


def test_what_became_of_it_is_sent_where_slack_wants_to_hear_it(tmp_path: Path) -> None:
    with posted_to(status(200)) as server:

        async def act(house: House) -> None:
            await press(house, pressed(house, response_url=server.url("/actions/x")))

        visit(tmp_path, act, slack=inbox(server.url("/services/x")))
        (request,) = server.requests
        assert request.target == "/actions/x"
        assert request.said["replace_original"] is True


@pytest.mark.parametrize(
    "where", ["http://127.0.0.1:{port}/x", "http://localhost:{port}/x", "file:///etc/passwd", "::"]
)
def test_nothing_is_sent_anywhere_else(tmp_path: Path, where: str) -> None:
    with posted_to(status(200)) as server:

        async def act(house: House) -> None:
            got = await press(house, pressed(house, response_url=where.format(port=server.port)))
            assert got.status == 200

        visit(tmp_path, act, slack=inbox())
        assert not server.requests


@pytest.mark.parametrize(
    "answer", [status(500), raw(b""), raw(b"nonsense\r\n\r\n")], ids=["failing", "silent", "nonsense"]
)
def test_that_slack_does_not_listen_changes_no_answer(tmp_path: Path, answer: Any) -> None:
    with posted_to(answer) as server:

        async def act(house: House) -> None:
            assert (await press(house, pressed(house, response_url=server.url("/actions/x")))).status == 200
            assert house.now().status == "approved"

        visit(tmp_path, act, slack=inbox(server.url()))


# --- attacks


UNSIGNED: list[Any] = [
    pytest.param({"X_Slack_Signature": None}, id="no signature"),
    pytest.param({"X_Slack_Signature": ""}, id="an empty signature"),
    pytest.param({"X_Slack_Signature": "v0=" + "0" * 64}, id="a forged signature"),
    pytest.param({"X_Slack_Signature": "0" * 64}, id="a signature without its version"),
    pytest.param({"X_Slack_Signature": "v0=é"}, id="a signature of other letters"),
    pytest.param({"X_Slack_Request_Timestamp": None}, id="no time"),
    pytest.param({"X_Slack_Request_Timestamp": "soon"}, id="a time that is none"),
    pytest.param({"X_Slack_Request_Timestamp": "9" * 400}, id="a time without end"),
    pytest.param({"X_Slack_Request_Timestamp": str(NOW + 1)}, id="another time than was signed"),
    pytest.param({"moment": str(NOW - 301)}, id="signed five minutes ago"),
    pytest.param({"moment": str(NOW + 301)}, id="signed in the future"),
    pytest.param({"moment": f"-{NOW}"}, id="signed before the epoch"),
]


@pytest.mark.parametrize("headers", UNSIGNED)
def test_what_slack_has_not_signed_now_answers_nothing(tmp_path: Path, headers: dict[str, Any]) -> None:
    async def act(house: House) -> None:
        assert (await press(house, pressed(house), **headers)).status == 401
        assert house.now() == house.file

    visit(tmp_path, act, slack=inbox())


@pytest.mark.parametrize("moment", [str(NOW - 299), str(NOW + 299)], ids=["a while ago", "by a clock that is ahead"])
def test_within_five_minutes_it_is_now(tmp_path: Path, moment: str) -> None:
    async def act(house: House) -> None:
        assert (await press(house, pressed(house), moment)).status == 200

    visit(tmp_path, act, slack=inbox())


def test_another_version_of_the_scheme_is_not_ours(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        body = urlencode({"payload": json.dumps(pressed(house))}).encode()
        wrong = signature(body, str(NOW)).replace("v0=", "v1=")
        assert (await press(house, pressed(house), X_Slack_Signature=wrong)).status == 401
        assert house.now() == house.file

    visit(tmp_path, act, slack=inbox())


def test_another_secret_or_another_body_does_not_hold(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        body = urlencode({"payload": json.dumps(pressed(house))}).encode()
        other = urlencode({"payload": json.dumps(pressed(house, "reject"))}).encode()
        for wrong in (signature(body, str(NOW), "another secret"), signature(other, str(NOW))):
            assert (await press(house, pressed(house), X_Slack_Signature=wrong)).status == 401
        assert house.now() == house.file

    visit(tmp_path, act, slack=inbox())


MALFORMED: list[Any] = [
    pytest.param(lambda house: "", id="nothing"),
    pytest.param(lambda house: "{", id="half of it"),
    pytest.param(lambda house: "[" * 20_000, id="nested without end"),
    pytest.param(lambda house: {}, id="an empty payload"),
    pytest.param(lambda house: pressed(house, type="view_submission"), id="another type"),
    pytest.param(lambda house: pressed(house, actions=[]), id="no action"),
    pytest.param(lambda house: pressed(house, actions=pressed(house)["actions"] * 2), id="two actions"),
    pytest.param(lambda house: pressed(house, "delete"), id="an action there is not"),
    pytest.param(lambda house: pressed(house, actions=[{"action_id": "approve"}]), id="no ticket"),
    pytest.param(lambda house: pressed(house, actions=[{"action_id": "approve", "value": "../x"}]), id="a path"),
    pytest.param(lambda house: pressed(house) | {"user": {"name": "bob"}}, id="no user id"),
]


@pytest.mark.parametrize("payload", MALFORMED)
def test_what_is_no_pressed_button_answers_nothing(tmp_path: Path, payload: Callable[[House], Any]) -> None:
    async def act(house: House) -> None:
        assert (await press(house, payload(house))).status == 400
        assert house.now() == house.file

    visit(tmp_path, act, slack=inbox())


def test_a_user_who_is_not_mapped_is_refused_whatever_they_call_themselves(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        said = json.loads((await press(house, pressed(house, user="U666"))).body)
        assert said["response_type"] == "ephemeral"
        assert "is not among the approvers" in said["text"]
        assert house.now() == house.file

    visit(tmp_path, act, slack=inbox())


def test_a_user_who_may_not_approve_is_told_why(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        said = json.loads((await press(house, pressed(house, user="U0ANN"))).body)
        assert "started the run and may not approve it" in said["text"]
        assert house.now().status == "pending"

    visit(tmp_path, act, slack=inbox(), separation_of_duties=True)


def test_a_ticket_that_is_not_there(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        got = await press(
            house, pressed(house, actions=[{"action_id": "approve", "value": f"run-9:{'sha256:' + '0' * 64}"}])
        )
        assert "no such request" in json.loads(got.body)["text"]

    visit(tmp_path, act, slack=inbox())


def test_without_a_slack_app_there_is_no_such_address(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        assert (await press(house, pressed(house))).status == 404
        assert house.now() == house.file

    visit(tmp_path, act)


# --- messages


HOSTILE = "<!channel> <@U1> <https://evil.example|click> & *b* _i_ ~s~ `c` ```x``` @here\n> q"


def blocks_of(tmp_path: Path, **request: Any) -> dict[str, Any]:
    return message(opened(tickets(tmp_path), **request), NOON, page_url="http://localhost:1/t/x?k=1", buttons=True)


def texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [t for each in value.values() for t in texts(each)]
    if isinstance(value, list):
        return [t for each in value for t in texts(each)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param({}, id="a usual one"),
        pytest.param({"title": "x" * 5000, "rule": "&" * 5000, "target": "<" * 5000}, id="long texts"),
        pytest.param({"inputs": {f"n{i}": "<" * 9000 for i in range(100)}, "preview": "&" * 90_000}, id="many inputs"),
        pytest.param({"contract": {f"n{i}": ["x" * 500] for i in range(500)}}, id="a long contract"),
        pytest.param({"approvers": (tuple(f"p{i}" for i in range(2000)),), "admitted": ((),)}, id="many people"),
        pytest.param({"inputs": {"k" * 9000: ""}, "step_id": "s" * 4000}, id="long names"),
        pytest.param({"separation_of_duties": True, "require_signed_approvals": True}, id="every term"),
    ],
)
def test_a_message_keeps_to_the_limits_of_block_kit(tmp_path: Path, request_: dict[str, Any]) -> None:
    said = blocks_of(tmp_path, **request_)
    assert len(said["blocks"]) <= 50
    for block in said["blocks"]:
        if block["type"] == "header":
            assert 1 <= len(block["text"]["text"]) <= 150
        if block["type"] == "section":
            assert 1 <= len(block.get("text", {"text": "x"})["text"]) <= 3000
            assert 0 < len(block.get("fields", "x")) <= 10
            assert all(1 <= len(field["text"]) <= 2000 for field in block.get("fields", []))
        if block["type"] == "actions":
            for button in block["elements"]:
                assert len(button["text"]["text"]) <= 75
                assert len(button["value"]) <= 2000
                assert len(button["confirm"]["title"]["text"]) <= 100
                assert len(button["confirm"]["text"]["text"]) <= 300
                assert len(button["confirm"]["confirm"]["text"]) <= 30
                assert len(button["confirm"]["deny"]["text"]) <= 30
    assert len(said["text"]) <= 4000


@pytest.mark.parametrize(
    "where",
    [{"title": HOSTILE}, {"rule": HOSTILE}, {"inputs": {HOSTILE: HOSTILE}}, {"preview": HOSTILE},
     {"contract": {HOSTILE: [HOSTILE]}}, {"requested_by": HOSTILE}, {"approvers": ((HOSTILE,),), "admitted": ((),)}],
    ids=lambda where: next(iter(where)),
)  # fmt: skip
def test_whatever_a_runbook_says_stays_text(tmp_path: Path, where: dict[str, Any]) -> None:
    said = blocks_of(tmp_path, **where)
    for block in said["blocks"]:
        marked = [block.get("text", {}), *block.get("fields", []), *block.get("elements", [])]
        for text in (each["text"] for each in marked if each.get("type") == "mrkdwn"):
            assert "<!" not in text
            assert "<@" not in text
            assert "<https://evil" not in text
            # Every span of code ends where ours does.
            assert text.count("```") in (0, 2)
            assert text.replace("```", "").count("`") % 2 == 0
    assert "<!" not in said["text"]


def test_secrets_are_masked(tmp_path: Path) -> None:
    said = json.dumps(blocks_of(tmp_path))
    assert "Bearer [REDACTED]" in said
    assert "\\ufdd0" not in said


def test_where_signatures_are_asked_for_there_is_no_button_to_approve(tmp_path: Path) -> None:
    said = blocks_of(tmp_path, require_signed_approvals=True)
    (actions,) = [block for block in said["blocks"] if block["type"] == "actions"]
    assert [button["action_id"] for button in actions["elements"]] == ["reject"]


@pytest.mark.parametrize("answer", [yes(), no()], ids=["approved", "rejected"])
def test_a_message_about_a_closed_ticket_has_no_buttons(tmp_path: Path, answer: Any) -> None:
    store = tickets(tmp_path)
    ticket_id = opened(store).id
    asyncio.run(store.answer(ticket_id, answer))
    closed = store.taken(ticket_id)
    said = message(closed, NOON, page_url=None, buttons=True)
    assert "actions" not in [block["type"] for block in said["blocks"]]
    assert closed.status in said["text"]


@pytest.mark.parametrize("longest", [40, 50, 100])
def test_a_text_is_cut_between_entities(longest: int) -> None:
    cut = slack_blocks.escaped("&<>" * 100, longest)
    assert len(cut) <= longest
    assert "more characters)" in cut
    assert not cut.partition("…")[0].replace("&amp;", "").replace("&lt;", "").replace("&gt;", "")


# --- the channel


def channel(tmp_path: Path, webhook: str, listen: Listen | None = None, **environ: str) -> SlackChannel:
    settings = SlackApprovals(webhook=webhook, signing_secret="${SLACK_SECRET}", users=USERS)
    return SlackChannel(settings, environ, PageUrls(str(tmp_path / "approvals"), listen), Clock())


def test_a_ticket_is_announced_with_buttons_and_a_link(tmp_path: Path) -> None:
    with posted_to(status(200, body=b"ok")) as server:
        told = channel(tmp_path, "${HOOK}", Listen("127.0.0.1", 8765), HOOK=server.url("/services/T/B/s3cret"))
        file = opened(tickets(tmp_path), title="about s3cret")
        assert asyncio.run(told.announce(file)) is None
        (request,) = server.requests
        assert request.target == "/services/T/B/s3cret"
        (actions,) = [block for block in request.said["blocks"] if block["type"] == "actions"]
        assert [(each["action_id"], each["value"]) for each in actions["elements"]] == [
            ("approve", f"{file.id}:{file.ticket.request.request_hash}"),
            ("reject", f"{file.id}:{file.ticket.request.request_hash}"),
        ]
        assert f"http://127.0.0.1:8765/t/{file.id}?k=" in request.body.decode()


def test_without_a_listener_there_are_no_buttons(tmp_path: Path) -> None:
    with posted_to(status(200)) as server:
        assert asyncio.run(channel(tmp_path, server.url()).announce(opened(tickets(tmp_path)))) is None
        assert "actions" not in [block["type"] for block in server.requests[0].said["blocks"]]


@pytest.mark.parametrize(
    ("webhook", "why"),
    [
        pytest.param("http://127.0.0.1:{closed}/x", "the connection was refused", id="no server"),
        pytest.param("${UNSET}", "`UNSET` is not set", id="a secret that is not set"),
        pytest.param("${GERT_APPROVAL_SIGNING_KEY}", "is gert's own", id="our own key"),
        pytest.param("http://evil.example/x", "must be https", id="plain http elsewhere"),
    ],
)
def test_a_channel_that_cannot_be_used_says_why(tmp_path: Path, webhook: str, why: str) -> None:
    told = channel(tmp_path, webhook.replace("{closed}", str(closed_port())), GERT_APPROVAL_SIGNING_KEY="secret key")
    note = asyncio.run(told.announce(opened(tickets(tmp_path))))
    assert note is not None
    assert why in note


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(status(404, body=b"no_service s3cret"), "the server answered 404", id="gone"),
        pytest.param(status(302, "Location: http://evil.example"), "redirects are not followed", id="elsewhere"),
        pytest.param(raw(b"nonsense\r\n\r\n"), "broke before an answer arrived", id="nonsense"),
    ],
)
def test_a_slack_that_fails_is_a_note_without_its_address(tmp_path: Path, answer: Any, why: str) -> None:
    with posted_to(answer) as server:
        told = channel(tmp_path, server.url("/services/s3cret"))
        note = asyncio.run(told.announce(opened(tickets(tmp_path))))
    assert note is not None
    assert why in note
    assert "s3cret" not in note


def test_only_the_people_that_a_rule_notifies_are_mentioned(tmp_path: Path) -> None:
    file = opened(tickets(tmp_path), notify=("Bob@example.com", "group:sre"))
    said = message(file, NOON, page_url=None, buttons=False, mentions=["U1", "<!channel>"])
    texts = [block["text"]["text"] for block in said["blocks"] if block["type"] == "section" and "text" in block]
    assert "For <@U1>" in texts
    assert "<!channel>" not in str(said)
    assert "Bob@example.com, group:sre" in str(said)
