"""Visibility: what is denied is reachable under no name, what is allowed is, and items of loops always are."""

import sys
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.kernel.engine.state import State
from gert.kernel.engine.state_maps import outputs_of
from gert.kernel.engine.view import visible
from gert.kernel.foundation.globs import Visibility, parse_glob

SEGMENTS = st.sampled_from(["step", "scope", "probe", "each", "out", "key", "x", "y", "0", "round", "*", "**", "p*"])
GLOBS = st.lists(
    st.builds(lambda parts, sep: sep.join(parts), st.lists(SEGMENTS, min_size=1, max_size=4), st.sampled_from("./")),
    max_size=3,
)


def state() -> State:
    """A state in which every leaf is a text of its own."""
    made = State({"key": {"x": "key.x", "y": ["key.y.0", "key.y.1"]}, "out": "out"})
    made.set_record("probe", {"x": "probe.x", "y": {"x": "probe.y.x"}}, {"status": "probe.status"})
    made.set_results("each", {"k": {"x": "each.k.x"}, "0": {"y": "each.0.y"}}, "each.status")
    made.set_scoped(("round", "0"), {"x": "round.0.x", "y": "round.0.y"})
    made.set_scoped(("round", "1"), {"x": "round.1.x"})
    return made


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every text in a value, with its path."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from leaves(each, (*path, str(key)))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from leaves(each, (*path, str(index)))
    elif value is not None:
        yield path, value


def names(path: tuple[str, ...], records: Mapping[str, Any]) -> list[str]:
    """Every name something goes by."""
    if path[0] == "step" and len(path) > 1:
        return [".".join(path), ".".join(path[1:])]
    return [".".join(path), ".".join(("step", *path))] if path[0] in records else [".".join(path)]


@given(st.none() | GLOBS, GLOBS)
def test_nothing_denied_is_reachable_and_nothing_else_is_missing(allow: list[str] | None, deny: list[str]) -> None:
    root = state().root
    was = deepcopy(root)
    view = visible(root, Visibility(allow, deny), {})
    assert root == was
    denied, allowed = [parse_glob(text) for text in deny], [parse_glob(text) for text in allow or ()]
    shown = dict(leaves(view))
    for path, leaf in leaves(root):
        known_as = names(path, root["step"])
        hidden = any(glob.matches(name) for glob in denied for name in known_as)
        let = allow is None or any(glob.matches(name) for glob in allowed for name in known_as)
        if hidden or not let:
            assert path not in shown, f"{path} is hidden, and seen"
            assert leaf not in shown.values(), f"{leaf} is hidden, and seen elsewhere"
        else:
            assert shown.get(path) == leaf, f"{path} is not hidden, and not seen"


@pytest.mark.parametrize(
    ("deny", "gone", "left"),
    [
        pytest.param("probe", ["probe.x", "probe.status"], ["each.k.x", "out"], id="a record by its id"),
        pytest.param("step.probe", ["probe.x", "probe.y.x"], ["each.k.x"], id="a record by `.step`"),
        pytest.param("probe.x", ["probe.x"], ["probe.y.x", "probe.status"], id="an output by the id"),
        pytest.param("step.probe.x", ["probe.x"], ["probe.y.x"], id="an output by `.step`"),
        pytest.param("step", ["probe.x", "each.k.x"], ["key.x", "round.0.x"], id="all records at once"),
        pytest.param("step/probe/y/**", ["probe.y.x"], ["probe.x"], id="a subtree, with slashes"),
        pytest.param("*.x", ["probe.x", "key.x"], ["probe.y.x", "round.0.x"], id="one segment"),
        pytest.param("**.x", ["probe.x", "probe.y.x", "round.0.x", "each.k.x"], ["out"], id="any depth"),
        pytest.param("each.k", ["each.k.x"], ["each.0.y"], id="the result of one item"),
        pytest.param("step.each.0", ["each.0.y"], ["each.k.x"], id="the result of one item by `.step`"),
        pytest.param("scope", ["round.0.x", "round.1.x"], ["probe.x"], id="all scopes"),
        pytest.param("scope.round/0", ["round.0.x", "round.0.y"], ["round.1.x"], id="a scope with a slash"),
        pytest.param("scope/round.0", ["round.0.x", "round.0.y"], ["round.1.x"], id="a scope with a dot"),
        pytest.param("key.y.0", ["key.y.0"], ["key.y.1"], id="an item of a list"),
        pytest.param("**", ["probe.x", "key.x", "out", "round.0.x", "each.k.x"], [], id="everything"),
    ],
)
def test_denying(deny: str, gone: list[str], left: list[str]) -> None:
    shown = set(dict(leaves(visible(state().root, Visibility(None, [deny]), {}))).values())
    assert shown.isdisjoint(gone)
    assert shown >= set(left)


