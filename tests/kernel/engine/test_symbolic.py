"""Unknown values: a template that may read one is never taken for known, whatever way it takes there."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.soak import examples

from gert.errors import TemplateError
from gert.kernel.engine.symbolic import any_reads_unknown, reads_unknown
from gert.kernel.template import parse, render
from gert.kernel.template.unknown import UNKNOWN, GuardedState, Unknown, UnknownRead, is_unknown

DATA: dict[str, Any] = {
    "known": "yes",
    "n": 1,
    "key": "b",
    "u": UNKNOWN,
    "record": {"code": UNKNOWN, "status": "success", "deep": {"er": [1, UNKNOWN]}},
    "items": [{"name": "a", "port": 80}, {"name": UNKNOWN, "port": 81}],
    "list": ["x", UNKNOWN, "z"],
    "plain": ["x", "y"],
    "map": {"a": 1, "b": UNKNOWN, "c/d": UNKNOWN},
    "scope": {"round": {"0": {"v": UNKNOWN}, "1": {"v": 1}}},
}


@pytest.mark.parametrize(
    "source",
    [
        "{{ .u }}",
        "{{ .u.anything.below }}",
        "text {{ .known }} {{ .u }}",
        "{{ .record }}",
        "{{ .record.code }}",
        "{{ .record.deep.er }}",
        "{{ index .record.deep.er 1 }}",
        "{{ toJson . }}",
        "{{ toJson .record.deep }}",
        "{{ range .items }}{{ .name }}{{ end }}",
        "{{ range $i, $e := .items }}{{ $e.name }}{{ end }}",
        "{{ range .items }}{{ .port }}{{ end }}",
        "{{ range .list }}x{{ end }}",
        "{{ range .plain }}{{ $.u }}{{ end }}",
        "{{ with .record }}{{ .code }}{{ end }}",
        "{{ with $r := .record }}{{ $r.deep.er }}{{ end }}",
        "{{ if .u }}a{{ end }}",
        "{{ if .known }}{{ else if .u }}a{{ end }}",
        "{{ if eq .u 1 }}a{{ end }}",
        "{{ $x := .u }}{{ $x }}",
        "{{ $x := .known }}{{ range .plain }}{{ $x = $.u }}{{ end }}{{ $x }}",
        "{{ index .map .key }}",
        '{{ index .map "b" }}',
        '{{ index .map "c/d" }}',
        "{{ index .list .n }}",
        "{{ index .list 1 }}",
        '{{ index .list "1" }}',
        '{{ index .list "01" }}',
        '{{ index .list "+1" }}',
        "{{ index .items 1 | toJson }}",
        "{{ (index .items 1).name }}",
        "{{ .list.1 }}",
        "{{ .items.1.name }}",
        "{{ .scope.round.0.v }}",
        "{{ .scope.round/0.v }}",
        "{{ first .list }}",
        "{{ last .items }}",
        "{{ slice .list 1 2 }}",
        "{{ default .u .missing }}",
        "{{ or .missing .u }}",
        "{{ and .known .u }}",
        "{{ ternary .u .known true }}",
        "{{ coalesce .missing .u }}",
        '{{ printf "%s" .u }}',
        "{{ .u | upper }}",
        "{{ len .u }}",
        "{{ values .map }}",
        "{{ join .list .known }}",
        "{{ .missing | default .record.code }}",
    ],
)
def test_reads_something_unknown(source: str) -> None:
    assert reads_unknown(parse(source), DATA)


@pytest.mark.parametrize(
    "source",
    [
        "plain text",
        "",
        "{{ .known }}",
        "{{ .missing }}",
        "{{ .missing.u }}",
        "{{ .record.status }}",
        "{{ .record.deep.er.0 }}",
        "{{ .list.0 }}",
        "{{ .list.9 }}",
        '{{ index .map "a" }}',
        "{{ .scope.round.1.v }}",
        "{{ .scope.round/1.v }}",
        "{{ range .plain }}{{ . }}{{ end }}",
        "{{ .items.0.name }}",
        "{{ .known.u }}",
        "{{ .plain.u }}",
        '{{ "{{ .u }}" }}',
        "{{/* .u */}}",
    ],
)
def test_reads_nothing_unknown(source: str) -> None:
    assert not reads_unknown(parse(source), DATA)


def replaced(value: Any, given: Any) -> Any:
    """The data as it may turn out to be."""
    if isinstance(value, Unknown):
        return given
    if isinstance(value, dict):
        return {key: replaced(each, given) for key, each in value.items()}
    return [replaced(each, given) for each in value] if isinstance(value, list) else value


PATHS = st.lists(
    st.sampled_from(
        ["u", "known", "record", "code", "deep", "er", "items", "list", "map", "scope", "round", "0", "1", "v"]
    ),
    min_size=1,
    max_size=4,
).map(lambda segments: "." + ".".join(segments))
ATOMS = PATHS | st.sampled_from(["$x", "$.u", ".", "$", '"b"', "1", ".key", ".n", '"1"', '"+1"', "0"])


def _calls(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    one = st.sampled_from(["len", "toJson", "first", "last", "keys", "values", "not", "quote", "index", "slice"])
    two = st.sampled_from(["eq", "index", "default", "or", "and", "slice", "coalesce", "contains", "join", "ne"])
    return st.one_of(
        st.builds(lambda f, a: f"({f} {a})", one, inner),
        st.builds(lambda f, a, b: f"({f} {a} {b})", two, inner, inner),
        st.builds(lambda a, b, c: f"(ternary {a} {b} {c})", inner, inner, inner),
        st.builds(lambda a, b: f"({a} | default {b})", inner, inner),
    )


EXPRESSIONS = st.recursive(ATOMS, _calls, max_leaves=4)
BODIES = EXPRESSIONS.map(lambda e: f"{{{{ {e} }}}}")
TEMPLATES = st.one_of(
    BODIES,
    st.builds(lambda e, b: f"{{{{ range {e} }}}}[{b}]{{{{ end }}}}", EXPRESSIONS, BODIES),
    st.builds(lambda e, b: f"{{{{ range $k, $x := {e} }}}}[{b}]{{{{ end }}}}", EXPRESSIONS, BODIES),
    st.builds(lambda e, b, c: f"{{{{ with {e} }}}}{b}{{{{ else }}}}{c}{{{{ end }}}}", EXPRESSIONS, BODIES, BODIES),
    st.builds(lambda e, b, c: f"{{{{ if {e} }}}}{b}{{{{ else }}}}{c}{{{{ end }}}}", EXPRESSIONS, BODIES, BODIES),
).map(lambda body: "{{ $x := .known }}" + body)

TURNS_OUT = ("text", "", "1", {"name": "n", "v": 2, "0": "zero"}, ["a", "b", "c"])


@settings(max_examples=examples(60))
@given(TEMPLATES)
def test_what_is_called_known_does_not_depend_on_anything_unknown(source: str) -> None:
    try:
        template = parse(source)
    except TemplateError:
        assume(False)
    if not reads_unknown(template, DATA):
        gave = [_rendered(template, replaced(DATA, value)) for value in TURNS_OUT]
        assert all(each == gave[0] for each in gave), f"{source} gives {gave}"


def _rendered(template: Any, data: Any) -> str:
    try:
        return render(template, data)
    except TemplateError:
        return "an error"


@pytest.mark.parametrize(
    ("value", "unknown"),
    [
        pytest.param(UNKNOWN, True, id="itself"),
        pytest.param(Unknown("host (unknown)"), True, id="text made with it"),
        pytest.param([1, [UNKNOWN]], True, id="in a list in a list"),
        pytest.param({"a": {"b": (UNKNOWN,)}}, True, id="in a tuple in a map"),
        pytest.param("(unknown)", False, id="text that only reads like it"),
        pytest.param({"(unknown)": 1}, False, id="a key that only reads like it"),
        pytest.param(None, False, id="nothing"),
        pytest.param([], False, id="an empty list"),
    ],
)
def test_what_is_unknown(value: Any, unknown: bool) -> None:
    assert is_unknown(value) is unknown


@pytest.mark.parametrize("depth", [10, 49, 50, 51, 100, 199])
def test_something_unknown_is_found_at_any_depth_data_may_have(depth: int) -> None:
    value: Any = UNKNOWN
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    assert is_unknown(value)
    assert reads_unknown(parse("{{ toJson .deep }}"), {"deep": value})


def test_a_position_of_thousands_of_digits_leads_nowhere() -> None:
    assert not reads_unknown(parse("{{ .list." + "9" * 5000 + " }}"), DATA)


@pytest.mark.parametrize("digits", ["\u0661", "\u00b2", "\uff11"], ids=["Arabic", "superscript", "full width"])
def test_digits_of_other_scripts_are_no_positions(digits: str) -> None:
    template = parse(f'{{{{ index .map "{digits}" }}}}')
    assert not reads_unknown(template, {"map": {"1": UNKNOWN}})


def test_a_nested_value_reads_what_any_of_its_templates_reads() -> None:
    assert any_reads_unknown({"a": ["x", {"b": parse("{{ .u }}")}], "c": parse("{{ .known }}")}, DATA)
    assert not any_reads_unknown({"a": [parse("{{ .known }}")]}, DATA)
    assert not any_reads_unknown([1, None, True, "{{ .u }}"], DATA)


def test_something_unknown_prints_as_what_is_known_of_it() -> None:
    assert f"{UNKNOWN}" == "(unknown)"
    assert Unknown("a") + "b" == "ab"


@pytest.mark.parametrize("look", [len, list, dict, bool], ids=lambda look: look.__name__)
@pytest.mark.parametrize("path", ["record", "map", "scope"])
def test_a_map_with_an_unknown_value_cannot_be_counted_or_listed(path: str, look: Callable[[Any], Any]) -> None:
    with pytest.raises(UnknownRead):
        look(GuardedState(DATA)[path])


def test_a_map_that_is_known_is_counted_and_listed_beside_one_that_is_not() -> None:
    rounds = GuardedState(DATA)["scope"]["round"]
    assert list(rounds["1"]) == ["v"]
    assert len(rounds["1"]) == 1
