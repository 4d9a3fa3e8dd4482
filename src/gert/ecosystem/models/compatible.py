"""Any server that speaks OpenAI's protocol: Ollama, vLLM, llama.cpp, gateways."""

from typing import Unpack

from gert.ecosystem.models.adapter import Settings
from gert.ecosystem.models.conversation import StructuredOutput
from gert.ecosystem.models.openai.adapter import OpenAIAdapter


class OpenAICompatibleAdapter(OpenAIAdapter):
    """A model port to one OpenAI-compatible URL, such as `http://localhost:11434/v1`.

    Nothing is read from the environment: a key for OpenAI must not be sent to another server.
    """

    default_url = ""  # an empty address must not become OpenAI's
    key_variable = None
    url_variable = None
    # Every such server accepts this name; only OpenAI accepts the newer one.
    _chat_limit = "max_tokens"
    # Another server has other prices, even for models of the same name.
    has_list_prices = False

    def __init__(
        self,
        base_url: str,
        *,
        structured_output: StructuredOutput = "schema",
        max_output_tokens: int | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        super().__init__(
            base_url=base_url, structured_output=structured_output, max_output_tokens=max_output_tokens, **settings
        )
