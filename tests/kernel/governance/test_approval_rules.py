"""Which answers count: the time they came, what they are about, who gave them, and what a signature covers."""

from typing import Any

import msgspec
import pytest

from gert.kernel.governance.approval import ApprovalRequest, Response
from gert.kernel.governance.approval_rules import Ticket, approver_objection, signed_message, tally

REQUEST = ApprovalRequest(
    run_id="run-1",
    runbook="book",
    step_id="step",
    title=None,
    risk_level="high",
    rule=None,
    contract={},
    target="tool/action",
    inputs={},
    request_hash="sha256:1",
    min_approvers=1,
    approvers=(),
    admitted=(),
    separation_of_duties=False,
    require_signed_approvals=False,
    requested_by="ann",
    approval_timeout=1800.0,
)
TICKET = Ticket(id="t1", request=REQUEST, created_at="2026-01-02T12:00:00Z", expires_at="2026-01-02T12:30:00Z")
YES = Response(approver="bob", approved=True, timestamp="2026-01-02T12:10:00Z")


def objection(response: Response, ticket: Ticket = TICKET) -> str | None:
    return tally(ticket, [response]).objections[0]


def said(**changes: Any) -> Response:
    return msgspec.structs.replace(YES, **changes)


@pytest.mark.parametrize(
    ("timestamp", "why"),
    [
        pytest.param("2026-01-02T12:00:00Z", None, id="at once"),
        pytest.param("2026-01-02T11:59:30Z", None, id="30 s early is a clock that is behind"),
        pytest.param("2026-01-02T11:59:29.999Z", "the response is older than the request", id="more is stale"),
        pytest.param("2026-01-02T12:30:00Z", None, id="at the last moment"),
        pytest.param("2026-01-02T12:30:00.000001Z", "came too late", id="a microsecond after it"),
        pytest.param("2026-01-02T13:20:00+01:00", None, id="in another time zone"),
        pytest.param("2026-01-02T12:10:00", "has no time zone", id="without a time zone"),
        pytest.param("", "is not a timestamp", id="empty"),
        pytest.param("yesterday", "is not a timestamp", id="nonsense"),
        pytest.param("2026-02-30T12:00:00Z", "is not a timestamp", id="a day there is not"),
        pytest.param("9999-12-31T23:59:59Z", "came too late", id="far ahead"),
        pytest.param("0001-01-01T00:00:00Z", "is older than the request", id="far back"),
        pytest.param("9999-12-31T23:59:59-14:00", "beyond the calendar", id="after the end of the calendar"),
        pytest.param("0001-01-01T00:00:00+14:00", "beyond the calendar", id="before its beginning"),
    ],
)
def test_when_an_answer_counts(timestamp: str, why: str | None) -> None:
    found = objection(said(timestamp=timestamp))
    assert found == why if why is None else why in (found or "")


@pytest.mark.parametrize("created", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
@pytest.mark.parametrize("answered", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_times_at_the_ends_of_the_calendar_are_no_crash(created: str, answered: str) -> None:
    ticket = msgspec.structs.replace(TICKET, created_at=created, expires_at="9999-12-31T23:59:59Z")
    early = created > answered
    assert objection(said(timestamp=answered), ticket) == ("the response is older than the request" if early else None)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        pytest.param({"ticket_id": "t1", "request_hash": "sha256:1"}, None, id="about this ticket and request"),
        pytest.param({"ticket_id": "t2"}, "the response is for the ticket `t2`", id="about another ticket"),
        pytest.param({"ticket_id": "T1"}, "the response is for the ticket `T1`", id="almost this ticket"),
        pytest.param({"request_hash": "sha256:2"}, "what would run has changed", id="about another request"),
    ],
)
def test_what_an_answer_is_about(changes: dict[str, Any], why: str | None) -> None:
    found = objection(said(**changes))
    assert found == why if why is None else why in (found or "")


@pytest.mark.parametrize(
    "approver",
    [
        "",
        " ",
        "\t",
        "\n",
        "\N{NO-BREAK SPACE}",
        "ann\N{ZERO WIDTH SPACE}",
        "ann\0",
        "a\nb",
        "\N{RIGHT-TO-LEFT OVERRIDE}bob",
    ],
    ids=ascii,
)
@pytest.mark.parametrize("approved", [True, False], ids=["yes", "no"])
def test_an_answer_says_plainly_who_gave_it(approver: str, approved: bool) -> None:
    assert objection(said(approver=approver, approved=approved)) == "the response does not name its approver plainly"


@pytest.mark.parametrize("approver", ["bob", "Bob", " bob ", "José Núñez", "李", "bob@example.com", "Anna O'Neil"])
def test_names_of_people_are_plain(approver: str) -> None:
    assert objection(said(approver=approver)) is None


def test_a_flaw_goes_before_the_person_and_a_refusal_needs_no_signature() -> None:
    signing = msgspec.structs.replace(REQUEST, require_signed_approvals=True)
    ticket = msgspec.structs.replace(TICKET, request=signing)
    assert objection(said(), ticket) == "the response has no valid signature"
    assert objection(said(approved=False), ticket) is None
    assert objection(said(approved=False, flaw="bad"), ticket) == "the response has no valid signature: bad"
    assert objection(said(verified=True), ticket) is None


def test_a_name_in_a_list_is_looked_up_in_each() -> None:
    lists = msgspec.structs.replace(REQUEST, approvers=(("bob",), ("group:ops",)), admitted=(("bob",), ("eve", "dan")))
    assert approver_objection(lists, "bob") == "`bob` is not among the approvers `group:ops`"
    assert approver_objection(lists, "eve") == "`eve` is not among the approvers `bob`"


@pytest.mark.parametrize(
    "change",
    [
        {"approved": False},
        {"approver": "eve"},
        {"approver": "Bob"},
        {"timestamp": "2026-01-02T12:10:01Z"},
        {"timestamp": "2026-01-02T12:10:00.000Z"},
    ],
    ids=str,
)
def test_a_signature_covers_the_answer(change: dict[str, Any]) -> None:
    assert signed_message("t1", said(**change), "h") != signed_message("t1", YES, "h")


def test_a_signature_covers_the_ticket_and_the_request_and_nothing_runs_together() -> None:
    messages = {
        signed_message("t1", YES, "h"),
        signed_message("t2", YES, "h"),
        signed_message("t1", YES, "i"),
        signed_message("t1h", YES, ""),
        signed_message("", YES, "t1h"),
    }
    assert len(messages) == 5
    assert signed_message("t1", said(reason="x", key_id="k"), "h") == signed_message("t1", YES, "h")
