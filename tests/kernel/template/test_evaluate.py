"""Values, conditions, text and budgets."""

import sys
from collections import ChainMap, UserDict
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest
from tests.kernel.template.unparser import unparse
from tests.quickly import quickly

from gert.errors import TemplateError, TemplateEvalError
from gert.kernel.foundation.secret_refs import secret_ref
from gert.kernel.template import (
    MISSING,
    Budget,
    Template,
    compile_value,
    condition,
    evaluate,
    parse,
    render,
    render_text,
    render_value,
    truth,
)

DATA: dict[str, Any] = {
    "name": "web-1",
    "xs": [1, 2, 3],
    "m": {"a": {"b": 1}},
    "none": None,
    "no": False,
    "long": "a" * 1000,
}


@pytest.mark.parametrize(
    ("source", "value"),
    [
        pytest.param("{{ .xs }}", [1, 2, 3], id="a list stays a list"),
        pytest.param("{{ .m.a }}", {"b": 1}, id="a map stays a map"),
        pytest.param("{{ .no }}", False, id="a boolean stays a boolean"),
        pytest.param("{{ len .xs }}", 3, id="a function's value keeps its type"),
        pytest.param("{{ .missing }}", None, id="a missing value is null"),
        pytest.param("{{ .xs.a.b }}", None, id="a field of a list is missing"),
        pytest.param("{{ .name.a }}", None, id="a field of text is missing"),
        pytest.param("{{ .none.a }}", None, id="a field of null is missing"),
        pytest.param("{{ .xs.1 }}", 2, id="a position in a path"),
        pytest.param("{{ 3.0 }}", 3.0, id="a float stays a float"),
        pytest.param("{{ .xs }} ", "[1,2,3] ", id="mixed text is text"),
        pytest.param("plain", "plain", id="text is itself"),
        pytest.param("{{ range .missing }}a{{ else }}b{{ end }}", "b", id="a missing list is empty"),
    ],
)
def test_a_single_action_keeps_its_type(source: str, value: Any) -> None:
    got = evaluate(parse(source), DATA)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({"a": {"b": 1}}, id="dict"),
        pytest.param(ChainMap({}, {"a": ChainMap({"b": 1})}), id="ChainMap"),
        pytest.param(MappingProxyType({"a": MappingProxyType({"b": 1})}), id="mappingproxy"),
        pytest.param(UserDict({"a": UserDict({"b": 1})}), id="UserDict"),
    ],
)
def test_data_may_be_any_mapping(data: Any) -> None:
    assert (
        render(parse('{{ .a.b }} {{ index .a "b" }} {{ .a }} {{ range $k, $v := .a }}{{ $k }}{{ end }}'), data)
        == '1 1 {"b":1} b'
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("a", "a", id="text"),
        pytest.param(None, "", id="null"),
        pytest.param(MISSING, "", id="missing"),
        pytest.param(True, "true", id="true"),
        pytest.param(1000000, "1000000", id="an integer"),
        pytest.param(-(10**30), "-1000000000000000000000000000000", id="a large integer"),
        pytest.param(1.5, "1.5", id="a float"),
        pytest.param(3.0, "3.0", id="a whole float"),
        pytest.param(1e6, "1000000.0", id="a million"),
        pytest.param(1e16, "10000000000000000.0", id="where Python writes an exponent"),
        pytest.param(1.2345e17, "123450000000000000.0", id="digits and zeros"),
        pytest.param(1e21, "1e+21", id="from here on with exponent"),
        pytest.param(0.00001, "0.00001", id="a small float"),
        pytest.param(-1.25e-7, "-0.000000125", id="a small negative float"),
        pytest.param(1e-10, "1e-10", id="below here with exponent"),
        pytest.param(float("inf"), "+Inf", id="infinity"),
        pytest.param(float("nan"), "NaN", id="not a number"),
        pytest.param(
            {"b": [1, None, True], "a": 'q"\n\u0001é'}, '{"a":"q\\"\\n\\u0001é","b":[1,null,true]}', id="a map"
        ),
        pytest.param((), "[]", id="an empty list"),
        pytest.param({}, "{}", id="an empty map"),
        pytest.param({1: "a", None: 2}, '{"":2,"1":"a"}', id="keys that are not text"),
    ],
)
def test_how_values_print(value: Any, text: str) -> None:
    assert render_text(value) == text


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(object(), id="a foreign object"),
        pytest.param([{1, 2}], id="a set inside a list"),
        pytest.param([float("nan")], id="no number in JSON"),
        pytest.param(1 << 100_000, id="an integer of 30 000 digits"),
    ],
)
def test_what_does_not_print(value: Any) -> None:
    with pytest.raises(TemplateEvalError):
        render_text(value)


