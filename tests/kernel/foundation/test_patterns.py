"""Patterns: Go's syntax, linear time, and errors an author can act on."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.quickly import quickly

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


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        pytest.param(r"status: (\d+)", "status: 200", "status: 200", id="a capture"),
        pytest.param(r"^a$", "a\n", None, id="the end of the text is not before a newline"),
        pytest.param(r"(?m)^a$", "b\na\n", "a", id="ends of lines"),
        pytest.param(r"\d", "\u0663", None, id="digits are ASCII"),
        pytest.param(r"\w+", "éa", "a", id="words are ASCII"),
        pytest.param(r"\s", "\v", None, id="a vertical tab is no space"),
        pytest.param(r"\bfoo\b", "éfooé", "foo", id="word boundaries are ASCII"),
        pytest.param(r"(?i)straße", "STRAßE", "STRAßE", id="case"),
        pytest.param(r"a(?i)b|c", "C", "C", id="a flag holds to the end of its group"),
        pytest.param(r"(a(?i)b)c", "aBC", None, id="a flag ends with its group"),
        pytest.param(r"(?i:a)b", "Ab", "Ab", id="a flag of a group"),
        pytest.param(r"(?s).+", "a\nb", "a\nb", id="dot and newline"),
        pytest.param(r"(?-s).+", "a\nb", "a", id="a flag switched off"),
        pytest.param(r"[[:upper:]\d_-]+", "aB1_-c", "B1_-", id="classes in a set"),
        pytest.param(r"[[:^alpha:]]+", "ab12", "12", id="a class that is not"),
        pytest.param(r"[^a-y]+", "abzzc", "zz", id="a set that is not"),
        pytest.param(r"[]a]+", "x]a]", "]a]", id="a bracket first in a set"),
        pytest.param(r"(?i)[^a]", "Ab", "b", id="case in a set that is not"),
        pytest.param(r"\Qa.b\E+", "a.bb", "a.bb", id="quoted"),
        pytest.param(r"\Qa.b", "xa.b", "a.b", id="quoted to the end"),
        pytest.param(r"(?P<x>a)(?<y>b)", "ab", "ab", id="named groups"),
        pytest.param(r"\x41\x{1F600}\101\n", "A😀A\n", "A😀A\n", id="codes"),
        pytest.param(r"\A(?:ab){2,3}?\z", "abab", "abab", id="counts"),
        pytest.param(r"a{,3}{x", "a{,3}{x", "a{,3}{x", id="braces that count nothing"),
        pytest.param(r"x*", "aaa", "", id="nothing"),
        pytest.param(r"", "aaa", "", id="the empty pattern"),
        pytest.param(
            r"\.\*\+\?\(\)\[\]\{\}\^\$\|\\\/\-\"", '.*+?()[]{}^$|\\/-"', '.*+?()[]{}^$|\\/-"', id="escaped punctuation"
        ),
        pytest.param(r"^(\w+)(.*)?$", "a b", "a b", id="an optional part that may be empty"),
        pytest.param(r'"[^"\\]*(\\.[^"\\]*)*"', r'x "a\"b" y', r'"a\"b"', id="quoted text"),
        pytest.param(
            r"^https?://([a-z0-9-]+\.)+[a-z]{2,}(/.*)?$", "https://a.b-c.de/x", "https://a.b-c.de/x", id="a URL"
        ),
        pytest.param(r"(\d{1,3}\.){3}\d{1,3}", "at 10.0.0.1:80", "10.0.0.1", id="an address"),
        pytest.param(r"^v?(\d+)\.(\d+)\.(\d+)(-[0-9A-Za-z.-]+)?$", "v1.20.3-rc.1", "v1.20.3-rc.1", id="a version"),
        pytest.param(r"^\s*(\S+)\s+(\S+)\s+(.*)$", "a b  c d", "a b  c d", id="columns"),
        pytest.param(
            r"rtt min/avg/max = ([\d.]+)/([\d.]+)/([\d.]+) ms",
            "rtt min/avg/max = 1.0/2/3 ms",
            "rtt min/avg/max = 1.0/2/3 ms",
            id="a line of ping",
        ),
        pytest.param(r"error.*code: (\d+)", "error: x, code: 7", "error: x, code: 7", id="a log line"),
        pytest.param(r"(?i)^(ok|ready|healthy)\b", "Healthy!", "Healthy", id="alternatives"),
        pytest.param(
            r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
            "12345678-1234-1234-1234-123456789abc",
            "12345678-1234-1234-1234-123456789abc",
            id="a UUID",
        ),
    ],
)
def test_what_patterns_find(pattern: str, text: str, found: str | None) -> None:
    match = compile_pattern(pattern).search(text)
    assert (match.group() if match else None) == found


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
    # Backtracking would take years.
    with quickly(20):
        for pattern in ("(a+)+$", "(a|a)*b", "(a|aa)+$", "(.*a){20}b"):
            assert compile_pattern(pattern).search("a" * 20_000 + "!") is None


def test_broken_text_is_searched_all_the_same() -> None:
    found = compile_pattern("b(.)").search("a\udcffbc")
    assert found is not None
    assert found.group(1) == "c"


@given(st.text(max_size=40), st.text(max_size=80))
def test_no_pattern_and_no_text_crash(pattern: str, text: str) -> None:
    with contextlib.suppress(PatternError):
        compile_pattern(pattern).search(text)