@pytest.mark.parametrize(
    ("allow", "left"),
    [
        pytest.param([], set(), id="nothing"),
        pytest.param(["nowhere"], set(), id="what is not there"),
        pytest.param(["probe.x"], {"probe.x"}, id="an output by the id"),
        pytest.param(["step.probe.x"], {"probe.x"}, id="an output by `.step`"),
        pytest.param(["scope.round/1"], {"round.1.x"}, id="a scope"),
        pytest.param(["out", "key.y"], {"out", "key.y.0", "key.y.1"}, id="several names"),
        pytest.param(["probe.x", "step.probe.status"], {"probe.x", "probe.status"}, id="one by each name"),
    ],
)
def test_allowing_only(allow: list[str], left: set[str]) -> None:
    view = visible(state().root, Visibility(allow, None), {})
    assert set(dict(leaves(view)).values()) == left


@pytest.mark.parametrize("name", ["probe", "step.probe"])
def test_what_is_allowed_by_one_name_is_seen_under_both(name: str) -> None:
    view = visible(state().root, Visibility([name], None), {})
    assert view["probe"] == view["step"]["probe"] == state().root["probe"]


@pytest.mark.parametrize(("allow", "deny"), [("probe", "step.probe.x"), ("step.probe", "probe.x")])
def test_deny_wins_whichever_name_it_uses(allow: str, deny: str) -> None:
    view = visible(state().root, Visibility([allow], [deny]), {})
    assert "probe.x" not in dict(leaves(view)).values()
    assert "probe.y.x" in dict(leaves(view)).values()


@pytest.mark.parametrize(
    "visibility", [Visibility([], ["**"]), Visibility(None, ["item", "step", "scope"]), Visibility(["out"], None)]
)
def test_items_of_the_loops_around_are_always_there(visibility: Visibility) -> None:
    root = state().root.overlay({"item": {"name": "srv1"}, "repeat": {"index": 2}})
    view = visible(root, visibility, {"item": root["item"]})
    assert view["item"] == {"name": "srv1"}
    assert view["repeat"] == {"index": 2}


def test_a_name_that_wins_over_a_step_is_hidden_with_it() -> None:
    made = State({"probe": "given"})
    made.set_record("probe", {"x": "secret"}, {"status": "success"})
    for deny in ("probe", "step.probe"):
        assert "secret" not in dict(leaves(visible(made.root, Visibility(None, [deny]), {}))).values()


def test_a_denied_item_of_a_list_of_results_leaves_the_others_their_index() -> None:
    made = State({})
    made.set_results("each", [{"x": "zero"}, {"x": "one"}], "success")
    for deny in ("each.0", "step.each.0", "each/0", "*.0"):
        view = visible(made.root, Visibility(None, [deny]), {})
        assert view["each"] == [None, {"x": "one"}]
        assert view["step"]["each"] == {"1": {"x": "one"}, "status": "success"}


def test_there_is_always_a_place_for_records() -> None:
    assert visible(State({}).root, Visibility([], ["**"]), {})["step"] == {}


def test_an_output_keeps_every_name_it_was_stored_under() -> None:
    made = State({})
    kept = outputs_of({"x": "secret"})
    made.set_name("x", kept["x"], kept.origins["x"])
    made.set_record("probe", kept, {"status": "success"})
    made.set_record("probe", {}, {"status": "failed"})  # it ran again, and gave nothing
    assert "x" not in visible(made.root, Visibility(None, ["probe.x"]), {})
    assert visible(made.root, Visibility(["step.probe.x"], None), {})["x"] == "secret"


def test_equal_values_of_two_steps_are_two_outputs() -> None:
    made = State({})
    for step in ("one", "two"):
        made.set_record(step, {"x": True, "y": {"a": 1}}, {"status": "success"})
    view = visible(made.root, Visibility(None, ["one.x", "two.y"]), {})
    assert (view["one"], view["two"]) == ({"status": "success", "y": {"a": 1}}, {"status": "success", "x": True})


def test_an_archive_is_hidden_by_the_names_its_values_had() -> None:
    made = State({})
    inside = made.fork()
    kept = outputs_of({"x": "secret"})
    inside.set_name("x", kept["x"], kept.origins["x"])
    inside.set_record("probe", kept, {"status": "success"})
    assert inside.changes is not None
    made.set_scoped(("repeat", "loop", "0"), inside.changes.archive())
    assert made.root["scope"]["repeat"]["loop"]["0"]["probe"]["x"] == "secret"
    for name in ("x", "probe.x", "step.probe", "scope.repeat.*.*.x"):
        assert "secret" not in str(visible(made.root, Visibility(None, [name]), {})), name


def test_a_loop_without_items_is_hidden_by_either_name() -> None:
    made = State({})
    made.set_results("each", [], "success")
    assert "each" not in visible(made.root, Visibility(None, ["step.each"]), {})


def test_looking_at_a_large_state_takes_time_in_proportion() -> None:
    def steps(count: int) -> int:
        made = State({})
        for number in range(count):
            made.set_record(f"s{number}", {"x": {"a": [number]}}, {"status": "success"})
        made.set_results("each", [{"x": number} for number in range(count)], "success")
        calls = 0

        def counted(*_: object) -> None:
            nonlocal calls
            calls += 1

        sys.setprofile(counted)
        try:
            visible(made.root, Visibility(None, ["s1.**", "**.never"]), {})
        finally:
            sys.setprofile(None)
        return calls

    assert steps(400) < 5 * steps(100)
