"""The time of a run: wall time where answers say when they were taken, and each lane's own where they are scripted."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.kernel.engine.clock import Clock, Interval, format_wait, merge_intervals

INTERVALS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda pair: (min(pair), max(pair))))


@given(INTERVALS)
def test_what_waits_at_once_is_counted_once(intervals: list[Interval]) -> None:
    found = merge_intervals(intervals)
    moments = {moment for begin, end in intervals for moment in range(int(begin), int(end))}
    assert sum(end - begin for begin, end in found) == len(moments)
    assert all(first[1] < second[0] for first, second in pairwise(found))


def test_measured_time_is_the_same_in_every_lane() -> None:
    clock = Clock()
    left, right = clock.fork(), clock.fork()
    for lane in (left, right):
        lane.begin()
    left.advance(5.0, 5.0)
    right.advance(7.0, 7.0)
    assert (left.now, right.now, clock.now) == (7.0, 7.0, 7.0)


def test_scripted_time_is_a_lane_s_own_until_they_join() -> None:
    clock = Clock()
    left, right = clock.fork(), clock.fork()
    left.begin()
    left.advance(None, 5.0)
    left.end()
    right.begin()
    assert right.now == 0.0
    right.end()
    clock.join([left, right])
    assert clock.now == 5.0


def test_a_lane_that_begins_late_waited_for_a_place_but_not_for_its_turn() -> None:
    clock = Clock()
    first, second, third = clock.fork(), clock.fork(), clock.fork()
    first.begin()
    first.advance(2.0, 2.0)
    first.end()
    second.begin([first])  # it conflicts with the first, and begins when that is done
    second.advance(3.0, 1.0)
    second.end()
    third.begin()  # it could have begun at once
    third.end()
    clock.join([first, second, third])
    assert (second.waited(0.0), third.started, clock.waited(0.0)) == (0.0, 3.0, 3.0)


def test_time_in_which_no_process_drove_the_run_is_waiting_in_every_lane() -> None:
    clock = Clock()
    lane = clock.fork()
    lane.begin()
    lane.advance(10.0, 1.0, [(2.0, 9.0), (2.0, 9.0)])
    assert (lane.waited(0.0), lane.waited(5.0), lane.waited(9.0), clock.waited(0.0)) == (7.0, 4.0, 0.0, 7.0)


def test_a_clock_never_goes_back() -> None:
    clock = Clock()
    clock.advance(5.0, 0.0)
    clock.advance(-3.0, 0.0)
    assert clock.now == 5.0


@pytest.mark.parametrize(("seconds", "text"), [(0.0, None), (0.0004, None), (0.001, "1ms"), (90.0, "1m30s")])
def test_no_waiting_is_not_written(seconds: float, text: str | None) -> None:
    assert format_wait(seconds) == text
