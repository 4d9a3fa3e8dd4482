"""What parses, and what is said about what does not."""

import sys

import pytest

from gert.errors import TemplateSyntaxError
from gert.kernel.template import Template, parse
from gert.kernel.template.expression_parser import MAX_DEPTH
from gert.kernel.template.parser import MAX_SOURCE
from gert.kernel.template.tree import Call, Output, Path, Text


@pytest.mark.parametrize(
    ("source", "message", "offset", "hint"),
    [
        pytest.param("a {{ .x", "the action is not closed", 2, "close it with `}}`", id="an open action"),
        pytest.param(
            "{{ .check-dns }}",
            "a path may not contain `-`: `.check-dns`",
            9,
            'write it as `index . "check-dns"`',
            id="a dash in a path",
        ),
        pytest.param(
            "{{ .a.b-c }}",
            "a path may not contain `-`: `.a.b-c`",
            7,
            'write it as `index .a "b-c"`',
            id="a dash further in",
        ),
        pytest.param(
            "{{ $.b-c }}",
            "a path may not contain `-`: `$.b-c`",
            6,
            'write it as `index $ "b-c"`',
            id="a dash after the root",
        ),
        pytest.param("{{ uper .x }}", "unknown function `uper`", 3, "did you mean `upper`?", id="a misspelt function"),
        pytest.param(
            "{{ hasprefix .x }}",
            "unknown function `hasprefix`",
            3,
            "did you mean `hasPrefix`?",
            id="a function in the wrong case",
        ),
        pytest.param(
            "{{ hostname }}",
            "unknown function `hostname`",
            3,
            'write `.hostname` for data, or `"hostname"` for text',
            id="a forgotten dot",
        ),
        pytest.param(
            "{{ eq status 1 }}",
            "unexpected `status`",
            6,
            'write `.status` for data, or `"status"` for text',
            id="a forgotten dot in an argument",
        ),
        pytest.param(
            "{{ eq len .x 1 }}",
            "the function `len` cannot be an argument",
            6,
            "put it in parentheses, as in `eq (len …)`",
            id="forgotten parentheses",
        ),
        pytest.param("{{ len }}", "`len` takes 1 argument, found 0", 3, None, id="an argument too few"),
        pytest.param(
            "{{ 1 | len 2 }}", "`len` takes 1 argument, found 2", 7, None, id="the piped value counts as an argument"
        ),
        pytest.param(
            "{{ eq 1 }}", "`eq` takes at least 2 arguments, found 1", 3, None, id="too few for a function of many"
        ),
        pytest.param("{{ slice }}", "`slice` takes 1 to 4 arguments, found 0", 3, None, id="a range of counts"),
        pytest.param(
            '{{ define "x" }}',
            "`define` is not part of the template language: a template cannot include another",
            3,
            None,
            id="define",
        ),
        pytest.param(
            '{{ template "x" }}',
            "`template` is not part of the template language: a template cannot include another",
            3,
            None,
            id="template",
        ),
        pytest.param(
            '{{ block "x" . }}',
            "`block` is not part of the template language: a template cannot include another",
            3,
            None,
            id="block",
        ),
        pytest.param("{{ if .x }}", "`if` is not closed", 0, "close it with `{{ end }}`", id="an open if"),
        pytest.param("a{{ end }}", "unexpected `end`", 1, "no `if`, `range` or `with` is open", id="an end of nothing"),
        pytest.param("{{ break }}", "`break` outside `range`", 3, None, id="break outside range"),
        pytest.param("{{ if 1 }}{{ else }}{{ else }}{{ end }}", "`if` has a second `else`", 20, None, id="two else"),
        pytest.param(
            "{{ $x }}",
            "undefined variable `$x`",
            3,
            "declare it with `$x := …`, or write `.x` for data",
            id="an undeclared variable",
        ),
        pytest.param(
            "{{ $x = 1 }}",
            "undefined variable `$x`",
            3,
            "declare it with `$x := …`",
            id="setting an undeclared variable",
        ),
        pytest.param("{{ (.x }}", "a parenthesis is not closed", 7, None, id="an open parenthesis"),
        pytest.param("{{ .x) }}", "unexpected `)`", 5, None, id="a parenthesis too many"),
        pytest.param('{{ "abc }}', "the quoted text is not closed", 3, None, id="open quotes"),
        pytest.param("{{ `abc }}", "the raw text is not closed", 3, "close it with a backtick", id="open raw text"),
        pytest.param(r'{{ "\q" }}', "unknown escape `\\q`", 3, None, id="an unknown escape"),
        pytest.param(r'{{ "\xff" }}', "the escapes do not make UTF-8 text", 3, None, id="bytes that are no text"),
        pytest.param("{{ 12ab }}", "`12ab` is not a number", 3, None, id="a bad number"),
        pytest.param(
            "{{ 99999999999999999999 }}",
            "the number `99999999999999999999` does not fit in 64 bits",
            3,
            None,
            id="a number too large",
        ),
        pytest.param("{{ .x-}}", "a space must precede `-}}`", 5, None, id="a trim marker without space"),
        pytest.param("{{ .a b }}", "`.a` is not a function and takes no arguments", 6, None, id="arguments for data"),
        pytest.param("{{ .a | .b }}", "a function must follow `|`", 8, None, id="data after a pipe"),
        pytest.param("{{ .a | (.b) }}", "a function must follow `|`", 8, None, id="data in parentheses after a pipe"),
        pytest.param(
            "{{ .a | (eq .b .c) }}",
            "a function must follow `|`",
            8,
            "write it without parentheses",
            id="a whole call after a pipe",
        ),
        pytest.param(
            "{{ .a | (.b | len) }}", "a function must follow `|`", 8, None, id="a whole pipeline after a pipe"
        ),
        pytest.param(
            "{{ (len .a) 3 }}",
            "`(len .a)` is not a function and takes no arguments",
            12,
            None,
            id="arguments for a call",
        ),
        pytest.param(
            "{{ /* x */ }}",
            "a comment must fill its action",
            3,
            "write it as `{{/* … */}}`, or `{{- /* … */ -}}`",
            id="a comment with spaces",
        ),
        pytest.param("{{ 1 # 2 }}", "unexpected character `#`", 5, None, id="a character of no token"),
        pytest.param('{{ print "a""b" }}', 'a space must precede `"b"`', 12, None, id="operands that touch"),
        pytest.param(
            '{{ regexMatch "(a" .x }}',
            "`(a` is not a regular expression: missing ): (a",
            14,
            "escape brackets to match them as they are",
            id="a literal pattern is checked",
        ),
        pytest.param(
            "{{ print (1 := 2) }}",
            "unexpected `:=`",
            12,
            "assign at the start of an action, as in `{{ $x := … }}`",
            id="an assignment inside",
        ),
    ],
)
def test_what_does_not_parse(source: str, message: str, offset: int, hint: str | None) -> None:
    with pytest.raises(TemplateSyntaxError) as caught:
        parse(source)
    assert (caught.value.message, caught.value.offset, caught.value.hint) == (message, offset, hint)


