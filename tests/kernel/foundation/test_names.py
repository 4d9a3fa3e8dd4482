import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.kernel.foundation.names import did_you_mean, is_safe_name, listing, misspelling


@pytest.mark.parametrize("text", ["run-2026-02-28-001", "20260228T143000Z_a1", "a.b", "console", "com", "x" * 128])
def test_safe_names(text: str) -> None:
    assert is_safe_name(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param(".", id="this directory"),
        pytest.param("..", id="the directory above"),
        pytest.param("../etc", id="a path upwards"),
        pytest.param("a/b", id="a path"),
        pytest.param("a\\b", id="a Windows path"),
        pytest.param("C:x", id="a drive or a stream"),
        pytest.param(".hidden", id="a hidden file"),
        pytest.param("-rf", id="an option"),
        pytest.param("a.", id="a trailing dot, which Windows drops"),
        pytest.param("a ", id="a trailing space, which Windows drops"),
        pytest.param("CON", id="a Windows device"),
        pytest.param("nul.jsonl", id="a Windows device with a suffix"),
        pytest.param("Com1", id="a serial port"),
        pytest.param("LPT9.a.b", id="a printer port"),
        pytest.param("a\n", id="a line break at the end"),
        pytest.param("a\0", id="a zero byte"),
        pytest.param("é", id="a letter that file systems spell in two ways"),
        pytest.param("x" * 129, id="too long"),
    ],
)
def test_what_is_no_safe_name(text: str) -> None:
    assert not is_safe_name(text)


@pytest.mark.parametrize(
    ("word", "candidates", "meant"),
    [
        ("hostnam", ["hostname", "port"], "hostname"),
        ("Host-Name", ["host", "host_name"], "host_name"),
        ("zzz", ["hostname", "port"], None),
        ("", ["hostname"], None),
        ("port", ["port"], None),
        ("x" * 100, ["x" * 99], None),
        ("hostname", [], None),
    ],
)
def test_did_you_mean(word: str, candidates: list[str], meant: str | None) -> None:
    assert did_you_mean(word, candidates) == meant


def test_looking_for_a_name_is_bounded() -> None:
    endless = (f"name{number}" for number in range(10**9))
    assert did_you_mean("name_7", endless) == "name7"


@given(st.text(max_size=10), st.lists(st.text(max_size=10), max_size=5))
def test_a_suggestion_is_a_candidate(word: str, candidates: list[str]) -> None:
    meant = did_you_mean(word, candidates)
    assert meant is None or (meant in candidates and meant != word)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        pytest.param([], "", id="no name"),
        pytest.param(["b", "a"], "`b`, `a`", id="as many as fit, in their order"),
        pytest.param(["a", "b", "c", "d"], "`a`, `b` and 2 more", id="more than fit"),
    ],
)
def test_a_list_of_names_says_how_many_more_there_are(words: list[str], text: str) -> None:
    assert listing(words, 2) == text


@pytest.mark.parametrize(
    ("word", "candidates", "meant"),
    [
        pytest.param("caches", ["cache"], "cache", id="a plural"),
        pytest.param("process", ["processes"], "processes", id="a singular"),
        pytest.param("vms", ["vm"], "vm", id="a short plural"),
        pytest.param("netwrok", ["network"], "network", id="two letters swapped"),
        pytest.param("kubernets", ["kubernetes"], "kubernetes", id="a letter missing"),
        pytest.param("databbase", ["database"], "database", id="a letter too many"),
        pytest.param("datavase", ["database"], "database", id="another letter"),
        pytest.param("cache_entries", ["cache-entries"], "cache-entries", id="another separator"),
        pytest.param("prod.databse", ["prod.database"], "prod.database", id="one part of several"),
        pytest.param("cache", ["cache"], None, id="the word itself"),
        pytest.param("prod", ["pods"], None, id="two letters off"),
        pytest.param("data", ["date"], None, id="another letter of a short word"),
        pytest.param("state", ["stage"], None, id="another short word"),
        pytest.param("eu-west", ["eu-east", "us-west"], None, id="another region"),
        pytest.param("node-1", ["node-2", "node-11"], None, id="another number"),
        pytest.param("production", ["staging"], None, id="another word"),
        pytest.param("s", [""], None, id="nothing"),
        pytest.param("x" * 100, ["x" * 99], None, id="too long"),
    ],
)
def test_misspellings(word: str, candidates: list[str], meant: str | None) -> None:
    assert misspelling(word, candidates) == meant
