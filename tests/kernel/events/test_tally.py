"""Counting and measuring over many runs: bounded, and as exact as is promised."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.kernel.events.tally import MOST_EXACT, Durations, Tally


def ranked(values: list[float], percent: float) -> float:
    return sorted(values)[max(1, math.ceil(len(values) * percent / 100)) - 1]


def measured(values: list[float]) -> Durations:
    durations = Durations()
    for value in values:
        durations.add(value)
    return durations


@given(st.lists(st.sampled_from("abcdef")))
def test_everything_that_is_added_is_counted_once(words: list[str]) -> None:
    tally: Tally[str] = Tally(3)
    for word in words:
        tally.add(word)
    assert sum(count for _, count in tally.top()) + tally.beyond == tally.total == len(words)
    assert len(tally) <= 3


def test_the_most_frequent_comes_first_and_equals_in_order_of_their_text() -> None:
    tally: Tally[str] = Tally()
    for word in "bbacc":
        tally.add(word)
    assert tally.top() == [("b", 2), ("c", 2), ("a", 1)]
    assert tally.top(1) == [("b", 2)]
    assert (tally["b"], tally["nothing"]) == (2, 0)


def test_what_is_new_when_it_is_full_is_counted_with_others_and_what_is_known_is_not() -> None:
    tally: Tally[str] = Tally(1)
    tally.add("a")
    tally.add("b", 5)
    tally.add("a")
    assert (tally.top(), tally.beyond, tally.total) == ([("a", 2)], 5, 7)


def test_no_durations_have_no_percentiles() -> None:
    assert Durations().percentile(50) is None


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        pytest.param([4.2], 50, 4.2, id="the only one is the median"),
        pytest.param([4.2], 95, 4.2, id="and the 95th percentile"),
        pytest.param([3, 1, 2], 50, 2, id="the middle of three"),
        pytest.param([1, 2, 3, 100], 50, 2, id="the lower middle of four: one that was measured"),
        pytest.param([float(n) for n in range(1, 101)], 95, 95, id="the 95th of a hundred"),
        pytest.param([1, 2, 3], 100, 3, id="the longest"),
        pytest.param([1, 2, 3], 0, 1, id="the shortest"),
    ],
)
def test_few_durations_are_exact(values: list[float], percent: float, expected: float) -> None:
    assert measured(values).percentile(percent) == expected


@given(st.lists(st.floats(0, 1e9), min_size=1), st.sampled_from([1, 50, 95, 99, 100]))
def test_a_percentile_is_the_nearest_rank(values: list[float], percent: float) -> None:
    assert measured(values).percentile(percent) == ranked(values, percent)


@pytest.mark.parametrize("percent", [1, 25, 50, 95, 99.9, 100])
def test_many_durations_are_within_one_percent(percent: float) -> None:
    chance = random.Random(7)
    values = [chance.lognormvariate(2, 3) for _ in range(MOST_EXACT + 5_000)]
    durations = measured(values)
    assert durations.count == len(values)
    assert durations.longest == max(values)
    assert durations.percentile(percent) == pytest.approx(ranked(values, percent), rel=0.01)


def test_memory_does_not_grow_with_the_number_of_durations() -> None:
    durations = measured([10 ** ((n % 1_500) / 100 - 6) for n in range(MOST_EXACT + 1_501)])
    assert len(durations._exact) == 0
    assert len(durations._buckets) < 4_000


def test_runs_that_took_no_time_at_all_can_be_many() -> None:
    durations = measured([0.0] * (MOST_EXACT + 1))
    assert durations.percentile(50) == 0.0
    assert durations.longest == 0.0