def test_a_value_that_holds_itself_does_not_print() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(TemplateEvalError, match="nested too deeply"):
        render_text(value)


@pytest.mark.parametrize(
    ("value", "holds"),
    [
        pytest.param(False, False, id="false"),
        pytest.param(0, False, id="zero"),
        pytest.param(0.0, False, id="zero as a float"),
        pytest.param("", False, id="empty text"),
        pytest.param("false", False, id="the text false"),
        pytest.param("FALSE", False, id="the text FALSE"),
        pytest.param(None, False, id="null"),
        pytest.param(MISSING, False, id="missing"),
        pytest.param([], False, id="empty list"),
        pytest.param({}, False, id="empty map"),
        pytest.param("0", True, id="the text 0"),
        pytest.param("no", True, id="the text no"),
        pytest.param(" ", True, id="a space"),
        pytest.param(-1, True, id="a negative number"),
        pytest.param([0], True, id="a list of zero"),
        pytest.param(True, True, id="true"),
    ],
)
def test_what_is_true(value: Any, holds: bool) -> None:
    assert truth(value) is holds
    assert condition(parse("{{ .v }}"), {"v": value}) is holds
    assert condition(parse("\n  {{ .v }}\n"), {"v": value}) is holds


@pytest.mark.parametrize(
    ("source", "holds"),
    [
        pytest.param("true", True, id="text"),
        pytest.param("False\n", False, id="the text false and a newline"),
        pytest.param("", False, id="nothing"),
        pytest.param("{{ if .xs }}false{{ end }}\n", False, id="rendered false"),
        pytest.param('{{ eq .name "web-1" }}', True, id="a comparison"),
        pytest.param("{{ .missing }}{{ .none }}", False, id="two actions that give nothing"),
    ],
)
def test_conditions(source: str, holds: bool) -> None:
    assert condition(parse(source), DATA) is holds


