import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.errors import TraceError
from gert.kernel.events.path import PathSegment, ancestors, child, is_named, item, lineage, named, split


def test_paths_read_from_the_outside_in() -> None:
    path = item(child(child(child(None, "triage"), "degraded"), "restart"), 2)
    assert path == "triage/degraded/restart[2]"
    assert split(path) == (PathSegment("triage"), PathSegment("degraded"), PathSegment("restart", "2"))


def test_a_lane_without_a_label_is_its_index() -> None:
    assert child(child("checks", 1), "ping") == "checks/1/ping"


@pytest.mark.parametrize("path", ["", "a//b", "/a", "a/", "a[", "a[]", "a]b", "a[1]x", "a[1][2]", "[1]"])
def test_what_is_not_a_path(path: str) -> None:
    with pytest.raises(TraceError):
        split(path)


def test_an_empty_segment_is_refused() -> None:
    with pytest.raises(TraceError):
        child("a", "")
    with pytest.raises(TraceError):
        item("a", "")


@pytest.mark.parametrize(
    "name",
    ["any/some/zip[logs%2Fa]", "any/some/zip[logs/a]", "any/some/zip", "zip[logs%2Fa]", "zip[logs/a]", "zip"],
)
def test_a_step_is_named_by_path_or_id_as_recorded_or_as_people_read_it_with_or_without_its_item(name: str) -> None:
    assert is_named("any/some/zip[logs%2Fa]", name)


@pytest.mark.parametrize(
    "name", ["", "any", "some", "some/zip", "zip[logs]", "zip[a]", "a]", "any/some", "zip[logs%2fa]"]
)
def test_what_does_not_name_a_step(name: str) -> None:
    assert not is_named("any/some/zip[logs%2Fa]", name)


def test_the_very_path_is_meant_before_all_that_a_name_may_mean() -> None:
    paths = ["a[x%2Fy]", "a[x%252Fy]", "b/a[z]"]
    assert named("a[x%2Fy]", paths) == ["a[x%2Fy]"]
    assert named("a", paths) == paths
    assert named("c", paths) == []


@pytest.mark.parametrize(
    ("path", "around"),
    [
        ("a", []),
        ("a/b/c", ["a/b", "a"]),
        ("loop[3]/x", ["loop[3]", "loop"]),
        ("loop[3]", ["loop"]),
    ],
)
def test_the_ancestors_of_a_path_are_the_steps_and_loops_around_it(path: str, around: list[str]) -> None:
    assert list(ancestors(path)) == around


def test_no_more_than_32_ancestors_of_a_path_are_read() -> None:
    assert len(list(ancestors("/".join("a" * 1000)))) == 32


def test_the_lineage_of_a_path_is_every_path_on_the_way_to_it() -> None:
    assert lineage("a[2]/b/c") == ["a[2]", "a[2]/b", "a[2]/b/c"]


names = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("/[]%"), min_size=1, max_size=6)


@given(st.lists(st.tuples(names, st.none() | names), min_size=1, max_size=4))
def test_any_name_comes_back(segments: list[tuple[str, str | None]]) -> None:
    path: str | None = None
    for name, key in segments:
        path = child(path, name)
        path = path if key is None else item(path, key)
    assert path is not None
    assert "\n" not in path
    assert split(path) == tuple(PathSegment(*segment) for segment in segments)
