import math
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.errors import TraceError
from gert.kernel.events import runbook as says
from gert.kernel.events.chain import GENESIS
from gert.kernel.events.envelope import (
    MAX_LINE_BYTES,
    Envelope,
    decode,
    encode,
    format_timestamp,
    parse_timestamp,
)
from gert.kernel.foundation.canonical import canonical
from gert.kernel.foundation.principal import KERNEL, Principal
from gert.kernel.foundation.values import MAX_INTEGER

EVENT = Envelope(
    seq=1,
    run_id="r1",
    type="repeat_start",
    timestamp="2026-02-28T14:30:00.123Z",
    prev_hash=GENESIS,
    data={"step_id": "debate", "max": 3},
)
LINE = (
    b'{"seq":1,"run_id":"r1","type":"repeat_start","timestamp":"2026-02-28T14:30:00.123Z",'
    b'"prev_hash":"0000000000000000000000000000000000000000000000000000000000000000",'
    b'"data":{"step_id":"debate","max":3}}'
)


class Text(str):
    def __str__(self) -> str:
        return "something else"


class Whole(int):
    def __int__(self) -> int:
        return 99


class Real(float):
    pass


class Colour(StrEnum):
    RED = "red"


def but(**changes: Any) -> Envelope:
    return msgspec.structs.replace(EVENT, **changes)


def test_an_event_is_one_line_in_a_fixed_order() -> None:
    assert encode(EVENT) == LINE
    assert decode(LINE) == EVENT


def test_who_where_and_for_whom_stand_before_the_data() -> None:
    event = but(principal=Principal("agent", "skeptic", model="m"), tenant="acme", path="triage/ok")
    fields = list(msgspec.json.decode(encode(event)))
    assert fields == [
        "seq",
        "run_id",
        "type",
        "timestamp",
        "principal",
        "tenant",
        "path",
        "prev_hash",
        "data",
    ]
    assert decode(encode(event)) == event


def test_without_a_principal_the_kernel_acted() -> None:
    assert decode(LINE).by == KERNEL


def test_an_event_gives_its_payload() -> None:
    assert decode(LINE).payload == says.RepeatStart(step_id="debate", max=3)


def test_line_breaks_in_data_stay_inside_the_line() -> None:
    assert b"\n" not in encode(but(data={"a": "x\ny\r\u2028"}))


@pytest.mark.parametrize(
    ("event", "why"),
    [
        pytest.param(but(seq=0), "numbered from 1 on", id="number 0"),
        pytest.param(but(seq=10**5000), "numbered from 1 on", id="a number that cannot be shown"),
        pytest.param(but(run_id="../x"), "is not a run id", id="a run id that is a path"),
        pytest.param(but(run_id=""), "is not a run id", id="no run id"),
        pytest.param(but(type=""), "is not a type of event", id="no type"),
        pytest.param(but(type="Run Start"), "is not a type of event", id="a type with a space"),
        pytest.param(but(type="x\n"), "is not a type of event", id="a type with a line break"),
        pytest.param(but(prev_hash="0" * 16), "64 hexadecimal digits", id="the short genesis is not written"),
        pytest.param(but(prev_hash="A" * 64), "64 hexadecimal digits", id="a hash in capitals"),
        pytest.param(but(timestamp="2026-02-28T14:30:00Z"), "expected a timestamp", id="no fraction"),
        pytest.param(but(timestamp="2026-02-28T14:30:00.123+01:00"), "expected a timestamp", id="another zone"),
        pytest.param(but(timestamp="2026-02-30T14:30:00.123Z"), "is not a timestamp", id="a day that does not exist"),
        pytest.param(but(timestamp="٢026-02-28T14:30:00.123Z"), "expected a timestamp", id="digits of another script"),
        pytest.param(but(data={"x": "y" * MAX_LINE_BYTES}), "is too large", id="a line without end"),
    ],
)
def test_writers_are_strict(event: Envelope, why: str) -> None:
    with pytest.raises(TraceError) as caught:
        encode(event)
    assert why in caught.value.message


@pytest.mark.parametrize(
    ("event", "where"),
    [
        pytest.param(but(data={"x": math.nan}), "data.x", id="not a number, which would become null"),
        pytest.param(but(data={"x": [-math.inf]}), "data.x[0]", id="infinity"),
        pytest.param(but(data={"x": Real("nan")}), "data.x", id="not a number, of another class"),
        pytest.param(but(data={"x": "\ud800"}), "data.x", id="a lone surrogate"),
        pytest.param(but(data={"x": {1}}), "data.x", id="a set"),
        pytest.param(but(data={"x": 2**53}), "data.x", id="an integer beyond what JSON keeps"),
        pytest.param(but(data={"x": {1: "x"}}), "data.x", id="a key that is not text"),
        pytest.param(but(path="\ud800"), "path", id="a path that is not text"),
        pytest.param(but(path=7), "path", id="a path that is a number"),
        pytest.param(but(tenant=["x"]), "tenant", id="a tenant that is a list"),
        pytest.param(but(principal={"kind": "human", "id": "x"}), "principal", id="a principal that is a mapping"),
        pytest.param(but(principal=Principal("robot", "x")), "principal", id="a principal of no kind"),  # type: ignore[arg-type]
        pytest.param(but(data=[1]), "data", id="data that is a list"),
        pytest.param(but(data=None), "data", id="no data"),
        pytest.param(but(seq="1"), "seq", id="a number as text"),
        pytest.param(but(seq=1.0), "seq", id="a number with a fraction"),
        pytest.param(but(seq=True), "seq", id="a number that is a truth"),
        pytest.param(but(run_id=None), "run_id", id="a run id that is nothing"),
        pytest.param(but(type=b"run_start"), "type", id="a type that is bytes"),
        pytest.param(but(timestamp=datetime.now(UTC)), "timestamp", id="a moment that is not written out"),
        pytest.param(but(prev_hash=0), "prev_hash", id="a hash that is a number"),
    ],
)
def test_what_is_not_json_is_not_written(event: Envelope, where: str) -> None:
    with pytest.raises(TraceError) as caught:
        encode(event)
    assert f"`{where}`" in caught.value.message


