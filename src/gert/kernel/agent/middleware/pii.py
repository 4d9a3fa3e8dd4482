"""Replaces personal data with placeholders before a model sees it."""

from dataclasses import replace
from typing import Any, Final

import msgspec

from gert.errors import InputError
from gert.kernel.agent.middleware.base import ModelInvocation, PassThroughMiddleware
from gert.kernel.agent.middleware.pii_patterns import find_personal_data
from gert.kernel.agent.ports.model import ModelCallOptions
from gert.kernel.agent.steps.messages import ChatMessage, ToolCallMessage
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps

MAX_TEXT: Final = 16 << 20
"""Characters of one invocation that are searched; no model accepts as many."""

_MAX_DEPTH: Final = 100


class PIIScrubberMiddleware(PassThroughMiddleware):
    """Replaces email addresses, phone numbers, payment cards, IBANs and US social security numbers.

    Within an invocation the same value has the same placeholder, `[EMAIL_1]`, numbered from 1 in order of occurrence.
    The prompt and the messages with their tool calls are changed: all that a model sees. The arguments and results of
    tools stay unchanged; a result is scrubbed when a model sees it. The ledger records what the model saw, so a
    question with another address in the same position is the same question.
    """

    async def prepare_model(self, invocation: ModelInvocation) -> ModelInvocation:
        """Replace personal data in everything the model will see."""
        scrubber = _Scrubber()
        prompt = scrubber.text(invocation.prompt)
        return invocation.with_updates(
            prompt=prompt,
            messages=tuple(scrubber.message(message) for message in invocation.messages),
            model_options=scrubber.options(invocation.model_options),
        )


class _Scrubber:
    """The placeholders of one invocation."""

    def __init__(self) -> None:
        self._placeholders: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._left = MAX_TEXT

    def text(self, text: str, depth: int = 0) -> str:
        # A model can read text behind JSON escapes.
        return self._json(text, depth) if "\\u" in text else self._scrubbed(text)

    def _scrubbed(self, text: str) -> str:
        self._left -= len(text)
        if self._left < 0:
            raise InputError(f"the model input is too long to search: expected at most {MAX_TEXT} characters")
        pieces: list[str] = []
        at = 0
        for found in find_personal_data(text):
            pieces += (text[at : found.start], self._placeholder(found.kind, found.value))
            at = found.end
        return "".join(pieces) + text[at:] if pieces else text

    def message(self, message: ChatMessage) -> ChatMessage:
        content = self.text(message.content)
        name = None if message.name is None else self.text(message.name)
        calls = None if message.tool_calls is None else [self._call(call) for call in message.tool_calls]
        if (content, name, calls) == (message.content, message.name, message.tool_calls):
            return message
        return message.model_copy(update={"content": content, "name": name, "tool_calls": calls})

    def options(self, options: ModelCallOptions) -> ModelCallOptions:
        if options.responses_input_items is None:
            return options
        return replace(options, responses_input_items=tuple(self.value(i, 0) for i in options.responses_input_items))

    def value(self, value: Any, depth: int) -> Any:
        """Scrub a nested value; what is nested too deep is dropped."""
        if depth > _MAX_DEPTH:
            return None
        if isinstance(value, str):
            return self.text(value, depth)
        if isinstance(value, dict):
            return {self.text(str(key), depth): self.value(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item, depth + 1) for item in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self._number(value)
        return value

    def _number(self, value: float) -> float | str:
        """Scrub a number that may be a card number: whole, with at most 19 digits."""
        if not abs(value) < 10**20 or value != int(value):
            return value
        written = str(int(value))
        shown = self.text(written)
        return value if shown == written else shown

    def _call(self, call: ToolCallMessage) -> ToolCallMessage:
        """Scrub the arguments of a call; they stay JSON."""
        arguments = call.function.arguments
        scrubbed = self._json(arguments)
        if scrubbed == arguments:
            return call
        return call.model_copy(update={"function": call.function.model_copy(update={"arguments": scrubbed})})

    def _json(self, text: str, depth: int = 0) -> str:
        """Scrub text that is JSON as JSON, and other text as text."""
        try:
            given = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return self._scrubbed(text)
        shown = self.value(given, depth + 1)
        # Decoding keeps only one of two equal keys, so the text is searched as well.
        return text if shown == given and self._scrubbed(text) == text else canonical_json_dumps(shown)

    def _placeholder(self, kind: str, value: str) -> str:
        known = self._placeholders.get((kind, value))
        if known is None:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            known = self._placeholders[kind, value] = f"[{kind}_{self._counts[kind]}]"
        return known
