"""References to secrets: only a declared input makes one, and only whoever starts a process resolves it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.errors import InputError
from gert.kernel.foundation.secret_refs import masked, refs_in, reveal, secret_ref, without_marks
from gert.kernel.foundation.text import PLACEHOLDER

SECRETS = {"token": "s3cret", "other": "0ther"}
TOKEN, OTHER = secret_ref("token"), secret_ref("other")
OPEN, CLOSE = TOKEN[0], TOKEN[-1]


@pytest.mark.parametrize(
    ("text", "revealed"),
    [
        pytest.param("plain", "plain", id="a text without references stays as it is"),
        pytest.param(TOKEN, "s3cret", id="a reference becomes its value"),
        pytest.param(f"Bearer {TOKEN}!", "Bearer s3cret!", id="inside a text"),
        pytest.param(f"{TOKEN}{OTHER}{TOKEN}", "s3cret0thers3cret", id="several side by side"),
    ],
)
def test_references_are_resolved(text: str, revealed: str) -> None:
    assert reveal(text, SECRETS) == revealed


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(TOKEN.upper(), id="a template that changed the name"),
        pytest.param(TOKEN[:-1], id="one that cut the end"),
        pytest.param(TOKEN[1:], id="one that cut the beginning"),
        pytest.param(TOKEN + CLOSE, id="one that left half of another behind"),
        pytest.param(secret_ref("unknown"), id="a secret that is not given"),
        pytest.param(OPEN + CLOSE, id="a reference to nothing"),
    ],
)
def test_a_reference_that_is_not_whole_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="only be passed whole"):
        reveal(text, SECRETS)


def test_a_value_that_looks_like_a_reference_is_not_resolved_again() -> None:
    assert reveal(TOKEN, {"token": OTHER, "other": "never"}) == OTHER


@pytest.mark.parametrize(
    ("text", "names"),
    [("", []), ("plain", []), (TOKEN, ["token"]), (f"{TOKEN}-{OTHER}", ["token", "other"]), (OPEN + "token", [])],
)
def test_references_are_found(text: str, names: list[str]) -> None:
    assert refs_in(text) == names


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param(TOKEN, PLACEHOLDER, id="a text"),
        pytest.param({"a": [f"x{TOKEN}", 1, None]}, {"a": [f"x{PLACEHOLDER}", 1, None]}, id="at any depth"),
        pytest.param({TOKEN: 1}, {PLACEHOLDER: 1}, id="a key"),
        pytest.param((TOKEN,), (PLACEHOLDER,), id="a tuple stays one"),
        pytest.param(True, True, id="what is no text"),
    ],
)
def test_references_are_masked_where_they_are_shown(value: Any, shown: Any) -> None:
    assert masked(value) == shown


@given(
    st.recursive(
        st.text(alphabet=f"{OPEN}{CLOSE}tokn"), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_nothing_from_the_world_is_a_reference(value: Any) -> None:
    clean = str(without_marks(value))
    assert OPEN not in clean
    assert CLOSE not in clean


@given(st.lists(st.text(alphabet=f"{OPEN}{CLOSE}token", max_size=8), max_size=4))
def test_no_texts_can_be_joined_into_a_reference(texts: list[str]) -> None:
    assert refs_in("".join(without_marks(texts))) == []


def test_keys_that_are_masked_alike_both_stay() -> None:
    assert sorted(masked({TOKEN: 1, OTHER: 2}).values()) == [1, 2]
    assert sorted(without_marks({f"a{OPEN}": 1, f"a{CLOSE}": 2}).values()) == [1, 2]


def test_what_is_nested_too_deeply_is_not_let_through() -> None:
    value: Any = TOKEN
    for _ in range(500):
        value = [value]
    assert OPEN not in str(masked(value))
