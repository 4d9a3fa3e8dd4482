"""The short way to a line: byte for byte what `encode` gives, for every event and every value it may carry."""

import types
import typing
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.soak import examples

from gert.errors import TraceError
from gert.kernel.events import runbook as says
from gert.kernel.events.envelope import MAX_LINE_BYTES, Envelope, decode, decode_plain, encode, encode_payload
from gert.kernel.events.payload import Payload, to_data
from gert.kernel.events.runbook import EVENTS
from gert.kernel.foundation.principal import Principal
from gert.kernel.foundation.values import MAX_INTEGER
from gert.kernel.runbook.tree import Map, Seq
from gert.kernel.template.unknown import UNKNOWN, Unknown

HEAD = "ab" * 32
NOW = "2026-02-28T14:30:00.000001Z"

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
WORDS = TEXTS | TEXTS.map(Unknown) | st.sampled_from(["", "\u2028", "\x00\x1f\x7f", '"\\/', "\ufdd0x\ufdd1", "😀", "é"])
WHOLE = st.integers(-MAX_INTEGER, MAX_INTEGER)
SCALARS = st.none() | st.booleans() | WHOLE | st.floats(allow_nan=False, allow_infinity=False) | WORDS
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
PRINCIPALS = st.none() | st.builds(
    Principal,
    st.sampled_from(["system", "human", "agent"]),
    WORDS,
    st.none() | WORDS,
    st.none() | WORDS,
)


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a declared type."""
    plain = {str: WORDS, int: WHOLE, bool: st.booleans(), float: st.floats(0, 1e9), Any: JSON, type(None): st.none()}
    if kind in plain:
        return plain[kind]
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return st.sampled_from(inner)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(values_of, inner))
    if origin is tuple:
        return st.lists(values_of(inner[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(WORDS, values_of(inner[1]), max_size=3)
    assert issubclass(kind, msgspec.Struct), kind
    return structs_of(kind)


def structs_of(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Structs with every field, or with the required ones only."""
    fields = msgspec.structs.fields(kind)
    hints = typing.get_type_hints(kind)
    needed = {each.encode_name for each in fields if each.required}
    return st.fixed_dictionaries(
        {each.name: values_of(hints[each.name]) for each in fields if each.encode_name in needed},
        optional={each.name: values_of(hints[each.name]) for each in fields if each.encode_name not in needed},
    ).map(lambda given: kind(**given))


def short(payload: Payload, principal: Principal | None = None, path: str | None = None, seq: int = 7) -> bytes:
    return encode_payload(payload, seq, "run-1", NOW, principal, path, HEAD)


def long(payload: Payload, principal: Principal | None = None, path: str | None = None, seq: int = 7) -> bytes:
    return encode(
        Envelope(
            seq=seq,
            run_id="run-1",
            type=payload.type,
            timestamp=NOW,
            principal=principal,
            path=path,
            prev_hash=HEAD,
            data=to_data(payload),
        )
    )


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.type)
@settings(max_examples=examples(10))
@given(data=st.data())
def test_both_ways_give_the_same_bytes_for(kind: type[Payload], data: st.DataObject) -> None:
    payload = data.draw(structs_of(kind))
    principal = data.draw(PRINCIPALS)
    path = data.draw(st.none() | TEXTS)
    seq = data.draw(st.integers(1, MAX_INTEGER))
    line = short(payload, principal, path, seq)
    assert line == long(payload, principal, path, seq)
    assert b"\n" not in line
    # Read in one pass, it is the same event; a number that not every reader keeps is left to the long way.
    read, again = decode_plain(line, kind.type), decode(line)
    if read is not None:
        fields = ("seq", "run_id", "type", "timestamp", "principal", "path", "answers", "prev_hash", "payload")
        assert [getattr(read, name) for name in fields] == [getattr(again, name) for name in fields]
    assert decode_plain(line, "run_summary") is None


def test_every_event_of_the_catalogue_is_held_together() -> None:
    assert len({kind.type for kind in EVENTS}) == len(EVENTS) > 30


def _map(**given: Any) -> Map:
    made = Map(0)
    made.update(given)
    return made


def _seq(*given: Any) -> Seq:
    made = Seq(0)
    made.extend(given)
    return made


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(UNKNOWN, id="something unknown"),
        pytest.param({"a": [UNKNOWN, {"b": Unknown("host (unknown)")}]}, id="something unknown deep inside"),
        pytest.param({Unknown("?"): 1}, id="a key that is unknown, as of a keyed loop in a dry run"),
        pytest.param(_map(a=_seq(1, _map(b="x"))), id="a map and a list as they were read from YAML"),
        pytest.param((1, (2, "x")), id="tuples"),
        pytest.param({"": {"": ""}}, id="empty names"),
        pytest.param([1e22, 1e-7, -0.0, 1.0, 5e-324], id="floats of all sizes"),
        pytest.param([MAX_INTEGER, -MAX_INTEGER], id="the largest integers"),
        pytest.param("\u0000\u001f\u2028\u2029\ufeff\U0010ffff", id="characters that are escaped, or should not be"),
    ],
)
def test_both_ways_agree_on(value: Any) -> None:
    payload = says.InputResolved(name="x", source="cli", value=value)
    assert short(payload) == long(payload)


def test_a_line_is_read_back_as_the_event_it_was() -> None:
    payload = says.StepComplete(step_id="a", status="success", duration="1s", outputs={"größe": [1, None, True]})
    read = decode(short(payload, Principal("human", "bob"), "a/b[0]"))
    assert (read.payload, read.by, read.path) == (payload, Principal("human", "bob"), "a/b[0]")


@pytest.mark.parametrize("encoder", [short, long], ids=["the short way", "the long way"])
def test_a_line_that_is_too_large_is_refused_by(encoder: Callable[[Payload], bytes]) -> None:
    with pytest.raises(TraceError, match="`input_resolved` is too large"):
        encoder(says.InputResolved(name="x", source="cli", value="x" * MAX_LINE_BYTES))


@pytest.mark.parametrize("encoder", [short, long], ids=["the short way", "the long way"])
def test_the_largest_line_is_written_by(encoder: Callable[[Payload], bytes]) -> None:
    empty = len(encoder(says.InputResolved(name="x", source="cli", value="")))
    line = encoder(says.InputResolved(name="x", source="cli", value="x" * (MAX_LINE_BYTES - empty)))
    assert len(line) == MAX_LINE_BYTES
