import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gert.errors import InputError, PatternError
from gert.kernel.foundation.canonical import canonical
from gert.kernel.foundation.secret_refs import secret_ref, without_marks
from gert.kernel.foundation.values import MAX_INTEGER, TYPE_NAMES, coerce, fits, objection, show


@pytest.mark.parametrize(
    ("value", "type_name", "expected"),
    [
        ("42", "int", 42),
        (" -7\n", "int", -7),
        ("+3", "int", 3),
        ("08", "int", 8),
        ("3.0", "int", 3),
        (3.0, "int", 3),
        ("1.5", "float", 1.5),
        ("1e3", "float", 1000.0),
        ("0.1", "float", 0.1),
        ("-.50", "float", -0.5),
        ("0e-999", "float", 0.0),
        ("5e-324", "float", 5e-324),
        ("9007199254740992", "float", 9007199254740992.0),
        ("0.1000000000000000055511151231257827021181583404541015625", "float", 0.1),
        (5, "float", 5.0),
        ("true", "bool", True),
        ("False\n", "bool", False),
        ('["a", 1]', "list", ["a", 1]),
        (("a",), "list", ["a"]),
        ('{"a": {"b": null}}', "object", {"a": {"b": None}}),
        (7, "string", "7"),
        (1.5, "string", "1.5"),
        (1e-7, "string", "0.0000001"),
        (-1.5e-7, "string", "-0.00000015"),
        (1e16, "string", "10000000000000000.0"),
        (1e300, "string", "1e+300"),
        (True, "string", "true"),
        (" text\n", "string", " text\n"),
        (None, "any", None),
        ([1], "any", [1]),
    ],
)
def test_lossless_coercion(value: object, type_name: str, expected: object) -> None:
    coerced = coerce(value, type_name)
    assert coerced == expected
    assert type(coerced) is type(expected)


@pytest.mark.parametrize(
    ("value", "type_name", "why"),
    [
        pytest.param("abc", "int", "expected an int, found `abc`", id="text is not a number"),
        pytest.param("1.5", "int", "expected an int, found `1.5`", id="a fraction would be lost"),
        pytest.param(1.5, "int", "expected an int", id="a fraction of a float would be lost"),
        pytest.param(True, "int", "expected an int, found `true`", id="true is not 1"),
        pytest.param("1_000", "int", "expected an int", id="an underscore is Python's spelling"),
        pytest.param("٣", "int", "expected an int", id="digits of another script"),
        pytest.param("9007199254740992", "int", "expected an int", id="an integer that is not kept exactly"),
        pytest.param(2**53, "int", "expected an int", id="a large integer"),
        pytest.param(10**5000, "int", "found a huge number", id="an integer too long to print"),
        pytest.param("9" * 5000, "int", "expected an int", id="a text too long to read"),
        pytest.param("nan", "float", "expected a float", id="not a number"),
        pytest.param("1e999", "float", "expected a float", id="infinity in disguise"),
        pytest.param("1e-400", "float", "expected a float, found `1e-400`", id="zero in disguise"),
        pytest.param("9007199254740993", "float", "expected a float", id="an integer that is rounded"),
        pytest.param("0.12345678901234567890", "float", "expected a float", id="digits that would be lost"),
        pytest.param(math.inf, "float", "expected a float", id="infinity"),
        pytest.param(2**60, "float", "expected a float", id="an integer that a float would round"),
        pytest.param("yes", "bool", "expected a bool, found `yes`", id="yes is a string"),
        pytest.param(1, "bool", "expected a bool", id="1 is not true"),
        pytest.param("a,b", "list", "expected a list", id="commas make no list"),
        pytest.param('{"a": 1}', "list", "expected a list", id="an object is no list"),
        pytest.param("[" * 100_000, "list", "expected a list", id="a text that nests without end"),
        pytest.param("[NaN]", "list", "expected a list", id="what JSON does not know"),
        pytest.param("[1]", "object", "expected an object", id="a list is no object"),
        pytest.param([1], "string", "expected a string", id="a list has many spellings"),
        pytest.param(None, "string", "expected a string, found nothing", id="nothing is not text"),
        pytest.param("x", "number", "one of string, int, float, bool, list, object, any", id="an unknown type"),
    ],
)
def test_what_would_lose_something_is_refused(value: object, type_name: str, why: str) -> None:
    with pytest.raises(InputError) as caught:
        coerce(value, type_name)
    assert why in caught.value.message


@pytest.mark.parametrize(
    ("text", "type_name"), [("9007199254740992", "int"), ("9007199254740993", "float"), ("1e-400", "float")]
)
def test_a_number_that_is_not_kept_exactly_gets_a_hint(text: str, type_name: str) -> None:
    with pytest.raises(InputError) as caught:
        coerce(text, type_name)
    assert "type: string" in str(caught.value.hint)


def test_an_integer_is_a_float_and_true_is_not_an_integer() -> None:
    assert fits(5, "float")
    assert not fits(True, "int")
    assert not fits(True, "float")
    assert not fits("x", "unknown")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER, MAX_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(json_values, st.sampled_from(TYPE_NAMES))
