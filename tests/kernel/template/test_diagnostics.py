"""What is said to those who write as in another language."""

import re

import pytest
from tests.quickly import quickly

from gert.errors import TemplateSyntaxError
from gert.kernel.template import parse


def mistake(source: str) -> TemplateSyntaxError:
    with pytest.raises(TemplateSyntaxError) as caught:
        parse(source)
    return caught.value


# The place of the mistake is marked with ⌖; the hint is what to write.
REWRITTEN = [
    ('{{ .host ⌖== "x" }}', 'eq .host "x"'),
    ('{{ .host⌖=="x" }}', 'eq .host "x"'),
    ("{{ if .env ⌖== prod }}{{ end }}", 'eq .env "prod"'),
    ("{{ if $.n ⌖== 1 }}{{ end }}", "eq $.n 1"),
    ("{{ $x := 1 }}{{ if $x ⌖== 1 }}{{ end }}", "eq $x 1"),
    ("{{ print (.a ⌖== 1) }}", "eq .a 1"),
    ("{{ .host ⌖!= 'prod' }}", 'ne .host "prod"'),
    ("{{ .a ⌖&& .b }}", "and .a .b"),
    ("{{ eq .a 1 ⌖&& ne .b 2 }}", "and (eq .a 1) (ne .b 2)"),
    ("{{ .a⌖||.b }}", "or .a .b"),
    ("{{ if ⌖!.a }}{{ end }}", "not .a"),
    ("{{ if ⌖! eq .a 1 }}{{ end }}", "not (eq .a 1)"),
    ("{{ len .x ⌖> 3 }}", "gt (len .x) 3"),
    ("{{ .x | len ⌖>= 3 }}", "ge (.x | len) 3"),
    ("{{ .a⌖<5 }}", "lt .a 5"),
    ("{{ (len .a) ⌖<= (len .b) }}", "le (len .a) (len .b)"),
    ("{{ .a ⌖+ 1 }}", "add .a 1"),
    ("{{ 1⌖+2 }}", "add 1 2"),
    ('{{ .name ⌖+ "-x" }}', 'print .name "-x"'),
    ("{{ .a ⌖- 1 }}", "sub .a 1"),
    ("{{ .a ⌖-1 }}", "sub .a 1"),
    ("{{ .a⌖-.b }}", "sub .a .b"),
    ("{{ .a ⌖* 2 }}", "mul .a 2"),
    ("{{ .a ⌖/ 2 }}", "div .a 2"),
    ("{{ .a ⌖% 2 }}", "mod .a 2"),
    ('{{ .a ⌖?? "x" }}', 'default "x" .a'),
    ('{{ eq .a 1 ⌖? "x" : "y" }}', 'ternary "x" "y" (eq .a 1)'),
    ("{{ .a ⌖and .b }}", "and .a .b"),
    ('{{ "x" ⌖in .list }}', 'contains "x" .list'),
    ("{{ .host⌖[0] }}", "index .host 0"),
    ('{{ .d⌖["x"] }}', 'index .d "x"'),
    ("{{ .d⌖['x'].y }}", '(index .d "x").y'),
    ('{{ .d⌖[0]["x"] }}', 'index .d 0 "x"'),
    ("{{ eq .d⌖[0] 1 }}", "(index .d 0)"),
    ("{{ (keys .a)⌖[0] }}", "index (keys .a) 0"),
    ("{{ .a⌖[1:3] }}", "slice .a 1 3"),
    ("{{ .a⌖[-1] }}", "last .a"),
    ("{{ inputs.hosts⌖[0] }}", "index .inputs.hosts 0"),
    ("{{ ⌖'prod' }}", '"prod"'),
    ("{{ eq .env ⌖'x' }}", '"x"'),
    ("{{ ⌖'x' | ne .env }}", '"x"'),
    ("{{ replace ⌖'-' '_' .x }}", '"-"'),
    ("{{ ⌖host.name }}", ".host.name"),
    ('{{ eq ⌖inputs.host "x" }}', ".inputs.host"),
    ("{{ ⌖inputs.check-disk.x }}", '(index .inputs "check-disk").x'),
    ("{{ .check⌖-disk.used_pct }}", '(index . "check-disk").used_pct'),
    ("{{ .step.check⌖-disk.used_pct }}", '(index .step "check-disk").used_pct'),
    ("{{ gt .check⌖-disk 5 }}", '(index . "check-disk")'),
    ("{{ .a⌖-b.c.d-e.f }}", '(index . "a-b" "c" "d-e").f'),
    ("{{ check⌖-disk }}", 'index . "check-disk"'),
    ("{{ ⌖for x in .xs }}{{ endfor }}", "{{ range $x := .xs }}"),
    ("{{ ⌖for k, v in data.items }}{{ endfor }}", "{{ range $k, $v := .data.items }}"),
    ("{{ if 1 }}{{ ⌖endif }}", "{{ end }}"),
    ("{{ range .xs }}{{ ⌖endfor }}", "{{ end }}"),
    ("{{ if 1 }}{{ ⌖elif .b }}{{ end }}", "{{ else if … }}"),
    ("{{ if 1 }}{{ ⌖elseif .b }}{{ end }}", "{{ else if … }}"),
]


