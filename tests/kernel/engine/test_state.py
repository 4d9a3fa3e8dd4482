"""State: what a fork sets stays its own until somebody takes it over, and nothing is changed in place."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.soak import examples

from gert.kernel.engine.state import State
from gert.kernel.template.unknown import UNKNOWN, Unknown, is_unknown

NAMES = st.sampled_from(["a", "b", "c"])
IDS = st.sampled_from(["a", "s1", "s2"])
SCALARS = st.integers(0, 3) | st.sampled_from(["x", "y"]) | st.none()
VALUES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(NAMES, SCALARS, max_size=2)
SCOPES = st.lists(st.sampled_from(["round", "0", "1"]), min_size=1, max_size=3).map(tuple)
STATUSES = st.sampled_from(["success", "failed", "skipped"])
OUTPUTS = st.dictionaries(st.sampled_from(["status", "x", "y"]), SCALARS, max_size=3)

BRIEFLY = settings(max_examples=examples(20))

Act = Callable[[State], object]


def act(name: str, *arguments: Any) -> Act:
    def change(state: State) -> None:
        getattr(state, name)(*deepcopy(arguments))

    change.__name__ = f"{name}{arguments}"
    return change


ACTS = st.lists(
    st.one_of(
        st.builds(act, st.just("set_name"), NAMES, VALUES),
        st.builds(act, st.just("export"), NAMES, VALUES),
        st.builds(act, st.just("set_record"), IDS, OUTPUTS, st.builds(lambda s: {"status": s}, STATUSES)),
        st.builds(act, st.just("set_results"), IDS, st.lists(OUTPUTS, max_size=2), STATUSES),
        st.builds(act, st.just("set_status"), IDS, STATUSES),
        st.builds(act, st.just("set_scoped"), SCOPES, st.dictionaries(NAMES, VALUES, min_size=1, max_size=2)),
        st.builds(act, st.just("set_jump_count"), IDS, st.integers(0, 3)),
        st.builds(act, st.just("drop_scope"), SCOPES),
    ),
    max_size=6,
)


def made(acts: list[Act], names: dict[str, Any] | None = None) -> State:
    return done(State(names or {"given": 1}), acts)


def done(state: State, acts: list[Act]) -> State:
    for change in acts:
        change(state)
    return state


def seen(state: State) -> Any:
    return deepcopy((state.root, state.bare, state.counts, state.shadowed))


# --- forks


@BRIEFLY
@given(ACTS, ACTS, ACTS)
def test_what_a_fork_sets_is_never_seen_by_its_parent_or_siblings(
    before: list[Act], one: list[Act], two: list[Act]
) -> None:
    parent = made(before)
    first, second = parent.fork(), parent.fork()
    was = seen(parent)
    done(first, one)
    assert seen(parent) == was
    assert seen(second) == was
    mine = seen(first)
    done(second, two)
    assert seen(first) == mine
    assert seen(parent) == was
    done(parent, two)
    assert seen(first) == mine


@BRIEFLY
@given(ACTS, ACTS)
def test_nothing_is_ever_changed_in_place(before: list[Act], after: list[Act]) -> None:
    state = made(before)
    # Whoever was handed the data keeps what it was: a view, an event, an answer.
    held = {**state.root, "step": dict(state.root["step"])}
    was = deepcopy(held)
    done(state, after)
    done(state.fork(), after)
    assert held == was


@BRIEFLY
@given(ACTS, ACTS)
def test_a_lane_that_is_merged_leaves_the_data_it_saw_itself(before: list[Act], lane: list[Act]) -> None:
    parent = made(before)
    inside = done(parent.fork(), lane)
    assert inside.changes is not None
    parent.merge(inside.changes)
    assert parent.root == inside.root


@BRIEFLY
@given(ACTS, ACTS, ACTS)
def test_merging_lanes_in_order_is_running_one_after_the_other_where_they_set_different_things(
    before: list[Act], one: list[Act], two: list[Act]
) -> None:
    parent = made(before)
    lanes = [done(parent.fork(), one), done(parent.fork(), two)]
    changes = [each.changes for each in lanes if each.changes is not None]
    touched = [{*each.names, *each.records, *(scope[0] for scope in (*each.scopes, *each.dropped))} for each in changes]
    for each in changes:
        parent.merge(each)
    if touched[0].isdisjoint(touched[1]):
        assert parent.root == done(made(before), [*one, *two]).root
    # Where they set the same, the later lane wins.
    for name, value in changes[1].names.items():
        assert parent.root[name] == value


@BRIEFLY
@given(ACTS, ACTS)
def test_an_iteration_leaves_only_exports_and_scopes(before: list[Act], body: list[Act]) -> None:
    parent = made(before)
    was = deepcopy(parent.root)
    inside = done(parent.fork(), body)
    assert inside.changes is not None
    parent.merge_iteration(inside.changes)
    assert parent.root["scope"] == inside.root["scope"]
    assert parent.root["step"] == was["step"]
    exports = inside.changes.exports
    assert {name: parent.root[name] for name in exports} == exports
    others = parent.root.keys() - exports.keys() - {"scope"}
    assert {name: parent.root[name] for name in others} == {name: was[name] for name in others}


def test_a_fork_of_a_fork_passes_exports_to_the_fork_that_keeps_them() -> None:
    state = State({})
    outer = state.fork()
    inner = outer.fork()
    inner.export("kept", 1)
    inner.set_name("dropped", 2)
    inner.set_scoped(("s",), {"v": 3})
    assert inner.changes is not None
    outer.merge(inner.changes)
    assert outer.changes is not None
    state.merge_iteration(outer.changes)
    assert state.root == {"kept": 1, "step": {}, "scope": {"s": {"v": 3}}}


def test_untouched_scopes_are_shared_and_not_copied() -> None:
    state = State({})
    state.set_scoped(("round", "0"), {"big": ["…"] * 100})
    state.set_scoped(("other",), {"v": 1})
    before = state.root["scope"]
    inside = state.fork()
    assert inside.root["scope"] is before
    inside.set_scoped(("round", "1"), {"v": 1})
    assert inside.root["scope"]["round"]["0"] is before["round"]["0"]
    assert inside.root["scope"]["other"] is before["other"]
    assert "1" not in before["round"]


# --- names and records


@BRIEFLY
@given(ACTS)
def test_a_name_wins_over_a_step_of_the_same_name_in_any_order(acts: list[Act]) -> None:
    state = made([*acts, act("set_name", "a", "mine"), act("set_record", "a", {"x": 1}, {"status": "success"})])
    done(
        state, [act("set_status", "a", "failed"), act("set_jump_count", "a", 2), act("set_results", "a", [], "success")]
    )
    assert state.root["a"] == "mine"
    assert state.root["step"]["a"]["status"] == "success"


def test_an_input_wins_over_a_step_of_the_same_name() -> None:
    state = State({"a": "input"})
    state.set_record("a", {"x": 1}, {"status": "success"})
    assert (state.root["a"], state.root["step"]["a"]) == ("input", {"x": 1, "status": "success"})


def test_a_record_is_there_under_both_names() -> None:
    state = State({})
    state.set_record("probe", {"code": 200}, {"status": "success", "exit_code": 0})
    assert state.root["probe"] == state.root["step"]["probe"] == {"code": 200, "status": "success", "exit_code": 0}


def test_an_output_called_status_comes_first_under_the_id_and_last_under_step() -> None:
    state = State({})
    state.set_record("probe", {"status": "green"}, {"status": "success"})
    assert state.root["probe"]["status"] == "green"
    assert state.root["step"]["probe"]["status"] == "success"


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(lambda outer, inner: None, id="in the same list"),
        pytest.param(lambda outer, inner: outer.merge(inner.changes), id="in a lane that was merged"),
        pytest.param(lambda outer, inner: outer.merge_uncertain([inner]), id="in the only arm that was explored"),
    ],
)
def test_a_skipped_step_leaves_its_output_called_status_alone(how: Callable[[State, State], object]) -> None:
    state = State({})
    inner = state.fork()
    for each in (inner, state) if how.__code__.co_names == () else (inner,):
        each.set_record("probe", {"status": "green"}, {"status": "success"})
    how(state, inner)
    state.set_status("probe", "skipped")
    assert state.root["probe"]["status"] == "green"
    assert state.root["step"]["probe"]["status"] == "skipped"


def test_a_skipped_step_keeps_what_it_set_before() -> None:
    state = State({})
    state.set_record("probe", {"code": 200}, {"status": "success"})
    state.set_status("probe", "skipped")
    assert state.root["probe"] == state.root["step"]["probe"] == {"code": 200, "status": "skipped"}


def test_a_step_that_was_skipped_at_once_has_a_status_and_nothing_else() -> None:
    state = State({})
    state.set_status("probe", "skipped")
    assert state.root["probe"] == state.root["step"]["probe"] == {"status": "skipped"}


def test_a_count_stays_with_the_record_when_the_step_runs_again() -> None:
    state = State({})
    state.set_jump_count("probe", 0)
    assert state.root["probe"] == {"retry_count": 0}
    state.set_record("probe", {"code": 200}, {"status": "success"})
    state.set_jump_count("probe", 1)
    state.set_record("probe", {"code": 500}, {"status": "failed"})
    assert state.root["probe"] == {"code": 500, "status": "failed", "retry_count": 1}


def test_an_output_called_retry_count_is_read_under_the_id() -> None:
    state = State({})
    state.set_jump_count("probe", 2)
    state.set_record("probe", {"retry_count": "mine"}, {"status": "success"})
    assert state.root["probe"]["retry_count"] == "mine"
    assert state.root["step"]["probe"]["retry_count"] == 2


@pytest.mark.parametrize(
    ("results", "under_step"),
    [
        pytest.param([{"x": 1}, {"x": 2}], {"0": {"x": 1}, "1": {"x": 2}, "status": "success"}, id="a list by index"),
        pytest.param({"k": {"x": 1}}, {"k": {"x": 1}, "status": "success"}, id="a map by key"),
        pytest.param([], {"status": "success"}, id="no items"),
        pytest.param({"status": {"x": 1}}, {"status": "success"}, id="an item with the key `status`"),
    ],
)
def test_results_of_a_loop(results: Any, under_step: dict[str, Any]) -> None:
    state = State({})
    state.set_results("each", results, "success")
    assert state.root["each"] == results
    assert state.root["step"]["each"] == under_step


@pytest.mark.parametrize("results", [[{"x": 1}], {"k": {"x": 1}}], ids=["a list", "a map by key"])
def test_a_loop_that_a_jump_comes_from_or_leads_to_keeps_its_results(results: Any) -> None:
    state = State({})
    state.set_jump_count("each", 0)
    state.set_results("each", results, "success")
    state.set_jump_count("each", 1)
    under_id = state.root["each"]
    assert (under_id if isinstance(results, list) else {"k": under_id.get("k")}) == results
    assert state.root["step"]["each"]["status"] == "success"
    assert state.root["step"]["each"]["retry_count"] == 1


def test_a_loop_that_runs_again_after_a_jump_still_has_its_count() -> None:
    state = State({})
    state.set_jump_count("each", 1)
    state.set_results("each", [{"x": 1}], "success")
    assert state.root["step"]["each"] == {"0": {"x": 1}, "status": "success", "retry_count": 1}


def test_a_value_inside_a_scope_gives_way_to_a_scope_of_its_name() -> None:
    state = State({})
    state.set_scoped(("a",), {"b": 1, "c": 2})
    state.set_scoped(("a", "b"), {"d": 3})
    assert state.root["scope"] == {"a": {"b": {"d": 3}, "c": 2}}


# --- doubt


@BRIEFLY
@given(ACTS, ACTS)
def test_what_one_certain_way_set_is_known(before: list[Act], way: list[Act]) -> None:
    parent = made(before)
    inside = done(parent.fork(), way)
    parent.merge_uncertain([inside])
    assert inside.changes is not None
    for name in inside.changes.names:
        assert parent.root[name] == inside.root[name]
    for step_id in inside.changes.records:
        assert parent.root["step"][step_id] == inside.root["step"][step_id]


@BRIEFLY
@given(ACTS, ACTS, ACTS, st.booleans())
def test_whatever_the_ways_differ_in_is_unknown_and_the_rest_is_not_touched(
    before: list[Act], one: list[Act], two: list[Act], maybe_none: bool
) -> None:
    parent = made(before)
    was = deepcopy(parent.root)
    ways: list[State | None] = [done(parent.fork(), one), done(parent.fork(), two)]
    futures = [way.root for way in ways if way is not None] + ([was] if maybe_none else [])
    parent.merge_uncertain([*ways, None] if maybe_none else ways)
    for name in {name for future in futures for name in future} - {"step", "scope"}:
        _holds(parent.root.get(name), [future.get(name) for future in futures])
    for step_id in {each for future in futures for each in future["step"]}:
        _holds(parent.root["step"].get(step_id), [future["step"].get(step_id) for future in futures])
    _holds(parent.root["scope"], [future["scope"] for future in futures], absent={})


def _holds(claimed: Any, possible: list[Any], absent: Any = None) -> None:
    """What is claimed to be known is so whichever way was taken; a scope nobody set may be there and hold nothing."""
    if isinstance(claimed, Unknown):
        return
    possible = [absent if each is None and isinstance(claimed, dict) else each for each in possible]
    if isinstance(claimed, dict) and all(isinstance(each, dict) for each in possible):
        for key in claimed.keys() | {key for each in possible for key in each}:
            _holds(claimed.get(key), [each.get(key) for each in possible], absent)
        return
    assert all(claimed == each for each in possible), f"{claimed!r} is claimed, and {possible!r} are possible"


def ways(*given: list[Act]) -> State:
    """A state that doubts several ways."""
    state = State({"kept": 1})
    state.merge_uncertain([done(state.fork(), each) for each in given])
    return state


def test_what_all_ways_agree_on_is_known() -> None:
    record = act("set_record", "s", {"x": 1}, {"status": "success"})
    state = ways([act("set_name", "a", 1), record], [act("set_name", "a", 1), record])
    assert state.root["a"] == 1
    assert state.root["s"] == state.root["step"]["s"] == {"x": 1, "status": "success"}


def test_what_no_change_at_all_would_leave_alone_is_unknown() -> None:
    state = State({"a": 1})
    state.merge_uncertain([done(state.fork(), [act("set_name", "a", 2)]), None])
    assert isinstance(state.root["a"], Unknown)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(1, 2, id="two numbers"),
        pytest.param(1, True, id="a number and a boolean"),
        pytest.param(0, False, id="nought and false"),
        pytest.param("(unknown)", UNKNOWN, id="text that reads like something unknown, and something unknown"),
        pytest.param({"x": ["(unknown)"]}, {"x": [UNKNOWN]}, id="the same deep inside"),
        pytest.param(UNKNOWN, "(unknown)", id="something unknown, and text that reads like it"),
        pytest.param([1], [1, 2], id="two lists"),
        pytest.param(None, "", id="nothing and an empty text"),
    ],
)
def test_ways_do_not_agree_on(one: Any, other: Any) -> None:
    state = ways([act("set_name", "a", one)], [act("set_name", "a", other)])
    assert is_unknown(state.root["a"])


def test_ways_do_not_agree_on_a_name_only_one_of_them_sets() -> None:
    assert isinstance(ways([act("set_name", "a", 1)], []).root["a"], Unknown)


def test_ways_do_not_agree_on_a_record_whose_output_called_status_differs() -> None:
    state = ways(
        [act("set_record", "s", {"status": "green"}, {"status": "success"})],
        [act("set_record", "s", {"status": "red"}, {"status": "success"})],
    )
    assert is_unknown(state.root["s"])


def test_a_scope_only_one_way_sets_is_unknown_below_the_values_it_sets() -> None:
    state = State({})
    state.set_scoped(("r",), {"old": 1})
    state.merge_uncertain([done(state.fork(), [act("set_scoped", ("r",), {"new": 2})]), None])
    assert state.root["scope"]["r"]["old"] == 1
    assert isinstance(state.root["scope"]["r"]["new"], Unknown)


def test_a_scope_only_one_way_forgets_is_unknown() -> None:
    state = State({})
    state.set_scoped(("repeat", "r", "0"), {"x": 1})
    state.set_scoped(("other",), {"x": 1})
    state.merge_uncertain([done(state.fork(), [act("drop_scope", ("repeat", "r"))]), None])
    assert isinstance(state.root["scope"]["repeat"]["r"]["0"]["x"], Unknown)
    assert state.root["scope"]["other"] == {"x": 1}


def test_what_a_lane_has_doubts_about_in_a_scope_its_parent_has_too() -> None:
    state = State({})
    state.set_scoped(("before",), {"x": 1})
    lane = done(state.fork(), [act("set_scoped", ("s",), {"x": 1}), act("invalidate", None, ())])
    assert lane.changes is not None
    state.merge(lane.changes)
    assert isinstance(state.root["scope"]["s"]["x"], Unknown)
    # What the lane has not touched is as known as it was.
    assert state.root["scope"]["before"] == {"x": 1}


def test_an_export_of_one_way_is_still_an_export() -> None:
    state = State({})
    inside = state.fork()
    inside.merge_uncertain([done(inside.fork(), [act("export", "e", 1)]), None])
    assert inside.changes is not None
    state.merge_iteration(inside.changes)
    assert isinstance(state.root["e"], Unknown)
