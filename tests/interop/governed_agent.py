"""The agents of `docs/govern-your-agent.md` with a scripted model: `python governed_agent.py LIBRARY RUN_ID`.

Runs in an environment of its own, in a folder with the files of the page. Prints what the model was told by its tools,
and its answer, as one JSON document.
"""

import asyncio
import json
import sys
from typing import Any

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("pods_look", {"pod": "web-1"}),
    ("pods_restart", {"pod": "web-1"}),
    ("pods_delete", {"pod": "web-1"}),
    ("pods_look", {"pod": "web 1; rm"}),
]
ANSWER = "web-1 is up again"


def langgraph_model(told: list[str]) -> Any:
    from langchain_core.language_models import BaseChatModel  # type: ignore[import-not-found]
    from langchain_core.messages import AIMessage, ToolMessage  # type: ignore[import-not-found]
    from langchain_core.outputs import ChatGeneration, ChatResult  # type: ignore[import-not-found]
    from langchain_core.utils.function_calling import convert_to_openai_tool  # type: ignore[import-not-found]

    class Scripted(BaseChatModel):  # type: ignore[misc]
        """Makes the calls one after the other."""

        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools: Any, **more: Any) -> Any:
            schemas.update({each["function"]["name"]: each["function"] for each in map(convert_to_openai_tool, tools)})
            return self

        def _generate(self, messages: Any, *args: Any, **more: Any) -> Any:
            results = [each for each in messages if isinstance(each, ToolMessage)]
            told[:] = [str(each.content) for each in results]
            if len(results) == len(CALLS):
                said = AIMessage(ANSWER)
            else:
                name, arguments = CALLS[len(results)]
                call = {"name": name, "args": arguments, "id": f"c{len(results)}", "type": "tool_call"}
                said = AIMessage("", tool_calls=[call])
            return ChatResult(generations=[ChatGeneration(message=said)])

    return Scripted()


def openai_model(told: list[str]) -> Any:
    from agents import Model, ModelResponse, Usage, set_tracing_disabled  # type: ignore[import-not-found]
    from openai.types.responses import (  # type: ignore[import-not-found]
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    set_tracing_disabled(True)

    class Scripted(Model):  # type: ignore[misc]
        """Makes the calls one after the other."""

        async def get_response(self, system_instructions: Any, input: Any, model_settings: Any, tools: Any, *args: Any, **more: Any) -> Any:  # fmt: skip # noqa: A002, E501
            schemas.update({each.name: {"parameters": each.params_json_schema} for each in tools})
            results = [each for each in input if isinstance(each, dict) and each.get("type") == "function_call_output"]
            told[:] = [str(each["output"]) for each in results]
            if len(results) == len(CALLS):
                text = ResponseOutputText(text=ANSWER, type="output_text", annotations=[], logprobs=[])
                said = ResponseOutputMessage(
                    id="m", content=[text], role="assistant", status="completed", type="message"
                )
            else:
                name, arguments = CALLS[len(results)]
                said = ResponseFunctionToolCall(
                    name=name, arguments=json.dumps(arguments), call_id=f"c{len(results)}", type="function_call"
                )
            return ModelResponse(output=[said], usage=Usage(), response_id=None)

        def stream_response(self, *args: Any, **more: Any) -> Any:
            raise NotImplementedError

    return Scripted()


def pydantic_model(told: list[str]) -> Any:
    from pydantic_ai.messages import (  # type: ignore[import-not-found]
        ModelResponse,
        RetryPromptPart,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
    )
    from pydantic_ai.models.function import FunctionModel  # type: ignore[import-not-found]

    def scripted(messages: Any, info: Any) -> Any:
        schemas.update({each.name: {"parameters": each.parameters_json_schema} for each in info.function_tools})
        parts = [part for message in messages for part in message.parts]
        results = [each for each in parts if isinstance(each, ToolReturnPart | RetryPromptPart)]
        told[:] = [str(each.content) for each in results]
        if len(results) == len(CALLS):
            return ModelResponse(parts=[TextPart(ANSWER)])
        name, arguments = CALLS[len(results)]
        return ModelResponse(parts=[ToolCallPart(name, arguments)])

    return FunctionModel(scripted)


schemas: dict[str, Any] = {}
LIBRARIES = {"langgraph": langgraph_model, "openai_agents": openai_model, "pydantic_ai": pydantic_model}


def main(library: str, run_id: str) -> None:
    """Run the agent of a library to its end."""
    told: list[str] = []
    answer = __import__(f"with_{library}").answer
    said = asyncio.run(answer(LIBRARIES[library](told), "is web-1 up?", run_id))
    sys.stdout.write(json.dumps({"answer": said, "told": told, "schemas": schemas}))


if __name__ == "__main__":
    sys.path.insert(0, ".")
    main(*sys.argv[1:])