@pytest.mark.parametrize(("marked", "instead"), [pytest.param(*row, id=row[0].replace("⌖", "")) for row in REWRITTEN])
def test_what_to_write_instead(marked: str, instead: str) -> None:
    error = mistake(marked.replace("⌖", ""))
    assert error.offset == marked.index("⌖")
    assert error.hint is not None
    assert re.sub(r"^write (it as )?", "", error.hint) == f"`{instead}`"


@pytest.mark.parametrize("instead", [row[1] for row in REWRITTEN if "{{" not in row[1]])
def test_what_to_write_instead_parses(instead: str) -> None:
    parse("{{ $x := 1 }}{{ " + instead + " }}")


@pytest.mark.parametrize(
    ("source", "message", "hint"),
    [
        pytest.param(
            '{{ .x | default: "x" }}',
            "unexpected character `:`",
            'arguments follow a space: write `default "x"`',
            id="a colon after a function",
        ),
        pytest.param(
            "{{ .x | default: x }}",
            "unexpected character `:`",
            'arguments follow a space: write `default "x"`',
            id="a colon and a bare word",
        ),
        pytest.param(
            "{{ upper(.x) }}",
            "a space must precede `(`",
            "arguments follow a space, without parentheses or commas",
            id="parentheses after a function",
        ),
        pytest.param('{{ replace "a", "b", .x }}', "unexpected `,`", "arguments are parted by spaces", id="commas"),
        pytest.param(
            '{{ if .a = "x" }}{{ end }}', "unexpected `=`", 'write `eq .a "x"` to compare', id="one equals sign"
        ),
        pytest.param(
            "{{ .a-1 }}",
            "a path may not contain `-`: `.a-1`",
            'write it as `index . "a-1"`, or `sub .a 1` to subtract',
            id="a dash that may be either",
        ),
        pytest.param(
            "{{ .a ? .b }}",
            "`?` is not part of the template language",
            'use `ternary`, as in `ternary "yes" "no" .x`',
            id="half a choice",
        ),
        pytest.param(
            "{{ .a && }}",
            "`&&` is not part of the template language",
            "the function comes first, as in `and .a .b`",
            id="half an operator",
        ),
        pytest.param(
            "{{ {% if x %} }}",
            "unexpected character `{`",
            "actions are written between `{{` and `}}`, `{%` means nothing",
            id="an action of another language",
        ),
        pytest.param("{{{ .x }}}", "unexpected character `{`", "an action begins with two braces", id="three braces"),
        pytest.param("{{ .x }", "unexpected character `}`", "close it with `}}`", id="one brace"),
        pytest.param(
            "{{ 'it }}", "the quoted character is not closed", "text must be in double quotes", id="one quote"
        ),
        pytest.param(
            "{{ eq .a null }}", "unexpected `null`", "`not .x` asks whether there is nothing", id="null of another name"
        ),
        pytest.param("{{ length .x }}", "unknown function `length`", "did you mean `len`?", id="another name"),
        *(
            pytest.param(
                f"{{{{ {name} }}}}",
                f"unknown function `{name}`",
                f"a template has no {world}; give it the value as data",
                id=f"no {world}: {name}",
            )
            for name, world in [
                ("now", "clock"),
                ("date", "clock"),
                ("env", "environment"),
                ("getenv", "environment"),
                ("readFile", "files"),
                ("uuidv4", "randomness"),
                ("randAlphaNum", "randomness"),
            ]
        ),
    ],
)
def test_hints_in_words(source: str, message: str, hint: str) -> None:
    error = mistake(source)
    assert (error.message, error.hint) == (message, hint)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("{{ " + "(" * 90 + " 'x" * 100_000, id="open quotes"),
        pytest.param("{{ print" + " .a" * 100_000 + " == 1 }}", id="many operands"),
        pytest.param("{{ .a[" + " " * 500_000 + "1 }}", id="an open bracket"),
        pytest.param("{{ .a" + "[0]" * 100_000 + " }}", id="many brackets"),
        pytest.param("{{ .a" + "-b" * 200_000 + " }}", id="many dashes"),
        pytest.param("{{ a" + ".b" * 200_000 + " }}", id="many segments"),
        pytest.param("{{ for" + " " * 500_000 + "x" + " " * 400_000 + "}}", id="many spaces"),
        pytest.param("{{ '" + "x" * 500_000 + "' }}", id="long text in single quotes"),
        pytest.param("{{ .a == " + "(" * 500_000, id="many parentheses"),
    ],
)
def test_a_hint_is_short_and_found_quickly(source: str) -> None:
    with quickly(2):
        error = mistake(source)
    assert len(error.message) + len(error.hint or "") < 600
    assert "\n" not in error.message + (error.hint or "")
