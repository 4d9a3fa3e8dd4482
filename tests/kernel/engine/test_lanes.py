"""Turns of lanes: those that conflict never overlap, and nobody waits for one it has no quarrel with."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.kernel.engine.clock import Clock
from gert.kernel.engine.lanes import LaneAccess, schedule_lanes

TAGS = st.frozensets(st.sampled_from("abcd"), max_size=3)
LANES = st.lists(st.builds(LaneAccess, TAGS, TAGS), max_size=9)


def lane(reads: str = "", writes: str = "") -> LaneAccess:
    return LaneAccess(frozenset(reads), frozenset(writes))


def conflict(one: LaneAccess, other: LaneAccess) -> bool:
    """The definition, in pairs: one writes what the other reads or writes."""
    return bool(one.writes & (other.reads | other.writes) or other.writes & one.reads)


def ancestors(after: tuple[frozenset[int], ...]) -> list[set[int]]:
    """Everyone who is certainly done before a lane begins."""
    known: list[set[int]] = []
    for earlier in after:
        known.append(set(earlier).union(*(known[each] for each in earlier)))
    return known


@given(LANES)
def test_lanes_that_conflict_never_overlap(lanes: list[LaneAccess]) -> None:
    before = ancestors(schedule_lanes(lanes).after)
    for index, mine in enumerate(lanes):
        for earlier in range(index):
            if conflict(mine, lanes[earlier]):
                assert earlier in before[index]


@given(LANES)
def test_a_lane_waits_only_for_lanes_it_conflicts_with(lanes: list[LaneAccess]) -> None:
    for index, earlier in enumerate(schedule_lanes(lanes).after):
        assert all(conflict(lanes[index], lanes[each]) for each in earlier)


@given(LANES)
def test_lanes_wait_only_for_earlier_ones_so_that_one_can_always_begin(lanes: list[LaneAccess]) -> None:
    after = schedule_lanes(lanes).after
    assert len(after) == len(lanes)
    assert all(each < index for index, earlier in enumerate(after) for each in earlier)


@given(LANES)
def test_a_group_is_told_for_each_resource_that_is_contended_for(lanes: list[LaneAccess]) -> None:
    contended = set()
    for tag in frozenset().union(*(each.writes for each in lanes)):
        users = tuple(index for index, each in enumerate(lanes) if tag in each.reads | each.writes)
        if len(users) > 1:
            contended.add(users)
    found = schedule_lanes(lanes).contending
    assert len(set(found)) == len(found)
    assert set(found) == contended


@pytest.mark.parametrize(
    ("lanes", "after"),
    [
        pytest.param([], [], id="no lanes"),
        pytest.param([lane(), lane()], [set(), set()], id="lanes that touch nothing"),
        pytest.param([lane(reads="a")] * 3, [set()] * 3, id="readers of one thing"),
        pytest.param([lane(writes="a"), lane(writes="b")], [set(), set()], id="writers of different things"),
        pytest.param([lane(writes="a")] * 3, [set(), {0}, {1}], id="writers of one thing, in the order written"),
        pytest.param([lane(writes="a"), lane(reads="a")], [set(), {0}], id="a reader after a writer"),
        pytest.param([lane(reads="a"), lane(writes="a")], [set(), {0}], id="a writer after a reader"),
        pytest.param(
            [lane(writes="a"), lane(reads="a"), lane(reads="a"), lane(writes="a")],
            [set(), {0}, {0}, {0, 1, 2}],
            id="a writer after all readers, who read side by side",
        ),
        pytest.param([lane("a", "a"), lane("a", "a")], [set(), {0}], id="lanes that read what they write"),
        pytest.param([lane(writes="ab"), lane(writes="b"), lane(writes="a")], [set(), {0}, {0}], id="two resources"),
    ],
)
def test_who_waits_for_whom(lanes: list[LaneAccess], after: list[Any]) -> None:
    found = schedule_lanes(lanes).after
    closed = ancestors(found)
    assert closed == ancestors(tuple(map(frozenset, after)))


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(["w"], id="writers only"),
        pytest.param(["r"], id="readers only"),
        pytest.param(["w", "r"], id="a writer and a reader in turn"),
        pytest.param(["w", *"rrrrrrrrrr"], id="a writer and ten readers in turn"),
    ],
)
def test_what_is_said_about_many_lanes_grows_with_their_number_only(pattern: list[str]) -> None:
    made = {"r": lane(reads="a"), "w": lane(writes="a")}
    sizes = []
    for count in (500, 1000, 2000):
        lanes = [made[pattern[index % len(pattern)]] for index in range(count)]
        sizes.append(sum(map(len, schedule_lanes(lanes).after)))
    assert sizes[-1] <= 3 * 2000
    assert all(later <= 2 * earlier + 4 * len(pattern) for earlier, later in pairwise(sizes))


def test_many_readers_before_and_after_one_writer_are_linear_too() -> None:
    lanes = [lane(reads="a")] * 1000 + [lane(writes="a")] + [lane(reads="a")] * 1000
    assert sum(map(len, schedule_lanes(lanes).after)) == 2000


def longest(spent: list[float], after: tuple[frozenset[int], ...]) -> float:
    """How long lanes take together when each waits for its turn, by their clocks."""
    parent = Clock()
    lanes = [parent.fork() for _ in spent]
    for own, lane, before in zip(spent, lanes, after, strict=True):
        lane.begin(lanes[index] for index in before)
        lane.advance(None, own)
        lane.end()
    parent.join(lanes)
    return parent.now


@given(st.data())
def test_lanes_take_as_long_together_as_a_schedule_without_waiting(data: st.DataObject) -> None:
    lanes = data.draw(LANES)
    spent = data.draw(st.lists(st.floats(0, 100), min_size=len(lanes), max_size=len(lanes)))
    took = longest(spent, schedule_lanes(lanes).after)
    assert took <= sum(spent) + 1e-6
    assert took >= max(spent, default=0.0)


@pytest.mark.parametrize(
    ("spent", "after", "took"),
    [
        pytest.param([], [], 0.0, id="no lanes take no time"),
        pytest.param([1.0, 3.0, 2.0], [(), (), ()], 3.0, id="side by side, the longest counts"),
        pytest.param([1.0, 3.0, 2.0], [(), (0,), (1,)], 6.0, id="in turn, all count"),
        pytest.param([1.0, 3.0, 2.0], [(), (), (0,)], 3.0, id="two in turn beside a longer one"),
    ],
)
def test_how_long_lanes_take(spent: list[float], after: list[tuple[int, ...]], took: float) -> None:
    assert longest(spent, tuple(map(frozenset, after))) == took
