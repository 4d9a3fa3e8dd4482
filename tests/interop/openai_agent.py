"""An agent of openai-agents with a scripted model: lists, explains, executes, and waits for a person.

Runs in an environment of its own: `python openai_agent.py GERT_MCP ROOT`. Prints a JSON document a line: each result.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled  # type: ignore[import-not-found]
from agents.mcp import MCPServerStdio  # type: ignore[import-not-found]
from openai.types.responses import (  # type: ignore[import-not-found]
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)


class Scripted(Model):  # type: ignore[misc]
    """Says what to call next, from the last result that it got."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._last = ""

    async def get_response(self, *others: Any, **more: Any) -> ModelResponse:
        """The next message of the model."""
        asked = more["input"]
        last = asked[-1] if isinstance(asked, list) else {}
        if last.get("type") != "function_call_output":
            return self._call("gert_list_runbooks", {})
        text = last["output"] if isinstance(last["output"], str) else json.dumps(last["output"])
        said = json.loads(text)
        for _ in range(3):  # the framework wraps the text of a tool
            said = said[0] if isinstance(said, list) else said
            said = json.loads(said["text"]) if isinstance(said, dict) and set(said) >= {"type", "text"} else said
        _tell({"tool": self._last, "result": said})
        if self._last == "gert_list_runbooks":
            return self._call("gert_explain", {"path": said["runbooks"][0]["path"]})
        if self._last == "gert_explain":
            arguments = {"path": "book", "vars": {"word": "日本"}, "request_id": "one", "wait_seconds": 20}
            return self._call("gert_exec", arguments)
        if "next" in said:
            return self._call(said["next"]["tool"], {"run_id": said["run_id"], "wait_seconds": 20})
        content = ResponseOutputText(type="output_text", text=f"the run ended: {said['status']}", annotations=[])
        message = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[content])
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def _call(self, name: str, arguments: dict[str, Any]) -> ModelResponse:
        self._last = name
        number = f"call-{next(self._numbers)}"
        called = ResponseFunctionToolCall(
            type="function_call", call_id=number, name=name, arguments=json.dumps(arguments)
        )
        return ModelResponse(output=[called], usage=Usage(), response_id=None)

    def stream_response(self, *others: Any, **more: Any) -> AsyncIterator[Any]:
        """Nothing is streamed."""
        raise NotImplementedError


def _tell(said: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


async def main(program: str, root: str) -> None:
    """Run the agent to its end."""
    set_tracing_disabled(True)
    params = {"command": program, "args": ["--root", root], "env": dict(os.environ)}
    async with MCPServerStdio(params, client_session_timeout_seconds=120) as server:
        agent = Agent(name="agent", model=Scripted(), mcp_servers=[server])
        result = await Runner.run(agent, "write the word down", max_turns=50)
    _tell({"said": result.final_output})


asyncio.run(main(*sys.argv[1:]))
