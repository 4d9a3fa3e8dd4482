"""Templates of tools: a name that is not declared, or a key that is not there, is an error and never empty text."""

from typing import Any

import pytest

from gert.errors import TemplateEvalError
from gert.kernel.template import parse
from gert.kernel.template.partial import render_known_parts
from gert.kernel.template.strict import Inputs, render_strictly
from gert.kernel.template.unknown import UNKNOWN

GIVEN: dict[str, Any] = {
    "cfg": {"name": "n", "inner": {"a": 1}, "nothing": None},
    "hosts": [{"name": "h"}, {"id": 2}],
    "word": "w",
    "null": None,
}
DECLARED = ("cfg", "hosts", "word", "null", "optional")


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
    ],
)
def test_a_template_that_does_not_is_an_error(source: str, said: str) -> None:
    for render in (render_strictly, render_known_parts):
        given = GIVEN if render is render_strictly else {**GIVEN, "other": UNKNOWN}
        with pytest.raises(TemplateEvalError, match=said):
            render(parse(source), Inputs(given, DECLARED))
