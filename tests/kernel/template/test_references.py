"""Which data a template may read."""

from typing import Any

import pytest
from tests.quickly import quickly

from gert.kernel.template import EACH, parse


def paths(source: str) -> list[tuple[Any, ...]]:
    return [reference.path for reference in parse(source).references]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("plain", [], id="text reads nothing"),
        pytest.param("{{ .a }}", [("a",)], id="a name"),
        pytest.param("{{ .a.b.c }}", [("a", "b", "c")], id="the longest path of a chain"),
        pytest.param("{{ .scope.round/0.x }}", [("scope", "round", "0", "x")], id="a slash is a dot"),
        pytest.param("{{ . }}", [()], id="everything"),
        pytest.param("{{ $ }}", [()], id="everything by the root"),
        pytest.param("{{ $.a.b }}", [("a", "b")], id="a path from the root"),
        pytest.param("{{ .a }}{{ .a }}", [("a",), ("a",)], id="each occurrence counts"),
        pytest.param("{{ eq .a .b 1 }}", [("a",), ("b",)], id="arguments"),
        pytest.param('{{ .a | printf "%s%s" .b | upper }}', [("a",), ("b",)], id="pipelines"),
        pytest.param("{{ (.a.b).c }}", [("a", "b", "c")], id="a path after parentheses"),
        pytest.param("{{ (or .a .b).c }}", [("a", "c"), ("b", "c")], id="what or hands on"),
        pytest.param("{{ (default .a .b).c }}", [("a", "c"), ("b", "c")], id="what default hands on"),
        pytest.param("{{ (.a | default .b).c }}", [("a", "c"), ("b", "c")], id="what a piped default hands on"),
        pytest.param("{{ (ternary .a .b .c).d }}", [("a", "d"), ("b", "d"), ("c",)], id="ternary"),
        pytest.param("{{ (coalesce .a .b).c }}", [("a", "c"), ("b", "c")], id="coalesce"),
        pytest.param('{{ index .a 0 "b" }}', [("a", 0, "b")], id="index by literals"),
        pytest.param("{{ (index .a 0).b.c }}", [("a", 0, "b", "c")], id="index and a path"),
        pytest.param("{{ index .m .k }}", [("m", EACH), ("k",)], id="index by data"),
        pytest.param('{{ index .m .k "x" }}', [("m", EACH, "x"), ("k",)], id="index by data and a literal"),
        pytest.param("{{ .k | index .m }}", [("k",), ("m", EACH)], id="index by a piped value"),
        pytest.param("{{ (first .xs).a }}", [("xs", EACH, "a")], id="the first element"),
        pytest.param("{{ (last .xs).a }}", [("xs", EACH, "a")], id="the last element"),
        pytest.param("{{ (index (slice .xs 1) 0).a }}", [("xs", EACH, "a")], id="a position in a slice is another"),
        pytest.param("{{ range values .m }}{{ .a }}{{ end }}", [("m",), ("m", EACH, "a")], id="the values of a map"),
        pytest.param("{{ (fromJson .s).x }}", [("s",)], id="what a function makes leads nowhere"),
        pytest.param('{{ range split "," .s }}{{ .x }}{{ end }}', [("s",)], id="elements that a function makes"),
        pytest.param(
            "{{ if .a }}{{ .b }}{{ else if .c }}{{ .d }}{{ else }}{{ .e }}{{ end }}",
            [("a",), ("b",), ("c",), ("d",), ("e",)],
            id="both arms",
        ),
        pytest.param("{{ range .xs }}{{ .name }}{{ end }}", [("xs",), ("xs", EACH, "name")], id="a path in range"),
        pytest.param("{{ range .xs }}{{ . }}{{ end }}", [("xs",), ("xs", EACH)], id="an element"),
        pytest.param("{{ range .xs }}{{ $.name }}{{ end }}", [("xs",), ("name",)], id="the root in range"),
        pytest.param(
            "{{ range $i, $x := .xs }}{{ $i }}{{ $x.a }}{{ end }}",
            [("xs",), ("xs", EACH, "a")],
            id="variables of range",
        ),
        pytest.param(
            "{{ range .xs }}{{ range .ys }}{{ .z }}{{ end }}{{ end }}",
            [("xs",), ("xs", EACH, "ys"), ("xs", EACH, "ys", EACH, "z")],
            id="range in range",
        ),
        pytest.param("{{ range .xs }}{{ else }}{{ .a }}{{ end }}", [("xs",), ("a",)], id="dot in the else of range"),
        pytest.param(
            "{{ with .a.b }}{{ .c }}{{ else }}{{ .d }}{{ end }}",
            [("a", "b"), ("a", "b", "c"), ("d",)],
            id="a path in with",
        ),
        pytest.param("{{ with $x := .a }}{{ $x.b }}{{ end }}", [("a",), ("a", "b")], id="a variable of with"),
        pytest.param("{{ $x := .a.b }}{{ $x.c }}", [("a", "b"), ("a", "b", "c")], id="a variable"),
        pytest.param("{{ $x := index .a 1 }}{{ $x.c }}", [("a", 1), ("a", 1, "c")], id="a variable of an element"),
        pytest.param(
            "{{ $x := .a }}{{ if .b }}{{ $x = .c }}{{ end }}{{ $x.d }}",
            [("a",), ("b",), ("c",), ("a", "d"), ("c", "d")],
            id="a variable that may be one or the other",
        ),
        pytest.param(
            "{{ $x := .a }}{{ range .xs }}{{ $x.d }}{{ $x = .c }}{{ end }}",
            [("a",), ("xs",), ("a", "d"), ("xs", EACH, "c", "d"), ("xs", EACH, "c")],
            id="a variable that the loop changes",
        ),
        pytest.param(
            "{{ $x := .a }}{{ if .b }}{{ $x := .c }}{{ $x.d }}{{ end }}{{ $x.e }}",
            [("a",), ("b",), ("c",), ("c", "d"), ("a", "e")],
            id="a variable that hides another",
        ),
        pytest.param("{{ len .xs }}{{ not .a }}", [("xs",), ("a",)], id="arguments of functions that make anew"),
    ],
)
def test_where_data_comes_from(source: str, expected: list[tuple[Any, ...]]) -> None:
    assert paths(source) == expected


