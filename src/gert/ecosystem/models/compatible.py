"""Any server that speaks OpenAI's protocol: Ollama, vLLM, llama.cpp, gateways."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from gert.ecosystem.models.conversation import StructuredOutput
from gert.ecosystem.models.keys import checked_base_url
from gert.ecosystem.models.limits import Limits
from gert.ecosystem.models.openai import OpenAIAdapter
from gert.ecosystem.models.prices import Price


class OpenAICompatibleAdapter(OpenAIAdapter):
    """A model port to one OpenAI-compatible URL, such as `http://localhost:11434/v1`.

    Nothing is read from the environment: a key for OpenAI is not sent to somebody else.
    """

    vendor = "the server"
    key_variable = None
    # The name that every such server knows; the newer one is OpenAI's alone.
    _chat_limit = "max_tokens"

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        limits: Limits | None = None,
        prices: Mapping[str, Price] | None = None,
        fail_on_unknown_cost: bool = False,
        structured_output: StructuredOutput = "schema",
        max_output_tokens: int | None = None,
        extra_body: Mapping[str, object] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        checked_base_url(base_url)  # also an empty one, which must not become OpenAI's
        super().__init__(
            api_key=api_key,
            base_url=base_url,
            limits=limits,
            prices=prices,
            fail_on_unknown_cost=fail_on_unknown_cost,
            structured_output=structured_output,
            max_output_tokens=max_output_tokens,
            extra_body=extra_body,
            environ={},
            sleep=sleep,
        )