@pytest.mark.parametrize(
    ("source", "message", "offset"),
    [
        pytest.param("ab {{ index .xs 9 }}", "`index` is out of range: 9 in a list of 3", 6, id="index out of range"),
        pytest.param("{{ div 1 0 }}", "`div` by zero", 3, id="division by zero"),
        pytest.param(
            "{{ add 1 (len .xs) | sub .name }}",
            "`sub` needs a number, found the text `web-1`",
            21,
            id="text in arithmetic",
        ),
        pytest.param("{{ gt .missing 5 }}", "cannot order nothing and a number", 3, id="ordering what is missing"),
        pytest.param('{{ eq .xs "a" }}', "cannot compare a list with text", 3, id="a list and a text"),
        pytest.param(
            "{{ range .name }}{{ end }}",
            "`range` needs a list, a map or an integer, found text",
            9,
            id="range over text",
        ),
        pytest.param(
            "{{ regexMatch .bad .name }}",
            "`(` is not a regular expression: missing ): (",
            3,
            id="a bad pattern in data",
        ),
        pytest.param("{{ .x }}{{ .odd }}", "a value of type `object` has no text form", 11, id="a foreign value"),
    ],
)
def test_errors_say_where(source: str, message: str, offset: int) -> None:
    data = {**DATA, "bad": "(", "odd": object()}
    with pytest.raises(TemplateEvalError) as caught:
        render(parse(source), data)
    assert (caught.value.message, caught.value.offset) == (message, offset)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("{{ range 1000000000000 }}{{ end }}", id="a long loop"),
        pytest.param("{{ range 1000 }}{{ range 1000 }}{{ range 1000 }}{{ end }}{{ end }}{{ end }}", id="nested loops"),
        pytest.param("{{ range 99999 }}{{ $.long }}{{ end }}", id="much output"),
        pytest.param('{{ $x := "ab" }}{{ range 99 }}{{ $x = print $x $x }}{{ end }}', id="doubling by print"),
        pytest.param('{{ $x := "ab" }}{{ range 99 }}{{ $x = replace "a" $x $x }}{{ end }}', id="growing by replace"),
        pytest.param('{{ $x := "ab" }}{{ range 99 }}{{ $x = join $x (split "" $x) }}{{ end }}', id="growing by join"),
        pytest.param('{{ $x := "é" }}{{ range 99 }}{{ $x = urlquery $x $x }}{{ end }}', id="growing by urlquery"),
        pytest.param(
            '{{ $x := "é" }}{{ range 99 }}{{ $x = quote $x | printf "%q%q" $x }}{{ end }}', id="growing by quotes"
        ),
        pytest.param(
            '{{ $x := "é" }}{{ range 99 }}{{ $x = printf "%x%s" $x $x }}{{ end }}', id="growing by hexadecimal"
        ),
        pytest.param('{{ range 99999 }}{{ printf "%9999d" 1 }}{{ end }}', id="wide numbers"),
        pytest.param('{{ range 99999 }}{{ $x := printf "%.9999d" 1 }}{{ end }}', id="long numbers"),
        pytest.param("{{ $x := 10 }}{{ range 99 }}{{ $x = mul $x $x }}{{ end }}", id="large numbers"),
        pytest.param(
            '{{ $x := "1" }}{{ range 99 }}{{ $x = fromJson (printf "[%s,%s]" $x $x) | toJson }}{{ end }}',
            id="growing by JSON",
        ),
        pytest.param('{{ range 99999 }}{{ $x := split "" $.long }}{{ end }}', id="splitting again and again"),
        pytest.param("{{ range 99999 }}{{ $x := slice $.many }}{{ end }}", id="copying a list again and again"),
        pytest.param("{{ range 99999 }}{{ $x := upper $.long }}{{ end }}", id="upper again and again"),
        pytest.param("{{ range 99999 }}{{ $x := contains 7 $.many }}{{ end }}", id="searching a list again and again"),
        pytest.param("{{ range 99999 }}{{ $x := eq $.many $.many2 }}{{ end }}", id="comparing lists again and again"),
        pytest.param(
            '{{ range 99999 }}{{ $x := regexMatch "[a-z]+x" $.long }}{{ end }}', id="searching again and again"
        ),
        pytest.param("{{ range 99999 }}{{ $x := keys $.map }}{{ end }}", id="sorting again and again"),
        pytest.param("{{ range 99999 }}{{ range $.map }}{{ break }}{{ end }}{{ end }}", id="sorting for nothing"),
        pytest.param(
            "{{ $x := 1 }}{{ range 20000 }}" + "{{$x = 1}}" * 1000 + "{{ end }}", id="assigning again and again"
        ),
        pytest.param(
            "".join(f"{{{{ $v{n} := 1 }}}}" for n in range(480))
            + "{{ range 20000 }}"
            + "{{$v0 = 1}}" * 50
            + "{{ end }}",
            id="assigning to one of many variables",
        ),
        pytest.param("{{ range 20000 }}" + "a{{/* */}}" * 1000 + "{{ end }}", id="text again and again"),
        pytest.param("{{ range 20000 }}{{ $.a" + ".b" * 10_000 + " }}{{ end }}", id="long paths"),
        pytest.param("{{ range 20000 }}{{ $x := and" + " 1" * 10_000 + " }}{{ end }}", id="many arguments of and"),
        pytest.param("{{ range 20000 }}{{ $x := eq 0" + " 1" * 10_000 + " }}{{ end }}", id="many arguments"),
        pytest.param('{{ range 19999 }}{{ $x := contains "b" $.huge }}{{ end }}', id="searching a long text"),
        pytest.param('{{ range 19999 }}{{ $x := regexFind "b" $.huge }}{{ end }}', id="a pattern in a long text"),
        pytest.param("{{ range 19999 }}{{ $x := lt $.huge $.huge2 }}{{ end }}", id="ordering long texts"),
        pytest.param("{{ range 19999 }}{{ $x := eq $.huge $.huge2 }}{{ end }}", id="comparing long texts"),
        pytest.param("{{ range 19999 }}{{ $x := eq $.hugelist $.hugelist2 }}{{ end }}", id="long texts in lists"),
        pytest.param("{{ range 19999 }}{{ $x := hasPrefix $.huge $.huge2 }}{{ end }}", id="a long prefix"),
        pytest.param("{{ range 19999 }}{{ $x := hasSuffix $.huge $.huge2 }}{{ end }}", id="a long suffix"),
        pytest.param("{{ range 19999 }}{{ $x := slice $.huge 1 }}{{ end }}", id="slicing a long text"),
        pytest.param("{{ range 19999 }}{{ $x := trim $.spaced }}{{ end }}", id="trimming a long text"),
        pytest.param('{{ range 19999 }}{{ $x := split "b" $.huge }}{{ end }}', id="splitting a long text"),
        pytest.param('{{ range 19999 }}{{ $x := replace "b" "c" $.huge }}{{ end }}', id="replacing in a long text"),
        pytest.param("{{ range 19999 }}{{ $x := toJson $.many }}{{ end }}", id="writing JSON again and again"),
        pytest.param("{{ range 19999 }}{{ $x := fromJson $.digits }}{{ end }}", id="reading JSON again and again"),
        pytest.param("{{ range 19999 }}{{ $x := eq $.map $.map2 }}{{ end }}", id="maps that differ in one key"),
        pytest.param("{{ range 19999 }}{{ $x := index $.map $.long_number }}{{ end }}", id="printing long numbers"),
        pytest.param("{{ range 19999 }}{{ $x := uniq $.many }}{{ end }}", id="looking for equal items again and again"),
        pytest.param("{{ uniq .bomb }}", id="looking for equal values that unfold"),
        pytest.param("{{ .bomb }}", id="a value that unfolds"),
        pytest.param("{{ eq .bomb .bomb2 }}", id="comparing values that unfold"),
    ],
)
def test_evaluation_is_bounded(source: str) -> None:
    def bomb() -> Any:
        value: Any = "x"
        for _ in range(60):
            value = [value, value]
        return value

    data = {
        **DATA,
        "many": [0] * 1000,
        "many2": [0] * 1000,
        "map": {str(n): n for n in range(1000)},
        "map2": {str(n): n for n in range(1, 1001)},
        "huge": "a" * 1_000_000,
        "huge2": "a" * 1_000_000,
        "hugelist": ["a" * 1_000_000],
        "hugelist2": ["a" * 1_000_000],
        "spaced": "a" * 1_000_000 + " ",
        "digits": "1" * 1000,
        "long_number": 10**3000,
        "bomb": bomb(),
        "bomb2": bomb(),
    }
    template = parse(source)
    with quickly(), pytest.raises(TemplateEvalError):
        render(template, data, Budget(max_steps=20_000))


