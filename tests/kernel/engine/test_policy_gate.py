"""Approvals: which answers count, in which order, and when a ticket is closed."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.kernel.governance.approval import ApprovalRequest, Response
from gert.kernel.governance.approval_rules import UNSIGNED, Tally, Ticket, tally
from gert.kernel.governance.decide import Approvers, Decision, person_key
from gert.kernel.governance.verdict import Verdict

ASKS = Decision(verdict=Verdict.REQUIRE_APPROVAL, min_approvers=1)
ALICE, BOB, CAROL = "alice@example.com", "bob@example.com", "carol@example.com"


def yes(who: str) -> Response:
    return Response(approver=who, approved=True, timestamp="2026-02-28T12:00:00Z")


def no(who: str, reason: str | None = None) -> Response:
    return Response(approver=who, approved=False, timestamp="2026-02-28T12:00:00Z", reason=reason)


def asking(count: int = 1, *people: str, groups: tuple[str, ...] = (), **more: Any) -> Decision:
    allowed = frozenset({Approvers(frozenset((*people, *groups)), frozenset(people), frozenset(groups))})
    restriction = {"approvers": allowed} if people or groups else {}
    return msgspec.structs.replace(ASKS, min_approvers=count, **restriction, **more)


def counted(
    decision: Decision, *responses: Response, by: str = "starter", groups: dict[str, tuple[str, ...]] | None = None
) -> Tally:
    return tally(Ticket(id="ticket-1", request=requested(decision, by, groups or {})), responses)


def requested(decision: Decision, by: str, groups: dict[str, tuple[str, ...]]) -> ApprovalRequest:
    lists = sorted(decision.approvers, key=lambda each: sorted(each.listed))
    return ApprovalRequest(
        run_id="run-1",
        runbook="book",
        step_id="step",
        title=None,
        risk_level="high",
        rule=None,
        contract={},
        target="tool:action",
        inputs={},
        request_hash="sha256:1",
        min_approvers=decision.min_approvers,
        approvers=tuple(tuple(sorted(each.listed)) for each in lists),
        admitted=tuple(tuple(sorted(each.all_people(groups))) for each in lists),
        separation_of_duties=decision.separation_of_duties,
        require_signed_approvals=decision.require_signed_approvals,
        requested_by=by,
        approval_timeout=60.0,
    )


def approved(count: Tally) -> bool:
    return count.resolved_by is not None and count.resolved_by.approved


def objected(count: Tally) -> list[bool]:
    return [each is not None for each in count.objections]


# --- when a ticket is closed


@pytest.mark.parametrize(
    ("needed", "responses", "by", "ignored"),
    [
        pytest.param(1, [], None, [], id="no response"),
        pytest.param(1, [yes(ALICE)], ALICE, [False], id="one approval of one"),
        pytest.param(2, [yes(ALICE)], None, [False], id="one approval of two"),
        pytest.param(2, [yes(ALICE), yes(BOB)], BOB, [False, False], id="two of two"),
        pytest.param(2, [yes(ALICE), yes(ALICE)], None, [False, True], id="one person twice"),
        pytest.param(2, [yes(ALICE), yes(ALICE), yes(BOB)], BOB, [False, True, False], id="one twice, then another"),
        pytest.param(1, [no(ALICE)], ALICE, [False], id="a refusal"),
        pytest.param(2, [yes(ALICE), no(BOB)], BOB, [False, False], id="a refusal closes at once"),
        pytest.param(1, [no(ALICE), yes(BOB)], ALICE, [False, True], id="an approval after a refusal"),
        pytest.param(1, [yes(ALICE), no(BOB)], ALICE, [False, True], id="a refusal after the decision"),
        pytest.param(1, [yes(ALICE), yes(BOB)], ALICE, [False, True], id="an approval after the decision"),
        pytest.param(2, [no(ALICE), no(BOB)], ALICE, [False, True], id="two refusals"),
        pytest.param(0, [], None, [], id="no approver at all still means one"),
        pytest.param(0, [yes(ALICE)], ALICE, [False], id="and one is enough"),
    ],
)
def test_a_ticket_is_closed_by(needed: int, responses: list[Response], by: str | None, ignored: list[bool]) -> None:
    count = counted(asking(needed), *responses)
    assert (count.resolved_by.approver if count.resolved_by else None) == by
    assert objected(count) == ignored
    assert count.needed == max(1, needed)


def test_answers_after_the_decision_say_who_decided() -> None:
    count = counted(asking(), yes(ALICE), no(BOB))
    assert count.objections == [None, f"the ticket is closed: `{ALICE}` has decided"]
    assert count.approvals == [yes(ALICE)]


# --- people


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("alice@example.com", "Alice@Example.COM", id="upper and lower case"),
        pytest.param("alice", " alice ", id="white space around"),
        pytest.param("jos\u00e9", "jose\u0301", id="composed and decomposed"),
        pytest.param("stra\u00dfe", "STRASSE", id="a sharp s and its capitals"),
        pytest.param("\u03c3", "\u03c2", id="two forms of sigma"),
        pytest.param("\u00df\u0301", "SS\u0301", id="a sharp s with an accent, and its capitals"),
        pytest.param("\u212blice", "\u00c5lice", id="an Angstrom sign"),
    ],
)
def test_two_spellings_are_one_person(one: str, other: str) -> None:
    assert counted(asking(2), yes(one), yes(other)).resolved_by is None
    assert approved(counted(asking(1, one), yes(other)))
    assert not approved(counted(asking(1, separation_of_duties=True), yes(other), by=one))


@pytest.mark.parametrize(
    ("one", "other"),
    [("alice", "alicia"), ("alice", "a lice"), ("alice", "alice@example.com"), ("a", "\u0430")],
    ids=["another name", "a space inside", "a name and an address", "Latin and Cyrillic"],
)
def test_two_names_are_two_people(one: str, other: str) -> None:
    assert approved(counted(asking(2), yes(one), yes(other)))
    assert not approved(counted(asking(1, one), yes(other)))


# --- who may approve


def test_an_approval_by_a_person_who_may_not_approve_does_not_count() -> None:
    count = counted(asking(1, ALICE), yes(BOB), yes(ALICE))
    assert objected(count) == [True, False]
    assert count.approvals == [yes(ALICE)]


def test_anyone_may_refuse() -> None:
    count = counted(asking(1, ALICE, separation_of_duties=True), no(BOB))
    assert count.resolved_by == no(BOB)
    assert counted(asking(1, separation_of_duties=True), no("starter")).resolved_by == no("starter")


@pytest.mark.parametrize(
    ("groups", "may"),
    [
        pytest.param({"sre": (ALICE,)}, True, id="who is in it"),
        pytest.param({"sre": (BOB,)}, False, id="who is not"),
        pytest.param({"sre": ()}, False, id="no person, if it is empty"),
        pytest.param({"dba": (ALICE,)}, False, id="not who is in another one"),
        pytest.param({}, False, id="no person, if it is unknown"),
    ],
)
def test_a_group_admits(groups: dict[str, tuple[str, ...]], may: bool) -> None:
    assert approved(counted(asking(1, groups=("sre",)), yes(ALICE), groups=groups)) is may


def test_the_name_of_a_group_is_no_person() -> None:
    assert not approved(counted(asking(1, groups=("sre",)), yes("sre"), yes("group:sre"), groups={"sre": (ALICE,)}))


def test_every_policy_that_names_approvers_must_admit_them() -> None:
    both = asking(1, ALICE, BOB) | asking(1, BOB, CAROL)
    assert objected(counted(both, yes(ALICE), yes(CAROL), yes(BOB))) == [True, True, False]


def test_the_starter_of_the_run_may_not_approve_it() -> None:
    duties = asking(1, separation_of_duties=True)
    assert objected(counted(duties, yes(ALICE), yes(BOB), by=ALICE)) == [True, False]
    assert approved(counted(asking(1), yes(ALICE), by=ALICE))


def test_a_person_who_may_not_approve_may_still_reject() -> None:
    count = counted(asking(1, ALICE), yes(BOB), no(BOB))
    assert count.resolved_by == no(BOB)


# --- signatures


def test_without_a_signature_no_approval_counts_where_one_is_asked_for() -> None:
    count = counted(asking(1, require_signed_approvals=True), yes(ALICE), yes(BOB))
    assert count.objections == [UNSIGNED, UNSIGNED]
    assert count.resolved_by is None


def test_a_refusal_needs_no_signature() -> None:
    assert counted(asking(1, require_signed_approvals=True), yes(ALICE), no(BOB)).resolved_by == no(BOB)


# --- laws


PEOPLE = st.sampled_from([ALICE, BOB, CAROL, ALICE.upper(), "starter"])
RESPONSES = st.lists(st.builds(lambda who, said: yes(who) if said else no(who), PEOPLE, st.booleans()), max_size=7)
DECISIONS = st.builds(
    lambda count, people, signed, duties: asking(
        count, *people, require_signed_approvals=signed, separation_of_duties=duties
    ),
    st.integers(0, 3),
    st.lists(PEOPLE, max_size=3),
    st.sampled_from([False, False, False, True]),
    st.booleans(),
)


@given(DECISIONS, RESPONSES, PEOPLE, st.integers(0, 7))
def test_another_refusal_never_turns_a_rejection_into_an_approval(
    decision: Decision, responses: list[Response], who: str, at: int
) -> None:
    more = [*responses[:at], no(who), *responses[at:]]
    assert approved(counted(decision, *responses)) or not approved(counted(decision, *more))


@given(DECISIONS, DECISIONS, RESPONSES)
def test_another_policy_never_turns_a_rejection_into_an_approval(
    one: Decision, other: Decision, responses: list[Response]
) -> None:
    assert approved(counted(one, *responses)) or not approved(counted(one | other, *responses))


@given(DECISIONS, RESPONSES)
def test_an_approved_ticket_has_enough_different_people_who_may(decision: Decision, responses: list[Response]) -> None:
    count = counted(decision, *responses)
    assert len(count.objections) == len(responses)
    if approved(count):
        people = {person_key(each.approver) for each in count.approvals}
        assert len(people) == len(count.approvals) == count.needed
        assert not decision.require_signed_approvals
        assert all(decision.objection(each, started_by="starter") is None for each in people)
        assert not decision.separation_of_duties or "starter" not in people


@given(DECISIONS, RESPONSES)
def test_nothing_counts_after_the_decision(decision: Decision, responses: list[Response]) -> None:
    count = counted(decision, *responses)
    if count.resolved_by is not None:
        at = next(i for i, each in enumerate(responses) if each is count.resolved_by)
        assert all(objection is not None for objection in count.objections[at + 1 :])
        assert counted(decision, *responses[: at + 1]).resolved_by == count.resolved_by
