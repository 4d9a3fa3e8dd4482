"""The page of a ticket: what it shows, who may answer on it, and every way to misuse it."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.approvals.asking import NOON, no, yes
from tests.ecosystem.host.channels.connections import Got, House, visit

from gert.ecosystem.approvals.responses import encode_response

XSS = "<script>alert('x')</script>\"'&<img src=x onerror=alert(1)>"


def test_a_page_shows_exactly_what_would_run(tmp_path: Path) -> None:
    got = visit(tmp_path, House.look, preview="- old\n+ new", approvers=(("bob", "eve"),), admitted=(("bob", "eve"),))
    assert got.status == 200
    for text in (
        "Restart it",
        "restart-service",
        "run-1",
        "kubectl/restart",
        "high",
        "rules[0]",
        "ann",
        "<del>- old</del>\n<ins>+ new</ins>",
    ):
        assert text in got.text
    for text in (
        "effects",
        "service",
        "idempotent",
        "Bearer [REDACTED]",
        "one of bob, eve",
        "30m left",
        "No response yet",
    ):
        assert text in got.text
    assert "sha256:" in got.text
    assert "<label for=" in got.text
    assert "<main>" in got.text


def test_a_page_can_do_nothing_but_be_read_and_sent_back(tmp_path: Path) -> None:
    got = visit(tmp_path, House.look)
    policy = got.header("content-security-policy")
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "script-src" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "<script" not in got.text
    assert not re.search(r"\son\w+=|style=|javascript:", got.text)
    assert got.header("cache-control") == "no-store"
    assert got.header("x-content-type-options") == "nosniff"
    assert got.header("referrer-policy") == "same-origin"
    assert "HttpOnly; SameSite=Lax" in got.header("set-cookie")


def test_over_https_the_cookie_stays_there(tmp_path: Path) -> None:
    got = visit(tmp_path, House.look, base_url="https://approvals.example.com")
    assert got.header("set-cookie").endswith("; Secure")


@pytest.mark.parametrize(
    "where",
    [
        {"title": XSS},
        {"step_id": XSS},
        {"runbook": XSS},
        {"target": XSS},
        {"risk_level": XSS},
        {"rule": XSS},
        {"requested_by": XSS},
        {"inputs": {XSS: XSS}},
        {"inputs": {"a": [XSS, {XSS: XSS}]}},
        {"contract": {XSS: [XSS]}},
        {"preview": XSS},
        {"approvers": ((XSS,),), "admitted": ((XSS,),)},
        {"request_hash": XSS},
    ],
    ids=lambda where: next(iter(where)),
)
def test_whatever_a_runbook_says_stays_text(tmp_path: Path, where: dict[str, Any]) -> None:
    text = visit(tmp_path, House.look, **where).text
    assert "<script" not in text
    assert "<img" not in text
    assert "alert(&#x27;x&#x27;)" in text or "alert(&#x27;x&#x27;)".replace("&#x27;", "'") not in text


def test_whatever_people_say_stays_text(tmp_path: Path) -> None:
    async def act(house: House) -> Got:
        for response in (yes(XSS, reason=XSS), yes("bob", reason=XSS, key_id=XSS, signature=XSS)):
            house.store.insert(house.file.id, encode_response(response))
        return await house.look()

    got = visit(tmp_path, act, min_approvers=3)
    assert got.text.count("&lt;script&gt;") >= 3
    assert "<script" not in got.text


def test_text_cannot_turn_around_or_hide(tmp_path: Path) -> None:
    text = visit(tmp_path, House.look, title="pay \u202e001", inputs={"a": "x\u200b\x1b[2J\u2066y\0"}).text
    assert not re.search("[\u202e\u200b\x1b\u2066\0]", text)


def test_a_very_long_value_is_cut_and_says_so(tmp_path: Path) -> None:
    text = visit(tmp_path, House.look, inputs={"a": "x" * 200_000, **{f"n{i}": i for i in range(400)}}).text
    assert "more characters)" in text
    assert "101 more are not shown here" in text


# --- answering


@pytest.mark.parametrize(
    ("fields", "status", "told"),
    [
        pytest.param({"verdict": "approve"}, "approved", "Your approval was received", id="an approval"),
        pytest.param({"verdict": "reject"}, "rejected", "Your rejection was received", id="a rejection"),
        pytest.param({"reason": "ok & <fine>"}, "approved", "ok &amp; &lt;fine&gt;", id="with a reason"),
        pytest.param({"approver": "Jürgen Müller"}, "approved", "Jürgen Müller", id="a name with umlauts"),
    ],
)
def test_an_answer_counts_and_the_page_says_so(tmp_path: Path, fields: dict[str, str], status: str, told: str) -> None:
    async def act(house: House) -> None:
        got = await house.send(await house.fill(**fields))
        assert (got.status, house.now().status) == (200, status)
        assert told in got.text
        assert "<form" not in got.text

    visit(tmp_path, act)


def test_an_answer_is_bound_to_what_was_shown(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        await house.send(await house.fill(reason="seen"))
        (heard,) = house.now().responses
        assert heard.response.request_hash == house.file.ticket.request.request_hash
        assert heard.response.ticket_id == house.file.id
        assert heard.response.reason == "seen"
        assert heard.response.signature is None

    visit(tmp_path, act)


def test_one_of_two_is_told_how_many_are_missing(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        got = await house.send(await house.fill())
        assert "1 person more must approve" in got.text
        assert house.now().status == "pending"
        again = await house.send(await house.fill(approver="Bob"))
        assert again.status == 409
        assert "has already responded" in again.text
        assert (await house.send(await house.fill(approver="eve"))).status == 200

    visit(tmp_path, act, min_approvers=2)


@pytest.mark.parametrize(
    ("request_", "fields", "why"),
    [
        pytest.param({"approvers": (("bob",),), "admitted": (("bob",),)}, {"approver": "eve"},
                     "`eve` is not among the approvers", id="a person who is not listed"),
        pytest.param({"separation_of_duties": True}, {"approver": "ann"},
                     "`ann` started the run", id="who started the run"),
        pytest.param({"require_signed_approvals": True}, {}, "no valid signature", id="where only signed ones count"),
        pytest.param({}, {"approver": "bo\u200bb"}, "does not name its approver", id="a name with something invisible"),
        pytest.param({}, {"approver": "x" * 300}, "approver is too long", id="a name without end"),
        pytest.param({}, {"reason": "x" * 3000}, "reason is too long", id="a reason without end"),
    ],
)  # fmt: skip
def test_an_answer_that_does_not_count_is_told_why_and_may_be_given_again(
    tmp_path: Path, request_: dict[str, Any], fields: dict[str, str], why: str
) -> None:
    async def act(house: House) -> None:
        got = await house.send(await house.fill(**fields))
        assert got.status == 409
        assert why in got.text
        assert "does not count" in got.text
        assert "<form" in got.text
        assert house.now().status == "pending"

    visit(tmp_path, act, **request_)


def test_where_signatures_are_asked_for_the_page_offers_only_to_reject(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        page = await house.look()
        assert 'value="approve"' not in page.text
        assert "cannot sign" in page.text
        assert (await house.send(await house.fill(verdict="reject"))).status == 200
        assert house.now().status == "rejected"

    visit(tmp_path, act, require_signed_approvals=True)


@pytest.mark.parametrize(
    ("answer", "told"),
    [(yes("eve"), "Enough people have approved"), (no("eve"), "This was rejected")],
    ids=["approved", "rejected"],
)
def test_a_ticket_that_is_closed_has_no_form_and_takes_no_answer(tmp_path: Path, answer: Any, told: str) -> None:
    async def act(house: House) -> None:
        form = await house.fill()
        await house.store.answer(house.file.id, answer)
        house.store.taken(house.file.id)
        page = await house.look()
        assert told in page.text
        assert "<form" not in page.text
        late = await house.send(form)
        assert late.status == 409
        assert "`eve` has decided" in late.text
        assert len(house.now().counted) == 1

    visit(tmp_path, act)


def test_after_its_time_a_ticket_takes_no_answer(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        form = await house.fill()
        house.clock.forward(minutes=31)
        assert "The time to answer is over" in (await house.look()).text
        assert (await house.send(form)).status == 409
        assert house.now().responses == ()

    visit(tmp_path, act)


# --- attacks: none of them leads to anything recorded as an answer


def unanswered(house: House, got: Got, status: int) -> None:
    assert got.status == status, got.text
    now = house.now()
    assert (now.status, now.responses) == ("pending", ())


FORGED_LINKS = ["", "x", "0" * 64, "é", "' or 1=1", "a" * 5000]


@pytest.mark.parametrize("link", FORGED_LINKS, ids=[ascii(each)[:12] or "none" for each in FORGED_LINKS])
def test_without_its_link_a_page_is_not_shown(tmp_path: Path, link: str) -> None:
    from urllib.parse import quote

    async def act(house: House) -> None:
        got = await house.ask("GET", f"{house.path}?k={quote(link)}")
        unanswered(house, got, 403)
        assert "Restart" not in got.text

    visit(tmp_path, act)


def test_the_link_of_another_ticket_opens_nothing(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        unanswered(house, await house.look(house.urls.links.token("run-2")), 403)
        # Whether there is such a ticket, only its link tells.
        assert (await house.ask("GET", f"/t/run-2?k={house.link}")).status == 403
        assert (await house.ask("GET", f"/t/run-2?k={house.urls.links.token('run-2')}")).status == 404

    visit(tmp_path, act)


@pytest.mark.parametrize(
    ("spoil", "status"),
    [
        pytest.param({"k": None}, 403, id="no link"),
        pytest.param({"k": "0" * 64}, 403, id="a forged link"),
        pytest.param({"token": None}, 403, id="no token"),
        pytest.param({"token": ""}, 403, id="an empty token"),
        pytest.param({"token": "a.1.b"}, 403, id="a forged token"),
        pytest.param({"token": f"{'a' * 32}.{int(NOON.timestamp())}.{'0' * 64}"}, 403, id="a token of the right form"),
        pytest.param({"token": "..."}, 403, id="dots"),
        pytest.param({"token": "\0é\n"}, 403, id="a token of nonsense"),
        pytest.param({"approver": None}, 422, id="no name"),
        pytest.param({"approver": "   "}, 422, id="a blank name"),
        pytest.param({"verdict": None}, 422, id="no verdict"),
        pytest.param({"verdict": "APPROVE"}, 422, id="a verdict there is not"),
        pytest.param({"verdict": "true"}, 422, id="true"),
    ],
)
def test_a_form_that_is_not_whole_answers_nothing(tmp_path: Path, spoil: dict[str, str | None], status: int) -> None:
    async def act(house: House) -> None:
        unanswered(house, await house.send(await house.fill(**spoil)), status)

    visit(tmp_path, act)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"Cookie": ""}, 403, id="another browser"),
        pytest.param({"Cookie": "gert_browser=" + "a" * 32}, 403, id="a cookie that was planted"),
        pytest.param({"Origin": "https://evil.example"}, 403, id="sent by another page"),
        pytest.param({"Origin": "null"}, 403, id="sent without an origin"),
        pytest.param({"Origin": "http://127.0.0.1:1"}, 403, id="sent by another server of this machine"),
        pytest.param({"Sec-Fetch-Site": "cross-site"}, 403, id="a browser that says it crosses sites"),
        pytest.param({"Sec-Fetch-Site": "same-site"}, 403, id="from a neighbour"),
        pytest.param({"Content-Type": "text/plain"}, 415, id="as plain text"),
        pytest.param({"Content-Type": "multipart/form-data; boundary=x"}, 415, id="in parts"),
        pytest.param({"Content-Type": "application/json"}, 415, id="as JSON"),
        pytest.param({"Host": "evil.example"}, 421, id="under another name"),
    ],
)
def test_a_form_sent_from_elsewhere_answers_nothing(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    async def act(house: House) -> None:
        unanswered(house, await house.send(await house.fill(), headers), status)

    visit(tmp_path, act)


def test_a_field_said_twice_answers_nothing(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        from urllib.parse import urlencode

        form = await house.fill(verdict="reject")
        body = (urlencode(form) + "&verdict=approve").encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        unanswered(house, await house.ask("POST", house.path, body, headers), 403)

    visit(tmp_path, act)


def test_a_form_of_another_ticket_answers_nothing(tmp_path: Path) -> None:
    async def act(house: House) -> None:

        other = house.store.opened(key="other")
        form = await house.fill()
        body = {**form, "k": house.urls.links.token(other.id)}
        moved = House(house.urls, house.store, other, house.clock, house.cookies)
        unanswered(moved, await moved.send(body), 403)
        unanswered(house, await house.send(body), 403)

    visit(tmp_path, act)


def test_a_form_that_was_shown_too_long_ago_answers_nothing(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        form = await house.fill()
        house.clock.forward(hours=13)
        got = await house.send(form)
        assert got.status == 403
        assert not house.now().responses

    visit(tmp_path, act, approval_timeout=100_000.0)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_only_a_form_that_is_posted_can_answer(tmp_path: Path, method: str) -> None:
    async def act(house: House) -> None:
        from urllib.parse import urlencode

        form = await house.fill()
        got = await house.ask(method, f"{house.path}?{urlencode(form)}")
        unanswered(house, got, 200 if method == "GET" else 405)

    visit(tmp_path, act)


def test_a_form_sent_twice_is_recorded_once_and_told_so(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        form = await house.fill()
        assert (await house.send(form)).status == 200
        again = await house.send(form)
        assert again.status == 409
        assert "was sent already" in again.text
        flipped = await house.send({**form, "verdict": "reject", "approver": "eve"})
        assert flipped.status == 409
        assert len(house.now().responses) == 1

    visit(tmp_path, act, min_approvers=2)


def test_a_form_sent_twice_at_once_is_recorded_once(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        import asyncio

        form = await house.fill()
        got = await asyncio.gather(*(house.send(form) for _ in range(8)))
        assert sorted(each.status for each in got) == [200, *[409] * 7]
        assert len(house.now().responses) == 1

    visit(tmp_path, act, min_approvers=2)


def test_two_tabs_of_one_browser_both_work(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        first, second = await house.fill(), await house.fill(approver="eve")
        assert (await house.send(first)).status == 200
        assert (await house.send(second)).status == 200

    visit(tmp_path, act, min_approvers=2)


def test_a_ticket_that_cannot_be_read_is_said_to_be_so(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        form = await house.fill()
        house.store.change("UPDATE tickets SET request = '{'")
        assert (await house.look()).status == 503
        assert (await house.send(form)).status == 503

    visit(tmp_path, act)
