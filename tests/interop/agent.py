"""An agent of pydantic-ai with a scripted model: lists, explains, executes, and waits for a person.

Runs in an environment of its own: `python agent.py GERT_MCP ROOT`. Prints a JSON document a line: each result it got.
"""

import asyncio
import json
import os
import sys
from typing import Any

from fastmcp.client.transports import StdioTransport  # type: ignore[import-not-found]
from pydantic_ai import Agent  # type: ignore[import-not-found]
from pydantic_ai.mcp import MCPToolset  # type: ignore[import-not-found]
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart  # type: ignore[import-not-found]
from pydantic_ai.models.function import AgentInfo, FunctionModel  # type: ignore[import-not-found]


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """What the model says next, from the last result that it got."""
    last = messages[-1].parts[-1]
    if not isinstance(last, ToolReturnPart):
        return _call("gert_list_runbooks", {})
    said: dict[str, Any] = last.content if isinstance(last.content, dict) else json.loads(str(last.content))
    _tell({"tool": last.tool_name, "result": said})
    if last.tool_name == "gert_list_runbooks":
        return _call("gert_explain", {"path": said["runbooks"][0]["path"]})
    if last.tool_name == "gert_explain":
        arguments = {"path": "book", "vars": {"word": "日本"}, "request_id": "one", "wait_seconds": 20}
        return _call("gert_exec", arguments)
    if "next" in said:
        return _call(said["next"]["tool"], {"run_id": said["run_id"], "wait_seconds": 20})
    return ModelResponse(parts=[TextPart(f"the run ended: {said['status']}")])


def _call(name: str, arguments: dict[str, Any]) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart(name, arguments)])


def _tell(said: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


async def main(program: str, root: str) -> None:
    """Run the agent to its end."""
    transport = StdioTransport(program, ["--root", root], env=dict(os.environ))
    agent = Agent(FunctionModel(scripted), toolsets=[MCPToolset(transport)])
    result = await agent.run("write the word down")
    _tell({"said": result.output})


asyncio.run(main(*sys.argv[1:]))
