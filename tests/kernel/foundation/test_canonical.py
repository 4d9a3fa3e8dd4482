import json
import math
import random
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.errors import CanonicalError
from gert.kernel.foundation.canonical import (
    MAX_DEPTH,
    Hasher,
    canonical,
    digest,
    digest_value,
    require_canonical,
    sha256_hex,
)
from gert.kernel.foundation.values import MAX_INTEGER

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER, MAX_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Dict(dict[str, Any]):
    pass


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param({"b": 1, "a": 2}, b'{"a":2,"b":1}', id="keys are sorted"),
        pytest.param(
            {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\u0080": 6, "ö": 7},
            '{"\\r":2,"1":4,"\u0080":6,"ö":7,"€":1,"😀":5,"\ufb33":3}'.encode(),
            id="keys are sorted by UTF-16, as RFC 8785 §3.2.3 shows",
        ),
        pytest.param(
            [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
            b"[333333333.3333333,1e+30,4.5,0.002,1e-27]",
            id="numbers as RFC 8785 §3.2.2 shows",
        ),
        pytest.param([-0.0, 0, 1.0, -1.5], b"[0,0,1,-1.5]", id="zero has no sign and a whole float no fraction"),
        pytest.param('\x00\x1f"\\/é\n', '"\\u0000\\u001f\\"\\\\/é\\n"'.encode(), id="only what must be is escaped"),
        pytest.param((1, ("a",)), b'[1,["a"]]', id="a tuple is a list"),
        pytest.param(Dict(a=Dict()), b'{"a":{}}', id="subclasses of containers are accepted"),
        pytest.param({"c": Colour.RED, "l": Level.HIGH}, b'{"c":"red","l":3}', id="enums give their value"),
        pytest.param([True, False, None], b"[true,false,null]", id="literals"),
        pytest.param([MAX_INTEGER, -MAX_INTEGER], b"[9007199254740991,-9007199254740991]", id="the largest integers"),
    ],
)
def test_canonical_forms(value: object, expected: bytes) -> None:
    assert canonical(value) == expected


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def cyclic() -> object:
    value: dict[str, Any] = {}
    value["self"] = [value, value]
    return value


@pytest.mark.parametrize(
    ("value", "why"),
    [
        pytest.param({"a": [1, math.nan]}, "`nan` is not a JSON number at `a[1]`", id="not a number"),
        pytest.param(-math.inf, "`-inf` is not a JSON number", id="infinity at the top"),
        pytest.param(
            {"a": {"b": 2**53}},
            "beyond ±(2^53-1), which JSON readers do not keep exactly at `a.b`",
            id="2^53",
        ),
        pytest.param([-(2**53)], "at `[0]`", id="-2^53"),
        pytest.param({"a": {1: "x"}}, "the key `1` is not text at `a`", id="a key that is a number"),
        pytest.param({None: 1}, "the key `None` is not text", id="a key that is nothing"),
        pytest.param({"a": "x\ud800"}, "lone surrogate at character 1 at `a`", id="a lone surrogate in text"),
        pytest.param({"\udfff": 1}, "lone surrogate at character 0 at `\\udfff`", id="a lone surrogate in a key"),
        pytest.param({"a": {1, 2}}, "a `set` has no JSON form at `a`", id="a set"),
        pytest.param(b"x", "a `bytes` has no JSON form", id="bytes"),
        pytest.param(nested(MAX_DEPTH + 1), "nested deeper than 200 levels", id="too deep"),
        pytest.param(cyclic(), "or contains itself", id="a value that contains itself"),
    ],
)
def test_what_has_no_canonical_form(value: object, why: str) -> None:
    with pytest.raises(CanonicalError) as caught:
        canonical(value)
    assert why in caught.value.message


def contains_itself() -> object:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "where"),
    [
        pytest.param(contains_itself(), " at `[0][0][0][0][0][0][0][0]…[0][0]`", id="a list that contains itself"),
        pytest.param(nested(MAX_DEPTH + 50), " at `[0][0][0][0][0][0][0][0]…[0][0]`", id="a list too deep"),
        pytest.param(cyclic(), " at `self[0].self[0].self[0].self[0]….self[0]`", id="a map that contains itself"),
        pytest.param({"a": {"b": [{"c": [math.nan]}]}}, " at `a.b[0].c[0]`", id="a short path is shown whole"),
        pytest.param({"k" * 5000: math.nan}, f" at `{'k' * 40}…`", id="a long key is shortened"),
    ],
)
def test_the_place_of_a_flaw_is_short(value: object, where: str) -> None:
    with pytest.raises(CanonicalError) as caught:
        canonical(value)
    assert caught.value.message.endswith(where)


def test_the_depth_limit_is_exact() -> None:
    assert canonical(nested(MAX_DEPTH)) == b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH


def test_the_place_of_a_value_is_named() -> None:
    with pytest.raises(CanonicalError, match=r"at `outputs\.a`"):
        require_canonical({"a": math.nan}, at="outputs")


def test_digests_are_prefixed_and_chain_hashes_are_bare() -> None:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert digest(b"") == f"sha256:{empty}"
    assert sha256_hex(b"") == empty
    assert digest_value({"b": 1, "a": 2}) == digest(b'{"a":2,"b":1}')


@given(values)
def test_what_is_read_back_has_the_same_canonical_form(value: object) -> None:
    once = canonical(value)
    # A float such as 1e20 is written as an integer, and JSON has only one kind of number.
    assert canonical(json.loads(once, parse_int=float)) == once


@given(values)
def test_a_value_survives(value: object) -> None:
    assert json.loads(canonical(value), parse_int=float) == value


@given(st.dictionaries(texts, values, max_size=6), st.randoms(use_true_random=False))
def test_order_does_not_matter(value: dict[str, object], shuffle: random.Random) -> None:
    items = list(value.items())
    shuffle.shuffle(items)
    assert canonical(dict(items)) == canonical(value)


@given(values, values)
def test_different_values_have_different_digests(one: object, other: object) -> None:
    if json.loads(canonical(one), parse_int=float) != json.loads(canonical(other), parse_int=float):
        assert digest_value(one) != digest_value(other)


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_a_hash_in_chunks_is_the_hash_of_the_whole(chunks: list[bytes]) -> None:
    hasher = Hasher()
    for chunk in chunks:
        hasher.update(chunk)
    assert hasher.digest() == digest(b"".join(chunks))
    assert hasher.size == sum(map(len, chunks))
