"""Channels in the hands of people who want something else approved than what others see, or by somebody else."""

import asyncio
import os
import re
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.approvals.asking import NOON, Clock, asking, opened, tickets
from tests.ecosystem.host.channels.connections import House, visit
from tests.ecosystem.notify.servers import serving as webhook
from tests.ecosystem.notify.servers import status

from gert.ecosystem.host.channels.channels_for import is_served
from gert.ecosystem.host.channels.page_urls import Listen, PageUrls
from gert.ecosystem.host.channels.slack_blocks import message
from gert.ecosystem.host.channels.slack_channel import SlackChannel
from gert.ecosystem.host.channels.teams_channel import card, escaped
from gert.errors import TraceError
from gert.kernel.runbook.documents.project import SlackApprovals

STRANGER = 65_533
AS_ROOT = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="gives files away")


# --- the page


@pytest.mark.parametrize("verdict", ["approve", "reject"])
def test_an_answer_that_could_not_be_recorded_can_be_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: str
) -> None:
    """Told that it was sent already, somebody would believe that it stands."""

    async def act(house: House) -> None:
        form = await house.fill(verdict=verdict)
        answer = house.store.answer

        def fails(*_: Any) -> Any:
            raise TraceError("the ticket cannot be written: no space left on device")

        monkeypatch.setattr(house.store, "answer", fails)
        got = await house.send(form)
        assert got.status == 503
        assert "Try again" in got.text
        monkeypatch.setattr(house.store, "answer", answer)
        assert (await house.send(form)).status == 200
        assert len(house.now().responses) == 1
        assert (await house.send(form)).status == 409

    visit(tmp_path, act)


@AS_ROOT
def test_a_secret_file_of_another_user_is_not_used(tmp_path: Path) -> None:
    PageUrls(str(tmp_path)).links.token("x")
    os.chown(tmp_path / "page.key", STRANGER, STRANGER)
    with pytest.raises(TraceError, match="belongs to another user"):
        PageUrls(str(tmp_path)).links.token("x")


ORIGINS: list[Any] = [
    pytest.param("https://approvals.example.com", True, id="the public page"),
    pytest.param("http://approvals.example.com", False, id="what calls itself so without a certificate"),
    pytest.param("http://approvals.example.com:443", False, id="the same with the port"),
    pytest.param("http://127.0.0.1:8765", True, id="the page on this machine"),
    pytest.param("https://127.0.0.1:8765", False, id="something else on this machine"),
    pytest.param("ftp://127.0.0.1:8765", False, id="no page at all"),
    pytest.param("null", False, id="no origin"),
]


@pytest.mark.parametrize(("origin", "is_ours"), ORIGINS)
def test_an_origin_is_ours_with_its_scheme(tmp_path: Path, origin: str, is_ours: bool) -> None:
    urls = PageUrls(str(tmp_path), Listen("127.0.0.1", 8765), "https://approvals.example.com")
    assert urls.is_origin(origin) is is_ours


# --- Slack


def told_in_slack(tmp_path: Path, urls: PageUrls, secret: str | None) -> str:
    """The link that everybody in the channel sees."""
    settings = SlackApprovals(webhook="${SLACK}", signing_secret=secret, users={"U1": "bob"})
    with webhook(status(200)) as server:
        channel = SlackChannel(settings, {"SLACK": server.url(), "SECRET": "s" * 32}, urls, Clock())
        assert asyncio.run(channel.announce(opened(tickets(tmp_path)))) is None
        found = re.search(r"<(http[^|]+)\|everything about it>", server.requests[0].body.decode())
    assert found is not None
    return found[1].replace("&amp;", "&")


def test_where_slack_says_who_answers_the_link_it_shows_cannot_answer(tmp_path: Path) -> None:
    urls = PageUrls(str(tmp_path / "approvals"), Listen("127.0.0.1", 8765))
    link = told_in_slack(tmp_path, urls, "${SECRET}").partition("?k=")[2]

    async def act(house: House) -> None:
        form = await house.fill()
        page = await house.look(link)
        assert page.status == 200
        assert "Restart it" in page.text
        assert "<form" not in page.text
        assert "Respond with the buttons of the message" in page.text
        got = await house.send({**form, "k": link})
        assert got.status == 403
        assert house.now().responses == ()

    visit(tmp_path, act)


def test_where_slack_has_no_buttons_its_link_leads_to_a_page_that_has(tmp_path: Path) -> None:
    urls = PageUrls(str(tmp_path / "approvals"), Listen("127.0.0.1", 8765))
    link = told_in_slack(tmp_path, urls, None).partition("?k=")[2]
    assert "<form" in visit(tmp_path, lambda house: house.look(link)).text


def test_a_message_shows_all_terms(tmp_path: Path) -> None:
    file = opened(tickets(tmp_path), separation_of_duties=True, require_signed_approvals=True, notify=("eve",))
    shown = str(message(file, NOON, page_url=None, buttons=True))
    for words in ("Barred", "only signed approvals count", "Notified", asking().request_hash):
        assert words in shown


# --- Teams


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a&#x202e;b &lt;at&gt; &amp;", "a\\&\\#x202e;b \\&lt;at\\&gt; \\&amp;"),
        ("{{DATE(2026-01-01T00:00:00Z, SHORT)}}", "\\{\\{DATE(2026-01-01T00:00:00Z, SHORT)\\}\\}"),
        ("title\n===\nmore\n---", "title\n\\===\nmore\n\\---"),
        ("--- a/file\n+++ b/file\n-", "\\--- a/file\n\\+++ b/file\n\\-"),
        ("x\n1.", "x\n1\\."),
    ],
    ids=["entities", "functions", "underlined headings", "a diff", "an item without text"],
)
def test_nothing_in_a_text_is_shown_as_something_else(text: str, expected: str) -> None:
    assert escaped(text, 1000) == expected


def test_what_old_clients_show_of_a_card_is_text_as_well(tmp_path: Path) -> None:
    shown = card(opened(tickets(tmp_path), title="[click](https://evil.example)"), NOON, None)
    assert shown["fallbackText"] == "Approval needed: \\[click\\](https://evil.example)"


# --- the address


def test_a_process_that_repeats_what_the_server_said_is_not_taken_for_it(tmp_path: Path) -> None:
    """Any user of the machine can listen where we did, and would be given people's links."""

    async def heard(house: House) -> bytes:
        return (await house.ask("GET", "/healthz")).body

    said = visit(tmp_path, heard)

    def repeats(connection: Any, _: Any) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(said) + said)

    with webhook(repeats) as server:
        urls = PageUrls(str(tmp_path / "approvals"), Listen("127.0.0.1", server.port))
        assert urls.links.mark.encode() in said
        assert not asyncio.run(is_served(urls))


def test_a_server_for_the_same_tickets_is_known(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        assert await is_served(PageUrls(house.store.folder, house.urls.listen))
        assert not await is_served(PageUrls(str(tmp_path / "other"), house.urls.listen))

    visit(tmp_path, act)
