from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.quickly import quickly

from gert.errors import InputError
from gert.kernel.foundation.globs import Marks, Visibility, parse_glob, split_path, visible_part


def seen(tree: dict[str, Any], visibility: Visibility) -> dict[str, Any]:
    found = visible_part(tree, Marks.start(visibility))
    return found if isinstance(found, dict) else {}


@pytest.mark.parametrize(
    ("glob", "path", "expected"),
    [
        pytest.param("question", "question", True, id="a name matches itself"),
        pytest.param("question", "questions", False, id="a name matches nothing longer"),
        pytest.param("question", "question.text", True, id="a matched node covers its subtree"),
        pytest.param("scope.round/0", "scope.round.0.a", True, id="a slash and a dot are the same separator"),
        pytest.param("scope.*", "scope", False, id="a star is one segment"),
        pytest.param("scope.*", "scope.a", True, id="a star matches a segment"),
        pytest.param("scope.*.x", "scope.a.b.x", False, id="a star is not two segments"),
        pytest.param("scope.**.x", "scope.a.b.x", True, id="two stars are any depth"),
        pytest.param("scope.**.x", "scope.x", True, id="two stars may be nothing"),
        pytest.param("scope.**", "scope", True, id="two stars at the end include the node"),
        pytest.param("**", "anything.at/all", True, id="two stars are everything"),
        pytest.param("**.x.**.y", "x.a.y", True, id="two stars twice"),
        pytest.param("agent_*", "agent_a.answer", True, id="a star inside a segment"),
        pytest.param("a*b*c", "abc", True, id="stars may be empty"),
        pytest.param("ab*ba", "aba", False, id="the pieces of a segment do not overlap"),
        pytest.param("agent_*", "agent.a", False, id="a star inside a segment stays inside"),
    ],
)
def test_what_a_glob_matches(glob: str, path: str, expected: bool) -> None:
    assert parse_glob(glob).matches(path) is expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("", "is empty", id="nothing"),
        pytest.param("  ", "is empty", id="only space"),
        pytest.param(".question", "starts with a separator", id="written as in a template"),
        pytest.param("/a", "starts with a separator", id="written as a file path"),
        pytest.param("a..b", "an empty segment", id="two separators"),
        pytest.param("a.", "an empty segment", id="a separator at the end"),
        pytest.param("a.***", "`**` must be a whole segment", id="three stars"),
        pytest.param("a**.b", "`**` must be a whole segment", id="two stars in a name"),
        pytest.param("a. b", "not a plain name", id="a space"),
        pytest.param("{{ .a }}", "not a plain name", id="a template"),
        pytest.param("a" * 2000, "longer than", id="too long"),
    ],
)
def test_what_is_not_a_glob(text: str, why: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_glob(text)
    assert why in caught.value.message


TREE = {
    "question": "why?",
    "scope": {
        "round/0": {"agent_a": {"answer": 1}, "agent_b": {"answer": 2}},
        "round": {"1": {"agent_a": 3}},
    },
    "agents": [{"id": "a", "token": "x"}, {"id": "b", "token": "y"}],
    "empty": {},
}


@pytest.mark.parametrize(
    ("allow", "deny", "expected"),
    [
        pytest.param(None, [], TREE, id="without rules all is visible"),
        pytest.param([], [], {}, id="an empty allow shows nothing"),
        pytest.param(["question"], [], {"question": "why?"}, id="a present allow denies the rest"),
        pytest.param(
            ["**"],
            ["scope", "agents"],
            {"question": "why?", "empty": {}},
            id="a denied node hides its subtree",
        ),
        pytest.param(["scope.round/0.agent_a"], ["scope"], {}, id="nothing below a denied node is visible again"),
        pytest.param(
            ["question", "scope.round/0.*"],
            ["scope.round/0.agent_b.*"],
            {"question": "why?", "scope": {"round/0": {"agent_a": {"answer": 1}, "agent_b": {}}}},
            id="the example of kernel-v0 §7",
        ),
        pytest.param(
            ["scope.*.1"],
            [],
            {"scope": {"round": {"1": {"agent_a": 3}}}},
            id="containers on the way keep only that",
        ),
        pytest.param(["question.deeper"], [], {}, id="a leaf on the way is not shown"),
        pytest.param(
            ["agents"],
            ["agents.*.token"],
            {"agents": [{"id": "a"}, {"id": "b"}]},
            id="lists are walked by index",
        ),
        pytest.param(["agents.1.id"], [], {"agents": [None, {"id": "b"}]}, id="a hidden item leaves its place"),
        pytest.param(["empty"], [], {"empty": {}}, id="an empty container that is allowed stays"),
        pytest.param(["empty.x"], [], {}, id="an empty container on the way does not"),
    ],
)
def test_what_is_visible(allow: list[str] | None, deny: list[str], expected: dict[str, Any]) -> None:
    assert seen(TREE, Visibility(allow, deny)) == expected


def test_seeing_a_node_and_seeing_into_it() -> None:
    visibility = Visibility(["question", "scope.round/0.*"], ["scope.round/0.agent_b"])
    assert visibility.sees("question.text")
    assert visibility.sees("scope.round.0.agent_a.answer")
    assert not visibility.sees("scope")
    assert visibility.sees_into("scope")
    assert not visibility.sees_into("scope.round/0.agent_b")
    assert not visibility.sees_into("other")


def test_no_glob_takes_exponential_time() -> None:
    assert not parse_glob(".".join(["**", "a"] * 200)).matches(".".join(["a"] * 150 + ["b"] * 100))
    assert not parse_glob("a*" * 500 + "b").matches("a" * 900)


def test_two_stars_in_a_row_are_the_same_as_once() -> None:
    many = parse_glob(".".join(["**"] * 340))
    with quickly(1):
        assert many.matches(".".join(["a"] * 2000))
        assert not parse_glob(".".join([*["**"] * 340, "b"])).matches(".".join(["a"] * 2000))
    assert many == parse_glob("**")
    assert many.text.count("**") == 340


def nested(levels: int, wrap: Callable[[Any], Any]) -> dict[str, Any]:
    tree: Any = {"leaf": 1}
    for _ in range(levels):
        tree = wrap(tree)
    return {"top": tree}


@pytest.mark.parametrize("wrap", [lambda inner: {"a": inner}, lambda inner: [inner]], ids=["maps", "lists"])
@pytest.mark.parametrize(("allow", "deny"), [(None, ["**.secret"]), (["**.leaf"], []), (["top"], ["x"])])
def test_what_is_too_deep_is_hidden(allow: list[str] | None, deny: list[str], wrap: Callable[[Any], Any]) -> None:
    visibility = Visibility(allow, deny)
    [(_, leaf)] = leaves(seen(nested(190, wrap), visibility))
    assert leaf == 1
    assert "leaf" not in repr(seen(nested(210, wrap), Visibility(allow, [*deny, "**.z"])))
    seen(nested(100_000, wrap), visibility)


def matches_simply(pattern: list[str], path: list[str]) -> bool:
    """Match by the definition, without care for time."""
    if not pattern:
        return True
    if pattern[0] == "**":
        return any(matches_simply(pattern[1:], path[skip:]) for skip in range(len(path) + 1))
    return bool(path) and fits_simply(pattern[0], path[0]) and matches_simply(pattern[1:], path[1:])


def fits_simply(pattern: str, segment: str) -> bool:
    if not pattern:
        return not segment
    if pattern[0] == "*":
        return any(fits_simply(pattern[1:], segment[skip:]) for skip in range(len(segment) + 1))
    return segment[:1] == pattern[0] and fits_simply(pattern[1:], segment[1:])


segments = st.text("ab", min_size=1, max_size=3)
patterns = st.lists(
    st.just("**") | st.text("ab*", min_size=1, max_size=4).filter(lambda text: "**" not in text),
    min_size=1,
    max_size=5,
)
paths = st.lists(segments, min_size=1, max_size=5)
trees = st.dictionaries(
    segments,
    st.recursive(
        st.integers(0, 9),
        lambda inner: st.dictionaries(segments, inner, max_size=3) | st.lists(inner, max_size=2),
    ),
    max_size=3,
)
globs = patterns.map(".".join)


@given(patterns, paths)
def test_globs_match_what_the_definition_says(pattern: list[str], path: list[str]) -> None:
    assert parse_glob(".".join(pattern)).matches("/".join(path)) is matches_simply(pattern, path)


@given(trees, st.none() | st.lists(globs, max_size=2), st.lists(globs, max_size=2))
def test_every_visible_leaf_and_no_other_is_in_the_view(
    tree: dict[str, Any], allow: list[str] | None, deny: list[str]
) -> None:
    visibility = Visibility(allow, deny)
    view = seen(tree, visibility)
    for path, leaf in leaves(tree):
        assert leaf_at(view, path) == (leaf if visibility.sees(".".join(path)) else None)
    assert {path for path, leaf in leaves(view) if leaf is not None} <= {path for path, _ in leaves(tree)}


@given(trees, st.none() | st.lists(globs, max_size=2), st.lists(globs, max_size=2), globs)
def test_denying_more_never_shows_more(
    tree: dict[str, Any], allow: list[str] | None, deny: list[str], more: str
) -> None:
    before = {path for path, leaf in leaves(seen(tree, Visibility(allow, deny))) if leaf is not None}
    after = {path for path, leaf in leaves(seen(tree, Visibility(allow, [*deny, more]))) if leaf is not None}
    assert after <= before


def leaves(node: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    if isinstance(node, dict):
        return [found for key, child in node.items() for found in leaves(child, (*path, *split_path(key)))]
    if isinstance(node, list):
        return [found for index, child in enumerate(node) for found in leaves(child, (*path, str(index)))]
    return [(path, node)]


def leaf_at(node: Any, path: tuple[str, ...]) -> Any:
    for segment in path:
        if isinstance(node, dict):
            node = node.get(segment)
        elif isinstance(node, list):
            node = node[int(segment)] if int(segment) < len(node) else None
        else:
            return None
    return node
