"""What results of MCP tools come to: outputs, text, errors."""

from typing import Any

import pytest
from mcp.types import CallToolResult
from tests.ecosystem.mcp.calls import asked, mcp_tool

from gert.ecosystem.tools.mcp.results import CallResult, answer_of
from gert.kernel.engine.requests import ToolAnswer
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.foundation.secret_refs import secret_ref


def result(*content: Any, **more: Any) -> CallResult:
    blocks = [{"type": "text", "text": each} if isinstance(each, str) else each for each in content]
    return CallResult.of(CallToolResult.model_validate({"content": blocks, **more}))


def mapped(found: CallResult, outputs: dict[str, Any], extract: Any = None, hides: tuple[str, ...] = ()) -> ToolAnswer:
    tool = mcp_tool(["x"], outputs=outputs, action={"extract": extract or {}})
    action = tool.actions["do"]
    return answer_of("do", found, action, asked(tool).contract, Redactor(hides), limit=1000)


ONE = {"out": {"type": "string"}}
TWO = {"a": {"type": "int"}, "b": {"type": "string"}}


@pytest.mark.parametrize(
    ("found", "outputs", "extract", "expected"),
    [
        pytest.param(
            result("x", structuredContent={"a": 1, "b": "y", "c": 2}),
            TWO,
            None,
            {"a": 1, "b": "y"},
            id="declared outputs of the structured result",
        ),
        pytest.param(
            result("x", structuredContent={"a": 1}), TWO, None, {"a": 1}, id="one that is missing is left out"
        ),
        pytest.param(result("hello", "you"), ONE, None, {"out": "hello\nyou"}, id="a single output is the text"),
        pytest.param(result("hello", structuredContent={}), ONE, None, {}, id="but not of a structured result"),
        pytest.param(result("hello"), TWO, None, {}, id="and not one of several"),
        pytest.param(
            result("hello\n"), ONE, {"out": {"from": "stdout"}}, {"out": "hello"}, id="text, without its last newline"
        ),
        pytest.param(
            result("v1.2 ok"), ONE, {"out": {"from": "stdout", "pattern": r"v(\S+)"}}, {"out": "1.2"}, id="a pattern"
        ),
        pytest.param(
            result('{"n": [7]}'), ONE, {"out": {"from": "json", "path": "n[0]"}}, {"out": "7"}, id="JSON of the text"
        ),
        pytest.param(
            result("7", structuredContent={"n": 8}),
            ONE,
            {"out": {"from": "json", "path": "n"}},
            {"out": "8"},
            id="JSON of the structured result first",
        ),
        pytest.param(
            result("x", structuredContent={"a": 1, "b-c": "z"}),
            TWO,
            {"b": {"from": "json", "path": "b-c"}},
            {"a": 1, "b": "z"},
            id="both ways",
        ),
    ],
)
def test_outputs(found: CallResult, outputs: Any, extract: Any, expected: dict[str, Any]) -> None:
    answer = mapped(found, outputs, extract)
    assert (answer.outputs, answer.failure) == (expected, None)


@pytest.mark.parametrize(
    ("found", "extract", "kind", "says"),
    [
        pytest.param(result("no", isError=True), None, "tool_error", "`do` reported an error: no", id="an error"),
        pytest.param(result(isError=True), None, "tool_error", "`do` reported an error", id="an error without a word"),
        pytest.param(result("x"), {"out": {"from": "json", "path": "n"}}, "extraction", "expected JSON", id="no JSON"),
        pytest.param(result("x"), {"out": {"from": "stdout", "pattern": "y"}}, "extraction", "matches", id="no match"),
        pytest.param(
            result("x" * 2000, "end"),
            {"out": {"from": "stdout", "pattern": "end"}},
            "extraction",
            "only the beginning was kept",
            id="too much text",
        ),
    ],
)
def test_failures(found: CallResult, extract: Any, kind: str, says: str) -> None:
    answer = mapped(found, ONE, extract)
    assert answer.failure is not None
    assert (answer.failure.kind, says in answer.failure.message) == (kind, True), answer.failure


def test_an_error_keeps_what_can_be_found() -> None:
    answer = mapped(result("x", structuredContent={"a": 1}, isError=True), TWO, {"b": {"from": "json", "path": "b"}})
    assert (answer.outputs, answer.failure.kind if answer.failure else None) == ({"a": 1}, "tool_error")


def test_bytes_are_named_and_not_kept() -> None:
    found = result(
        {"type": "image", "data": "QUJD", "mimeType": "image/png"},
        {"type": "audio", "data": "QUJD", "mimeType": "a\x1bb"},
        {"type": "resource_link", "name": "n", "uri": "file:///tmp/x"},
        {"type": "resource", "resource": {"uri": "file:///y", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "file:///z", "blob": "QUJDRA=="}},
    )
    assert mapped(found, ONE).stdout.split("\n") == [
        "[image image/png, 3 bytes, not kept]",
        "[audio ab, 3 bytes, not kept]",
        "[link to file:///tmp/x]",
        "inside",
        "[resource, 6 bytes, not kept]",
    ]


def test_a_structured_result_without_text_is_its_own_text() -> None:
    assert mapped(result(structuredContent={"a": 1}), TWO).stdout == '{"a":1}'


def test_secrets_are_masked_everywhere_and_counted() -> None:
    found = result(
        "key hunter2 here", structuredContent={"a": "hunter2", "b": ["x hunter2"], "hunter2": 1}, isError=True
    )
    answer = mapped(found, {"a": {}, "b": {}}, hides=("hunter2",))
    assert "hunter2" not in repr(answer)
    assert answer.outputs == {"a": "[REDACTED]", "b": ["x [REDACTED]"]}
    assert answer.redacted > 0


def test_a_server_cannot_print_a_reference_to_a_secret() -> None:
    answer = mapped(result(structuredContent={"b": secret_ref("token")}), TWO)
    assert answer.outputs["b"] == "\ufffdtoken\ufffd"
