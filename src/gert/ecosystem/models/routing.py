"""Route a request to a vendor by the model's name; adapters are created when first used."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from gert.ecosystem.models.text_stream import send_token
from gert.errors import ModelPermanentError
from gert.kernel.agent.ports.model import (
    ModelPort,
    ModelRequest,
    ModelResult,
    OnToken,
    OutputT,
    PricedModelPort,
    StreamingModelPort,
)
from gert.kernel.foundation.closable import Closable

if TYPE_CHECKING:
    from gert.ecosystem.models.adapter import VendorAdapter

OLLAMA: Final = "http://localhost:11434/v1"
_OPENAI: Final = re.compile(r"(ft:)?((gpt|chatgpt|codex)-|o[0-9])")
_ANTHROPIC: Final = re.compile(r"claude-")


class RoutingModelPort(Closable):
    """A model port that passes each request to the adapter for its model.

    `gpt-…`, `chatgpt-…`, `codex-…` and `o1…`, also fine-tuned (`ft:gpt-…`), go to OpenAI, `claude-…` to Anthropic.
    `<name>/<model>` goes to the vendor or URL of that name: `openai/`, `anthropic/`, `ollama/`, and those in
    `compatible`.

    ports: adapters by `openai`, `anthropic` or a name of `compatible`, in place of those it would create
    compatible: URLs of OpenAI-compatible servers, such as `{"openai-compatible": "http://localhost:8000/v1"}`
    default: the adapter for every other model
    """

    def __init__(
        self,
        *,
        ports: Mapping[str, ModelPort] | None = None,
        compatible: Mapping[str, str] | None = None,
        default: ModelPort | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._ports: dict[str, ModelPort] = dict(ports or {})
        self._own: list[VendorAdapter] = []
        self._compatible = {"ollama": OLLAMA, **(compatible or {})}
        self._default = default
        self._environ = os.environ if environ is None else environ

    async def close(self) -> None:
        """Close the adapters it created."""
        for port in self._own:
            await port.close()

    def port_for(self, model: str) -> tuple[ModelPort, str]:
        """Return the adapter for a model, and the model's name there."""
        route, name = self._route(model)
        if route is None:
            if self._default is not None:
                return self._default, model
            raise ModelPermanentError(
                f"no adapter is configured for the model `{model[:200]}`",
                category="model_not_found",
                hint="write `<name>/<model>` and add the URL of that name to `compatible`, or pass a `default`",
            )
        if route not in self._ports:
            made = self._ports[route] = self._create(route)
            self._own.append(made)
        return self._ports[route], name

    def max_cost_usd(self, model: str, prompt_tokens: int) -> float | None:
        """Return the most a call may cost, as its adapter knows; None if it does not."""
        port, name = self.port_for(model)
        return port.max_cost_usd(name, prompt_tokens) if isinstance(port, PricedModelPort) else None

    async def complete(self, request: ModelRequest[OutputT]) -> ModelResult[OutputT]:
        """Call the adapter for the request's model."""
        port, name = self.port_for(request.model)
        return await port.complete(replace(request, model=name))

    async def complete_streaming(self, request: ModelRequest[OutputT], on_token: OnToken) -> ModelResult[OutputT]:
        """Call the adapter for the request's model; one that cannot stream sends its whole answer at the end."""
        port, name = self.port_for(request.model)
        if isinstance(port, StreamingModelPort):
            return await port.complete_streaming(replace(request, model=name), on_token)
        return await _send_whole(port, replace(request, model=name), on_token)

    def _route(self, model: str) -> tuple[str | None, str]:
        prefix, slash, name = model.partition("/")
        if slash and name and (prefix in self._compatible or prefix in self._ports or prefix in _MAKERS):
            return prefix, name
        if _OPENAI.match(model):
            return "openai", model
        return ("anthropic", model) if _ANTHROPIC.match(model) else (None, model)

    def _create(self, route: str) -> "VendorAdapter":
        if route in self._compatible:
            from gert.ecosystem.models.compatible import OpenAICompatibleAdapter

            return OpenAICompatibleAdapter(self._compatible[route])
        return _MAKERS[route](self._environ)


def _openai(environ: Mapping[str, str]) -> "VendorAdapter":
    from gert.ecosystem.models.openai.adapter import OpenAIAdapter

    return OpenAIAdapter(environ=environ)


def _anthropic(environ: Mapping[str, str]) -> "VendorAdapter":
    from gert.ecosystem.models.anthropic.adapter import AnthropicAdapter

    return AnthropicAdapter(environ=environ)


_MAKERS: Final[Mapping[str, Callable[[Mapping[str, str]], "VendorAdapter"]]] = MappingProxyType(
    {"openai": _openai, "anthropic": _anthropic}
)


async def _send_whole(port: ModelPort, request: ModelRequest[OutputT], on_token: OnToken) -> ModelResult[OutputT]:
    result = await port.complete(request)
    if result.raw_output:
        await send_token(on_token, result.raw_output)
    return result
