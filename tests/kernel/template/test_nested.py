"""Templates inside maps and lists."""

from typing import Any

import pytest

from gert.errors import TemplateEvalError, TemplateSyntaxError
from gert.kernel.template import Budget, Template, compile_value, parse, render_value, templates_in


def refuse(path: tuple[str | int, ...], error: TemplateSyntaxError) -> None:
    raise AssertionError(path, error)


@pytest.mark.parametrize(
    ("value", "rendered"),
    [
        pytest.param("plain", "plain", id="text"),
        pytest.param(5, 5, id="a number"),
        pytest.param(None, None, id="null"),
        pytest.param("{{ .xs }}", [1, 2], id="one action keeps its type"),
        pytest.param("n={{ .n }}", "n=7", id="mixed text"),
        pytest.param("{{ .missing }}", None, id="a missing value is null"),
        pytest.param(
            {"a": ["{{ .n }}", {"b": "{{ .n }}!"}], "c": 1}, {"a": [7, {"b": "7!"}], "c": 1}, id="at every depth"
        ),
        pytest.param({"{{ .n }}": "{{ .n }}"}, {"{{ .n }}": 7}, id="keys are not templates"),
    ],
)
def test_values_render(value: Any, rendered: Any) -> None:
    assert render_value(compile_value(value, refuse), {"n": 7, "xs": [1, 2]}) == rendered


def test_what_holds_no_template_stays_itself() -> None:
    plain = {"a": [1, {"b": "x"}]}
    assert compile_value(plain, refuse) is plain
    mixed = {"plain": plain, "other": "{{ .x }}"}
    compiled = compile_value(mixed, refuse)
    assert compiled is not mixed
    assert mixed["other"] == "{{ .x }}"
    assert compiled["plain"] is plain
    assert render_value(compiled, {})["plain"] is plain


def test_subclasses_of_dict_list_and_str_are_compiled() -> None:
    class Located(dict[str, Any]):
        pass

    class Items(list[Any]):
        pass

    class Line(str):
        pass

    compiled = compile_value(Located(a=Items([Line("{{ .x }}"), Line("x")])), refuse)
    assert render_value(compiled, {"x": 1}) == {"a": [1, "x"]}


def test_bad_templates_are_reported_with_their_place_and_left_as_text() -> None:
    found: list[tuple[tuple[str | int, ...], str]] = []
    value = {"a": [0, {"b": "{{ nope }}"}], "c": "{{ .x", "d": "{{ .ok }}"}
    compiled = compile_value(value, lambda path, error: found.append((path, error.message)))
    assert found == [(("a", 1, "b"), "unknown function `nope`"), (("c",), "the action is not closed")]
    assert compiled["a"] is value["a"]
    assert compiled["c"] == "{{ .x"
    assert compiled["d"] == parse("{{ .ok }}")


def test_templates_are_found_in_order_with_their_places() -> None:
    compiled = compile_value({"a": ["{{ .x }}", "y", {"b": "{{ .y }}"}], "c": "{{ .z }}"}, refuse)
    assert list(templates_in(compiled)) == [
        (("a", 0), parse("{{ .x }}")),
        (("a", 2, "b"), parse("{{ .y }}")),
        (("c",), parse("{{ .z }}")),
    ]
    assert list(templates_in("plain")) == []


def test_depth_is_bounded() -> None:
    def deep(levels: int) -> Any:
        value: Any = "{{ .x }}"
        for _ in range(levels):
            value = [value]
        return value

    assert len(list(templates_in(compile_value(deep(100), refuse)))) == 1
    found: list[str] = []
    for levels in (101, 10_000):
        compiled = compile_value(deep(levels), lambda _, error: found.append(error.message))
        assert render_value(compiled, {}) is compiled
        assert list(templates_in(compiled)) == []
    assert found == ["the value is nested deeper than 100 levels"] * 2


def test_all_templates_of_a_value_share_one_budget() -> None:
    compiled = compile_value(["{{ .n }} {{ .n }}"] * 10, refuse)
    assert all(isinstance(each, Template) for each in compiled)
    render_value(compiled, {"n": 1}, Budget(max_output=30))
    with pytest.raises(TemplateEvalError, match="too much text"):
        render_value(compiled, {"n": 1}, Budget(max_output=29))
