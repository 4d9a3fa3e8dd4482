"""Templates of tools: a name that is not declared, or a key that is not there, is an error and never empty text."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.errors import TemplateEvalError
from gert.kernel.template import parse, render
from gert.kernel.template.partial import render_known_parts
from gert.kernel.template.strict import Inputs, render_strictly
from gert.kernel.template.unknown import UNKNOWN

GIVEN: dict[str, Any] = {
    "cfg": {"name": "n", "inner": {"a": 1}, "nothing": None},
    "hosts": [{"name": "h"}, {"id": 2}],
    "word": "w",
    "null": None,
    "empty": [],
    "partly": [{"name": None}, None],
}
DECLARED = (*GIVEN, "optional")


def both(source: str) -> list[str]:
    """What it renders to, and what is shown of it where another input is unknown."""
    inputs = Inputs(GIVEN, DECLARED)
    return [
        render_strictly(parse(source), inputs),
        render_known_parts(parse(source), Inputs({**GIVEN, "other": UNKNOWN}, DECLARED)),
    ]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        pytest.param("/{{ .cfg.name }}", "/n", id="a key that is there"),
        pytest.param("--file={{ .optional }}", "--file=", id="an input that is not given"),
        pytest.param("--file={{ .optional.name }}", "--file=", id="a key of an input that is not given"),
        pytest.param("{{ .null }}{{ .cfg.nothing }}", "", id="null"),
        pytest.param('{{ default "x" .cfg.nmae }}', "x", id="a key with a default"),
        pytest.param('{{ .cfg.nmae | default "x" }}', "x", id="a key piped into a default"),
        pytest.param('{{ .cfg.nmae | upper | default "x" }}', "x", id="a key piped through a function"),
        pytest.param('{{ default "x" (upper .cfg.nmae) }}', "x", id="a key in an argument of a default"),
        pytest.param('{{ default "x" (index .cfg "nmae") }}', "x", id="an index with a default"),
        pytest.param('{{ coalesce .cfg.nmae .cfg.name "x" }}', "n", id="the first that is there"),
        pytest.param("{{ or .cfg.nmae .cfg.name }}", "n", id="one or the other"),
        pytest.param("{{ if .cfg.nmae }}-x{{ .cfg.nmae }}{{ else }}no{{ end }}", "no", id="a guard"),
        pytest.param("{{ with .cfg.nmae }}-x{{ . }}{{ end }}", "", id="with"),
        pytest.param("{{ with $x := .cfg.nmae }}{{ $x }}{{ end }}", "", id="with a variable"),
        pytest.param('{{ eq .cfg.nmae "x" }}', "false", id="a comparison"),
        pytest.param('{{ range .hosts }}{{ default "-" .name }}{{ end }}', "h-", id="keys of items with a default"),
        pytest.param("{{ range .hosts }}{{ $.word }}{{ end }}", "ww", id="the root inside of a loop"),
        pytest.param(
            '{{ index . "optional" }}{{ index $ "optional" "a" }}', "", id="an input that is not given, by index"
        ),
        pytest.param('{{ index . "cfg" "nothing" "a" }}', "", id="a key of null, by index"),
        pytest.param('{{ index . "cfg" "inner" "a" }}', "1", id="a path of keys by index"),
        pytest.param('{{ default "x" (first .empty) }}', "x", id="the first of an empty list with a default"),
        pytest.param("{{ first .optional }}", "", id="the first of an input that is not given"),
        pytest.param('{{ $x := .cfg.nmae }}{{ default "x" $x }}', "x", id="a variable with a default"),
        pytest.param('{{ ternary .cfg.nmae "x" false }}', "x", id="the value that is not chosen"),
        pytest.param('{{ ternary "a" "b" .cfg.nmae }}', "b", id="a choice by what is not there"),
        pytest.param("{{ if and .cfg.name .cfg.nmae }}a{{ else }}b{{ end }}", "b", id="a guard with and"),
        pytest.param("{{ if not .cfg.nmae }}a{{ end }}", "a", id="a guard with not"),
        pytest.param("{{ eq (len .cfg.nmae) 0 }}", "true", id="a comparison of a length"),
        pytest.param('{{ join "," (pluck "name" .partly) }}', ",", id="null, plucked"),
        pytest.param('{{ len (filter "name" "h" .hosts) }}', "1", id="a filter, which compares"),
        pytest.param("{{ or .cfg.nmae .optional }}", "", id="or an input that is not given"),
    ],
)
def test_a_template_that_handles_what_is_missing_renders(source: str, text: str) -> None:
    assert both(source) == [text, text]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        pytest.param("/base/{{ .fodler }}", "declares no input `fodler`", id="a name that is not declared"),
        pytest.param("{{ if .fodler }}x{{ end }}", "declares no input `fodler`", id="in a guard"),
        pytest.param('{{ default "x" .fodler }}', "declares no input `fodler`", id="with a default"),
        pytest.param('{{ index . "fodler" }}', "declares no input `fodler`", id="by index"),
        pytest.param("{{ range .hosts }}{{ $.fodler }}{{ end }}", "declares no input `fodler`", id="in a loop"),
        pytest.param("{{ with .cfg }}{{ $.fodler.x }}{{ end }}", "declares no input `fodler`", id="below with"),
        pytest.param("{{ .cfg.nmae }}", "there is no `nmae` in a map", id="a key that is not there"),
        pytest.param("{{ .cfg.inner.b }}", "there is no `b` in a map", id="a key further down"),
        pytest.param("{{ .word.x }}", "there is no `x` in text", id="a key of a text"),
        pytest.param("{{ .hosts.7 }}", "there is no `7` in a list", id="an item that is not there"),
        pytest.param("{{ upper .cfg.nmae }}", "there is no `nmae`", id="a key in a call"),
        pytest.param("{{ .cfg.nmae | upper }}", "there is no `nmae`", id="a key in a pipeline"),
        pytest.param('{{ index .cfg "nmae" }}', "`index` finds nothing in a map", id="a key by index"),
        pytest.param("{{ range .hosts }}{{ .name }}{{ end }}", "there is no `name`", id="a key that an item lacks"),
        pytest.param("{{ range .cfg.nmae }}{{ end }}", "there is no `nmae`", id="a loop over what is not there"),
        pytest.param("{{ if .cfg.name }}{{ .cfg.nmae }}{{ end }}", "there is no `nmae`", id="below a guard of another"),
        pytest.param("{{ $x := .cfg.nmae }}{{ $x }}", "there is no `nmae`", id="in a variable"),
        pytest.param('{{ index . "cfg" "nmae" }}', "`index` finds nothing in a map", id="a key of an input by index"),
        pytest.param('{{ index $ "cfg" "inner" "b" }}', "`index` finds nothing in a map", id="further down by index"),
        pytest.param('{{ (index . "cfg").nmae }}', "there is no `nmae`", id="a key of an index"),
        pytest.param('{{ index .hosts 1 "name" }}', "`index` finds nothing in a map", id="a key of an item by index"),
        pytest.param("{{ index .hosts 2 }}", "out of range", id="an item that is not there by index"),
        pytest.param('{{ range pluck "name" .hosts }}/{{ . }} {{ end }}', "there is no `name`", id="a loop over keys"),
        pytest.param('{{ join " " (pluck "name" .hosts) }}', "there is no `name`", id="joined keys"),
        pytest.param('{{ last (pluck "name" .hosts) }}', "there is no `name`", id="the last of keys"),
        pytest.param('{{ pluck "nmae" .hosts | first }}', "there is no `nmae`", id="the first of keys, in a pipeline"),
        pytest.param('{{ toJson (pluck "name.x" .hosts) }}', "there is no `x` in text", id="keys as JSON"),
        pytest.param('{{ ternary .cfg.nmae "x" true }}', "there is no `nmae`", id="the value that is chosen"),
        pytest.param('{{ and .cfg.nmae "x" }}', "there is no `nmae`", id="and"),
        pytest.param("{{ and .cfg.name .cfg.nmae }}", "there is no `nmae`", id="the last of and"),
        pytest.param("{{ or .cfg.nmae .cfg.nam }}", "there is no `nam`", id="neither one nor the other"),
        pytest.param("{{ coalesce .cfg.nmae .cfg.nam }}", "there is no `nmae`", id="none that is there"),
        pytest.param("{{ default .cfg.nmae .optional }}", "there is no `nmae`", id="a default that is not there"),
        pytest.param('{{ ternary (upper .cfg.nmae) "x" true }}', "there is no `nmae`", id="chosen, from a function"),
        pytest.param('{{ default "x" (print "base/" .cfg.nmae) }}', "there is no `nmae`", id="text with a part"),
        pytest.param("{{ with $x := .cfg.nmae }}{{ else }}{{ $x }}{{ end }}", "there is no `nmae`", id="else of with"),
        pytest.param(
            "{{ with print 1 .cfg.nmae }}{{ . }}{{ end }}", "there is no `nmae`", id="text with a part, in with"
        ),
        pytest.param('{{ printf "%s" .cfg.nmae }}', "there is no `nmae`", id="printf"),
        pytest.param("{{ toJson .cfg.nmae }}", "there is no `nmae`", id="as JSON"),
        pytest.param("{{ len .cfg.nmae }}", "there is no `nmae`", id="its length"),
        pytest.param("{{ default 1 (add 1 .cfg.nmae) }}", "there is no `nmae`", id="a sum"),
        pytest.param("{{ (first .hosts).nmae }}", "there is no `nmae`", id="a key of the first item"),
        pytest.param("{{ (first .empty).name }}", "`first` finds nothing in an empty list", id="a key of no item"),
        pytest.param("{{ first .empty }}", "`first` finds nothing in an empty list", id="the first of an empty list"),
        pytest.param("{{ .empty | last }}", "`last` finds nothing in an empty list", id="the last of an empty list"),
        pytest.param('{{ filter "name" .cfg.nmae .hosts }}', "there is no `nmae`", id="a filter by what is not there"),
        pytest.param("{{ range .cfg.nmae }}{{ else }}x{{ end }}", "there is no `nmae`", id="else of a loop"),
        pytest.param('{{ (fromJson "{}").a }}', "there is no `a` in a map", id="a key of JSON"),
    ],
)
def test_a_template_that_does_not_is_an_error(source: str, said: str) -> None:
    for strictly in (render_strictly, render_known_parts):
        data = GIVEN if strictly is render_strictly else {**GIVEN, "other": UNKNOWN}
        with pytest.raises(TemplateEvalError, match=said):
            strictly(parse(source), Inputs(data, DECLARED))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        pytest.param(
            '{{ with $c := . }}{{ index $c "cfg" "inner" "b" }}{{ end }}', "`index` finds", id="by a variable"
        ),
        pytest.param('{{ index (or . "x") "cfg" "nmae" }}', "`index` finds nothing", id="by the inputs, chosen"),
        pytest.param('{{ index (or . "x") "fodler" }}', "declares no input", id="an input by the inputs, chosen"),
    ],
)
def test_the_inputs_as_a_value_lack_the_same(source: str, said: str) -> None:
    with pytest.raises(TemplateEvalError, match=said):
        render_strictly(parse(source), Inputs(GIVEN, DECLARED))


ATOMS = (".cfg.name", ".cfg.nmae", ".optional", ".empty", ".hosts", '"x"', '""', "0", '(index . "cfg" "inner" "b")')
expressions = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.builds(
            "({} {})".format, st.sampled_from(("upper", "len", "not", "first", "last", "print", "toJson")), inner
        ),
        st.builds(
            "({} {} {})".format, st.sampled_from(("default", "coalesce", "or", "and", "eq", "join")), inner, inner
        ),
        st.builds("(ternary {} {} {})".format, inner, inner, inner),
        st.builds("(pluck `name` {})".format, inner),
        st.builds("({} | default {})".format, inner, inner),
    ),
    max_leaves=8,
)


@given(one=expressions, other=expressions)
def test_a_template_of_a_tool_renders_as_it_does_elsewhere_or_not_at_all(one: str, other: str) -> None:
    template = parse(f"{{{{ if {one} }}}}{{{{ {other} }}}}{{{{ else }}}}-{{{{ {one} }}}}{{{{ end }}}}")
    for strictly in (render_strictly, render_known_parts):
        try:
            text = strictly(template, Inputs(GIVEN, DECLARED))
        except TemplateEvalError:
            continue
        assert text == render(template, GIVEN)
