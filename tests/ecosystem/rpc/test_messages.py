"""Messages are read strictly, however quickly: the plain reader is believed only where it cannot have lost a key."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.ecosystem.rpc.messages import Malformed, Reply, decode
from gert.errors import CanonicalError
from gert.kernel.foundation.canonical_v1 import loads


class Pairs:
    """An object as it is written: its keys may be there twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


TEXTS = st.text(st.sampled_from('ab":,{}[] \\é\u2028'), max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(TEXTS, inner), max_size=3).map(Pairs),
    max_leaves=12,
)


def written(value: Any, space: str, as_ascii: bool) -> str:
    """Return the JSON text of a value."""
    if isinstance(value, Pairs):
        pairs = (
            f"{json.dumps(key, ensure_ascii=as_ascii)}{space}:{space}{written(each, space, as_ascii)}"
            for key, each in value.pairs
        )
        return "{" + f",{space}".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + f",{space}".join(written(each, space, as_ascii) for each in value) + "]"
    return json.dumps(value, ensure_ascii=as_ascii)


@given(VALUES, st.sampled_from(["", " ", "\t"]), st.booleans())
def test_a_result_is_read_as_the_strict_reader_reads_it(value: Any, space: str, as_ascii: bool) -> None:
    text = f'{{"jsonrpc":"2.0","id":1,"result":{written(value, space, as_ascii)}}}'
    assert quickly(text) == strictly(text)


def quickly(text: str) -> str:
    """Read a result as messages are read, or say why it is refused."""
    try:
        found = decode(text.encode())
    except Malformed as problem:
        return problem.reason
    assert isinstance(found, Reply)
    return repr(found.result)


def strictly(text: str) -> str:
    """Read it as the strict reader does."""
    try:
        return repr(loads(text)["result"])
    except CanonicalError as problem:
        return problem.message


@pytest.mark.parametrize(
    ("result", "why"),
    [
        pytest.param('{"a":1,"a":2}', "the key `a` occurs twice", id="a key twice"),
        pytest.param('{"a":1,"\\u0061":2}', "the key `a` occurs twice", id="a key twice, once escaped"),
        pytest.param(
            '[{"a":"x","a":2},"\\u0022\\u0022\\u0022\\u0022"]',
            "the key `a` occurs twice",
            id="quotes that are escaped do not stand in for those of a lost key",
        ),
        pytest.param('{"a":{"b":[{"c":1,"c":1}]}}', "the key `c` occurs twice", id="deep inside"),
        pytest.param("NaN", "`NaN` is not a JSON number", id="no number"),
        pytest.param("1" * 5000, "the text is not valid JSON", id="a number of thousands of digits"),
        pytest.param("[" * 100_000, "nested too deeply", id="deeper than any reader goes"),
    ],
)
def test_what_two_readers_may_read_differently_is_refused(result: str, why: str) -> None:
    with pytest.raises(Malformed) as refused:
        decode(f'{{"jsonrpc":"2.0","id":1,"result":{result}}}'.encode())
    assert why in refused.value.reason
