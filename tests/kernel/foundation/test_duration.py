import re
from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gert.errors import InputError
from gert.kernel.foundation.duration import DURATION_PATTERN, MAX_DURATION, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("30s", timedelta(seconds=30)),
        ("5m", timedelta(minutes=5)),
        ("1h30m", timedelta(minutes=90)),
        ("7d", timedelta(days=7)),
        ("1.5h", timedelta(minutes=90)),
        ("0s", timedelta(0)),
        ("0.000001s", timedelta(microseconds=1)),
        ("0.001ms", timedelta(microseconds=1)),
        ("1d2h3m4s5ms", timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5)),
        ("1m5ms", timedelta(minutes=1, milliseconds=5)),
        ("36500d", MAX_DURATION),
    ],
)
def test_durations_are_exact(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("", "it is empty", id="nothing"),
        pytest.param("  ", "it is empty", id="only space"),
        pytest.param("30", "it has no unit", id="a bare number"),
        pytest.param("0", "it has no unit", id="a bare zero"),
        pytest.param("-5s", "it is negative", id="a negative duration"),
        pytest.param("5 s", "it contains a space", id="a space before the unit"),
        pytest.param("5s\n", "it contains a space", id="a line break at the end"),
        pytest.param("30m1h", "largest first", id="units in the wrong order"),
        pytest.param("1h1h", "each at most once", id="the same unit twice"),
        pytest.param("5min", "expected numbers with the units", id="an unknown unit"),
        pytest.param("1.h", "expected numbers", id="a point without decimals"),
        pytest.param(".5h", "expected numbers", id="decimals without a number"),
        pytest.param("0.0001ms", "expected numbers", id="less than a microsecond"),
        pytest.param("٣s", "expected numbers", id="digits of another script"),
        pytest.param("36501d", "longer than a hundred years", id="too long"),
        pytest.param("9" * 60 + "h", "longer than a hundred years", id="far too long"),
        pytest.param("9" * 5000 + "h", "longer than a hundred years", id="a text without end"),
    ],
)
def test_what_is_not_a_duration(text: str, why: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_duration(text)
    assert why in caught.value.message
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(milliseconds=500), "500ms"),
        (timedelta(seconds=4.2), "4.2s"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(hours=36), "1d12h"),
        (timedelta(seconds=100), "1m40s"),
        (timedelta(days=100), "100d"),
        (timedelta(microseconds=1), "0.001ms"),
    ],
)
def test_durations_are_written_the_short_way(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


def test_a_negative_duration_is_not_written() -> None:
    with pytest.raises(InputError, match="negative"):
        format_duration(timedelta(microseconds=-1))


@given(st.timedeltas(timedelta(0), MAX_DURATION))
def test_what_is_written_is_read_back(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


near_durations = st.lists(
    st.sampled_from(["1", "0", "07", "3.5", ".", "-", "d", "h", "m", "s", "ms", " ", "\n", "1.0000001"]),
    max_size=8,
).map("".join)


@given(near_durations | st.from_regex(DURATION_PATTERN) | st.text(max_size=6))
@example("5s\n")
def test_the_pattern_accepts_what_is_read(text: str) -> None:
    matches = re.fullmatch(DURATION_PATTERN.strip("^$"), text) is not None
    assert matches == (reading(text) in ("fine", "too long"))


def reading(text: str) -> str:
    try:
        parse_duration(text)
    except InputError as error:
        return "too long" if "long" in error.message else "no duration"
    return "fine"


def test_the_pattern_means_the_same_to_a_json_schema() -> None:
    import jsonschema_rs

    validator = jsonschema_rs.validator_for({"type": "string", "pattern": DURATION_PATTERN})
    assert all(validator.is_valid(text) for text in ("500ms", "1h30m", "1.5h", "1m5ms"))
    assert not any(validator.is_valid(text) for text in ("", "30", "-5s", "30m1h", "5min", "0.0001ms"))
