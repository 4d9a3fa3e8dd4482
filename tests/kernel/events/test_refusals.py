"""Whatever comes in, only errors gert foresaw come out."""

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.events.traces import HMAC_KEY, KEYS, PRIVATE_KEY, PUBLIC_KEY, trace

from gert.errors import GertError, TraceError
from gert.kernel.events import runbook as says
from gert.kernel.events.catalogue import catalogue
from gert.kernel.events.chain import GENESIS, read_chain
from gert.kernel.events.envelope import Envelope, decode, encode
from gert.kernel.events.payload import Payload, said, to_data
from gert.kernel.events.trace_seal import check_seal
from gert.kernel.foundation.principal import Principal
from gert.kernel.foundation.signature import Keys


class Text(str):
    pass


class Whole(int):
    pass


class Real(float):
    pass


texts = st.text(st.characters(), max_size=5) | st.sampled_from(["\ud800", "x\x00", "step", "success"])
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | texts
    | st.binary(max_size=3)
    | texts.map(Text)
    | st.integers().map(Whole)
    | st.floats().map(Real)
    | st.dates()
    | st.just(object())
    | st.sets(st.integers(), max_size=2)
    | st.builds(Principal, texts, texts)
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(texts | texts.map(Text) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)
GOOD: dict[str, Any] = {
    "seq": 1,
    "run_id": "r1",
    "type": "run_start",
    "timestamp": "2026-02-28T14:30:00.123Z",
    "principal": Principal("human", "alice"),
    "tenant": "acme",
    "path": "a/b",
    "prev_hash": GENESIS,
    "data": {},
}


@contextlib.contextmanager
def only_refused() -> Iterator[None]:
    with contextlib.suppress(GertError):
        yield


@given(st.sampled_from(sorted(GOOD)), values)
def test_any_event_is_written_so_that_it_can_be_read_or_refused(field: str, value: Any) -> None:
    with only_refused():
        line = encode(Envelope(**{**GOOD, field: value}))
        assert encode(decode(line)) == line


@given(st.dictionaries(texts, values, max_size=3))
def test_any_data_is_written_so_that_it_can_be_read_or_refused(data: dict[str, Any]) -> None:
    with only_refused():
        line = encode(Envelope(**{**GOOD, "data": data}))
        assert encode(decode(line)) == line


@given(st.sampled_from(list(catalogue().values())), st.data())
def test_any_payload_is_written_or_refused(kind: type[Payload], data: st.DataObject) -> None:
    fields = {name: data.draw(values) for name in kind.__struct_fields__}
    with only_refused():
        encode(Envelope(**{**GOOD, "type": kind.type, "data": to_data(kind(**fields))}))


class Liar(str):
    def isascii(self) -> bool:
        return True


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({"x": Liar("\ud800")}, id="text that says it is plain"),
        pytest.param({"x": {10**5000: 1}}, id="a key that cannot be shown"),
    ],
)
def test_what_deceives_the_checks_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(TraceError):
        encode(Envelope(**{**GOOD, "data": data}))
    with pytest.raises(TraceError):
        encode(Envelope(**{**GOOD, "data": to_data(says.ForEachItem(step_id="a", index=0, value=data))}))


LINES = trace(PRIVATE_KEY)
KEYRINGS = (Keys(), KEYS, Keys(default=PUBLIC_KEY), Keys([HMAC_KEY], default=HMAC_KEY))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
SEAL = ("chain_hash", "signature", "signing_key_id", "signature_alg", "body_signature", "status")


@st.composite
def crooked_lines(draw: st.DrawFn) -> bytes:
    """Draw bytes, a piece of a line, or a line with a field of envelope or seal replaced."""
    line = draw(st.sampled_from(LINES))
    how = draw(st.sampled_from(["bytes", "cut", "escape", "envelope", "seal"]))
    if how == "bytes":
        return draw(st.binary(max_size=60))
    if how == "cut":
        return line[: draw(st.integers(0, len(line)))] + draw(st.binary(max_size=3))
    if how == "escape":
        return line.replace(b"run", draw(st.sampled_from([b"\\ud800", b"\\u0000", b"\xed\xa0\x80", b"\\", b'"'])))
    event = msgspec.json.decode(line)
    place = event if how == "envelope" else event["data"]
    names = list(event) if how == "envelope" else SEAL
    place[draw(st.sampled_from(names))] = draw(json_values)
    # What JSON cannot hold exactly is for the reader to refuse, not for this test to avoid.
    try:
        return msgspec.json.encode(event)
    except (OverflowError, ValueError):
        return b"{}"


@given(
    st.lists(crooked_lines(), max_size=4),
    st.integers(0, len(LINES)),
    st.sampled_from(KEYRINGS),
    st.none() | st.sampled_from(["prod-2026", "shared", "", "\ud800"]),
)
def test_any_trace_is_read_and_judged(crooked: list[bytes], after: int, keys: Keys, key_id: str | None) -> None:
    for line in crooked:
        with only_refused():
            assert decode(line).payload is not None
    report = check_seal(read_chain([*LINES[:after], *crooked, *LINES[after:]]), keys, key_id=key_id)
    assert not (report.holds and crooked and after < len(LINES))
    with only_refused():
        report.require()


@pytest.mark.parametrize(
    ("text", "wording"),
    [
        pytest.param("Expected `int`", "expected `int`", id="a word loses its capital"),
        pytest.param("JSON is malformed", "JSON is malformed", id="an acronym keeps them"),
        pytest.param("A list", "a list", id="a word of one letter"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_errors_of_the_library_are_worded_like_ours(text: str, wording: str) -> None:
    assert said(ValueError(text)) == wording
