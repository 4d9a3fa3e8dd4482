"""The mock model, and who is asked for which model."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from tests.ecosystem.models.vendors import GOOD, KEY, VERDICT, Defaults, Verdict, completion, http, request
from tests.ecosystem.notify.servers import serving

from gert.ecosystem.models.anthropic.adapter import AnthropicAdapter
from gert.ecosystem.models.compatible import OpenAICompatibleAdapter
from gert.ecosystem.models.mock import MockModelPort
from gert.ecosystem.models.openai.adapter import OpenAIAdapter
from gert.ecosystem.models.routing import RoutingModelPort
from gert.errors import InputError, ModelPermanentError
from gert.kernel.agent.ports.model import ModelPort, ModelResult, ModelUsage, StreamingModelPort, ToolCall

CALL = ToolCall("weather", "{}", "call_1")


def complete(port: ModelPort, **more: Any) -> ModelResult[Any]:
    return asyncio.run(port.complete(request(**more)))


def test_the_mock_gives_what_it_was_told() -> None:
    usage = ModelUsage(1, 2, 0.5)
    port = MockModelPort(
        output={"healthy": True, "reason": "all green"},
        usage=usage,
        tool_calls=(CALL,),
        api_mode_used="responses",
        response_id="resp_1",
        response_output_items=({"type": "message"},),
    )
    result = complete(port)
    assert result == ModelResult(
        VERDICT, usage, (CALL,), VERDICT.model_dump_json(), "responses", "resp_1", ({"type": "message"},)
    )
    assert port.calls == 1


def test_the_mock_makes_an_answer_from_the_request() -> None:
    port = MockModelPort(output_factory=lambda asked: {"healthy": "Is" in asked.prompt})
    assert complete(port).output == Verdict(healthy=True)


def test_the_mock_streams() -> None:
    told: list[str] = []
    port = MockModelPort(output={"healthy": True, "reason": "all is green"})
    assert isinstance(port, StreamingModelPort)
    result = asyncio.run(port.complete_streaming(request(), told.append))
    assert len(told) == 3
    assert "".join(told) == result.raw_output


@pytest.mark.parametrize(
    ("port", "schema", "output"),
    [
        (MockModelPort(), Defaults, Defaults()),
        (MockModelPort(tool_calls=(CALL,)), Defaults, Defaults()),
        (MockModelPort(tool_calls=(CALL,)), Verdict, Verdict.model_construct()),
    ],
)
def test_the_mock_without_an_output(port: MockModelPort, schema: Any, output: object) -> None:
    result = complete(port, schema=schema)
    assert (result.output, result.raw_output) == (output, "")


@pytest.mark.parametrize("port", [MockModelPort(), MockModelPort(output={"healthy": "perhaps"})])
def test_the_mock_refuses_what_does_not_fit(port: MockModelPort) -> None:
    with pytest.raises(ModelPermanentError, match="not a `Verdict`"):
        complete(port)


def test_the_mock_takes_one_kind_of_answer() -> None:
    with pytest.raises(InputError):
        MockModelPort(output={}, output_factory=lambda _: {})


@pytest.mark.parametrize(
    ("model", "kind", "name"),
    [
        ("gpt-5", OpenAIAdapter, "gpt-5"),
        ("chatgpt-4o-latest", OpenAIAdapter, "chatgpt-4o-latest"),
        ("codex-mini-latest", OpenAIAdapter, "codex-mini-latest"),
        ("o3-mini", OpenAIAdapter, "o3-mini"),
        ("ft:gpt-4.1-mini:acme::7p4lURel", OpenAIAdapter, "ft:gpt-4.1-mini:acme::7p4lURel"),
        ("claude-sonnet-4-5", AnthropicAdapter, "claude-sonnet-4-5"),
        ("openai/gpt-5", OpenAIAdapter, "gpt-5"),
        ("anthropic/claude-opus-4-1", AnthropicAdapter, "claude-opus-4-1"),
        ("ollama/llama3.2", OpenAICompatibleAdapter, "llama3.2"),
        ("vllm/meta-llama/Llama-3", OpenAICompatibleAdapter, "meta-llama/Llama-3"),
    ],
)
def test_who_is_asked(model: str, kind: type, name: str) -> None:
    router = RoutingModelPort(compatible={"vllm": "http://127.0.0.1:1/v1"}, environ={})
    port, asked = router.port_for(model)
    assert type(port) is kind
    assert asked == name
    assert router.port_for(model)[0] is port


@pytest.mark.parametrize(
    "model", ["llama3.2", "ollama/", "ollama", "", "mistral/large", "x-gpt-5", "ft:llama", "openai-compatible/x"]
)
def test_who_is_not_known(model: str) -> None:
    with pytest.raises(ModelPermanentError) as caught:
        RoutingModelPort(environ={}).port_for(model)
    assert caught.value.category == "model_not_found"


def test_a_given_port_is_used_in_place_of_a_vendor() -> None:
    mock = MockModelPort(output={"healthy": True})
    assert complete(RoutingModelPort(default=mock, environ={}), model="llama3.2").output == Verdict(healthy=True)
    assert complete(RoutingModelPort(ports={"openai": mock}, environ={})).output == Verdict(healthy=True)


def test_a_compatible_server_is_asked_by_its_own_name_for_a_model() -> None:
    async def run(url: str) -> tuple[str, list[str]]:
        told: list[str] = []
        async with RoutingModelPort(compatible={"openai-compatible": url}, environ={"OPENAI_API_KEY": KEY}) as router:
            asked = request(model="openai-compatible/qwen3")
            result = await router.complete_streaming(asked, told.append)
        return result.api_mode_used, told

    with serving(http(404, b""), http(200, completion(GOOD))) as server:
        assert asyncio.run(run(server.url("/v1"))) == ("chat", [])
    assert server.requests[1].said["model"] == "qwen3"
    assert "authorization" not in server.requests[1].headers


def test_a_port_that_cannot_stream_tells_its_answer_at_the_end() -> None:
    class Plain:
        async def complete(self, request: Any) -> Any:
            return await MockModelPort(output={"healthy": True}).complete(request)

    told: list[str] = []
    asyncio.run(RoutingModelPort(default=Plain(), environ={}).complete_streaming(request(model="x"), told.append))
    assert told == ['{"healthy":true,"reason":"none"}']


def test_nothing_of_a_vendor_is_imported_before_it_is_needed() -> None:
    modules = "anthropic compatible litellm mock openai routing"
    imports = "; ".join(f"import gert.ecosystem.models.{name}" for name in modules.split())
    check = (
        f"import sys; {imports}; print([m for m in ('httpx2', 'litellm', 'openai', 'anthropic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
