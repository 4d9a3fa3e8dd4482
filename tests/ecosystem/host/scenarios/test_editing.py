"""A few keys of a document change; everything else of it stays as somebody wrote it."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.soak import examples

from gert.ecosystem.host.scenarios.edit import edit_file, edited, write_atomically
from gert.errors import DocumentError, UsageError
from gert.kernel.runbook.reader import read
from gert.kernel.runbook.writer import to_yaml

TEST = """\
# What happened on Friday.
description: the cache was cold   # kim

golden: false # not yet
must_reach: # in any order
  - one   # first
  - two

# how it ends
expected_status: completed
"""


def data(text: str) -> Any:
    reading = read(text.encode())
    assert not reading.findings, (reading.findings, text)
    return reading.tree.root


@pytest.mark.parametrize(
    ("changes", "before", "after"),
    [
        pytest.param({"golden": True}, "golden: false #", "golden: true #", id="a word changes"),
        pytest.param({"golden": None}, "golden: false # not yet\n", "", id="a key goes"),
        pytest.param(
            {"must_reach": ["two"]},
            "must_reach: # in any order\n  - one   # first\n  - two\n",
            "must_reach: # in any order\n  - two\n",
            id="a list changes",
        ),
        pytest.param({"must_reach": []}, "# in any order\n  - one   # first\n  - two\n", None, id="a list is emptied"),
        pytest.param({"expected_status": "failed"}, "completed", "failed", id="the last key changes"),
        pytest.param(
            {"description": "two\nlines\n"},
            "description: the cache was cold   # kim\n",
            "description: |   # kim\n  two\n  lines\n",
            id="one line becomes two",
        ),
        pytest.param({"expected_code": "x"}, "completed\n", "completed\nexpected_code: x\n", id="a new key is last"),
        pytest.param({"golden": False, "nothing": None}, "", "", id="what is so already changes nothing"),
    ],
)
def test_only_what_changes_changes(changes: dict[str, Any], before: str, after: str | None) -> None:
    result = edited(TEST, changes)
    assert not result.rewritten
    assert result.text == (
        TEST.replace(before, after) if after is not None else TEST.replace(f" {before}", " [] # in any order\n")
    )
    assert edited(result.text, changes).text == result.text, "doing it again changes nothing"


@pytest.mark.parametrize(
    ("source", "changes", "expected"),
    [
        pytest.param("a: 1\r\nb: 2\r\n", {"a": ["x", "y"]}, "a:\r\n  - x\r\n  - y\r\nb: 2\r\n", id="windows line ends"),
        pytest.param("a: 1", {"b": 2}, "a: 1\nb: 2\n", id="no line break at the end"),
        pytest.param("---\na: 1\n...\n", {"b": 2}, "---\na: 1\nb: 2\n...\n", id="a document with its marks"),
        pytest.param("---\na: 1\n...\n", {"a": 2}, "---\na: 2\n...\n", id="a value before the mark"),
        pytest.param("a: |+\n  x\n\n\nb: 2\n", {"b": 3}, "a: |+\n  x\n\n\nb: 3\n", id="text that keeps its end"),
        pytest.param("a: |-\n  x\n   \nb: 2\n", {"b": 3}, "a: |-\n  x\n   \nb: 3\n", id="text that ends with a space"),
        pytest.param("a: |-\n  x\n   \nb: 2\n", {"a": "x\n "}, "a: |-\n  x\n   \nb: 2\n", id="a space that is text"),
        pytest.param("a: 'x # y' # z\n", {"a": 1}, "a: 1 # z\n", id="a sign in quotes is no comment"),
        pytest.param('a: "x # y"\n', {"a": 1}, "a: 1\n", id="only a sign in quotes"),
        pytest.param("a: x#y\n", {"a": 1}, "a: 1\n", id="a sign within a word"),
        pytest.param("a: 1\n", {"a": True}, "a: true\n", id="one is not true"),
        pytest.param("a: 1\n", {"a": 1.0}, "a: 1.0\n", id="an int is no float"),
        pytest.param("a:\n- x\n# y\n- z\nb: 1\n", {"a": None}, "b: 1\n", id="a list that is not indented"),
        pytest.param("a:\nb: 1\n", {"a": 2}, "a: 2\nb: 1\n", id="a key without a value"),
        pytest.param("'a b': 1\n\"c\": 2\n", {"a b": 3, "c": 4}, "a b: 3\nc: 4\n", id="keys in quotes"),
        pytest.param("a: &x 1\nb: *x\n", {"c": 2}, "a: &x 1\nb: *x\nc: 2\n", id="anchors that are not touched"),
        pytest.param("é: 🙂\nb: ß # ü\n", {"b": "x"}, "é: 🙂\nb: x # ü\n", id="letters of all kinds"),
        pytest.param("a: {x: 1} # y\n", {"a": {"x": 2}}, "a: # y\n  x: 2\n", id="a map in braces"),
    ],
)
def test_documents_of_every_shape(source: str, changes: dict[str, Any], expected: str) -> None:
    result = edited(source, changes)
    assert (result.text, result.rewritten) == (expected, False)


@pytest.mark.parametrize(
    ("source", "changes", "expected"),
    [
        pytest.param('{"a": 1, "b": [2]}', {"a": 2}, {"a": 2, "b": [2]}, id="JSON"),
        pytest.param('{\n"a": 1,\n"b": 2\n}\n', {"b": 3}, {"a": 1, "b": 3}, id="JSON of several lines"),
        pytest.param("a: &x [1]\nb: *x\n", {"a": [2]}, {"a": [2], "b": [1]}, id="an anchor that is still needed"),
        pytest.param("a: &x 1\nb: &x 2\nc: *x\n", {"b": 3}, {"a": 1, "b": 3, "c": 2}, id="an anchor used twice"),
        pytest.param("  a: 1\n  b: 2\n", {"a": 2}, {"a": 2, "b": 2}, id="indented keys"),
        pytest.param("? a\n: 1\n? b\n: 2\n", {"b": 1}, {"a": 1, "b": 1}, id="keys with question marks"),
        pytest.param("a: &x {m: 1}\n<<: *x\n", {"m": 2}, {"a": {"m": 1}, "m": 2}, id="a key that is merged in"),
        pytest.param("a: 1\n", {"a": None}, {}, id="nothing is left"),
        pytest.param("# note\n{}\n", {"a": 1}, {"a": 1}, id="an empty map"),
    ],
)
def test_what_cannot_be_changed_in_place_is_written_anew_and_says_so(
    source: str, changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    result = edited(source, changes)
    assert result.rewritten
    assert data(result.text) == expected


INNER = """\
must_reach: # in any order
  # the first
  - one   # as always

  # the second: {a: 1}
  - two # sometimes
