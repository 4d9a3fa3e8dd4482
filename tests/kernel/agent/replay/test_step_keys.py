"""Step keys: the same each time a workflow runs, and never the same for two steps."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.errors import InputError
from gert.kernel.agent.replay.step_keys import StepKey


def test_keys_are_counted_from_one_for_each_label() -> None:
    keys = StepKey(namespace="review")
    assert [keys.next("draft"), keys.next("draft"), keys.next("verify"), keys.next("draft")] == [
        "review_draft_1",
        "review_draft_2",
        "review_verify_1",
        "review_draft_3",
    ]


def test_two_of_one_namespace_give_the_same_keys() -> None:
    first, second = StepKey("a"), StepKey("a")
    assert [first.next("x") for _ in range(3)] == [second.next("x") for _ in range(3)]


@pytest.mark.parametrize(
    ("namespace", "label", "key"),
    [
        pytest.param("Review", "DRAFT", "review_draft_1", id="letters become small"),
        pytest.param("my flow", "step-one", "my_flow_step_one_1", id="what is no letter becomes an underscore"),
        pytest.param("a::b", "c  --  d", "a_b_c_d_1", id="a row of them becomes one"),
        pytest.param("(a)", "!b?", "a_b_1", id="none stands at an end"),
        pytest.param("a__b", "c_1", "a__b_c_1_1", id="underscores that were there stay"),
        pytest.param("größe", "x", "gr_e_x_1", id="letters beyond ASCII"),
        pytest.param("v2", "3", "v2_3_1", id="digits"),
    ],
)
def test_names_are_written_in_small_letters_digits_and_underscores(namespace: str, label: str, key: str) -> None:
    assert StepKey(namespace).next(label) == key


def test_the_namespace_is_given_as_it_stands_in_keys() -> None:
    assert StepKey(namespace="My Flow").namespace == "my_flow"
    assert repr(StepKey("a")) == "StepKey(namespace='a')"


def test_labels_that_are_written_alike_do_not_share_a_key() -> None:
    keys = StepKey("a")
    assert keys.next("one two") != keys.next("one-two")


@pytest.mark.parametrize("name", ["", "   ", "___", "!?", "äöü"])
def test_a_name_of_which_nothing_is_left_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="at least one letter or digit"):
        StepKey(name)
    with pytest.raises(InputError, match="at least one letter or digit"):
        StepKey("a").next(name)


@given(st.lists(st.text(max_size=6).filter(lambda text: re.search("[a-z0-9]", text.lower()) is not None), max_size=20))
def test_no_key_is_given_twice(labels: list[str]) -> None:
    keys = StepKey("ns")
    given_out = [keys.next(label) for label in labels]
    assert len(set(given_out)) == len(given_out)
    assert all(re.fullmatch("[a-z0-9_]+", key) for key in given_out)
