"""Laws that hold for every template."""

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from tests.kernel.template.unparser import unparse
from tests.soak import examples

from gert.errors import TemplateError
from gert.kernel.template import EACH, Budget, Reference, Template, condition, evaluate, parse, render

SMALL = Budget(max_steps=2000, max_output=20_000)

# Text of the kind that lexers and parsers stumble over.
NOISE = st.text(
    alphabet=st.one_of(
        st.sampled_from(list("{}-.|()$:=,\"'`\\/*+ \n\tx1e_é!&<>?[]%")),
        st.characters(codec="utf-8"),
    ),
    max_size=40,
)
WORDS = [
    *["{{", "}}", "{{-", "{{/*", "*/}}", "-}}", "if", "else", "end", "range", "with", "break", "continue", "define"],
    *[".a", ".", ".a.b/0", ".a-b", "$x", "$", ":=", "=", "|", "(", ")", ",", "/*", "*/", "{", "text"],
    *[
        "==",
        "!=",
        "&&",
        "||",
        "!",
        "<",
        ">=",
        "+",
        "- ",
        "*",
        "/",
        "%",
        "?",
        ":",
        "[0]",
        "[",
        "]",
        "{%",
        "for",
        "x.y",
        "'ab'",
    ],
    *["eq", "print", "index", "printf", '"s"', "`r`", "'c'", '"%d"', "1", "-1", "0x", "1.5", "nil", "true"],
]
PIECES = st.lists(
    st.one_of(st.sampled_from(WORDS), st.sampled_from([" ", "\n", " -}}", "{{ ", " }}"])), max_size=14
).map(lambda pieces: "".join(piece + " " * (len(piece) > 1) for piece in pieces))

NAMES = st.sampled_from(["a", "b", "xs", "m", "0"])
FIRST_NAMES = st.sampled_from(["a", "b", "xs", "m"])
VARIABLES = ["x", "y"]

ATOMS = st.one_of(
    st.sampled_from(['"s"', '"%v %v"', "1", "0", "-3", "2.5", "true", "false", "`r w`", "'c'", "."]),
    st.builds(lambda first, rest: "." + ".".join([first, *rest]), FIRST_NAMES, st.lists(NAMES, max_size=2)),
    st.builds(lambda rest: "$" + "".join(f".{name}" for name in rest), st.lists(NAMES, max_size=2)),
    st.builds(
        lambda name, rest: f"${name}" + "".join(f".{n}" for n in rest),
        st.sampled_from(VARIABLES),
        st.lists(NAMES, max_size=1),
    ),
)
ARITIES = {
    1: [
        "len",
        "not",
        "upper",
        "first",
        "last",
        "keys",
        "values",
        "toJson",
        "fromJson",
        "quote",
        "int",
        "urlquery",
        "toString",
    ],
    2: [
        "eq",
        "ne",
        "lt",
        "and",
        "or",
        "index",
        "slice",
        "print",
        "default",
        "coalesce",
        "contains",
        "split",
        "join",
        "regexFind",
    ],
    3: ["index", "printf", "ternary", "replace", "add", "mul", "max"],
}
FUNCTIONS = st.sampled_from([(name, count) for count, names in ARITIES.items() for name in names])


def called(function: tuple[str, int], arguments: list[str], piped: bool) -> str:
    name, count = function
    chosen = (arguments * count)[:count]
    if piped:
        return f"({chosen[-1]} | {' '.join([name, *chosen[:-1]])})"
    return f"({' '.join([name, *chosen])})"


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds(called, FUNCTIONS, st.lists(inner, min_size=1, max_size=3), st.booleans()),
        st.builds(lambda value, name: f"({value}).{name}", inner, NAMES),
    )


EXPRESSIONS = st.recursive(ATOMS, larger, max_leaves=6)
TEXTS = st.sampled_from(["", " ", "a", "\n x ", "{", "}", "{ {", " }} "])


