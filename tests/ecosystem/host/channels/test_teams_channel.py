"""Teams: a card in the shape workflows expect, with a link to the page."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.approvals.asking import NOON, Clock, opened, tickets
from tests.ecosystem.notify.servers import serving, silence, status

from gert.ecosystem.host.channels.page_urls import Listen, PageUrls
from gert.ecosystem.host.channels.teams_channel import TeamsChannel, card, escaped
from gert.kernel.runbook.documents.project import TeamsApprovals


def announced(tmp_path: Path, url: str, listen: Listen | None = None, **request: Any) -> str | None:
    told = TeamsChannel(
        TeamsApprovals(webhook="${TEAMS}"), {"TEAMS": url}, PageUrls(str(tmp_path / "approvals"), listen), Clock()
    )
    return asyncio.run(told.announce(opened(tickets(tmp_path), **request)))


def test_a_card_is_sent_as_a_workflow_expects_it(tmp_path: Path) -> None:
    with serving(status(202)) as server:
        assert announced(tmp_path, server.url(), Listen("127.0.0.1", 8765), preview="- a\n+ b") is None
        said = server.requests[0].said
    assert said["type"] == "message"
    (attachment,) = said["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    content = attachment["content"]
    assert (content["type"], content["version"]) == ("AdaptiveCard", "1.4")
    (action,) = content["actions"]
    assert action["type"] == "Action.OpenUrl"
    assert action["url"].startswith("http://127.0.0.1:8765/t/run-1-")
    (facts,) = [each["facts"] for each in content["body"] if each["type"] == "FactSet"]
    assert {"title": "Risk", "value": "high"} in facts
    assert "REDACTED" in json.dumps(content)


def test_without_a_page_it_says_how_to_answer(tmp_path: Path) -> None:
    content = card(opened(tickets(tmp_path)), NOON, None)
    assert content["actions"] == []
    assert "gert approve run-1" in json.dumps(content).replace("\\\\", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain text, really.", "plain text, really."),
        ("[click](https://evil.example)", "\\[click\\](https://evil.example)"),
        ("![x](y)", "\\!\\[x\\](y)"),
        ("**b** _i_ ~~s~~ `c`", "\\*\\*b\\*\\* \\_i\\_ \\~\\~s\\~\\~ \\`c\\`"),
        ("# heading", "\\# heading"),
        ("- item\n+ item\n1. item\n2) item", "\\- item\n\\+ item\n1\\. item\n2\\) item"),
        ("<at>everyone</at>", "\\<at\\>everyone\\</at\\>"),
        ("back\\slash", "back\\\\slash"),
    ],
)
def test_whatever_a_runbook_says_stays_text(text: str, expected: str) -> None:
    assert escaped(text, 1000) == expected


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param({"inputs": {f"n{i}": "*" * 9000 for i in range(100)}, "preview": "_" * 90_000}, id="many inputs"),
        pytest.param({"title": "x" * 9000, "rule": "[" * 9000}, id="long texts"),
    ],
)
def test_a_card_is_small_enough_for_teams(tmp_path: Path, request_: dict[str, Any]) -> None:
    assert len(json.dumps(card(opened(tickets(tmp_path), **request_), NOON, None))) < 28_000


@pytest.mark.parametrize("answer", [status(400), status(302)], ids=["refused", "elsewhere"])
def test_a_workflow_that_fails_is_a_note(tmp_path: Path, answer: Any) -> None:
    with serving(answer) as server:
        note = announced(tmp_path, server.url("/s3cret"))
    assert note is not None
    assert note.startswith("not sent: the server answered")
    assert "s3cret" not in note


def test_a_workflow_that_never_answers_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gert.ecosystem.host.channels import send

    monkeypatch.setattr(send, "TOTAL_SECONDS", 0.1)
    with serving(silence) as server:
        assert announced(tmp_path, server.url()) == "not sent: not delivered within 0.1s"
