"""Names of approvers: any script is fine, and nothing invisible."""

from typing import Any

import pytest
from tests.ecosystem.approvals.asking import done, no, running, yes

UNSEEN = {
    "a zero-width space": "\u200b",
    "a direction mark": "\u202e",
    "a soft hyphen": "\u00ad",
    "a grapheme joiner": "\u034f",
    "a Hangul filler": "\u3164",
    "a half-width filler": "\uffa0",
    "a leading filler": "\u115f",
    "a vowel filler": "\u1160",
    "a Khmer vowel": "\u17b4",
    "a Mongolian selector": "\u180b",
    "a variation selector": "\ufe0f",
    "a variation selector of the supplement": "\U000e0100",
    "a tag": "\U000e0041",
    "a blank of Braille": "\u2800",
}


def objection(*responses: Any, **changes: Any) -> str | None:
    """What the last of these responses is told."""

    async def case() -> str | None:
        async with running() as (run, tickets):
            ask = await run.opened(**changes)
            for each in responses:
                answered = await tickets.answer(ask.ticket_id, each)
            return answered.objection

    return done(case())


@pytest.mark.parametrize("unseen", UNSEEN.values(), ids=UNSEEN)
@pytest.mark.parametrize("answer", [yes, no], ids=["approves", "rejects"])
def test_a_person_cannot_respond_twice_with_a_name_that_looks_the_same(unseen: str, answer: Any) -> None:
    assert objection(yes("bob"), answer(f"bob{unseen}"), min_approvers=2) is not None


@pytest.mark.parametrize("unseen", UNSEEN.values(), ids=UNSEEN)
def test_the_person_who_started_a_run_is_barred_also_with_something_unseen_in_the_name(unseen: str) -> None:
    assert objection(yes(f"a{unseen}nn"), separation_of_duties=True) is not None


@pytest.mark.parametrize(
    "name", ["bob", "Zoë", "Jürgen Groß", "李雷", "김철수", "محمد", "हिन्दी", "o'neill", "b\u0308ob"]
)
def test_a_name_may_be_in_any_letters(name: str) -> None:
    assert objection(yes(name)) is None
