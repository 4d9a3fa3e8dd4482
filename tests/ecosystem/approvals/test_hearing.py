"""Names in which something cannot be seen: to everybody who reads them they are another person's."""

from pathlib import Path

import pytest
from tests.ecosystem.approvals.asking import no, opened, path_of, tickets, yes

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


@pytest.mark.parametrize("unseen", UNSEEN.values(), ids=UNSEEN)
@pytest.mark.parametrize("answer", [yes, no], ids=["approves", "rejects"])
def test_nobody_answers_twice_with_a_name_that_looks_the_same(tmp_path: Path, unseen: str, answer: object) -> None:
    store = tickets(tmp_path)
    file = opened(store, min_approvers=2)
    assert store.answer(file.id, yes("bob")).objection is None
    became = store.answer(file.id, answer(f"bob{unseen}"))  # type: ignore[operator]
    assert became.objection is not None
    assert store.get(file.id).status == "pending"
    assert store.judge(file.id, file.ticket.request).status == "pending"
    assert path_of(store, file).exists()


@pytest.mark.parametrize("unseen", UNSEEN.values(), ids=UNSEEN)
def test_whoever_started_a_run_is_barred_also_with_something_unseen_in_the_name(tmp_path: Path, unseen: str) -> None:
    store = tickets(tmp_path)
    file = opened(store, separation_of_duties=True)
    assert store.answer(file.id, yes(f"a{unseen}nn")).objection is not None


@pytest.mark.parametrize(
    "name", ["bob", "Zoë", "Jürgen Groß", "李雷", "김철수", "محمد", "हिन्दी", "o'neill", "b\u0308ob"]
)
def test_a_name_may_be_in_any_letters(tmp_path: Path, name: str) -> None:
    store = tickets(tmp_path)
    file = opened(store)
    assert store.answer(file.id, yes(name)).objection is None
