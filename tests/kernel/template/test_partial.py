"""Text from data that is partly unknown: what depends on an unknown value is `(unknown)`, the rest is as it will be."""

import re
from typing import Any

import pytest
from hypothesis import assume, given, settings
from tests.kernel.engine.test_symbolic import DATA, TEMPLATES, TURNS_OUT, replaced
from tests.soak import examples

from gert.errors import TemplateError, TemplateEvalError
from gert.kernel.template import parse, render
from gert.kernel.template.partial import render_known_parts
from gert.kernel.template.unknown import Unknown

PARTLY: dict[str, Any] = {**DATA, "host": Unknown("web-(unknown)"), "flag": True}


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        pytest.param("keep-{{ len .u }}", "keep-(unknown)", id="its length"),
        pytest.param("Evict {{ len .u }} of {{ .n }} keys", "Evict (unknown) of 1 keys", id="known parts stay"),
        pytest.param("{{ if gt (len .u) 2 }}drop{{ else }}keep{{ end }}", "(unknown)", id="an if on it"),
        pytest.param("{{ if .flag }}x{{ else if .u }}y{{ end }}", "x", id="an arm before it is taken"),
        pytest.param("{{ if not .flag }}x{{ else if .u }}y{{ end }}", "(unknown)", id="an else if on it"),
        pytest.param("{{ if .flag }}a {{ len .u }}{{ end }} b", "a (unknown) b", id="inside a known if"),
        pytest.param("{{ with .u }}{{ . }}!{{ end }}", "(unknown)", id="a with on it"),
        pytest.param("[{{ range .u }}x{{ end }}]", "[(unknown)]", id="a range over it"),
        pytest.param(
            "{{ range .plain }}{{ . }}{{ len $.u }} {{ end }}", "x(unknown) y(unknown) ", id="in a known range"
        ),
        pytest.param(
            "{{ range .items }}{{ .name }}:{{ .port }} {{ end }}", "a:80 (unknown):81 ", id="items known in part"
        ),
        pytest.param("{{ range .list }}{{ upper . }} {{ end }}", "X (unknown) Z ", id="items of a known list"),
        pytest.param("{{ $n := len .u }}{{ $n }} and {{ add $n 1 }}", "(unknown) and (unknown)", id="a variable"),
        pytest.param("{{ $n := 1 }}{{ $n = .u }}{{ add $n 1 }} x", "(unknown) x", id="a variable set to it"),
        pytest.param(
            "a {{ $n := 1 }}{{ if .u }}{{ $n = 2 }}{{ end }}{{ $n }}", "(unknown)", id="a variable set if it holds"
        ),
        pytest.param(
            "a {{ range .plain }}{{ if $.u }}{{ break }}{{ end }}x{{ end }}",
            "a (unknown)",
            id="a loop left if it holds",
        ),
        pytest.param("a {{ range .u }}{{ break }}{{ end }} b", "a (unknown) b", id="a break in a range over it"),
        pytest.param("{{ .u.name }} {{ .known }}", "(unknown) yes", id="a field of it"),
        pytest.param("ssh {{ .host }}", "ssh web-(unknown)", id="text that is known in part"),
        pytest.param("{{ .host | upper }} {{ len .host }}", "(unknown) (unknown)", id="computed from such text"),
        pytest.param("is {{ .map }}", 'is {"a":1,"b":"(unknown)","c/d":"(unknown)"}', id="a map that is known in part"),
        pytest.param("{{ len .map }} {{ toJson .map }}", "(unknown) (unknown)", id="computed from such a map"),
        pytest.param('{{ index .map "a" }} {{ index .map "b" }}', "1 (unknown)", id="one value of such a map"),
        pytest.param("{{ and false .u }} {{ or .known .u }}", "false yes", id="what it cannot change"),
        pytest.param("{{ and true .u }} {{ default 1 .u }}", "(unknown) (unknown)", id="what it may change"),
        pytest.param("{{ .u | default 1 | add 2 }}", "(unknown)", id="through a pipeline"),
        pytest.param("{{ (index .items 1).name }} {{ .missing }}", "(unknown) ", id="found in a list"),
        pytest.param("plain", "plain", id="no action"),
    ],
)
def test_what_is_computed_from_something_unknown_is_unknown(source: str, shown: str) -> None:
    assert render_known_parts(parse(source), PARTLY) == shown


def test_the_variables_of_a_statement_that_is_left_out_are_gone() -> None:
    source = "{{ $n := 1 }}{{ if $n := .missing }}{{ else if $n := len .u }}{{ end }}{{ $n }}"
    assert render_known_parts(parse(source), PARTLY) == "(unknown)1"


def test_an_error_that_depends_on_nothing_unknown_is_still_one() -> None:
    with pytest.raises(TemplateEvalError, match="`range` needs a list"):
        render_known_parts(parse("{{ .u }}{{ range .known }}{{ end }}"), PARTLY)


def test_it_has_a_budget() -> None:
    with pytest.raises(TemplateEvalError):
        render_known_parts(parse("{{ .u }}{{ range 100000000 }}{{ range 100000000 }}x{{ end }}{{ end }}"), PARTLY)


@settings(max_examples=examples(200))
@given(TEMPLATES)
def test_whatever_it_turns_out_to_be_the_known_parts_are_as_shown(source: str) -> None:
    try:
        template = parse(f"a {source} z")
        shown = render_known_parts(template, DATA)
    except TemplateError:
        assume(False)
    # An unknown value in a printed list or map is shown as a text, and may be of any type.
    parts = re.compile(".*".join(map(re.escape, re.split(r'\\*"?\(unknown\)\\*"?', shown))), re.DOTALL)
    for value in TURNS_OUT:
        try:
            real = render(template, replaced(DATA, value))
        except TemplateError:
            continue
        assert parts.fullmatch(real), f"{source} is shown as {shown}, and may be {real}"