def test_what_is_coerced_fits_and_stays(value: object, type_name: str) -> None:
    try:
        coerced = coerce(value, type_name)
    except InputError:
        assert not fits(value, type_name)
        return
    assert fits(coerced, type_name)
    assert coerce(coerced, type_name) == coerced
    if fits(value, type_name):
        assert coerced == value


@given(json_values)
@example([secret_ref("token")])
def test_a_value_comes_back_from_its_text(value: object) -> None:
    type_name = next(name for name in TYPE_NAMES if fits(value, name))
    text = value if isinstance(value, str) else json.dumps(value)
    if type_name != "any":
        # What marks a reference to a secret does not come back out of JSON.
        assert coerce(text, type_name) == (value if isinstance(value, str) else without_marks(value))


@given(st.text(max_size=8), st.sampled_from(TYPE_NAMES))
def test_a_coerced_text_has_a_canonical_form(text: str, type_name: str) -> None:
    try:
        coerced = coerce(text, type_name)
    except InputError:
        return
    if type_name in ("int", "float", "bool"):
        canonical(coerced)


@pytest.mark.parametrize(
    ("value", "constraints", "expected"),
    [
        pytest.param("a", {"type": "string"}, None, id="a value of its type"),
        pytest.param("a", {"type": "int"}, "expected an int, found `a`", id="a value of another type"),
        pytest.param("eu", {"enum": ["eu", "us"]}, None, id="one of the choices"),
        pytest.param("cn", {"enum": ["eu", "us"]}, "expected one of `eu`, `us`, found `cn`", id="none of the choices"),
        pytest.param(True, {"enum": [1]}, "expected one of `1`, found `true`", id="true is not the choice 1"),
        pytest.param(1.0, {"enum": [1]}, None, id="1.0 is the choice 1"),
        pytest.param("srv1", {"pattern": "^srv[0-9]+$"}, None, id="text that matches"),
        pytest.param(
            "srv",
            {"pattern": "^srv[0-9]+$"},
            "expected text that matches `^srv[0-9]+$`, found `srv`",
            id="text that does not",
        ),
        pytest.param(
            "srv1\n",
            {"pattern": "^srv[0-9]+$"},
            "expected text that matches `^srv[0-9]+$`, found `srv1\\n`",
            id="a line break at the end is not overlooked",
        ),
        pytest.param("x$", {"pattern": r"^x[$]$"}, None, id="a dollar in a class is a dollar"),
        pytest.param("x$]", {"pattern": r"^x\$[]$]$"}, None, id="escaped dollars and brackets in a class"),
        pytest.param("host-1", {"pattern": "[0-9]"}, None, id="a pattern is searched for"),
        pytest.param(5, {"min": 1, "max": 5}, None, id="a number within its bounds"),
        pytest.param(0, {"min": 1}, "expected at least 1, found `0`", id="a number below"),
        pytest.param(5.5, {"max": 5}, "expected at most 5, found `5.5`", id="a number above"),
        pytest.param("ab", {"min": 3}, "expected at least 3 characters, found 2 characters", id="a text too short"),
        pytest.param([1, 2], {"max": 1}, "expected at most 1 items, found 2 items", id="a list too long"),
        pytest.param(
            5, {"pattern": "5"}, "expected text that matches `5`, found `5`", id="a number is no text that matches"
        ),
        pytest.param(
            ["a"], {"pattern": "a"}, "expected text that matches `a`, found a list", id="nor is a list of texts"
        ),
        pytest.param(
            None, {"pattern": ".*"}, "expected text that matches `.*`, found nothing", id="nor is nothing at all"
        ),
        pytest.param(math.nan, {"min": 0}, "expected a finite number, found `nan`", id="not a number is not above"),
        pytest.param(math.nan, {"max": 0}, "expected a finite number, found `nan`", id="nor below"),
        pytest.param(math.inf, {"min": 0}, "expected a finite number, found `inf`", id="infinity is not above"),
        pytest.param(-math.inf, {"max": 0}, "expected a finite number, found `-inf`", id="nor below, with a sign"),
        pytest.param(math.nan, {}, None, id="anything goes without constraints"),
        pytest.param(5, {"min": math.nan}, "expected at least nan, found `5`", id="a bound that is no number"),
        pytest.param(True, {"min": 5}, None, id="a bool has no size"),
        pytest.param({}, {"min": 5}, None, id="an object has no size"),
    ],
)
def test_constraints(value: object, constraints: dict[str, object], expected: str | None) -> None:
    assert objection(value, **constraints) == expected  # type: ignore[arg-type]


def test_a_pattern_that_does_not_compile_is_an_error() -> None:
    with pytest.raises(PatternError, match="is not a regular expression"):
        objection("x", pattern="(")


@given(st.text(max_size=500))
def test_a_value_is_shown_on_one_short_line(text: str) -> None:
    shown = show(text)
    assert len(shown) < 70
    assert len(shown.splitlines()) <= 1
    assert shown.isprintable()
