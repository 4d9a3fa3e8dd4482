"""Canonical JSON of the profile "v1": one text for one value, and a refusal for what has none."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.errors import CanonicalError
from gert.kernel.foundation.canonical import MAX_DEPTH
from gert.kernel.foundation.canonical_v1 import (
    CANONICAL_JSON_PROFILE,
    canonical_json_dumps,
    canonicalize_json_object,
    loads,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=12
)


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def looped() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def test_the_profile_has_a_name() -> None:
    assert CANONICAL_JSON_PROFILE == "v1"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param({"b": 1, "a": [1, 2]}, '{"a":[1,2],"b":1}', id="keys are sorted and separators compact"),
        pytest.param(
            {"ü": "é\u2028😀"}, '{"\\u00fc":"\\u00e9\\u2028\\ud83d\\ude00"}', id="all beyond ASCII is escaped"
        ),
        pytest.param("\x7f\x00", '"\\u007f\\u0000"', id="control characters are escaped"),
        pytest.param(2**70, str(2**70), id="an integer of any size is kept exactly"),
        pytest.param([1, 1.0, -0.0], "[1,1.0,-0.0]", id="an integer is not a float"),
        pytest.param([True, None], "[true,null]", id="true and null"),
        pytest.param((1, (2,)), "[1,[2]]", id="a tuple is a list"),
        pytest.param({}, "{}", id="nothing at all"),
        pytest.param(nested(MAX_DEPTH), "[" * MAX_DEPTH + "0" + "]" * MAX_DEPTH, id="the deepest nesting"),
    ],
)
def test_a_value_has_one_text(value: object, text: str) -> None:
    assert canonical_json_dumps(value) == text


@pytest.mark.parametrize(
    ("value", "why"),
    [
        pytest.param({"a": float("nan")}, "`nan` is not a JSON number at `a`", id="not a number"),
        pytest.param([float("inf")], "`inf` is not a JSON number", id="infinity"),
        pytest.param("\ud800", "lone surrogate", id="a lone surrogate"),
        pytest.param({"\udfff": 1}, "lone surrogate", id="a lone surrogate in a key"),
        pytest.param({1: 2}, "the key `1` is not text", id="a key that is a number"),
        pytest.param({True: 2}, "the key `True` is not text", id="a key that is a boolean"),
        pytest.param({"a": 1, None: 2}, "is not text", id="keys of two kinds"),
        pytest.param(datetime.now(UTC), "`datetime` has no JSON form", id="a date"),
        pytest.param({1, 2}, "`set` has no JSON form", id="a set"),
        pytest.param(b"x", "`bytes` has no JSON form", id="bytes"),
        pytest.param({"a": object()}, "`object` has no JSON form at `a`", id="an object"),
        pytest.param(nested(MAX_DEPTH + 1), "nested deeper", id="one level too deep"),
        pytest.param(nested(100_000), "nested deeper", id="far too deep"),
        pytest.param(looped(), "contains itself", id="a list that contains itself"),
        pytest.param(10**5000, "has no JSON form", id="an integer of thousands of digits"),
    ],
)
def test_a_value_without_a_text_is_refused(value: object, why: str) -> None:
    with pytest.raises(CanonicalError, match=why):
        canonical_json_dumps(value)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        pytest.param(' { "b" : 1 ,\n "a" : "\\u0061" } ', '{"a":"a","b":1}', id="white space and escapes"),
        pytest.param("{}", "{}", id="an empty object"),
        pytest.param(
            '{"a":123456789012345678901234567890}', '{"a":123456789012345678901234567890}', id="a big integer"
        ),
        pytest.param('{"a":"\\ud83d\\ude00"}', '{"a":"\\ud83d\\ude00"}', id="a pair of surrogates is one character"),
        pytest.param('{"a":{"c":1,"b":2}}', '{"a":{"b":2,"c":1}}', id="objects inside are sorted too"),
    ],
)
def test_the_text_of_an_object_is_brought_into_its_form(text: str, canonical: str) -> None:
    assert canonicalize_json_object(text) == canonical


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("", "not JSON at character 0", id="nothing"),
        pytest.param("{", "not JSON at character 1", id="half an object"),
        pytest.param("{'a': 1}", "not JSON", id="quotes of another language"),
        pytest.param('{"a":1} x', "not JSON at character 8: extra data", id="something after it"),
        pytest.param('{"a":1,"a":2}', "the key `a` occurs twice", id="a key twice"),
        pytest.param('{"a":{"b":1,"\\u0062":2}}', "the key `b` occurs twice", id="a key twice, spelled differently"),
        pytest.param('{"a":NaN}', "`NaN` is not a JSON number", id="not a number"),
        pytest.param('{"a":-Infinity}', "`-Infinity` is not a JSON number", id="infinity"),
        pytest.param('{"a":1e999}', "`inf` is not a JSON number", id="a number that is too large"),
        pytest.param('{"a":"\\ud800"}', "lone surrogate", id="half a character"),
        pytest.param("[1]", "expected a JSON object, found a list", id="a list"),
        pytest.param('"a"', "expected a JSON object, found text", id="text"),
        pytest.param("1", "expected a JSON object, found a number", id="an integer"),
        pytest.param("1.5", "expected a JSON object, found a number", id="a float"),
        pytest.param("true", "expected a JSON object, found a boolean", id="a boolean"),
        pytest.param("null", "expected a JSON object, found null", id="null"),
        pytest.param('{"a":' * 201 + "1" + "}" * 201, "nested deeper", id="one level too deep"),
        pytest.param('{"a":' * 100_000, "nested too deep", id="far too deep"),
        pytest.param('{"a":' + "9" * 5000 + "}", "not valid JSON", id="a number of thousands of digits"),
        pytest.param("\ufeff{}", "not JSON", id="a byte order mark"),
    ],
)
def test_a_text_that_is_no_object_is_refused(text: str, why: str) -> None:
    with pytest.raises(CanonicalError, match=why):
        canonicalize_json_object(text)


@given(JSON)
def test_the_text_is_what_python_writes(value: object) -> None:
    assert canonical_json_dumps(value) == json.dumps(value, sort_keys=True, separators=(",", ":"))


@given(JSON)
def test_reading_gives_the_value_back(value: object) -> None:
    assert canonical_json_dumps(loads(canonical_json_dumps(value))) == canonical_json_dumps(value)


@given(st.dictionaries(TEXTS, JSON, max_size=4))
def test_the_form_of_a_form_is_itself(value: dict[str, object]) -> None:
    text = canonicalize_json_object(json.dumps(value, ensure_ascii=False, indent=2))
    assert canonicalize_json_object(text) == text == canonical_json_dumps(value)
