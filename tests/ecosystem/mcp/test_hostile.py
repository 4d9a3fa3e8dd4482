"""Servers that misbehave: each gives a step error with its reason, in bounded time, and leaves no process."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.mcp.calls import answer, call, finished, lines, raw, survivors, transport

from gert.ecosystem.tools.outputs import Interrupted
from gert.kernel.engine.requests import ToolAnswer
from gert.kernel.engine.results import status_of

ANY: dict[str, Any] = {"outputs": {"done": {"type": "int"}}}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.mark.parametrize(
    ("mode", "kind", "says"),
    [
        pytest.param("exit", "transport", "exited with 3: no configuration found", id="exits at once"),
        pytest.param("die", "transport", "exited with 7: out of memory", id="exits during a call"),
        pytest.param("close-stdout", "transport", "closed its standard output", id="closes its output and lives on"),
        pytest.param("old-protocol", "transport", "Unsupported protocol version", id="speaks an unknown protocol"),
        pytest.param("giant", "transport", "a message is longer than 1048576 bytes", id="a giant answer"),
        pytest.param("endless-line", "transport", "a message is longer than 1048576 bytes", id="a line without end"),
        pytest.param("flood", "transport", "10000 unrequested messages", id="a flood of notifications"),
        pytest.param("not-json", "transport", "it prints text on standard output", id="text instead of messages"),
        pytest.param("endless-list", "transport", "lists tools without end", id="a list without end"),
        pytest.param("circular-list", "transport", "lists tools without end", id="a list that goes in a circle"),
        pytest.param("huge-list", "transport", "lists tools without end", id="a list with too many tools"),
        pytest.param("twice", "transport", "lists the tool `do` twice", id="one tool twice"),
        pytest.param("bad-list", "transport", "that MCP does not allow: tools", id="a list that is none"),
        pytest.param("no-object", "transport", "no JSON-RPC message", id="a result that is no object"),
        pytest.param("bytes", "transport", "no JSON-RPC message", id="bytes that are no text"),
        pytest.param("deep", "transport", "no JSON-RPC message", id="a result that is nested too deeply"),
        pytest.param("bad-content", "transport", "that MCP does not allow", id="an unknown type of content"),
        pytest.param("no-content", "transport", "that MCP does not allow", id="no content"),
        pytest.param(
            "structured-list", "transport", "that MCP does not allow", id="a structured result that is a list"
        ),
        pytest.param(
            "modern-question", "transport", "asks for elicitation/create, which gert refuses", id="a question"
        ),
        pytest.param("modern-retry", "transport", "asks for a retry, which gert refuses", id="a retry for ever"),
        pytest.param("error", "transport", "answered with an error: rate[2J limited", id="an error of the protocol"),
        pytest.param("tool-error", "tool_error", "`do` reported an error: no such file [31mreally", id="a tool error"),
    ],
)
def test_misbehaviour(mode: str, kind: str, says: str, log: Path) -> None:
    found = answer(raw(mode, log, **ANY))
    assert found.failure is not None
    assert (found.failure.kind, says in found.failure.message) == (kind, True), found.failure
    assert status_of(found.failure) == ("failed" if kind == "tool_error" else "error")
    assert found.failure.message.isprintable()
    assert list(survivors(log)) == []


@pytest.mark.parametrize("mode", ["silent", "silent-call", "wrong-id"])
def test_silence_ends_with_the_timeout_of_the_step(mode: str, log: Path) -> None:
    """The driver cancels the call; what is no answer does not count as one."""

    async def work() -> ToolAnswer:
        async with transport() as made:
            pending = asyncio.create_task(call(made, raw(mode, log)))
            while not lines(log, "start" if mode == "silent" else "call"):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            assert not pending.done()
            pending.cancel()
            with pytest.raises(Interrupted) as cut:
                await pending
            return cut.value.answer

    finished(work)
    assert list(survivors(log)) == []


def test_requests_of_a_server_are_refused_and_the_answer_says_so(log: Path) -> None:
    found = answer(raw("requests", log))
    assert found.failure is not None
    assert found.failure.kind == "tool_error"
    assert "refused 4" in found.failure.message
    assert "gert refused its request `elicitation/create`, `sampling/createMessage`" in found.failure.message


def test_a_number_that_cannot_be_recorded_does_not_pass() -> None:
    found = answer(raw("big-number", **ANY))
    assert found.failure is None
    assert found.outputs["done"] == 2**70  # the way in refuses it: `Sanitizer`


def test_a_structured_result_may_be_any_value_in_the_current_protocol() -> None:
    found = answer(raw("modern-list", action={"extract": {"done": {"from": "json", "path": "[1]"}}}, **ANY))
    assert (found.outputs, found.failure) == ({"done": 2}, None)


def test_a_list_of_several_pages_is_read() -> None:
    assert answer(raw("paged", action={"mcp_tool": "first"})).failure is None
    assert answer(raw("paged")).failure is None
