import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.errors import TraceError
from gert.kernel.events.path import PathSegment, child, item, split


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
