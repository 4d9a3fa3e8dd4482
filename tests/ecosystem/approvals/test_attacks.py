"""Attempts at an approval nobody gave: each is refused for a reason of its own, which is recorded."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.ecosystem.approvals.asking import (
    ANN_KEY,
    BOB_KEY,
    MALLORY_KEY,
    NOON,
    SHARED,
    Clock,
    Run,
    asking,
    done,
    insert,
    no,
    public,
    running,
    signed,
    verifier,
    yes,
)

from gert.ecosystem.approvals.port import StillOpen
from gert.ecosystem.approvals.responses import encode_response
from gert.ecosystem.approvals.tickets import Tickets, TicketView
from gert.kernel.engine.requests import AwaitApproval
from gert.kernel.foundation.canonical import digest_value
from gert.kernel.foundation.signature import HMAC_SHA256, parse_key
from gert.kernel.governance.approval import ApprovalRequest, Response

LATER = NOON + timedelta(minutes=5)
REQUEST = asking()
SIGNED = asking(require_signed_approvals=True)
APART = asking(separation_of_duties=True)
LISTED = asking(approvers=(("bob", "dan"),), admitted=(("bob", "dan"),))
GROUP = asking(approvers=(("group:ops",),), admitted=(("dan", "eve"),))
BAD = "the response has no valid signature: "
UNSIGNED = "the response has no valid signature"
UNHELD = BAD + "the signature by key `bob` is invalid"

Make = Callable[[TicketView], Response]


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

    def make(file: TicketView) -> Response:
        other = asking(request_hash=digest_value(covered))
        return signed(at_request(file, other))

    return make


def at_request(file: TicketView, request: ApprovalRequest) -> TicketView:
    return msgspec.structs.replace(file, ticket=msgspec.structs.replace(file.ticket, request=request))


def at_ticket(ticket_id: str, *, rebound: bool = False) -> Make:
    """Signed for another ticket, and perhaps said to be for this one."""

    def make(file: TicketView) -> Response:
        other = msgspec.structs.replace(file, ticket=msgspec.structs.replace(file.ticket, id=ticket_id))
        return at(signed(other), ticket_id=file.id if rebound else ticket_id)

    return make


def respelt(change: Callable[[str], str]) -> Make:
    return lambda file: at(signed(file), signature=change(signed(file).signature or ""))


def with_published_key(file: TicketView) -> Response:
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
    pytest.param(APART, plain(approver="ann"), "`ann` started the run", id="the person who started the run"),
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
        asking(separation_of_duties=True, requested_by=None),
        plain(),
        "does not record who started it",
        id="a run whose starter is not recorded",
    ),
    pytest.param(LISTED, plain(approver="eve"), "`eve` is not among the approvers `bob`, `dan`", id="not listed"),
    pytest.param(LISTED, plain(approver="bob dan"), "is not among the approvers", id="two names in one"),
    pytest.param(GROUP, plain(approver="bob"), "`bob` is not among the approvers `group:ops`", id="not in the group"),
    pytest.param(GROUP, plain(approver="group:ops"), "`group:ops` is not among", id="the group itself"),
    pytest.param(REQUEST, plain(approver=""), "does not name its approver plainly", id="an empty name"),
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
    pytest.param(REQUEST, plain(approved="yes"), "cannot be read", id="a word for yes"),
    pytest.param(REQUEST, plain(approved=1), "cannot be read", id="a number for yes"),
    pytest.param(REQUEST, plain(approver=7), "cannot be read", id="a number for a name"),
    pytest.param(REQUEST, plain(approver=None), "cannot be read", id="nothing for a name"),
    pytest.param(REQUEST, plain(key_id=["bob"]), "cannot be read", id="a list for a key"),
]


CHECK = verifier(public(ANN_KEY), public(BOB_KEY), SHARED, bob="bob")


@pytest.mark.parametrize(("request_", "make", "why"), ATTACKS)
def test_an_attempt_is_refused_with_its_reason_and_the_run_does_not_go_on(
    request_: ApprovalRequest, make: Make, why: str
) -> None:
    async def case() -> None:
        clock = Clock()
        async with running(clock) as (run, tickets):
            tickets.verifier = CHECK
            ask = await run.opened(**_changes(request_))
            clock.now = LATER
            view = await tickets.get(ask.ticket_id)
            attempt = make(view)
            # gert does not post it, and says why; nor does the run take it from a program that does.
            answered = await tickets.answer(ask.ticket_id, attempt)
            assert why in (answered.objection or "")
            assert await run.ledger.messages(run.run_id) == []
            recorded = await _posted(run, ask, attempt)
            if recorded is not None:
                assert why in recorded
            # Others can still approve: an attempt locks no approver out.
            honest = signed(view, BOB_KEY) if request_ is not GROUP else yes("dan")
            if request_.requested_by is not None:
                assert (await tickets.answer(ask.ticket_id, honest)).objection is None
                assert await goes_on(run, ask)

    done(case())


def _changes(request: ApprovalRequest) -> dict[str, Any]:
    fields = {name: getattr(request, name) for name in request.__struct_fields__}
    return {name: value for name, value in fields.items() if name not in ("run_id", "request_hash")}


async def _posted(run: Run, ask: AwaitApproval, attempt: Response) -> str | None:
    """Why the run refuses a message that another program wrote; None where it cannot even be written."""
    try:
        body = encode_response(attempt)
    except UnicodeEncodeError:
        return None
    await insert(run.ledger, ask.ticket_id, body, received_at=LATER)
    assert not await goes_on(run, ask)
    [refused] = (await Tickets(run.ledger).get(ask.ticket_id)).responses
    return refused.objection


async def goes_on(run: Run, ask: AwaitApproval) -> bool:
    """Whether the run would execute the step: by its own request, its own keys, and what the kernel counts."""
    try:
        count, answer = await run.waited(run.provider(check=CHECK, detach=True), ask)
    except StillOpen:
        return False
    by = count.resolved_by
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
@pytest.mark.parametrize("is_taken", [False, True], ids=["received", "taken"])
def test_one_person_is_not_two(second: str, why: str, is_taken: bool) -> None:
    async def case() -> None:
        async with running() as (run, tickets):
            ask = await run.opened(min_approvers=2)
            await tickets.answer(ask.ticket_id, yes("bob"))
            if is_taken:
                assert not await goes_on(run, ask)
            assert (await tickets.answer(ask.ticket_id, yes(second))).objection == why
            await insert(run.ledger, ask.ticket_id, encode_response(yes(second)))
            assert not await goes_on(run, ask)

    done(case())


def test_a_signed_response_played_again_counts_once() -> None:
    async def case() -> None:
        async with running() as (run, tickets):
            ask = await run.opened(min_approvers=2, require_signed_approvals=True)
            said = signed(await tickets.get(ask.ticket_id))
            for _ in range(3):
                await insert(run.ledger, ask.ticket_id, encode_response(said))
            assert not await goes_on(run, ask)
            view = await tickets.get(ask.ticket_id)
            assert (view.approvals, len(view.responses)) == (1, 3)

    done(case())


@pytest.mark.parametrize("end", ["rejected", "approved", "expired"])
def test_a_closed_ticket_takes_no_response(end: str) -> None:
    async def case() -> None:
        clock = Clock()
        async with running(clock) as (run, tickets):
            ask = await run.opened()
            if end == "expired":
                clock.forward(minutes=31)
            else:
                await tickets.answer(ask.ticket_id, (yes if end == "approved" else no)("eve"))
            await goes_on(run, ask)
            for late in (yes(), no()):
                answered = await tickets.answer(ask.ticket_id, late)
                assert answered.objection is not None
                assert answered.view.status == end
            # Another program writes it all the same: it stays where it is, and decides nothing.
            await insert(run.ledger, ask.ticket_id, encode_response(yes()))
            view = await tickets.get(ask.ticket_id)
            assert (view.status, [each.approver for each in view.waiting]) == (end, ["bob"])

    done(case())


def test_there_are_enough_attempts() -> None:
    assert len(ATTACKS) >= 50
