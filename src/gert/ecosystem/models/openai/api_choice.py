"""The choice between OpenAI's two APIs: `auto` prefers Responses and falls back to chat completions."""

from collections.abc import Awaitable, Callable
from typing import Final

from gert.ecosystem.models.conversation import needs_responses
from gert.errors import ModelPermanentError
from gert.kernel.agent.ports.model import ModelAPIModeUsed, ModelRequest, ModelResult, OutputT

_ABSENT: Final = ("unsupported", "not_found")
_MAX_MODELS: Final = 1000


class ApiChoice:
    """Calls the API of a request, and remembers the models without the Responses API."""

    def __init__(self) -> None:
        self._only_chat: set[str] = set()

    async def call(
        self,
        request: ModelRequest[OutputT],
        by: Callable[[ModelAPIModeUsed], Awaitable[ModelResult[OutputT]]],
        *,
        responses: bool = True,
        may_fall_back: Callable[[], bool] = lambda: True,
    ) -> ModelResult[OutputT]:
        """Call one API, and the other if the first is missing and the request allows it.

        responses: whether the vendor may have the Responses API
        may_fall_back: checked when it is missing; an answer that has begun to stream is not started again
        """
        mode, option = request.model_options.api_mode, needs_responses(request.model_options)
        if mode == "chat" and option is not None:
            raise ModelPermanentError(
                f"`{option}` requires the Responses API, but `api_mode` is `chat`", category="request"
            )
        may_chat = mode != "responses" and option is None
        if mode == "chat" or (may_chat and (not responses or request.model in self._only_chat)):
            return await by("chat")
        try:
            return await by("responses")
        except ModelPermanentError as failure:
            if not may_chat or failure.category not in _ABSENT or not may_fall_back():
                raise
        result = await by("chat")
        # Only now it is known that the API was missing, not the model.
        if len(self._only_chat) < _MAX_MODELS:
            self._only_chat.add(request.model)
        return result
