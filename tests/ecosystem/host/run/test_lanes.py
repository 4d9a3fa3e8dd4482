"""Lanes and their turns: never too many at once, never stuck, and every result in its place."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.soak import examples

from gert.ecosystem.host.run.driver.lanes import Block, Lane, Lanes
from gert.kernel.engine.requests import Pause, RunLanes, Steps

NONE: frozenset[int] = frozenset()


def ask(name: str) -> Pause:
    return Pause(key=name, path=name, step_id=name, seconds=0.0)


# --- a tree of blocks, driven by a scheduler that picks at random who goes on


class Tree:
    """A lane that asks, then runs blocks, then asks; and what must be done before each of their lanes."""

    def __init__(self, name: str, asks: int, blocks: list[tuple[list["Tree"], list[frozenset[int]]]]) -> None:
        self.name = name
        self.asks = asks
        self.blocks = blocks


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> Tree:
    blocks = []
    for _ in range(draw(st.integers(0, 2)) if depth else 0):
        lanes = draw(st.lists(trees(depth - 1), max_size=4))
        after = [
            draw(st.frozensets(st.integers(0, index - 1), max_size=2)) if index else NONE for index in range(len(lanes))
        ]
        blocks.append((lanes, after))
    return Tree(f"t{draw(st.integers(0, 10**6))}", draw(st.integers(0, 2)), blocks)


class Log:
    """Who runs, and who is done."""

    def __init__(self) -> None:
        self.running: set[int] = set()
        self.most = 0
        self.done: set[int] = set()


def grow(tree: Tree, log: Log) -> Steps[Any]:
    """A lane as the driver sees it: it holds a place, except while it waits for lanes of its own."""
    log.running.add(id(tree))
    for _ in range(tree.asks):
        log.most = max(log.most, len(log.running))
        yield ask(tree.name)
    results = []
    for lanes, after in tree.blocks:
        log.most = max(log.most, len(log.running))
        log.running.discard(id(tree))
        steps = tuple(
            _after(each, [lanes[i] for i in earlier], log) for each, earlier in zip(lanes, after, strict=True)
        )
        results.append((yield RunLanes(steps, tuple(after))))
        log.running.add(id(tree))
    log.most = max(log.most, len(log.running))
    log.running.discard(id(tree))
    log.done.add(id(tree))
    return (tree.name, tuple(results))


def _after(tree: Tree, earlier: list[Tree], log: Log) -> Steps[Any]:
    assert all(id(each) in log.done for each in earlier), "a lane began before its turn"
    return (yield from grow(tree, log))


def expected(tree: Tree) -> Any:
    return (tree.name, tuple(tuple(expected(each) for each in lanes) for lanes, _ in tree.blocks))


def drive(lanes: Lanes, root: Lane, chance: random.Random) -> None:
    """Like the driver: each lane until it has to wait; whose answer comes next is chance."""
    waiting: list[Lane] = []
    while not root.done:
        waiting.extend(_running(lanes))
        if not root.done:
            assert waiting, "no lane can continue, and none waits for the world"
            lanes.ready.append((waiting.pop(chance.randrange(len(waiting))), None))


@settings(max_examples=examples(20))
@given(trees(), st.integers(1, 4), st.integers(0, 10**6))
def test_blocks_inside_blocks_never_get_stuck_nor_exceed_their_bound(tree: Tree, most: int, seed: int) -> None:
    log = Log()
    lanes = Lanes(most)
    root = lanes.root(grow(tree, log))
    drive(lanes, root, random.Random(seed))
    assert root.result == expected(tree)
    assert log.running == set()
    assert log.most <= most


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_no_more_than_so_many_lanes_wait_for_the_world_at_once(most: int) -> None:
    log = Log()
    flat = Tree("root", 0, [([Tree(str(i), 2, []) for i in range(20)], [NONE] * 20)])
    lanes = Lanes(most)
    drive(lanes, lanes.root(grow(flat, log)), random.Random(1))
    assert log.most == most


@pytest.mark.parametrize("most", [0, -1])
def test_there_is_always_room_for_one(most: int) -> None:
    lanes = Lanes(most)
    root = lanes.root(grow(Tree("r", 1, [([Tree("a", 1, [])], [NONE])]), Log()))
    drive(lanes, root, random.Random(1))
    assert root.result == ("r", ((("a", ()),),))


def test_deeply_nested_blocks_with_one_place_do_not_starve_each_other() -> None:
    tree = Tree("leaf", 1, [])
    for level in range(50):
        tree = Tree(str(level), 1, [([tree, Tree("side", 1, [])], [NONE, NONE])])
    lanes = Lanes(1)
    root = lanes.root(grow(tree, Log()))
    drive(lanes, root, random.Random(2))
    assert root.done


# --- order


def talk(name: str, said: list[str], asks: int = 0) -> Steps[str]:
    said.append(f"{name} begins")
    for _ in range(asks):
        yield ask(name)
    said.append(f"{name} ends")
    return name


def fork(*lanes: Steps[Any], after: tuple[frozenset[int], ...] | None = None) -> Steps[Any]:
    return (yield RunLanes(lanes, after or (NONE,) * len(lanes)))


def test_without_waiting_everything_happens_in_written_order() -> None:
    said: list[str] = []
    lanes = Lanes(16)
    inner = fork(talk("b", said), talk("c", said))
    root = lanes.root(fork(talk("a", said), inner, talk("d", said)))
    drive(lanes, root, random.Random(1))
    assert [each for each in said if each.endswith("begins")] == ["a begins", "b begins", "c begins", "d begins"]
    assert root.result == ("a", ("b", "c"), "d")


def test_a_block_without_lanes_is_done_at_once() -> None:
    lanes = Lanes(1)
    root = lanes.root(fork())
    drive(lanes, root, random.Random(1))
    assert root.result == ()


def test_results_are_in_the_order_of_the_lanes_not_of_their_ends() -> None:
    lanes = Lanes(3)
    said: list[str] = []
    root = lanes.root(fork(talk("slow", said, asks=5), talk("fast", said), talk("middle", said, asks=1)))
    drive(lanes, root, random.Random(3))
    assert root.result == ("slow", "fast", "middle")


def test_lanes_that_are_freed_together_begin_in_order() -> None:
    said: list[str] = []
    lanes = Lanes(9)
    after = (NONE, frozenset({0}), frozenset({0}), frozenset({0}), frozenset({1, 2, 3}))
    root = lanes.root(fork(*(talk(str(i), said, asks=1) for i in range(5)), after=after))
    drive(lanes, root, random.Random(4))
    assert [each[0] for each in said if "begins" in each] == ["0", "1", "2", "3", "4"]
    assert said.index("4 begins") > max(said.index(f"{i} ends") for i in (1, 2, 3))


# --- dropping what has not begun


def _running(lanes: Lanes) -> Iterator[Lane]:
    """Advance all lanes; those that wait."""
    while lanes.ready:
        lane, value = lanes.ready.popleft()
        try:
            item = lane.steps.send(value)
        except StopIteration as end:
            lanes.finish(lane, end.value)
            continue
        if isinstance(item, RunLanes):
            lanes.fork(lane, item)
        else:
            yield lane


def test_lanes_that_have_not_begun_never_begin_and_have_no_result() -> None:
    said: list[str] = []
    lanes = Lanes(2)
    root = lanes.root(fork(*(talk(str(i), said, asks=1) for i in range(5))))
    waiting = list(_running(lanes))
    lanes.drop_waiting()
    lanes.ready.extend((each, None) for each in waiting)
    assert list(_running(lanes)) == []
    assert root.result == ("0", "1", None, None, None)
    assert said == ["0 begins", "1 begins", "0 ends", "1 ends"]


def test_lanes_that_wait_for_their_turn_are_dropped_too() -> None:
    said: list[str] = []
    lanes = Lanes(9)
    after = (NONE, frozenset({0}), frozenset({1}))
    root = lanes.root(fork(*(talk(str(i), said, asks=1) for i in range(3)), after=after))
    waiting = list(_running(lanes))
    lanes.drop_waiting()
    lanes.drop_waiting()
    lanes.ready.extend((each, None) for each in waiting)
    assert list(_running(lanes)) == []
    assert root.result == ("0", None, None)


def test_dropping_ends_blocks_none_of_whose_lanes_has_begun() -> None:
    said: list[str] = []
    lanes = Lanes(1)
    root = lanes.root(fork(talk("a", said, asks=1), fork(talk("b", said)), talk("c", said)))
    waiting = list(_running(lanes))
    lanes.drop_waiting()
    lanes.ready.extend((each, None) for each in waiting)
    assert list(_running(lanes)) == []
    assert root.result == ("a", None, None)
    assert said == ["a begins", "a ends"]


def test_dropping_reaches_blocks_inside_blocks() -> None:
    said: list[str] = []
    lanes = Lanes(1)
    inner = fork(talk("x", said, asks=1), talk("y", said))
    root = lanes.root(fork(inner, talk("z", said)))
    waiting = list(_running(lanes))
    lanes.drop_waiting()
    lanes.ready.extend((each, None) for each in waiting)
    assert list(_running(lanes)) == []
    assert root.result == (("x", None), None)


def test_a_lane_that_is_dropped_is_closed() -> None:
    closed = talk("never", [])
    block = Block(Lane(talk("root", [])), RunLanes((talk("a", []), closed), (NONE, frozenset({0}))))
    assert block.drop_waiting() == 2
    assert block.drop_waiting() == 0
    with pytest.raises(StopIteration):
        next(closed)
