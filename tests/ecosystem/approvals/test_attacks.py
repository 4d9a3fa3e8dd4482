"""Attempts at an approval nobody gave: each is refused for a reason of its own, which is recorded."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.ecosystem.approvals.asking import (
    ANN_KEY,
    BOB_KEY,
    MALLORY_KEY,
    NOON,
    REQUEST,
    RUN,
    SHARED,
    Clock,
    asking,
    path_of,
    public,
    signed,
    tickets,
    verifier,
    waiting,
    yes,
)

from gert.ecosystem.approvals.port import StillOpen
from gert.ecosystem.approvals.provider import TicketApprovals
from gert.ecosystem.approvals.ticket_file import TicketFile
from gert.ecosystem.approvals.tickets import Tickets
from gert.kernel.engine.approval_rules import Ticket, tally
from gert.kernel.engine.requests import ApprovalAnswer, ApprovalRequest, Response
from gert.kernel.foundation.canonical import digest_value
from gert.kernel.foundation.signature import HMAC_SHA256, parse_key

LATER = NOON + timedelta(minutes=5)
SIGNED = asking(require_signed_approvals=True)
APART = asking(separation_of_duties=True)
LISTED = asking(approvers=(("bob", "dan"),), admitted=(("bob", "dan"),))
GROUP = asking(approvers=(("group:ops",),), admitted=(("dan", "eve"),))
BAD = "the response has no valid signature: "
UNSIGNED = "the response has no valid signature"
UNHELD = BAD + "the signature by key `bob` is invalid"

Make = Callable[[TicketFile], Response]


def at(response: Response, **changes: Any) -> Response:
    return msgspec.structs.replace(response, **changes)


def changed(**changes: Any) -> Make:
    """Signed by Bob, and changed afterwards."""
    return lambda file: at(signed(file), **changes)


def plain(**changes: Any) -> Make:
    return lambda _: at(yes(), **changes)


def for_request(**parts: Any) -> Make:
    """Signed for the same step with something else in it."""
    covered = {"runbook": "r", "step": "restart", "contract": {}, "inputs": {}, **parts}

    def make(file: TicketFile) -> Response:
        other = asking(request_hash=digest_value(covered))
        return signed(at_request(file, other))

    return make


def at_request(file: TicketFile, request: ApprovalRequest) -> TicketFile:
    return msgspec.structs.replace(file, ticket=msgspec.structs.replace(file.ticket, request=request))


def at_ticket(ticket_id: str, *, rebound: bool = False) -> Make:
    """Signed for another ticket, and perhaps said to be for this one."""

    def make(file: TicketFile) -> Response:
        other = msgspec.structs.replace(file, ticket=msgspec.structs.replace(file.ticket, id=ticket_id))
        return at(signed(other), ticket_id=file.id if rebound else ticket_id)

    return make


def respelt(change: Callable[[str], str]) -> Make:
    return lambda file: at(signed(file), signature=change(signed(file).signature or ""))


def with_published_key(file: TicketFile) -> Response:
    """The public key of Bob, used as a shared secret."""
    text = (public(BOB_KEY).public_text or "").removeprefix("ed25519-public:")
    return signed(file, parse_key("base64:" + text, "bob"))


# What is asked, what is answered, and why it does not count.
ATTACKS: list[Any] = [
    # --- about something else
    pytest.param(SIGNED, at_ticket("run-1-other"), "the response is for the ticket `run-1-other`", id="another ticket"),
    pytest.param(SIGNED, at_ticket("run-2-abc"), "the response is for the ticket `run-2-abc`", id="another run"),
    pytest.param(SIGNED, at_ticket("run-2-abc", rebound=True), UNHELD, id="replayed under the name of this ticket"),
    pytest.param(
        SIGNED,
        lambda file: at(at_ticket("run-2-abc")(file), ticket_id=""),
        UNHELD,
        id="replayed without saying for which ticket",
    ),
    pytest.param(SIGNED, for_request(inputs={"name": "db"}), "what would run has changed", id="other inputs"),
    pytest.param(SIGNED, for_request(contract={"writes": []}), "what would run has changed", id="another contract"),
    pytest.param(SIGNED, for_request(runbook="other"), "what would run has changed", id="another runbook"),
    pytest.param(SIGNED, for_request(step="stop"), "what would run has changed", id="another step"),
    pytest.param(
        SIGNED,
        lambda file: at(for_request(step="stop")(file), request_hash=file.ticket.request.request_hash),
        UNHELD,
        id="signed for another request and said to be for this one",
    ),
    pytest.param(
        SIGNED,
        lambda file: at(for_request(step="stop")(file), request_hash=""),
        UNHELD,
        id="signed for another request and silent about it",
    ),
    pytest.param(REQUEST, plain(ticket_id="../run-1"), "for the ticket `../run-1`", id="a ticket that climbs"),
    pytest.param(REQUEST, plain(ticket_id="/etc/passwd"), "for the ticket `/etc/passwd`", id="an absolute ticket"),
    pytest.param(REQUEST, plain(ticket_id="a\0b"), "for the ticket", id="a ticket with a NUL"),
    pytest.param(REQUEST, plain(ticket_id="a\nb"), "for the ticket", id="a ticket of two lines"),
    # --- changed after signing
    pytest.param(
        SIGNED,
        lambda file: at(signed(file, response=at(yes(), approved=False)), approved=True),
        UNHELD,
        id="a signed no that became yes",
    ),
    pytest.param(SIGNED, changed(approved=False), UNHELD, id="a signed yes that became no"),
    pytest.param(SIGNED, changed(approver="dan"), UNHELD, id="another approver"),
    pytest.param(SIGNED, changed(approver="Bob"), UNHELD, id="the approver in another case"),
    pytest.param(SIGNED, changed(timestamp="2026-01-02T12:00:01.000000Z"), UNHELD, id="another time"),
    pytest.param(SIGNED, changed(timestamp="2026-01-02T12:00:00Z"), UNHELD, id="the same time spelt otherwise"),
    # --- signatures
    pytest.param(SIGNED, plain(), UNSIGNED, id="unsigned"),
    pytest.param(SIGNED, plain(verified=True), UNSIGNED, id="unsigned and called verified"),
    pytest.param(SIGNED, plain(scripted=True), UNSIGNED, id="unsigned and called scripted"),
    pytest.param(SIGNED, changed(signature=None), BAD + "the signature is missing", id="the signature removed"),
    pytest.param(SIGNED, changed(signature=""), UNHELD, id="an empty signature"),
    pytest.param(SIGNED, changed(signature_alg=HMAC_SHA256), BAD + "the key `bob` is for ed25519", id="downgraded"),
    pytest.param(SIGNED, with_published_key, BAD + "the key `bob` is for ed25519", id="a public key as a secret"),
    pytest.param(SIGNED, changed(signature_alg="none"), BAD + "the signature algorithm `none`", id="no algorithm"),
    pytest.param(SIGNED, changed(signature_alg=None), BAD + "the signature algorithm ``", id="algorithm removed"),
    pytest.param(
        SIGNED, changed(signature_alg="rs256"), BAD + "the signature algorithm `rs256`", id="unknown algorithm"
    ),
    pytest.param(SIGNED, changed(key_id="eve"), BAD + "no key `eve` is known", id="an unknown key"),
    pytest.param(SIGNED, changed(key_id=None), BAD + "no key `default` is known", id="no key named"),
    pytest.param(SIGNED, changed(key_id="ann"), BAD + "the signature by key `ann`", id="said to be by another key"),
    pytest.param(
        SIGNED,
        lambda file: signed(file, MALLORY_KEY, yes("ann")),
        BAD + "the signature by key `ann`",
        id="a key of her own under the name of another",
    ),
    pytest.param(
        SIGNED,
        lambda file: signed(file, BOB_KEY, yes("dan")),
        BAD + "the key `bob` does not speak for",
        id="for another",
    ),
    pytest.param(SIGNED, respelt(lambda text: text[:-4]), UNHELD, id="a truncated signature"),
    pytest.param(SIGNED, respelt(lambda text: "A" * len(text)), UNHELD, id="a made-up signature"),
    pytest.param(SIGNED, respelt(lambda text: text.rstrip("=")), UNHELD, id="base64 without padding"),
    pytest.param(SIGNED, respelt(lambda text: text[:-3] + chr(ord(text[-3]) + 1) + "=="), UNHELD, id="spare bits"),
    pytest.param(SIGNED, respelt(lambda text: f" {text}"), UNHELD, id="base64 with a space"),
    pytest.param(SIGNED, respelt(lambda text: text[:10] + "\n" + text[10:]), UNHELD, id="base64 with a line break"),
    pytest.param(SIGNED, respelt(lambda text: "é" * len(text)), UNHELD, id="a signature beyond ASCII"),
    pytest.param(SIGNED, respelt(lambda text: text * 20), "the signature is too long", id="an endless signature"),
    pytest.param(
        SIGNED,
        lambda file: at(signed(file, SHARED), signature=(signed(file, SHARED).signature or "").upper()),
        BAD + "the signature by key `shared`",
        id="hex in capitals",
    ),
    pytest.param(REQUEST, changed(signature="AAAA"), UNHELD, id="a bad signature where none is asked for"),
    # --- time
    pytest.param(REQUEST, lambda _: yes(at=NOON - timedelta(seconds=31)), "older than the request", id="31 s early"),
    pytest.param(REQUEST, lambda _: yes(at=NOON + timedelta(minutes=31)), "from the future", id="after the end"),
    pytest.param(REQUEST, lambda _: yes(at=LATER + timedelta(seconds=31)), "from the future", id="31 s ahead"),
    pytest.param(REQUEST, plain(timestamp="2999-01-01T00:00:00Z"), "from the future", id="far ahead"),
    pytest.param(REQUEST, plain(timestamp="2026-01-02T12:00:00"), "has no time zone", id="no time zone"),
    pytest.param(REQUEST, plain(timestamp="noon"), "`noon` is not a timestamp", id="no time"),
    pytest.param(REQUEST, plain(timestamp=""), "`` is not a timestamp", id="an empty time"),
    pytest.param(REQUEST, plain(timestamp="0001-01-01T00:00:00+14:00"), "beyond the calendar", id="before all time"),
    pytest.param(REQUEST, plain(timestamp="9999-12-31T23:59:59-14:00"), "beyond the calendar", id="after all time"),
    pytest.param(REQUEST, plain(timestamp="2" * 100), "the timestamp is too long", id="an endless time"),
    # --- people
    pytest.param(APART, plain(approver="ann"), "`ann` started the run", id="whoever started the run"),
    pytest.param(APART, plain(approver="ANN"), "`ANN` started the run", id="in capitals"),
    pytest.param(APART, plain(approver=" ann "), "` ann ` started the run", id="with spaces"),
    pytest.param(
        APART, plain(approver="ann\u200b"), "does not name its approver plainly", id="with something invisible"
    ),
    pytest.param(
        asking(separation_of_duties=True, requested_by="Jos\u00e9"),
        plain(approver="JOSE\u0301"),
        "started the run",
        id="in another form of Unicode",
    ),
    pytest.param(
        asking(separation_of_duties=True, requested_by=None), plain(), "does not record who started it", id="nobody"
    ),
    pytest.param(LISTED, plain(approver="eve"), "`eve` is not among the approvers `bob`, `dan`", id="not listed"),
    pytest.param(LISTED, plain(approver="bob dan"), "is not among the approvers", id="two names in one"),
    pytest.param(GROUP, plain(approver="bob"), "`bob` is not among the approvers `group:ops`", id="not in the group"),
    pytest.param(GROUP, plain(approver="group:ops"), "`group:ops` is not among", id="the group itself"),
    pytest.param(REQUEST, plain(approver=""), "does not name its approver plainly", id="nobody at all"),
    pytest.param(REQUEST, plain(approver=" \t"), "does not name its approver plainly", id="only spaces"),
    pytest.param(REQUEST, plain(approver="a\nb"), "does not name its approver plainly", id="two lines"),
    pytest.param(
        REQUEST, plain(approver="\x1b[2Jbob"), "does not name its approver plainly", id="a name that steers a terminal"
    ),
    pytest.param(REQUEST, plain(approver="x" * 257), "the approver is too long", id="an endless name"),
    pytest.param(REQUEST, plain(approver="b\udcffb"), "the approver is not valid text", id="a name that is no UTF-8"),
    # --- form
    pytest.param(REQUEST, plain(reason="x" * 2001), "the reason is too long", id="an endless reason"),
    pytest.param(REQUEST, plain(reason="\udcff"), "the reason is not valid text", id="a reason that is no UTF-8"),
    pytest.param(REQUEST, plain(approved="yes"), "not of the form", id="a word for yes"),
    pytest.param(REQUEST, plain(approved=1), "not of the form", id="a number for yes"),
    pytest.param(REQUEST, plain(approver=7), "not of the form", id="a number for a name"),
    pytest.param(REQUEST, plain(approver=None), "not of the form", id="nothing for a name"),
    pytest.param(REQUEST, plain(key_id=["bob"]), "not of the form", id="a list for a key"),
]


@pytest.mark.parametrize(("request_", "make", "why"), ATTACKS)
def test_an_attempt_is_refused_with_its_reason_and_the_run_does_not_go_on(
    tmp_path: Path, request_: ApprovalRequest, make: Make, why: str
) -> None:
    clock = Clock()
    store = tickets(tmp_path, clock, verifier(public(ANN_KEY), public(BOB_KEY), SHARED, bob="bob"))
    file = store.open(request_, RUN, "ticket")
    clock.now = LATER
    answered = store.answer(file.id, make(file))
    assert why in (answered.objection or "")
    recorded = store.get(file.id)
    assert recorded.status == "pending"
    assert [each.objection for each in (*recorded.responses, *recorded.refused)] == [answered.objection]
    assert not goes_on(store, file.id, request_)
    # Whoever may approve still can: nobody is locked out by an attempt of somebody else.
    honest = signed(file, BOB_KEY) if request_ is not GROUP else yes("dan")
    if request_.requested_by is not None:
        assert store.answer(file.id, honest).objection is None
        assert goes_on(store, file.id, request_)


def goes_on(store: Tickets, ticket_id: str, request: ApprovalRequest) -> bool:
    """Whether the run would execute the step: by its own question, its own keys, and what the kernel counts."""
    run = TicketApprovals(store, RUN, detach=True)
    file = store.get(ticket_id)
    try:
        answer: ApprovalAnswer = asyncio.run(run.wait(waiting(ticket_id, request)))
    except StillOpen:
        return False
    ticket = Ticket(id=ticket_id, request=request, created_at=file.ticket.created_at, expires_at=file.ticket.expires_at)
    by = tally(ticket, answer.responses).resolved_by
    return answer.failure is None and by is not None and by.approved


# --- one after the other


@pytest.mark.parametrize(
    ("second", "why"),
    [
        pytest.param("bob", "`bob` has already responded", id="the same person"),
        pytest.param("BOB", "`BOB` has already responded", id="in capitals"),
        pytest.param(" bob", "` bob` has already responded", id="with a space"),
        pytest.param("bob\u200d", "the response does not name its approver plainly", id="with something invisible"),
    ],
)
def test_one_person_is_not_two(tmp_path: Path, second: str, why: str) -> None:
    store = tickets(tmp_path)
    file = store.open(asking(min_approvers=2), RUN, "ticket")
    store.answer(file.id, yes("bob"))
    assert store.answer(file.id, yes(second)).objection == why
    assert not goes_on(store, file.id, asking(min_approvers=2))


def test_an_answer_played_again_counts_once(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    request = asking(min_approvers=2, require_signed_approvals=True)
    file = store.open(request, RUN, "ticket")
    said = signed(file)
    assert store.answer(file.id, said).objection is None
    assert store.answer(file.id, said).objection == "`bob` has already responded"
    assert not goes_on(store, file.id, request)


@pytest.mark.parametrize("end", ["rejected", "expired", "abandoned"])
def test_a_closed_ticket_takes_no_approval(tmp_path: Path, end: str) -> None:
    clock = Clock()
    store = tickets(tmp_path, clock)
    file = store.open(REQUEST, RUN, "ticket")
    if end == "rejected":
        store.answer(file.id, at(yes("eve"), approved=False))
    elif end == "expired":
        clock.forward(minutes=31)
    else:
        store.abandon(file.id)
    answered = store.answer(file.id, yes())
    assert answered.objection is not None
    assert answered.file.status == end
    assert len(answered.file.refused) == 1
    assert not goes_on(store, file.id, REQUEST)


# --- files changed by hand


def inserted(**more: Any) -> dict[str, Any]:
    response = {"approver": "bob", "approved": True, "timestamp": "2026-01-02T12:00:00Z", **more}
    return {"response": response, "at": "2026-01-02T12:00:00Z"}


def request_with(content: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**content["ticket"], "request": {**content["ticket"]["request"], **changes}}


FORGED = {"signature": "AAAA", "signature_alg": "ed25519", "key_id": "bob"}
TWO = asking(min_approvers=2)

BY_HAND: list[Any] = [
    pytest.param(REQUEST, lambda _: {"status": "approved"}, id="the status alone"),
    pytest.param(SIGNED, lambda _: {"status": "approved", "responses": [inserted()]}, id="an unsigned answer"),
    pytest.param(SIGNED, lambda _: {"responses": [inserted(verified=True)]}, id="an answer called verified"),
    pytest.param(SIGNED, lambda _: {"responses": [inserted(scripted=True)]}, id="an answer called scripted"),
    pytest.param(SIGNED, lambda _: {"responses": [inserted(verified=True, **FORGED)]}, id="a forged signature"),
    pytest.param(TWO, lambda _: {"responses": [inserted(), inserted()]}, id="one answer twice"),
    pytest.param(TWO, lambda _: {"responses": [inserted(), inserted(approver="BOB")]}, id="one person twice"),
    pytest.param(APART, lambda _: {"responses": [inserted(approver="ann")]}, id="whoever started the run"),
    pytest.param(LISTED, lambda _: {"responses": [inserted(approver="eve")]}, id="somebody who is not listed"),
    pytest.param(REQUEST, lambda _: {"responses": [inserted(approver="")]}, id="nobody"),
    pytest.param(REQUEST, lambda _: {"responses": [inserted(ticket_id="run-2")]}, id="an answer to another ticket"),
    pytest.param(REQUEST, lambda _: {"responses": [inserted(request_hash="x")]}, id="an answer to another request"),
    pytest.param(REQUEST, lambda _: {"responses": [inserted(timestamp="noon")]}, id="an answer at no time"),
    pytest.param(
        REQUEST,
        lambda _: {"responses": [inserted(timestamp="2026-01-02T11:00:00Z")]},
        id="an answer before the request",
    ),
    pytest.param(
        TWO,
        lambda content: {"ticket": request_with(content, min_approvers=1), "responses": [inserted()]},
        id="fewer approvers",
    ),
    pytest.param(
        LISTED,
        lambda content: {
            "ticket": request_with(content, approvers=[], admitted=[]),
            "responses": [inserted(approver="eve")],
        },
        id="no list of approvers",
    ),
    pytest.param(
        APART,
        lambda content: {
            "ticket": request_with(content, separation_of_duties=False),
            "responses": [inserted(approver="ann")],
        },
        id="no separation of duties",
    ),
    pytest.param(
        SIGNED,
        lambda content: {"ticket": request_with(content, require_signed_approvals=False), "responses": [inserted()]},
        id="no signatures asked for",
    ),
    pytest.param(
        REQUEST,
        lambda content: {"ticket": request_with(content, request_hash="sha256:other"), "responses": [inserted()]},
        id="another request",
    ),
    pytest.param(REQUEST, lambda _: {"status": "abandoned", "responses": [inserted()]}, id="abandoned after all"),
]


@pytest.mark.parametrize(("request_", "change"), BY_HAND)
def test_a_file_changed_by_hand_makes_no_approval(
    tmp_path: Path, request_: ApprovalRequest, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    store = tickets(tmp_path)
    file = store.open(request_, RUN, "ticket")
    path = path_of(store, file)
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps({**content, **change(content)}))
    assert not goes_on(store, file.id, request_)


def test_a_status_set_by_hand_does_not_keep_people_from_answering(tmp_path: Path) -> None:
    store = tickets(tmp_path)
    file = store.open(REQUEST, RUN, "ticket")
    path = path_of(store, file)
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "status": "rejected"}))
    assert store.answer(file.id, yes()).objection is None
    assert goes_on(store, file.id, REQUEST)


def test_there_are_enough_attempts() -> None:
    assert len(ATTACKS) + len(BY_HAND) >= 90