@pytest.mark.parametrize(
    ("budget", "source"),
    [
        pytest.param(Budget(max_steps=5), "{{ range 6 }}{{ end }}", id="steps"),
        pytest.param(Budget(max_steps=5), "{{ $x := 1 }}" * 6, id="assignments"),
        pytest.param(Budget(max_output=5), "{{ 123 }}{{ 456 }}", id="characters"),
        pytest.param(Budget(max_depth=2), "{{ .deep }}", id="depth"),
    ],
)
def test_a_budget_is_kept(budget: Budget, source: str) -> None:
    data = {"deep": [[[1]]]}
    assert render(parse(source), data) is not None
    with pytest.raises(TemplateEvalError):
        render(parse(source), data, budget)


def test_items_whose_hashes_are_equal_are_told_apart_quickly() -> None:
    numbers = [n * sys.hash_info.modulus for n in range(20_000)]
    with quickly():
        assert evaluate(parse("{{ uniq .numbers }}"), {"numbers": numbers + numbers}) == numbers


def test_a_secret_in_a_list_is_not_compared() -> None:
    with pytest.raises(TemplateEvalError, match="a secret cannot be compared"):
        evaluate(parse("{{ uniq .xs }}"), {"xs": [["a"], [secret_ref("token")]]})


def test_a_deep_tree_evaluates_without_recursion_errors() -> None:
    deep = "{{ " + "print (" * 99 + "1" + ")" * 99 + " }}"
    assert render(parse(deep), {}) == "1"
    blocks = "{{ range 1 }}{{ with 1 }}" * 50 + "x" + "{{ end }}{{ end }}" * 50
    assert render(parse(blocks), {}) == "x"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param("{{ index .xs .n }}", "`index`: the number does not fit in 64 bits", id="index"),
        pytest.param("{{ slice .xs .n }}", "`slice`: the number does not fit in 64 bits", id="slice"),
        pytest.param("{{ slice .xs 0 .n }}", "`slice`: the number does not fit in 64 bits", id="the end of a slice"),
        pytest.param("{{ index .m .n }}", "the number is too long to print", id="a key"),
        pytest.param("{{ add .n 1 }}", "`add`: the number does not fit in 64 bits", id="arithmetic"),
        pytest.param('{{ printf "%d" .n }}', "`printf`: the number for `%d` is too large", id="a format"),
        pytest.param('{{ printf "%*d" .n 1 }}', "`printf`: the number for `%*d` is too large", id="a width"),
    ],
)
def test_an_integer_of_5000_digits_is_refused(source: str, message: str) -> None:
    for sign in (1, -1):
        with pytest.raises(TemplateEvalError) as caught:
            render(parse(source), {**DATA, "n": sign * 10**5000})
        assert caught.value.message == message


