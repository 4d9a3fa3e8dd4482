"""Patterns: Go's syntax, and none that runs away."""

import contextlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gert.errors import TemplateSyntaxError
from gert.kernel.template import compile_pattern
from gert.kernel.template.patterns import search


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


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        pytest.param(r"(a)\1", "a backreference", id="a backreference"),
        pytest.param(r"(?P<x>a)(?P=x)", "a backreference", id="a named backreference"),
        pytest.param(r"a(?=b)", "looking ahead", id="looking ahead"),
        pytest.param(r"a(?!b)", "looking ahead", id="not ahead"),
        pytest.param(r"(?<=a)b", "looking behind", id="looking behind"),
        pytest.param(r"(?<!a)b", "looking behind", id="not behind"),
        pytest.param(r"(?>a)b", "an atomic group", id="an atomic group"),
        pytest.param(r"\pL", r"`\\p` is not part", id="Unicode classes"),
        pytest.param(r"a\Z", r"unknown escape `\\Z`", id="an escape of Python's"),
        pytest.param(r"(?x)a", "unknown flag `x`", id="a flag of Python's"),
        pytest.param("(a", "a group is not closed", id="an open group"),
        pytest.param("a)", "unexpected `\\)`", id="a group too many"),
        pytest.param("[a", "it ends too early", id="an open set"),
        pytest.param("[b-a]", "wrong order", id="a range backwards"),
        pytest.param("[[:nope:]]", "unknown class", id="an unknown class"),
        pytest.param("*", "nothing to repeat", id="repeating nothing"),
        pytest.param("^*", "nothing to repeat", id="repeating an anchor"),
        pytest.param("a**", "may not follow", id="a quantifier of a quantifier"),
        pytest.param("a++", "may not follow", id="a possessive quantifier"),
        pytest.param("a{2}{3}", "may not follow", id="a count of a count"),
        pytest.param("a{3,2}", "wrong order", id="counts backwards"),
        pytest.param("a{1001}", "1000 at most", id="a large count"),
        pytest.param("((a{100}){100}){100}", "too large", id="counts of counts"),
        pytest.param("(" * 51 + ")" * 51, "nested deeper", id="deep nesting"),
        pytest.param("a" * 1001, "longer than 1000", id="a long pattern"),
        pytest.param(r"\x{110000}", "not the code", id="beyond the last character"),
        pytest.param("\\", "ends too early", id="a lone backslash"),
        pytest.param("(?P<a>x)(?P<a>y)", "cannot name", id="a name twice"),
    ],
)
def test_what_is_no_pattern(pattern: str, why: str) -> None:
    with pytest.raises(TemplateSyntaxError, match=why):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$", "(a*)*$", "(a|a)*$", "(a|ab|b)*c", r"(\s*\w+)*$", r"(\w+\s?)*$", "(.*,)*$", "(a?b?)*c", "(a|aa)+$",
        "(a+){25}$", "(a|a){25}$", "(a?){25}a{25}", "a?" * 30 + "a" * 30, "(|)" * 100 + "x", "(a|a)" * 30 + "b",
        ".*.*.*.*.*x", r"^(([a-z])+.)+[A-Z]([a-z])+$", r"(\d+|\d+x)*y", "(x+x+)+y",
        "((a{1,9}){1,9}){1,9}b", "(a|b|ab)*c", r"([a-zA-Z]+)*\d", r"^(\w|\d)+$", "(a+|b+)+c", "(ab|a|b)*$",
        "(?i)(a|A)*b", "(.|x)*y", r"(a{1,20}){1,20}b", "((|a)+)+b", "(a+|a+)b" * 12,
    ],
)  # fmt: skip
def test_patterns_that_could_run_away_are_refused(pattern: str) -> None:
    with pytest.raises(TemplateSyntaxError):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        pytest.param(r"\d+x", "1" * 14_000, id="one repeat"),
        pytest.param(r"(\w+,)*x", "a," * 7_000, id="one repeat of repeats"),
        pytest.param("a.*b.*c", "ab" * 420, id="two repeats"),
        pytest.param(r"\d+\d+\d+x", "1" * 220, id="three repeats"),
    ],
)
def test_the_longest_text_is_searched_in_about_a_second(pattern: str, text: str) -> None:
    start = time.process_time()
    assert search(pattern, text) is None
    assert time.process_time() - start < 5
    with pytest.raises(ValueError, match="limit for this pattern"):
        search(pattern, text + text)


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("(x" + "a?" * 390 + ")*", id="options in a loop"),
        pytest.param("a?" * 390, id="options"),
        pytest.param("(" + "|".join("abcdefg"[i % 7] for i in range(390)) + ")*", id="alternatives"),
        pytest.param("".join(f"{chr(97 + i % 26)}*" for i in range(390)), id="repeats"),
        pytest.param("(" + "|".join(f"{n:03}" for n in range(200)) + ")+", id="words"),
        pytest.param("[" + "".join(chr(0x4E00 + 2 * i) for i in range(900)) + "]*", id="a large set"),
        pytest.param("([a-z]{190},[a-z]{190};)*", id="large counts"),
    ],
)
def test_judging_a_pattern_takes_no_time_to_speak_of(pattern: str) -> None:
    start = time.process_time()
    with contextlib.suppress(TemplateSyntaxError):
        compile_pattern(pattern)
    assert time.process_time() - start < 3


def test_short_lines_make_a_long_text() -> None:
    text = "ab ab ab\n" * 50_000
    assert search("a.*b.*c", text) is None
    with pytest.raises(ValueError, match="the text is longer"):
        search("(?s)a.*b.*c", text)


@given(st.text(alphabet="ab|()*+?{}1,2[]^$.\\wd", max_size=14), st.text(alphabet="ab1", max_size=30))
@settings(max_examples=1500, deadline=None)
def test_any_pattern_is_refused_or_finishes(pattern: str, text: str) -> None:
    try:
        compiled = compile_pattern(pattern)
    except TemplateSyntaxError:
        return
    start = time.process_time()
    compiled.search(text)
    compiled.search("ab" * 15)
    assert time.process_time() - start < 1
