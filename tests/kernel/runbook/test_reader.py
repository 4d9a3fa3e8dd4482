"""The YAML reader: YAML 1.2 core scalars, places, bounds, and one clear error for anything hostile."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.quickly import quickly

from gert.kernel.runbook.plain_scalars import resolve_plain
from gert.kernel.runbook.reader import read
from gert.kernel.runbook.tree import Map
from gert.kernel.runbook.tree_builder import Limits


def root(text: str) -> object:
    reading = read(text.encode())
    assert reading.findings == []
    return reading.tree.root


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("yes", "yes", id="yes is text"),
        pytest.param("on", "on", id="on is text"),
        pytest.param("true", True, id="true is a boolean"),
        pytest.param("False", False, id="False is a boolean"),
        pytest.param("~", None, id="a tilde is nothing"),
        pytest.param("Null", None, id="Null is nothing"),
        pytest.param("0x1F", 31, id="hexadecimal"),
        pytest.param("0o17", 15, id="octal is written 0o"),
        pytest.param("017", 17, id="a leading zero is not octal"),
        pytest.param("-7", -7, id="negative"),
        pytest.param("1_000", "1_000", id="underscores are text"),
        pytest.param("1.10", 1.1, id="a float"),
        pytest.param("1e3", 1000.0, id="an exponent"),
        pytest.param(".5", 0.5, id="a bare fraction"),
        pytest.param("-.INF", -math.inf, id="minus infinity"),
        pytest.param("12:30:45", "12:30:45", id="no sexagesimals"),
        pytest.param("2026-11-15", "2026-11-15", id="no dates"),
        pytest.param("1.2.3", "1.2.3", id="a version is text"),
        pytest.param("9" * 500, "9" * 500, id="endless digits are text"),
        pytest.param("=", "=", id="an equals sign is text"),
        pytest.param("-", "-", id="a dash is text"),
    ],
)
def test_plain_scalars_follow_the_yaml_1_2_core_schema(text: str, value: object) -> None:
    resolved = resolve_plain(text)
    assert resolved == value
    assert type(resolved) is type(value)


def test_quoted_scalars_are_always_text() -> None:
    assert root("a: 'true'\nb: \"1\"\nc: |\n  2\n") == {"a": "true", "b": "1", "c": "2\n"}


def test_the_source_text_of_a_scalar_is_kept() -> None:
    tree = read(b"version: 1.10\nlist: [0x10, TRUE]\n").tree
    assert tree.root.texts == {"version": "1.10"}
    assert tree.root["list"].texts == {0: "0x10", 1: "TRUE"}


def test_keys_are_their_literal_text() -> None:
    assert root("200: ok\ntrue: yes\n~: nothing\n") == {"200": "ok", "true": "yes", "~": "nothing"}


def test_every_key_and_value_has_its_line_and_column() -> None:
    tree = read("a: 1\nb:\n  - x: ä\n    é: [1, {z: 2}]\n".encode()).tree
    places = {
        ("a",): (1, 4),
        ("b", 0): (3, 5),
        ("b", 0, "é", 1, "z"): (4, 16),
    }
    for path, place in places.items():
        assert tree.line_column(tree.index_of(path)) == place
    assert tree.line_column(tree.index_of(("b", 0, "é"), on_key=True)) == (4, 5)
    assert tree.line_column(tree.index_of(("b", 7, "gone"))) == (3, 3)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_lines_are_counted_whatever_ends_them(newline: str) -> None:
    tree = read(newline.join(["# one", "a: 1", "b: 2"]).encode()).tree
    assert tree.line_column(tree.index_of(("b",))) == (3, 4)
    assert tree.source_line(3) == "b: 2"


class TestAnchors:
    def test_an_alias_is_what_it_names(self) -> None:
        assert root("a: &x {k: 1}\nb: *x\n") == {"a": {"k": 1}, "b": {"k": 1}}

    def test_a_merge_adds_what_is_not_there(self) -> None:
        assert root("d: &d {x: 1, y: 1.10}\ne:\n  <<: *d\n  x: 2\n")["e"] == {"x": 2, "y": 1.1}  # type: ignore[index]

    def test_earlier_merge_sources_win(self) -> None:
        merged = root("a: &a {k: 1}\nb: &b {k: 2, l: 3}\nc:\n  <<: [*a, *b]\n")
        assert merged["c"] == {"k": 1, "l": 3}  # type: ignore[index]

    def test_merged_values_keep_their_text_and_place(self) -> None:
        tree = read(b"d: &d {y: 1.10}\ne:\n  <<: *d\n").tree
        assert tree.root["e"].texts == {"y": "1.10"}
        assert tree.line_column(tree.index_of(("e", "y"))) == (1, 11)

    def test_a_quoted_merge_key_is_just_a_key(self) -> None:
        assert root("'<<': 1\n") == {"<<": 1}

    def test_an_alias_of_a_number_is_a_key_as_it_is_written(self) -> None:
        assert read(b"a: &k 0x1F\nb: { *k : 2 }\n").tree.root["b"] == {"0x1F": 2}

    def test_an_alias_may_be_a_key(self) -> None:
        assert root("- &k name\n- {*k : 1}\n") == ["name", {"name": 1}]


@pytest.mark.parametrize(
    ("source", "rule", "place"),
    [
        pytest.param(b"a: 1\na: 2\n", "Y06", (2, 1), id="a key twice"),
        pytest.param(b"a: {b: 1, b: 2, b: 3}\n", "Y06", (1, 11), id="a key thrice"),
        pytest.param(b"a: !!str 1\n", "Y05", (1, 4), id="a tag"),
        pytest.param(b"a: !custom [1]\n", "Y05", (1, 4), id="a tag on a list"),
        pytest.param(b"%TAG ! tag:x,2000:\n---\na: 1\n", "Y05", (1, 1), id="a tag directive"),
        pytest.param(b"a: 1\n---\nb: 2\n", "Y04", (2, 1), id="two documents"),
        pytest.param(b"", "Y04", (1, 1), id="an empty file"),
        pytest.param(b"# only a comment\n", "Y04", (1, 1), id="only a comment"),
        pytest.param(b"a: *x\n", "Y08", (1, 4), id="an alias of nothing"),
        pytest.param(b"a: &x [*x]\n", "Y08", (1, 8), id="an alias inside what it names"),
        pytest.param(b"? [a]\n: b\n", "Y07", (1, 3), id="a list as key"),
        pytest.param(b"a: {{ .x }}\n", "Y07", (1, 5), id="an unquoted template"),
        pytest.param(b"<<: 1\n", "Y09", (1, 5), id="a merge of a number"),
        pytest.param(b"<<: {a: 1}\n<<: {b: 1}\n", "Y06", (2, 1), id="two merge keys"),
        pytest.param(b"a: [1\n", "Y03", (1, 4), id="an open bracket"),
        pytest.param(b"a:\n\tb: 1\n", "Y03", (2, 1), id="a tab for indentation"),
        pytest.param(b"a: 'x\x07'\n", "Y03", (1, 6), id="a control character"),
        pytest.param(b'a: "\\ud800"\n', "Y03", (1, 7), id="a lone surrogate"),
        pytest.param(b"a: b\0c\n", "Y02", (1, 5), id="a NUL byte"),
        pytest.param(b"ok: 1\na: \xff\n", "Y02", (2, 4), id="invalid UTF-8"),
        pytest.param(b"\xef\xbb\xbfa: 1\n", "Y02", (1, 1), id="a UTF-8 byte order mark"),
        pytest.param("a: 1".encode("utf-16"), "Y02", (1, 1), id="UTF-16"),
        pytest.param(b"[" * 200_000, "Y01", (1, 65), id="200,000 open brackets"),
        pytest.param(b"- " * 200_000, "Y01", (1, 129), id="200,000 nested lists"),
        pytest.param(b"{a: " * 200_000, "Y01", (1, 257), id="200,000 nested maps"),
        pytest.param(b"a: " + b"x" * 100_000_000, "Y01", (1, 1), id="100 MB"),
    ],
)
def test_what_cannot_be_read_gives_its_finding_at_once(source: bytes, rule: str, place: tuple[int, int]) -> None:
    with quickly(30):
        findings = read(source).findings
    first = findings[0]
    assert (first.rule, (first.line, first.column)) == (rule, place)
    assert {finding.rule for finding in findings} == {rule}


def test_an_alias_bomb_is_defused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    [finding] = read("\n".join(lines).encode()).findings
    assert finding.rule == "Y01"


@pytest.mark.parametrize(
    "named",
    [
        pytest.param(b"x" * 1000, id="a long text"),
        pytest.param(b"[" + b"y" * 1000 + b"]", id="a list with a long text"),
        pytest.param(b"{k: &b " + b"z" * 400 + b", l: *b, m: *b}", id="a map with aliases of a text inside"),
    ],
)
def test_aliases_cannot_repeat_a_text_without_end(named: bytes) -> None:
    limits = Limits(size=4000)
    sound = b"a: &a " + named + b"\nb: [*a, *a]\n"
    assert read(sound, limits).findings == []
    [finding] = read(b"a: &a " + named + b"\nb: [*a, *a, *a, *a, *a]\n", limits).findings
    assert finding.rule == "Y01"
    assert "of text" in finding.message
    assert finding.line == 2


def test_aliases_cannot_hide_depth() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 100)]
    [finding] = read("\n".join(lines).encode()).findings
    assert "nested deeper" in finding.message


def test_limits_can_be_lowered() -> None:
    assert read(b"a: [1, 2, 3]", Limits(nodes=4)).findings[0].rule == "Y01"
    assert read(b"a: [[1]]", Limits(depth=2)).findings[0].rule == "Y01"
    assert read(b"a: [1]", Limits(depth=2)).findings == []


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_reader(source: bytes) -> None:
    reading = read(source)
    assert reading.findings or reading.tree.root is not None or source.strip()
    for finding in reading.findings:
        assert finding.line >= 1
        assert finding.column >= 1


@given(st.text(alphabet="ab:-[]{},&*!|>'\"#%@`?~ \n\t0.<", max_size=120))
def test_no_yaml_like_text_crashes_the_reader(text: str) -> None:
    reading = read(text.encode())
    for finding in reading.findings:
        assert finding.rule.startswith("Y")


PLAIN = st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789 é", min_size=1, max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=10).filter(str.isprintable),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(PLAIN, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_json_is_read_as_itself(value: object) -> None:
    import json

    reading = read(json.dumps(value, ensure_ascii=False).encode())
    assert reading.findings == []
    assert reading.tree.root == value


@given(st.dictionaries(PLAIN, VALUES, min_size=1, max_size=5))
def test_every_value_is_found_at_its_place(value: dict[str, object]) -> None:
    import json

    text = json.dumps(value, indent=2, ensure_ascii=False)
    tree = read(text.encode()).tree
    assert isinstance(tree.root, Map)
    for key, item in value.items():
        start = tree.index_of((key,))
        assert tree.text[start:].startswith(json.dumps(item, ensure_ascii=False)[0])
        assert tree.text[tree.index_of((key,), on_key=True) :].startswith(json.dumps(key, ensure_ascii=False))


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("a: {{ .x }}", "put a value that contains `{{` in quotes"),
        ('a: "{{ split " " .x }}"', "in single quotes"),
        ('a: [-w, %{code}, "{{ .x }}"]', "put a value that begins with `%` in quotes"),
        ('a: "^127\\.0"', "in double quotes a backslash begins an escape"),
        ("a:\n\t- b", "indent with spaces, not tabs"),
    ],
)
def test_a_hint_names_the_fix(line: str, hint: str) -> None:
    [finding] = read(f"b: 1\n{line}\n".encode()).findings
    assert hint in (finding.hint or "")