expected_outputs:
    # from the tool
    a.x: "1"   # was 2
    a.y: # nested
        z: 1
    text: |
        # no comment

        two
    # the last
    last: /x/ # a pattern
# how it ends
expected_status: completed
"""


@pytest.mark.parametrize(
    ("changes", "before", "after"),
    [
        pytest.param({"must_reach": ["two"]}, "  - one   # as always\n", "", id="an item goes"),
        pytest.param({"must_reach": ["one"]}, "  - two # sometimes\n", "", id="the last item goes"),
        pytest.param(
            {"must_reach": ["one", "two", "a: b"]},
            "  - two # sometimes\n",
            '  - two # sometimes\n  - "a: b"\n',
            id="an item comes",
        ),
        pytest.param(
            {"expected_outputs": {"a.x": "3"}}, 'a.x: "1"   # was 2', 'a.x: "3"   # was 2', id="a value changes"
        ),
        pytest.param(
            {"expected_outputs": {"a.y": {"z": [2]}}},
            "    a.y: # nested\n        z: 1\n",
            "    a.y: # nested\n      z:\n        - 2\n",
            id="a nested one",
        ),
        pytest.param({"expected_outputs": {"a.x": None}}, '    a.x: "1"   # was 2\n', "", id="a value goes"),
        pytest.param(
            {"expected_outputs": {"text": None}},
            "    text: |\n        # no comment\n\n        two\n",
            "",
            id="a text that looks like a comment goes",
        ),
        pytest.param(
            {"expected_outputs": {"last": 1, "new": True}},
            "    last: /x/ # a pattern\n",
            "    last: 1 # a pattern\n    new: true\n",
            id="a value comes",
        ),
    ],
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["", "windows"])
def test_comments_between_entries_stay(changes: dict[str, Any], before: str, after: str, line_end: str) -> None:
    assert INNER.count(before) == 1
    (key, value), *_ = changes.items()
    old = data(INNER)[key]
    if isinstance(value, dict):
        merged = {**old, **value}
        value = {name: each for name, each in merged.items() if each is not None}
    result = edited(INNER.replace("\n", line_end), {key: value})
    assert result.text == INNER.replace(before, after).replace("\n", line_end)
    assert not result.rewritten


@pytest.mark.parametrize(
    ("source", "changes", "expected"),
    [
        pytest.param("a:\n- x # 1\n# 2\n- y\n", {"a": ["y"]}, "a:\n# 2\n- y\n", id="a list that is not indented"),
        pytest.param("a:\n  - x\n  - y", {"a": ["x", "y", "z"]}, "a:\n  - x\n  - y\n  - z\n", id="no last line break"),
        pytest.param("a: [x, # 1\n  y]\nb: 1\n", {"a": ["y"]}, "a: # 1\n  - y\nb: 1\n", id="brackets have no lines"),
        pytest.param("a:\n  -\n    x\n  - y\n", {"a": ["y"]}, "a:\n  - y\n", id="a dash of its own"),
        pytest.param("a:\n  - y\n  - x\n", {"a": ["x", "y"]}, "a:\n  - x\n  - y\n", id="another order"),
        pytest.param("a:\n  - - x\n    - y\n  - z\n", {"a": ["z"]}, "a:\n  - z\n", id="lists in lists"),
        pytest.param("a:\n  x: 1 # 1\n  y: 2\n", {"a": ["x"]}, "a:\n  - x\n", id="a map becomes a list"),
        pytest.param("a:\n  x: &m {p: 1}\n  y: *m\n", {"a": {"y": {"p": 1}}}, "a:\n  y:\n    p: 1\n", id="anchors"),
        pytest.param(
            "m: &m {x: 1}\na:\n  <<: *m\n  y: 2\n", {"a": {"y": 2}}, "m: &m {x: 1}\na:\n  y: 2\n", id="merged"
        ),
    ],
)
def test_entries_of_every_shape(source: str, changes: dict[str, Any], expected: str) -> None:
    assert edited(source, changes).text == expected


@pytest.mark.parametrize(
    ("source", "why"),
    [
        pytest.param("a: [1\n", "line 1", id="no YAML"),
        pytest.param("- a\n", "expected a map", id="a list"),
        pytest.param("", "empty", id="nothing"),
        pytest.param("a: 1\na: 2\n", "twice", id="a key twice"),
        pytest.param("a: .inf\nb: {c: 1}\n", None, id="infinity elsewhere is left alone"),
        pytest.param("{a: .inf, b: 1}\n", "without changing", id="infinity that would have to be written"),
    ],
)
def test_a_document_that_cannot_be_changed_is_refused(source: str, why: str | None) -> None:
    if why is None:
        assert edited(source, {"b": 2}).text == "a: .inf\nb: 2\n"
        return
    with pytest.raises(DocumentError, match=why):
        edited(source, {"b": 2})


KEYS = st.text(st.sampled_from("abc_#: -\"'é"), min_size=1, max_size=4)
TEXT = st.text(st.sampled_from("ab #:-'\"\n{}[]&*|>é\t"), max_size=12)
VALUES = st.recursive(
    st.booleans() | st.integers(-5, 5) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
# More spaces than a text is indented by would be part of a text that stands before them.
COMMENTS = st.lists(st.sampled_from(["", "# note", "#", "# a: 1", " ", "# - x"]), max_size=3)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[str, Any], list[str]]:
    """A document with comments everywhere between its keys; its data and its comments."""
    root = draw(st.dictionaries(KEYS, VALUES, min_size=1, max_size=5))
    lines: list[str] = []
    comments: list[str] = []
    for key, value in root.items():
        if not lines or "|+" not in lines[-1]:
            between = draw(COMMENTS)
            lines += between
            comments += [line for line in between if line.strip()]
        lines += to_yaml({key: value}).removesuffix("\n").split("\n")
    return draw(st.sampled_from(["\n", "\r\n"])).join([*lines, ""]), root, comments


@given(documents(), st.dictionaries(KEYS, st.none() | VALUES, max_size=3), st.data())
@settings(max_examples=examples(120))
def test_the_data_is_what_was_meant_and_the_rest_is_kept(
    document: tuple[str, dict[str, Any], list[str]], changes: dict[str, Any], draws: st.DataObject
) -> None:
    source, root, comments = document
    # Not only new keys: some that are there, too.
    for key in draws.draw(st.lists(st.sampled_from(sorted(root)), max_size=3)):
        changes[key] = draws.draw(st.none() | VALUES)
    before = data(source)
    result = edited(source, changes)
    wanted = {**before, **changes}
    assert data(result.text) == {key: value for key, value in wanted.items() if key not in changes or value is not None}
    if not result.rewritten:
        kept = result.text.splitlines()
        assert [line for line in comments if line not in kept] == []
        for key, value in before.items():
            if key not in changes:
                assert to_yaml({key: value}).replace("\n", "\r\n" if "\r\n" in source else "\n") in result.text


@given(documents())
def test_changing_nothing_changes_no_byte(document: tuple[str, dict[str, Any], list[str]]) -> None:
    source, root, _ = document
    assert edited(source, {**root, "nobody": None}).text == source


# --- files


def test_a_file_keeps_its_permissions_its_line_ends_and_its_link(tmp_path: Path) -> None:
    real = tmp_path / "real" / "test.yaml"
    real.parent.mkdir()
    real.write_bytes(b"golden: false\r\n# why\r\n")
    real.chmod(0o640)
    link = tmp_path / "link.yaml"
    link.symlink_to(real)
    assert edit_file(str(link), {"golden": True})
    assert link.is_symlink()
    assert real.read_bytes() == b"golden: true\r\n# why\r\n"
    assert real.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in real.parent.iterdir()] == ["test.yaml"]


def test_a_file_that_is_right_already_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "test.yaml"
    file.write_text("golden: true\n")
    before = file.stat()
    assert edit_file(str(file), {"golden": True})
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_file_that_is_written_anew_says_so(tmp_path: Path) -> None:
    file = tmp_path / "test.yaml"
    file.write_text('{"golden": false}')
    assert not edit_file(str(file), {"golden": True})
    assert file.read_text() == "golden: true\n"


def test_a_new_file_is_as_open_as_others(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_atomically(str(tmp_path / "new.yaml"), "a: 1\n")
    finally:
        os.umask(before)
    assert (tmp_path / "new.yaml").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("place", ["a folder", "no folder", "a folder that cannot be written", "not text"])
def test_what_cannot_be_written_is_said_and_leaves_nothing(tmp_path: Path, place: str) -> None:
    if place == "not text":
        (tmp_path / "x.yaml").write_bytes(b"a: \xff\n")
        with pytest.raises(DocumentError, match="UTF-8"):
            edit_file(str(tmp_path / "x.yaml"), {"a": 1})
        return
    targets = {"a folder": tmp_path, "no folder": tmp_path / "a" / "b.yaml"}
    target = targets.get(place, Path("/proc/gert.yaml"))
    with pytest.raises(UsageError):
        write_atomically(str(target), "x")
    assert list(tmp_path.iterdir()) == []


def test_an_error_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "test.yaml"
    file.write_text("- a\n")
    with pytest.raises(DocumentError, match=r"test\.yaml: expected a map"):
        edit_file(str(file), {"golden": True})


@st.composite
def nested(draw: st.DrawFn) -> tuple[str, Any]:
    """A key with a map or list in it, and comments between its entries."""
    if draw(st.booleans()):
        value: Any = draw(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4))
        entries = [to_yaml({key: each}) for key, each in value.items()]
    else:
        value = draw(st.lists(VALUES, min_size=1, max_size=4))
        entries = [to_yaml({"k": [each]}).split("\n", 1)[1].replace("\n  ", "\n").removeprefix("  ") for each in value]
    lines = ["top:"]
    for entry in entries:
        lines += [f"  {line}".rstrip(" ") for line in draw(COMMENTS)]
        lines += [f"  {line}" if line else "" for line in entry.removesuffix("\n").split("\n")]
    source = "\n".join([*lines, "after: 1", ""])
    return source, value


@given(nested(), st.data())
@settings(max_examples=examples(120))
def test_whatever_stands_between_entries_the_data_is_what_was_meant(
    document: tuple[str, Any], draws: st.DataObject
) -> None:
    source, _ = document
    before = read(source.encode())
    if before.findings:
        return  # a comment fell into a text
    old = before.tree.root["top"]
    if isinstance(old, dict):
        gone = draws.draw(st.sets(st.sampled_from(sorted(old))))
        new: Any = {key: draws.draw(VALUES | st.just(each)) for key, each in old.items() if key not in gone}
    elif isinstance(old, list):
        new = [each for each in old if draws.draw(st.booleans())]
    else:
        return
    result = edited(source, {"top": new})
    assert data(result.text) == {"top": new, "after": 1}
    if not result.rewritten:
        assert result.text.endswith("after: 1\n")
