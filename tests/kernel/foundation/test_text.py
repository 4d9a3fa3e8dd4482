import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.kernel.foundation.text import (
    has_visible,
    is_plain,
    number_text,
    output_line,
    printable,
    with_article,
    with_marked_newlines,
)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        pytest.param(1.5, "1.5", id="as it is written"),
        pytest.param(3.0, "3.0", id="a whole number stays a float"),
        pytest.param(1e-7, "0.0000001", id="a small number without its exponent"),
        pytest.param(-1.25e-9, "-0.00000000125", id="a sign stays in front"),
        pytest.param(1e-10, "1e-10", id="a very small number with it"),
        pytest.param(1e20, "100000000000000000000.0", id="a large number without its exponent"),
        pytest.param(-1.5e16, "-15000000000000000.0", id="a large number below zero"),
        pytest.param(1e21, "1e+21", id="a very large number with it"),
        pytest.param(-0.0, "-0.0", id="zero keeps its sign"),
        pytest.param(math.nan, "NaN", id="not a number"),
        pytest.param(math.inf, "+Inf", id="infinity"),
        pytest.param(-math.inf, "-Inf", id="infinity below zero"),
    ],
)
def test_how_a_number_is_written(number: float, expected: str) -> None:
    assert number_text(number) == expected


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_comes_back_from_its_text(number: float) -> None:
    assert float(number_text(number)) == number


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("plain é 😀", "plain é 😀", id="text for people stays"),
        pytest.param("\x1b[31mred", "\ufffd[31mred", id="an escape sequence"),
        pytest.param("a\nb\u2028c", "a\ufffdb\ufffdc", id="one line stays one"),
        pytest.param("a\tb", "a⇥b", id="a tab is seen as one"),
        pytest.param("a\u202eb", "a\ufffdb", id="text that runs backwards"),
    ],
)
def test_nothing_in_a_text_acts_on_a_terminal(text: str, expected: str) -> None:
    assert printable(text) == expected


def test_newlines_and_tabs_of_one_line_are_seen() -> None:
    assert with_marked_newlines("a\tb\r\nc\x1b") == "a ⇥ b ⏎ c\ufffd"


def test_a_line_that_a_program_printed_keeps_its_columns() -> None:
    assert output_line("web\t12\x1b[2J\r") == "web\t12\ufffd[2J"


@pytest.mark.parametrize(
    ("noun", "expected"), [("string", "a string"), ("int", "an int"), ("Attachment", "an Attachment")]
)
def test_a_noun_has_its_article(noun: str, expected: str) -> None:
    assert with_article(noun) == expected


@pytest.mark.parametrize(
    ("text", "plain", "visible"),
    [
        pytest.param("alice", True, True, id="letters"),
        pytest.param("Ελένη Παπ", True, True, id="another script, and a space"),
        pytest.param("", False, False, id="nothing"),
        pytest.param("  ", False, False, id="spaces"),
        pytest.param("a\u200b", False, True, id="a zero-width space after a letter"),
        pytest.param("\u3164", False, False, id="a filler that counts as a letter"),
        pytest.param("a\u034f", False, True, id="a grapheme joiner"),
        pytest.param("\u2800", False, False, id="a blank braille pattern"),
        pytest.param("a\U000e0100", False, True, id="a variation selector"),
    ],
)
def test_what_can_be_seen(text: str, plain: bool, visible: bool) -> None:
    assert (is_plain(text), has_visible(text)) == (plain, visible)