def test_every_node_knows_its_offset() -> None:
    template = parse("ab {{- eq .x.y (len .z) }}")
    text, output = template.statements
    assert text == Text(0, "ab")
    assert isinstance(output, Output)
    assert output.offset == 3
    call = output.value
    assert isinstance(call, Call)
    assert [call.offset, *(argument.offset for argument in call.arguments)] == [7, 10, 16]
    assert parse("a{{ 1 -}}  b").statements[2] == Text(11, "b")


def test_a_slash_is_a_dot() -> None:
    assert parse("{{ .scope.round/0.x }}").statements == (Output(0, Path(3, ("scope", "round", "0", "x"))),)


@pytest.mark.parametrize(
    ("source", "is_text", "is_value"),
    [
        pytest.param("", True, False, id="nothing"),
        pytest.param("plain }}", True, False, id="text"),
        pytest.param("{{ .x }}", False, True, id="one action"),
        pytest.param("{{- .x | upper -}}", False, True, id="one trimmed action"),
        pytest.param("  {{- .x -}}  ", False, True, id="one action that trims all there is"),
        pytest.param("{{ .x }} ", False, False, id="an action and a space"),
        pytest.param("{{ .x }}{{ .y }}", False, False, id="two actions"),
        pytest.param("{{/* c */}}", False, False, id="a comment"),
        pytest.param("{{ if .x }}{{ .y }}{{ end }}", False, False, id="a conditional"),
        pytest.param("{{ $x := .y }}", False, False, id="an assignment"),
    ],
)
def test_what_kind_of_template_it_is(source: str, is_text: bool, is_value: bool) -> None:
    template = parse(source)
    assert (template.is_text, template.is_value) == (is_text, is_value)


