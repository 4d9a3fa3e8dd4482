"""Extraction: what is found in what a tool printed, what must be found, and what never breaks it."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.kernel.engine.extract import ExtractResult, ParsedJson, ToolOutput, extract, parse_json
from gert.kernel.foundation.canonical import require_canonical
from gert.kernel.foundation.values import MAX_INTEGER
from gert.kernel.governance.parameter import Parameter
from gert.kernel.runbook.documents.tool import ActionBlock, ExtractBlock


def action(**extracts: dict[str, Any]) -> ActionBlock:
    blocks = {
        name: ExtractBlock(
            from_=where["from"],
            pattern=where.get("pattern"),
            json_path=where.get("path"),
            trim=where.get("trim", True),
            lines=where.get("lines", False),
        )
        for name, where in extracts.items()
    }
    said: dict[str, Any] = {"extract": blocks}
    block = ActionBlock(**said)
    block.__dict__["path"] = ("actions", "check")
    return block


def one(where: dict[str, Any], type_name: Any = "any", **printed: Any) -> ExtractResult:
    """Extract one output, which is therefore needed."""
    return extract(action(it=where), {"it": Parameter(type=type_name)}, ToolOutput(**{"exit_code": 0, **printed}))


STDOUT = {"from": "stdout"}


@pytest.mark.parametrize(
    ("where", "type_name", "stdout", "value"),
    [
        pytest.param(STDOUT, "string", "up 3 days\n", "up 3 days", id="all of it, without the newline at its end"),
        pytest.param(STDOUT, "string", " a\n\r\n\n", " a", id="without all newlines at its end, Windows ones too"),
        pytest.param(STDOUT, "string", "\n", "", id="a newline alone is the empty text"),
        pytest.param(STDOUT, "string", "a\nb \n", "a\nb ", id="with its spaces and the newlines inside"),
        pytest.param(
            {**STDOUT, "trim": False}, "string", "a\n\n", "a\n\n", id="with its newlines where `trim` is false"
        ),
        pytest.param({**STDOUT, "pattern": "(?s)b(.*)"}, "any", "abc\n", "c", id="a match loses them too"),
        pytest.param({**STDOUT, "lines": True}, "list", "a, b\nc\r\n\nd\n\n", ["a, b", "c", "", "d"], id="as lines"),
        pytest.param({**STDOUT, "lines": True}, "any", "", [], id="no lines in nothing"),
        pytest.param({**STDOUT, "lines": True}, "list", "[1]\n", ["[1]"], id="lines are never read as JSON"),
        pytest.param({**STDOUT, "lines": True, "trim": False}, "list", "a\n\n", ["a", ""], id="empty lines at the end"),
        pytest.param(
            {**STDOUT, "lines": True, "pattern": "^(\\S+) .*err$"},
            "list",
            "a err\r\nb ok\nc x err\n",
            ["a", "c"],
            id="a pattern picks the lines that match, and its first group of each",
        ),
        pytest.param(
            {**STDOUT, "lines": True, "pattern": "\\d+"},
            "list",
            "1 2\nx\n3",
            ["1", "3"],
            id="the first match of a line",
        ),
        pytest.param({**STDOUT, "lines": True, "pattern": "a()"}, "list", "a\na", ["", ""], id="empty groups count"),
        pytest.param(STDOUT, "any", "up\n", "up", id="the same for anything"),
        pytest.param(STDOUT, "string", "", "", id="nothing printed is an empty text"),
        pytest.param(STDOUT, "int", " 42\n", 42, id="a number without the white space around it"),
        pytest.param(STDOUT, "float", "0.5\n", 0.5, id="a float"),
        pytest.param(STDOUT, "bool", "True\r\n", True, id="a boolean"),
        pytest.param(STDOUT, "list", "[1, 2]\n", [1, 2], id="a list as JSON"),
        pytest.param(STDOUT, "object", '{"a": 1}\n', {"a": 1}, id="an object as JSON"),
        pytest.param({**STDOUT, "pattern": "([0-9]+) days"}, "int", "up 3 days", 3, id="the first group of a pattern"),
        pytest.param(
            {**STDOUT, "pattern": "[0-9]+"}, "string", "up 3 days", "3", id="all that matches without a group"
        ),
        pytest.param({**STDOUT, "pattern": "(a)(b)"}, "string", "ab", "a", id="the first of several groups"),
        pytest.param({**STDOUT, "pattern": "()x"}, "string", "x", "", id="a group may be empty"),
        pytest.param({**STDOUT, "pattern": "^(\\d+)$"}, "int", "200\n", 200, id="`$` does not mind the last newline"),
        pytest.param({**STDOUT, "pattern": "^(\\d+)$"}, "int", "200\r\n", 200, id="nor a Windows one"),
        pytest.param(
            {**STDOUT, "pattern": "b\n$", "trim": False}, "string", "a\nb\n", "b\n", id="one that asks for it gets it"
        ),
        pytest.param({**STDOUT, "pattern": "(?m)^ü=(.*)$"}, "string", "a\nü=日本\n", "日本", id="beyond ASCII"),
    ],
)
def test_what_is_found_in_text(where: dict[str, Any], type_name: str, stdout: str, value: Any) -> None:
    assert one(where, type_name, stdout=stdout) == ExtractResult({"it": value})


def test_every_source() -> None:
    found = extract(
        action(o=STDOUT, e={"from": "stderr"}, c={"from": "exit_code"}, j={"from": "json", "path": "a"}),
        {},
        ToolOutput(exit_code=0, stdout='{"a": 1}', stderr="warn"),
    )
    assert found == ExtractResult({"o": '{"a": 1}', "e": "warn", "c": 0, "j": 1})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (None, {"a": {"b": [{"c": 7}, 8]}, "$x": 1, "0": "zero", "k-v/w": 2}),
        ("$", {"a": {"b": [{"c": 7}, 8]}, "$x": 1, "0": "zero", "k-v/w": 2}),
        ("a.b[0].c", 7),
        ("$.a.b[1]", 8),
        ("a.b.1", 8),
        ("$x", 1),
        ("0", "zero"),
        ("k-v/w", 2),
    ],
)
def test_paths_into_json(path: str | None, value: Any) -> None:
    where = {"from": "json"} if path is None else {"from": "json", "path": path}
    stdout = '{"a": {"b": [{"c": 7}, 8]}, "$x": 1, "0": "zero", "k-v/w": 2}'
    assert one(where, stdout=stdout) == ExtractResult({"it": value})


@pytest.mark.parametrize("path", ["[1]", "$[1]"])
def test_paths_into_a_list(path: str) -> None:
    assert one({"from": "json", "path": path}, "int", stdout="\ufeff[5, 6]\n").outputs == {"it": 6}


MISSES = [
    pytest.param(
        {**STDOUT, "pattern": "z+"},
        "any",
        "abc",
        "expected text that matches `z+` on stdout, found `abc`",
        id="no match",
    ),
    pytest.param({**STDOUT, "pattern": "z+"}, "any", " \n", "on stdout, found nothing", id="no match in nothing"),
    pytest.param(
        {**STDOUT, "pattern": "z+", "lines": True},
        "list",
        "a\nb",
        "expected a line that matches `z+` on stdout, found `a\\nb`",
        id="no line that matches",
    ),
    pytest.param(
        {**STDOUT, "pattern": "a\nb", "lines": True}, "list", "a\nb", "a line that", id="a pattern of two lines"
    ),
    pytest.param({**STDOUT, "pattern": "(a)?b"}, "any", "b", "matches `(a)?b`", id="a first group that took no part"),
    pytest.param({"from": "stderr", "pattern": "x"}, "any", "x", "on stderr", id="the wrong stream"),
    pytest.param({**STDOUT, "pattern": "^x$"}, "any", "x\n\n", "found `x\\n\\n`", id="`$` minds a second newline"),
    pytest.param(STDOUT, "int", "many\n", "expected an int, found `many`", id="text for a number"),
    pytest.param(STDOUT, "int", "", "expected an int, found ``", id="nothing for a number"),
    pytest.param(STDOUT, "int", str(MAX_INTEGER + 1), "expected an int", id="an integer JSON readers would change"),
    pytest.param(STDOUT, "int", "9" * 100_000, "expected an int", id="an integer without end"),
    pytest.param(STDOUT, "float", "NaN", "expected a float", id="not a number"),
    pytest.param(STDOUT, "float", "1e999", "expected a float", id="an infinite number"),
    pytest.param(STDOUT, "bool", "1", "expected a bool", id="one is not true"),
    pytest.param(STDOUT, "list", "a,b", "expected a list", id="text for a list"),
    pytest.param(STDOUT, "list", "[" * 100_000, "expected a list", id="brackets without end"),
    pytest.param(STDOUT, "list", "[1e5000]", "expected a list", id="an infinite number in a list"),
    pytest.param(STDOUT, "list", f"[{2**60}]", "beyond ±(2^53-1)", id="a large integer in a list"),
    pytest.param({"from": "json"}, "any", "", "expected JSON on stdout, found nothing", id="no JSON"),
    pytest.param({"from": "json"}, "any", "oops: no", "expected JSON on stdout, found `oops: no`", id="not JSON"),
    pytest.param({"from": "json"}, "any", '{"a": 1}\n{"a": 2}', "expected JSON on stdout", id="two documents"),
    pytest.param({"from": "json"}, "any", '{"a": NaN}', "expected JSON on stdout", id="NaN is not JSON"),
    pytest.param({"from": "json"}, "any", '{"a": 1e999}', "expected JSON on stdout", id="infinity is not JSON"),
    pytest.param({"from": "json"}, "any", '"\\ud800"', "expected JSON on stdout", id="half a character is not JSON"),
    pytest.param({"from": "json"}, "any", "[" * 1_000_000, "nested too deeply", id="a nesting bomb"),
    pytest.param(
        {"from": "json"}, "any", "[" * 300 + "]" * 300, "deeper than 200 levels", id="deeper than a trace keeps"
    ),
    pytest.param({"from": "json"}, "any", f"[{2**64}]", "beyond ±(2^53-1)", id="a large integer"),
    pytest.param({"from": "json", "path": "a"}, "int", f'{{"a": {10**40}}}', "expected an int", id="a huge integer"),
    pytest.param({"from": "json"}, "any", "1" * 6000, "expected JSON on stdout", id="digits without end"),
    pytest.param(
        {"from": "json", "path": "a.b"},
        "any",
        '{"a": {}}',
        "expected `a.b` in the JSON on stdout",
        id="a key that is not there",
    ),
    pytest.param({"from": "json", "path": "a.b"}, "any", '{"a": "b"}', "found nothing there", id="a path into a text"),
    pytest.param({"from": "json", "path": "a[1]"}, "any", '{"a": [0]}', "nothing there", id="behind the end of a list"),
    pytest.param({"from": "json", "path": "a[0]"}, "any", '{"a": {"0": 1}}', "nothing there", id="an index into a map"),
    pytest.param(
        {"from": "json", "path": "a[" + "9" * 5000 + "]"}, "any", '{"a": [0]}', "nothing there", id="an absurd index"
    ),
    pytest.param(
        {"from": "json", "path": "a.²"}, "any", '{"a": [0, 1, 2]}', "nothing there", id="digits only Unicode knows"
    ),
    pytest.param(
        {"from": "json", "path": "a"}, "int", '{"a": null}', "expected an int, found nothing", id="null for a number"
    ),
    pytest.param(
        {"from": "json", "path": "a"},
        "string",
        '{"a": {"b": 1}}',
        "expected a string, found a map",
        id="a map for a text",
    ),
    pytest.param({"from": "exit_code"}, "list", "", "expected a list, found `0`", id="an exit code for a list"),
    pytest.param({**STDOUT, "pattern": "("}, "any", "x", "is not a regular expression", id="a pattern that is none"),
]


@pytest.mark.parametrize(("where", "type_name", "stdout", "why"), MISSES)
def test_the_only_output_must_be_found_and_fit(where: dict[str, str], type_name: str, stdout: str, why: str) -> None:
    found = one(where, type_name, stdout=stdout)
    assert found.outputs == {}
    assert found.failure is not None
    assert found.failure.kind == "extraction"
    assert found.failure.message.startswith("output `it` of action `check`: ")
    assert why in found.failure.message
    assert len(found.failure.message) < 400
    assert found.failure.message.isprintable()


@pytest.mark.parametrize(("where", "type_name", "stdout", "why"), MISSES)
def test_an_output_that_may_be_missing_is_left_out(
    where: dict[str, str], type_name: str, stdout: str, why: str
) -> None:
    both = action(it=where, code={"from": "exit_code"})
    found = extract(both, {"it": Parameter(type=type_name)}, ToolOutput(exit_code=0, stdout=stdout))  # type: ignore[arg-type]
    assert found == ExtractResult({"code": 0})


@pytest.mark.parametrize(("where", "type_name", "stdout", "why"), MISSES)
def test_after_a_failed_exit_nothing_is_a_failure(where: dict[str, str], type_name: str, stdout: str, why: str) -> None:
    parameter = Parameter(type=type_name, required=True)  # type: ignore[arg-type]
    assert extract(action(it=where), {"it": parameter}, ToolOutput(exit_code=0, stdout=stdout)).failure is not None
    assert extract(action(it=where), {"it": parameter}, ToolOutput(exit_code=1, stdout=stdout)).failure is None


def test_a_required_output_must_be_found_among_others() -> None:
    both = action(a={**STDOUT, "pattern": "a=(.)"}, b={**STDOUT, "pattern": "b=(.)"})
    found = extract(both, {"b": Parameter(required=True)}, ToolOutput(exit_code=0, stdout="a=1"))
    assert found.outputs == {"a": "1"}
    assert found.failure is not None
    assert "`b`" in found.failure.message


def test_the_first_of_several_failures_is_told() -> None:
    both = action(a={**STDOUT, "pattern": "a"}, b={**STDOUT, "pattern": "b"})
    needed = Parameter(required=True)
    found = extract(both, {"a": needed, "b": needed}, ToolOutput(exit_code=0, stdout="x"))
    assert found.failure is not None
    assert "output `a`" in found.failure.message


def test_after_a_failed_exit_what_matches_is_kept() -> None:
    both = action(a={**STDOUT, "pattern": "a=(.)"}, b={**STDOUT, "pattern": "b=(.)"}, c={"from": "exit_code"})
    found = extract(both, {}, ToolOutput(exit_code=3, stdout="a=1"))
    assert found == ExtractResult({"a": "1", "c": 3})


def test_a_flaw_elsewhere_in_the_document_does_not_matter() -> None:
    assert one({"from": "json", "path": "a"}, stdout=f'{{"a": 1, "b": {2**60}}}').outputs == {"it": 1}


def test_the_document_is_read_at_most_once_and_only_if_it_is_asked_for() -> None:
    reads = []

    def document() -> ParsedJson:
        reads.append(1)
        return ParsedJson({"a": 1})

    printed = ToolOutput(exit_code=0, stdout="not even JSON", document=document)
    extract(action(a=STDOUT), {}, printed)
    assert reads == []
    found = extract(action(a={"from": "json", "path": "a"}, b={"from": "json"}, c={"from": "json"}), {}, printed)
    assert found.outputs == {"a": 1, "b": {"a": 1}, "c": {"a": 1}}
    assert reads == [1]


def test_a_document_that_could_not_be_read_says_why() -> None:
    found = one({"from": "json"}, document=lambda: ParsedJson(problem="stdout was too long"))
    assert found.failure is not None
    assert found.failure.message.endswith(": stdout was too long")


def test_a_miss_in_a_truncated_stream_says_that_it_was_truncated() -> None:
    found = one({**STDOUT, "pattern": "z"}, stdout="abc", truncated=frozenset({"stdout"}))
    assert found.failure is not None
    assert "on stdout, of which only the beginning was kept" in found.failure.message


def test_a_document_is_shown_only_as_it_may_be_seen() -> None:
    problem = parse_json("pin 1234", seen="pin [REDACTED]").problem
    assert problem is not None
    assert "[REDACTED]" in problem
    assert "1234" not in problem


def test_matching_takes_no_more_than_linear_time() -> None:
    found = one({**STDOUT, "pattern": "(a*)*(a*)*$b"}, stdout="a" * 200_000)
    assert found.failure is not None


WHERE: list[dict[str, str]] = [
    STDOUT,
    {"from": "json"},
    {"from": "json", "path": "a[0]"},
    {**STDOUT, "pattern": "(.+)"},
]
TEXTS = st.text() | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
).map(lambda value: str(value).replace("'", '"').replace("None", "null"))


@given(TEXTS, st.sampled_from(WHERE), st.sampled_from(["any", "string", "int", "float", "bool", "list", "object"]))
def test_whatever_is_printed_outputs_can_be_recorded(stdout: str, where: dict[str, str], type_name: str) -> None:
    found = one(where, type_name, stdout=stdout)
    require_canonical(found.outputs)
    assert (found.failure is None) == ("it" in found.outputs)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 2**53, -(2**70)])
def test_a_document_from_elsewhere_is_checked_too(number: float) -> None:
    document: Callable[[], ParsedJson] = lambda: ParsedJson({"n": number})  # noqa: E731
    assert one({"from": "json", "path": "n"}, document=document).failure is not None


@pytest.mark.parametrize(
    ("parameter", "printed", "outputs", "fails"),
    [
        pytest.param(Parameter(optional=True), ToolOutput(exit_code=0, stdout="x"), {}, False, id="absent"),
        pytest.param(
            Parameter(optional=True, has_default=True, default=3), ToolOutput(exit_code=0, stdout="x"), {"it": 3},
            False, id="absent, with a default",
        ),
        pytest.param(
            Parameter(optional=True, has_default=True), ToolOutput(exit_code=0, stdout="x"), {"it": None}, False,
            id="absent, and the default is null",
        ),
        pytest.param(
            Parameter(optional=True, has_default=True, default=3), ToolOutput(exit_code=1, stdout="x"), {}, False,
            id="a default says nothing about a call that failed",
        ),
        pytest.param(
            Parameter(optional=True, has_default=True, default=3),
            ToolOutput(exit_code=0, stdout="x", truncated=frozenset({"stdout"})), {}, True,
            id="perhaps in the part that was dropped",
        ),
    ],
)  # fmt: skip
def test_an_optional_output_may_be_absent(
    parameter: Parameter, printed: ToolOutput, outputs: dict[str, Any], fails: bool
) -> None:
    found = extract(action(it={**STDOUT, "pattern": "n=(.)"}), {"it": parameter}, printed)
    assert (found.outputs, found.failure is not None) == (outputs, fails)