def test_values_of_other_classes_are_written_as_what_they_are() -> None:
    data = {Text("key"): Text("x"), "n": Whole(2), "f": Real(1.5), "in": (Text("y"),), "e": Colour.RED}
    line = encode(but(run_id=Text("r1"), seq=Whole(1), path=Text("a"), data=data))
    again = decode(line)
    assert again.data == {"key": "x", "n": 2, "f": 1.5, "in": ["y"], "e": "red"}
    assert (again.run_id, again.seq, again.path) == ("r1", 1, "a")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        pytest.param(b"", "the line is empty", id="nothing"),
        pytest.param(b"  \r", "the line is empty", id="only space"),
        pytest.param(b"hello", "the line is not JSON", id="junk"),
        pytest.param(LINE[:-10], "the line is not JSON", id="cut off"),
        pytest.param(LINE + LINE, "the line is not JSON", id="two events on a line"),
        pytest.param(b"\x00" * 50, "the line is not JSON", id="zero bytes, as after a crash"),
        pytest.param(b"[]", "the line is not an event", id="a list"),
        pytest.param(b"{}", "the line is not an event", id="an empty object"),
        pytest.param(LINE.replace(b'"seq":1', b'"seq":-1'), "the line is not an event", id="a negative number"),
        pytest.param(LINE.replace(b'"seq":1', b'"seq":"1"'), "the line is not an event", id="a number as text"),
        pytest.param(
            LINE.replace(b"debate", b"\xff\xfe"), f"not UTF-8 at byte {LINE.index(b'debate')}", id="not UTF-8"
        ),
        pytest.param(LINE.replace(b"debate", b"\\ud800"), "the line is not JSON", id="half a character"),
        pytest.param(LINE.replace(b"3}", b"3" * 5000 + b"}"), "the line is not an event", id="a number without end"),
        pytest.param(b"hello", "not JSON: JSON is malformed", id="an acronym keeps its capitals"),
        pytest.param(LINE.replace(b'"debate"', b"NaN"), "the line is not JSON", id="what JSON does not know"),
        pytest.param(b'{"data":{"x":' + b"[" * 200_000, "the line is not JSON", id="nested without end"),
        pytest.param(b" " * (MAX_LINE_BYTES + 1), "the line is too large", id="too large"),
    ],
)
def test_what_cannot_be_read(line: bytes, why: str) -> None:
    with pytest.raises(TraceError) as caught:
        decode(line)
    assert why in caught.value.message


def test_readers_pass_over_what_they_do_not_know() -> None:
    assert decode(LINE.replace(b'{"seq"', b'{"future":{"x":[1]},"seq"')) == EVENT


def test_a_trace_without_numbers_can_be_read() -> None:
    assert decode(LINE.replace(b'"seq":1,', b"")).seq == 0


def test_a_key_given_twice_does_not_crash() -> None:
    assert decode(LINE.replace(b'"max":3', b'"max":3,"max":4')).data["max"] == 4


def test_timestamps() -> None:
    noon = datetime(2026, 2, 28, 12, 0, 0, 5, tzinfo=UTC)
    assert format_timestamp(noon) == "2026-02-28T12:00:00.000005Z"
    assert format_timestamp(noon.astimezone(timezone(timedelta(hours=2)))) == "2026-02-28T12:00:00.000005Z"
    assert parse_timestamp("2026-02-28T12:00:00.000005Z") == noon
    for bad in ("yesterday", "2026-02-28T12:00:00", ""):
        with pytest.raises(TraceError):
            parse_timestamp(bad)
    with pytest.raises(TraceError):
        format_timestamp(noon.replace(tzinfo=None))


@given(st.datetimes(timezones=st.just(UTC)))
def test_any_moment_can_be_written(moment: datetime) -> None:
    text = format_timestamp(moment)
    assert parse_timestamp(text) == moment
    encode(but(timestamp=text))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
datas = st.dictionaries(
    texts,
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-MAX_INTEGER, MAX_INTEGER)
        | st.floats(allow_nan=False, allow_infinity=False)
        | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


@given(datas)
def test_data_comes_back_as_it_was(data: dict[str, Any]) -> None:
    line = encode(but(data=data))
    again = decode(line)
    assert again.data == data
    assert list(again.data) == list(data)
    assert canonical(again.data) == canonical(data)
    assert encode(again) == line


@given(st.binary(max_size=200) | st.integers(0, len(LINE)).map(lambda at: LINE[:at]))
def test_any_bytes_are_an_event_or_a_clear_error(line: bytes) -> None:
    try:
        decode(line)
    except TraceError as error:
        assert str(error).startswith("the line is")  # noqa: PT017
