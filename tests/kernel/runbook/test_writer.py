"""What is written as YAML is read back as the same data."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.soak import examples

from gert.errors import DocumentError
from gert.kernel.runbook.reader import read
from gert.kernel.runbook.writer import to_yaml


def back(data: dict[str, Any]) -> Any:
    reading = read(to_yaml(data).encode())
    assert not reading.findings, (reading.findings, to_yaml(data))
    return reading.tree.root


# What no document may hold: half a surrogate, and the marks of references to secrets.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufdd0\ufdd1"))
LINES = st.lists(st.text(" \tabc:-#|'\"é🙂", max_size=5), max_size=6).map("\n".join)
NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXT | LINES
DATA = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT | LINES, inner, max_size=4), max_leaves=20
)


@given(st.dictionaries(TEXT, DATA, max_size=5))
@settings(max_examples=examples(100))
def test_everything_comes_back(data: dict[str, Any]) -> None:
    assert back(data) == data


@pytest.mark.parametrize(
    "text",
    ["yes", "null", "~", "1e3", "0o17", "0x1F", ".inf", "1.10", "true", "", " ", "- a", "a: b", "#", "a #b", "?", "|",
     "%TAG", "@x", "`x", "[a", "{a", "&a", "*a", "!a", "a:", "=", "<<", "---", "...", "a\n", "a\n\n", "\na", "a\r\nb",
     "a \nb", " a\nb", "a\tb\nc", "\u2028", "\x85", "\x00", "\x1b[31m", "\ufeff", "a\u200bb", "two words", "x: |"],
)  # fmt: skip
def test_text_stays_text(text: str) -> None:
    assert back({"key": text, "list": [text, {text: text}]}) == {"key": text, "list": [text, {text: text}]}


def test_lines_stand_as_they_are() -> None:
    assert to_yaml({"stdout": "one\n  two\n", "code": 200, "list": [{"a": 1, "b": [2]}, []]}) == (
        "stdout: |\n  one\n    two\ncode: 200\nlist:\n  - a: 1\n    b:\n      - 2\n  - []\n"
    )


def test_what_is_nested_too_deeply_is_refused() -> None:
    data: dict[str, Any] = {}
    for _ in range(100):
        data = {"a": data, "b": 1}
    with pytest.raises(DocumentError, match="too deeply"):
        to_yaml(data)