def test_templates_are_equal_by_source() -> None:
    one, other = parse("{{ .x }}"), parse("{{ .x }}")
    assert one == other
    assert hash(one) == hash(other)
    assert one != parse("{{ .y }}")
    assert one != "{{ .x }}"
    assert repr(one) == "Template('{{ .x }}')"
    assert len(repr(parse("x" * 500))) < 80


def test_a_source_may_be_a_kind_of_str() -> None:
    class Located(str):
        pass

    assert type(parse(Located("{{ .x }}")).source) is str


@pytest.mark.parametrize(
    "nest",
    [
        pytest.param(lambda n: "{{" + "(" * n + "1" + ")" * n + "}}", id="parentheses"),
        pytest.param(lambda n: "{{ if 1 }}" * n + "{{ end }}" * n, id="if"),
        pytest.param(lambda n: "{{ with 1 }}" * n + "{{ end }}" * n, id="with"),
        pytest.param(lambda n: "{{ range 1 }}" * n + "{{ end }}" * n, id="range"),
        pytest.param(lambda n: "{{ if 1 }}{{ else }}" * n + "{{ end }}" * n, id="else"),
        pytest.param(lambda n: "{{ range 1 }}{{ else }}" * n + "{{ end }}" * n, id="range else"),
        pytest.param(lambda n: "{{ print (" + "print (" * (n - 1) + "1" + ")" * n + "}}", id="calls"),
    ],
)
def test_nesting_is_bounded(nest: object) -> None:
    assert callable(nest)
    assert isinstance(parse(nest(MAX_DEPTH)), Template)
    for depth in (MAX_DEPTH + 1, 20_000):
        with pytest.raises(TemplateSyntaxError, match="nested deeper than 100 levels"):
            parse(nest(depth))


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("{{ 1" + " | print" * 20_000 + " }}", id="a long pipeline"),
        pytest.param("{{ if 0 }}" + "{{ else if 0 }}" * 20_000 + "{{ end }}", id="many else if"),
        pytest.param("{{ print" + " 1" * 50_000 + " }}", id="many arguments"),
        pytest.param("{{ 1 }}" * 20_000, id="many actions"),
        pytest.param("{{ .a" + ".b" * 50_000 + " }}", id="a long path"),
        pytest.param("{{/* */}}" * 20_000, id="many comments"),
    ],
)
def test_length_needs_no_recursion(source: str) -> None:
    limit = sys.getrecursionlimit()
    assert parse(source).references is not None
    assert sys.getrecursionlimit() == limit


def test_the_length_of_a_source_is_bounded() -> None:
    parse("x" * (MAX_SOURCE + 1))
    with pytest.raises(TemplateSyntaxError, match="longer than"):
        parse("{{ 1 }}" + "x" * MAX_SOURCE)


def test_the_number_of_variables_is_bounded() -> None:
    parse("{{ $x := 1 }}" * 499)
    parse("{{ if $x := 1 }}{{ end }}" * 1000)
    with pytest.raises(TemplateSyntaxError, match="more than 500 variables"):
        parse("{{ $x := 1 }}" * 500)
