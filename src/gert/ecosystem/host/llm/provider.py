"""Ask a model one question: a vendor's, an OpenAI-compatible server's, or one that needs no network.

The provider is chosen by the variable `LLM_PROVIDER`: `echo`, `script:FILE`, `anthropic`, `openai`, or the URL of an
OpenAI-compatible server, whose key is in the variable that `LLM_API_KEY_ENV` names. Without it, the name of the model
decides. Its variables do not begin with `GERT_`, because tools do not get those.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from gert.ecosystem.host.llm.offline import echo, load_script, scripted
from gert.errors import InputError, UsageError
from gert.kernel.foundation.names import listing

if TYPE_CHECKING:
    from pydantic import BaseModel

    from gert.ecosystem.models.adapter import VendorAdapter
    from gert.ecosystem.models.routing import RoutingModelPort

    OutputT = TypeVar("OutputT", bound=BaseModel)

PROVIDER: Final = "LLM_PROVIDER"
API_KEY_ENV: Final = "LLM_API_KEY_ENV"
DEFAULT_MODEL: Final = "claude-4-opus"
_SCRIPT: Final = "script:"
_OFFLINE: Final = ("echo", "script")


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt and how to answer it; None leaves a setting to the vendor."""

    prompt: str
    model: str = DEFAULT_MODEL
    temperature: float | None = None
    max_tokens: int | None = None


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, and who really gave it."""

    text: str
    provider: str
    model: str
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float = 0.0

    @property
    def usage(self) -> dict[str, Any]:
        """The usage for the record; the cost only where it is known."""
        used = {
            "provider": self.provider,
            "model": self.model,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
        }
        return {**used, "cost_usd": self.cost_usd} if self.cost_usd else used


def provider_of(environ: Mapping[str, str], named: str | None = None) -> str:
    """Return the provider that is named, or that the environment names; `auto` without one."""
    return named or environ.get(PROVIDER) or "auto"


def is_offline(provider: str) -> bool:
    """Whether a provider needs no network."""
    return provider in _OFFLINE or provider.startswith(_SCRIPT)


def model_label(provider: str, model: str) -> str:
    """Return the model that answers: an offline provider answers in place of any model."""
    return provider.partition(":")[0] if is_offline(provider) else model


def answer_offline(question: Question, provider: str) -> Reply:
    """Answer without a network."""
    if provider == "script":
        raise UsageError("the provider `script` needs a file", hint=f"set {PROVIDER}=script:FILE")
    file = provider.removeprefix(_SCRIPT)
    text = echo(question.prompt) if provider == "echo" else scripted(question.prompt, load_script(file), file)
    return Reply(
        text=text,
        provider=provider.partition(":")[0],
        model=model_label(provider, question.model),
        prompt_tokens=len(question.prompt.split()),
        completion_tokens=len(text.split()),
    )


async def answer(question: Question, environ: Mapping[str, str], provider: str) -> Reply:
    """Answer in plain text."""
    if not question.prompt.strip():
        raise InputError("the prompt is empty", hint="write it to standard input")
    if is_offline(provider):
        return answer_offline(question, provider)
    from gert.ecosystem.host.llm.schemas import Text  # slow to import, and an offline provider needs none of it

    output, reply = await answer_as(Text, question, environ, provider)
    return msgspec.structs.replace(reply, text=output.response)


async def answer_as(
    schema: "type[OutputT]", question: Question, environ: Mapping[str, str], provider: str
) -> "tuple[OutputT, Reply]":
    """Answer with an object that fits a schema; an offline provider must answer with its JSON."""
    if is_offline(provider):
        reply = answer_offline(question, provider)
        return _parsed(schema, reply), reply
    from gert.kernel.agent.ports.model import ModelRequest

    extra: dict[str, object] = {} if question.temperature is None else {"temperature": question.temperature}
    async with port_of(provider, environ, max_tokens=question.max_tokens, extra_body=extra) as port:
        result = await port.complete(
            ModelRequest(
                run_id="", model=question.model, prompt=question.prompt, messages=(), output_schema=schema,
                allowed_tools=(),
            )
        )  # fmt: skip
    reply = Reply(
        text=result.raw_output,
        provider="openai-compatible" if "://" in provider else provider,
        model=question.model,
        prompt_tokens=result.usage.prompt_tokens,
        completion_tokens=result.usage.completion_tokens,
        cost_usd=result.usage.cost_usd,
    )
    return result.output, reply


def _parsed(schema: "type[OutputT]", reply: Reply) -> "OutputT":
    from pydantic import ValidationError

    try:
        return schema.model_validate_json(reply.text)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the answer"
        raise InputError(
            f"the provider `{reply.provider}` did not answer with the requested JSON: {where}: {first['msg']}",
            hint="a scripted answer to a judge is a JSON object",
        ) from None


def port_of(
    provider: str, environ: Mapping[str, str], *, max_tokens: int | None = None, **settings: Any
) -> "VendorAdapter | RoutingModelPort":
    """Return the port to a provider; keys come from the environment alone.

    settings: further settings of its adapter
    """
    from gert.ecosystem.models.anthropic.adapter import AnthropicAdapter
    from gert.ecosystem.models.compatible import OpenAICompatibleAdapter
    from gert.ecosystem.models.openai.adapter import OpenAIAdapter
    from gert.ecosystem.models.routing import RoutingModelPort

    if "://" in provider:
        key = environ.get(environ.get(API_KEY_ENV, ""), "")
        return OpenAICompatibleAdapter(provider, api_key=key, max_output_tokens=max_tokens, **settings)
    vendors: dict[str, VendorAdapter] = {
        "anthropic": AnthropicAdapter(max_output_tokens=max_tokens or 8192, environ=environ, **settings),
        "openai": OpenAIAdapter(max_output_tokens=max_tokens, environ=environ, **settings),
    }
    if provider == "auto":
        return RoutingModelPort(ports=vendors, environ=environ)
    if provider not in vendors:
        known = listing(("auto", *vendors, "echo", "script:FILE"))
        raise UsageError(f"`{provider}` is not a provider", hint=f"one of {known}, or a URL")
    return vendors[provider]