def at_depth(frames: int, call: Callable[[], Any]) -> Any:
    """What a call gives from so many frames further down."""
    return call() if frames <= 0 else at_depth(frames - 1, call)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("{{ " + "(" * 99 + ".x" + ")" * 99 + " }}", id="parentheses"),
        pytest.param("{{ " + "print (" * 99 + "1" + ")" * 99 + " }}", id="calls"),
        pytest.param("{{ " + "and 1 (" * 99 + "1" + ")" * 99 + " }}", id="and"),
        pytest.param("{{ range 1 }}{{ with 1 }}" * 50 + "x" + "{{ end }}{{ end }}" * 50, id="blocks"),
    ],
)
@pytest.mark.parametrize("frames", [0, 300, 600, 800])
def test_where_the_stack_ends_is_a_template_error(source: str, frames: int) -> None:
    parsed = parse(source)
    value = ["{{ .x }}"]
    for _ in range(99):
        value = [value]  # type: ignore[list-item]
    compiled = compile_value([parsed.source], lambda _, error: None)
    calls: list[Callable[[], Any]] = [
        lambda: parse(source + " " * frames),
        lambda: Template(source, parsed.statements, is_text=False).references,
        lambda: unparse(parsed),
        lambda: render(parsed, {}),
        lambda: evaluate(parsed, {}),
        lambda: condition(parsed, {}),
        lambda: render_value(compiled, {}),
        lambda: compile_value(value, lambda _, error: None),
        lambda: render_text(value),
    ]
    messages = []
    for call in calls:
        try:
            at_depth(frames, call)
        except TemplateError as error:
            messages.append(error.message)
    assert all("too deeply" in message for message in messages)
    assert frames or not messages


@pytest.mark.parametrize(
    "call",
    [pytest.param(render, id="render"), pytest.param(evaluate, id="evaluate"), pytest.param(condition, id="condition")],
)
def test_data_is_not_changed(call: Callable[..., Any]) -> None:
    data = {"xs": [3, 1], "m": {"b": 1, "a": 2}}
    call(parse("{{ range $i, $x := .xs }}{{ $x = 5 }}{{ end }}{{ keys .m }}{{ slice .xs 0 1 }}"), data)
    assert data == {"xs": [3, 1], "m": {"b": 1, "a": 2}}
    assert list(data["m"]) == ["b", "a"]
