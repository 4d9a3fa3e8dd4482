"""Which of OpenAI's two APIs is asked: `auto` takes Responses where it is there, and chat completions otherwise."""

from collections.abc import Awaitable, Callable
from typing import Final

from gert.ecosystem.models.conversation import needs_responses
from gert.errors import ModelPermanentError
from gert.kernel.agent.ports.model import ModelAPIModeUsed, ModelRequest, ModelResult, OutputT

_ABSENT: Final = ("unsupported", "not_found")
_MOST_REMEMBERED: Final = 1000


class Modes:
    """Asks by the API a request wants, and remembers for which models there is no Responses API."""

    def __init__(self) -> None:
        self._only_chat: set[str] = set()

    async def ask(
        self,
        request: ModelRequest[OutputT],
        by: Callable[[ModelAPIModeUsed], Awaitable[ModelResult[OutputT]]],
        *,
        responses: bool = True,
        may_fall_back: Callable[[], bool] = lambda: True,
    ) -> ModelResult[OutputT]:
        """Ask by one API, and by the other where the first is not there and need not be.

        responses: whether there may be a Responses API at all
        may_fall_back: asked when there is none; an answer that was begun to be told is not begun again
        """
        mode, option = request.model_options.api_mode, needs_responses(request.model_options)
        if mode == "chat" and option is not None:
            raise ModelPermanentError(
                f"`{option}` needs the Responses API, and `chat` was asked for", category="request"
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
        # Only now is it known that it was the API that was missing, and not the model.
        if len(self._only_chat) < _MOST_REMEMBERED:
            self._only_chat.add(request.model)
        return result
