"""Patterns: Go's syntax, linear time, and errors an author can act on."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.errors import PatternError
from gert.kernel.foundation.patterns import MAX_PATTERN, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "text", "group"),
    [
        pytest.param(r"^(\d+)$", "200", "200", id="a group"),
        pytest.param(r"time=([0-9.]+) ms", "64 bytes: time=0.045 ms", "0.045", id="anywhere in the text"),
        pytest.param(r"(?i)STATUS: (\w+)", "status: ok", "ok", id="a flag"),
        pytest.param(r"(?m)^b(.)$", "a1\nb2\nc3", "2", id="line by line"),
        pytest.param(r"(?P<n>é+)", "ééa", "éé", id="not only ASCII"),
    ],
)
def test_what_a_pattern_finds(pattern: str, text: str, group: str) -> None:
    found = compile_pattern(pattern).search(text)
    assert found is not None
    assert found.group(1) == group


def test_the_end_is_the_very_end() -> None:
    assert compile_pattern("^a$").search("a\n") is None


@pytest.mark.parametrize(
    ("pattern", "message", "hint"),
    [
        pytest.param("(?=x)", "invalid perl operator", "lookahead", id="lookahead"),
        pytest.param(r"(a)\1", "invalid escape sequence", "backreferences", id="a backreference"),
        pytest.param("(a", "missing )", "escape brackets", id="an open bracket"),
        pytest.param("*a", "no argument", "escape `*`", id="nothing to repeat"),
        pytest.param("a" * (MAX_PATTERN + 1), "longer than", None, id="a pattern without end"),
        pytest.param("\ud800", "lone surrogate", None, id="a lone surrogate"),
        pytest.param("((a{100}){100}){100}", "is not a regular expression", None, id="repetition of repetition"),
    ],
)
def test_what_is_not_a_pattern(pattern: str, message: str, hint: str | None) -> None:
    with pytest.raises(PatternError) as caught:
        compile_pattern(pattern)
    assert message in caught.value.message
    assert (hint is None) == (caught.value.hint is None)
    assert (hint or "") in (caught.value.hint or "")


def test_nothing_can_run_away() -> None:
    started = time.perf_counter()
    for pattern in ("(a+)+$", "(a|a)*b", "(a|aa)+$", "(.*a){20}b"):
        assert compile_pattern(pattern).search("a" * 20_000 + "!") is None
    assert time.perf_counter() - started < 20  # backtracking would take years


def test_broken_text_is_searched_all_the_same() -> None:
    found = compile_pattern("b(.)").search("a\udcffbc")
    assert found is not None
    assert found.group(1) == "c"


@given(st.text(max_size=40), st.text(max_size=80))
def test_no_pattern_and_no_text_crash(pattern: str, text: str) -> None:
    try:
        compile_pattern(pattern).search(text)
    except PatternError as problem:
        assert "\n" not in problem.message.replace(pattern, "")