@pytest.mark.parametrize(
    ("source", "tolerant"),
    [
        pytest.param("{{ .a }}", False, id="printing"),
        pytest.param("{{ upper .a }}", False, id="a function"),
        pytest.param("{{ default 1 .a }}", True, id="default"),
        pytest.param("{{ .a | default 1 }}", True, id="a piped default"),
        pytest.param("{{ .a | upper | default 1 }}", True, id="a default further on"),
        pytest.param("{{ .a | default 1 | upper }}", True, id="a default before"),
        pytest.param("{{ default 1 (upper .a) }}", True, id="a function in default"),
        pytest.param("{{ default 1 (add 1 .a) }}", False, id="arithmetic in default"),
        pytest.param("{{ coalesce .a 1 }}", True, id="coalesce"),
        pytest.param('{{ ternary "a" "b" .a }}', True, id="the condition of ternary"),
        pytest.param("{{ and .a 1 }}", True, id="and"),
        pytest.param("{{ or .a 1 }}", True, id="or"),
        pytest.param("{{ not .a }}", True, id="not"),
        pytest.param("{{ eq .a 1 }}", True, id="eq"),
        pytest.param("{{ ne .a 1 }}", True, id="ne"),
        pytest.param("{{ gt .a 1 }}", False, id="gt"),
        pytest.param("{{ if .a }}{{ end }}", True, id="the condition of if"),
        pytest.param("{{ if 0 }}{{ else if .a }}{{ end }}", True, id="the condition of else if"),
        pytest.param("{{ with .a }}{{ end }}", True, id="the condition of with"),
        pytest.param("{{ if gt .a 1 }}{{ end }}", False, id="gt in a condition"),
        pytest.param("{{ if len .a }}{{ end }}", True, id="len in a condition"),
        pytest.param("{{ range .a }}{{ end }}", False, id="range"),
        pytest.param("{{ $x := .a }}", False, id="a variable"),
        pytest.param('{{ (index .a "b").c | default 1 }}', True, id="index in default"),
    ],
)
def test_when_a_missing_value_is_expected(source: str, tolerant: bool) -> None:
    (reference,) = parse(source).references
    assert reference.tolerant is tolerant


def test_a_reference_says_where_it_stands() -> None:
    source = "a {{ .b }} {{ range $x := .c }}{{ $x.d }}{{ .e }}{{ end }} {{ (index .f 0).g }}"
    where = [source[reference.offset :][:4] for reference in parse(source).references]
    assert where == [".b }", ".c }", "$x.d", ".e }", ".f 0"]


def test_references_are_found_once() -> None:
    template = parse("{{ .once }}")
    assert template.references is template.references


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(
            "{{ $x := . }}{{ range .xs }}" * 30 + "{{ $x = $x.next }}" + "{{ end }}" * 30, id="many variables"
        ),
        pytest.param(
            "{{ $x := . }}" + "{{ range .xs }}" * 90 + "{{ $x = $x.next }}" + "{{ end }}" * 90, id="one variable"
        ),
        pytest.param("{{ $x := . }}{{ range .xs }}" + "{{ $x = $x.next }}" * 5000 + "{{ end }}", id="many assignments"),
        pytest.param("{{ with or" + " .a" * 5000 + " }}" + "{{ .b }}" * 5000 + "{{ end }}", id="many places"),
    ],
)
def test_a_loop_that_walks_ever_deeper_ends(source: str) -> None:
    assert len(parse(source).references) <= 16 * source.count(".")


@pytest.mark.parametrize(
    "call",
    [
        pytest.param("ternary $a{0} $a{0} true", id="ternary"),
        pytest.param("or $a{0} $a{0}", id="or"),
        pytest.param("default $a{0} $a{0}", id="default"),
        pytest.param("coalesce $a{0} $a{0} $a{0}", id="coalesce"),
        pytest.param("$a{0} | ternary $a{0} $a{0} | or $a{0}", id="a pipe"),
        pytest.param("index (ternary $a{0} $a{0} true) 0", id="index"),
        pytest.param("first (or $a{0} $a{0})", id="first"),
        pytest.param("slice (or $a{0}.b $a{0}.c) 1", id="slice"),
        pytest.param("(or $a{0}.b $a{0}.c).d", id="a path"),
    ],
)
def test_places_do_not_double_with_every_variable(call: str) -> None:
    source = "{{ $a0 := .x }}" + "".join(f"{{{{ $a{n + 1} := {call.format(n)} }}}}" for n in range(400))
    template = parse(source)
    with quickly(2):
        assert len(template.references) <= 16 * source.count("$")


def test_ternary_of_the_same_variable_comes_from_one_place() -> None:
    source = "{{ $a := .x }}{{ $b := ternary $a $a true }}{{ $b.y }}"
    assert paths(source)[-1] == ("x", "y")
    assert len(paths(source)) == 4


def test_what_an_earlier_round_assigned_is_followed() -> None:
    source = "{{ $x := 1 }}{{ $y := 1 }}{{ range .xs }}{{ $x.a }}{{ $x = $y }}{{ $y = .b }}{{ end }}"
    assert ("xs", EACH, "b", "a") in paths(source)
