"""How a ticket names its step to people: by its path, so that items of a loop and lanes are told apart."""

import json
from pathlib import Path

import pytest
from tests.ecosystem.approvals.asking import NOON, asking, opened, tickets

from gert.ecosystem.approvals.request_text import summary
from gert.ecosystem.host.approvals.ticket_document import request_document
from gert.ecosystem.host.channels import slack_blocks, ticket_summary


@pytest.mark.parametrize(
    ("path", "title", "expected"),
    [
        pytest.param("each[z1]/del", "Delete it", "Delete it (each[z1]/del)", id="an item with a title"),
        pytest.param("del[1]", "Delete it", "Delete it (del[1])", id="an iteration with a title"),
        pytest.param("both/left/del", None, "restart-service: both/left/del", id="a lane without a title"),
        pytest.param("restart", "Delete it", "Delete it", id="a step that stands alone"),
        pytest.param("", None, "restart-service: restart", id="a ticket of an older gert"),
    ],
)
def test_the_title_of_a_ticket_names_its_path(path: str, title: str | None, expected: str) -> None:
    assert ticket_summary.title_of(asking(path=path, title=title)) == expected


def test_every_text_about_a_ticket_names_the_path(tmp_path: Path) -> None:
    file = opened(tickets(tmp_path), path="each[z1]/del")
    message = json.dumps(slack_blocks.message(file, NOON, page_url=None, buttons=True))
    assert dict(ticket_summary.facts(file))["Step"] == "each[z1]/del"
    assert "Approve step each[z1]/del of restart-service" in message
    assert request_document(file.ticket.request)["path"] == "each[z1]/del"
    assert any("approval needed for step `each[z1]/del`" in line for line in summary(file.ticket.request))


@pytest.mark.parametrize(("printed", "shown"), [("", "(printed nothing)"), ("2 pods", "2 pods")])
def test_what_a_preview_printed_stands_below_its_command(tmp_path: Path, printed: str, shown: str) -> None:
    file = opened(tickets(tmp_path), preview=printed, preview_command=("kubectl", "diff"))
    assert ticket_summary.preview(file) == f"$ kubectl diff\n{shown}"