def blocks(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def if_(word: str, condition: str, body: str, otherwise: str, declares: bool) -> str:
        bound = "$y := " if declares else ""
        start = f"{{{{ {word} {bound}{condition} }}}}{body}"
        return start + f"{{{{ else {word} .b }}}}{otherwise}{{{{- else -}}}} z {{{{ end }}}}"

    def range_(over: str, body: str, otherwise: str, names: str, leave: str) -> str:
        return f"{{{{ range {names}{over} }}}}{body}{leave}{{{{ else }}}}{otherwise}{{{{ end }}}}"

    names = st.sampled_from(["", "$x := ", "$x = ", "$x, $y := ", "$y, $x = "])
    leaves = st.sampled_from(["", "{{ break }}", "{{ continue }}", "{{ if . }}{{ break }}{{ end }}"])
    return st.one_of(
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.builds(if_, st.sampled_from(["if", "with"]), EXPRESSIONS, inner, inner, st.booleans()),
        st.builds(range_, EXPRESSIONS, inner, inner, names, leaves),
    )


ACTIONS = st.one_of(
    st.builds(lambda value, text: f"{{{{ {value} }}}}{text}", EXPRESSIONS, TEXTS),
    st.builds(lambda text, value: f"{text} {{{{- {value} -}}}} ", TEXTS, EXPRESSIONS),
    st.builds(
        lambda name, sign, value: f"{{{{ ${name} {sign} {value} }}}}",
        st.sampled_from(VARIABLES),
        st.sampled_from([":=", "="]),
        EXPRESSIONS,
    ),
    st.builds(lambda text: f"{text} {{{{- /* c */}}}}{text}", TEXTS),
)
# The variables are declared in front, so that every use of them parses.
DECLARED = "{{ $x := .a }}{{ $y := .xs }}"
SOURCES = st.recursive(ACTIONS, blocks, max_leaves=6).map(lambda body: DECLARED + body)

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-5, 300),
        st.sampled_from([2.5, "s", "a,b", "200", "false", "", '{"a":[1]}', "["]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=8,
)
DATA = st.dictionaries(FIRST_NAMES, VALUES, max_size=4)


def outcome(call: Callable[..., Any], source: str, data: Any) -> Any:
    """A result, or the error that gert foresaw; anything else is a bug."""
    try:
        return call(parse(source), data, SMALL)
    except TemplateError as error:
        found = error
    assert found.message
    assert "\n" not in found.message
    assert 0 <= found.offset <= len(source)
    return found


@given(st.one_of(NOISE, PIECES), DATA)
def test_noise_parses_or_is_a_template_error(source: str, data: Any) -> None:
    outcome(render, source, data)
    outcome(evaluate, source, data)


@given(SOURCES, DATA)
def test_templates_render_or_are_a_template_error(source: str, data: Any) -> None:
    for call in (render, evaluate, condition):
        outcome(call, source, data)


@given(st.text().filter(lambda text: "{{" not in text), DATA)
def test_text_renders_to_itself(text: str, data: Any) -> None:
    template = parse(text)
    assert template.is_text
    assert render(template, data) == text


def shape(node: Any) -> Any:
    """A tree without its offsets."""
    if isinstance(node, Struct):
        return (type(node), *(shape(getattr(node, name)) for name in node.__struct_fields__ if name != "offset"))
    return tuple(map(shape, node)) if isinstance(node, tuple) else (type(node), repr(node))


def parsed(source: str) -> Template | None:
    try:
        return parse(source)
    except TemplateError:
        return None


@given(st.one_of(SOURCES, PIECES, NOISE))
def test_printing_a_tree_and_parsing_it_gives_the_tree(source: str) -> None:
    template = parsed(source)
    if template is not None:
        printed = unparse(template)
        assert shape(parse(printed).statements) == shape(template.statements)
        assert unparse(parse(printed)) == printed


class Watched(dict[str, Any]):
    """A map that notes the path of everything read from it."""

    def __init__(self, data: dict[str, Any], path: tuple[str, ...], read: set[tuple[str, ...]]) -> None:
        super().__init__({key: watched(value, (*path, key), read) for key, value in data.items()})
        self.path, self.read = path, read

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add((*self.path, key))
        return super().get(key, default)

    def items(self) -> Any:
        self.read.update((*self.path, key) for key in self)
        return super().items()


def watched(value: Any, path: tuple[str, ...], read: set[tuple[str, ...]]) -> Any:
    if isinstance(value, dict):
        return Watched(value, path, read)
    if isinstance(value, list):
        return [watched(item, (*path, str(index)), read) for index, item in enumerate(value)]
    return value


def covers(reference: Reference, path: tuple[str, ...]) -> bool:
    """Does a reference stand for a read, or for something it is part of?"""
    if len(path) > len(reference.path) and reference.offset < len(DECLARED):
        return False  # that a variable was declared does not say what is read from it
    return all(one is EACH or str(one) == other for one, other in zip(reference.path, path, strict=False))


@given(SOURCES, DATA)
def test_references_cover_what_evaluation_reads(source: str, data: Any) -> None:
    read: set[tuple[str, ...]] = set()
    outcome(render, source, Watched(data, (), read))
    template = parsed(source)
    for path in read:
        assert template is not None
        assert any(covers(reference, path) for reference in template.references), path


@given(SOURCES, DATA)
@settings(max_examples=examples(15))
def test_rendering_is_deterministic(source: str, data: Any) -> None:
    first, second = outcome(render, source, data), outcome(render, source, data)
    assert str(first) == str(second)


@given(SOURCES, DATA)
@settings(max_examples=examples(15))
def test_a_small_budget_only_makes_errors(source: str, data: Any) -> None:
    template = parsed(source)
    if template is None:
        return
    try:
        cheap = render(template, data, Budget(max_steps=20, max_output=60))
    except TemplateError:
        return
    assert cheap == render(template, data)
