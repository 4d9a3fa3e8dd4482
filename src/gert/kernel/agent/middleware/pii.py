"""Keeps personal data from models: what a model is shown has placeholders in place of it."""

from dataclasses import replace
from typing import Any, Final

import msgspec

from gert.errors import InputError
from gert.kernel.agent.middleware.base import ModelInvocation
from gert.kernel.agent.middleware.pass_through import PassingMiddleware
from gert.kernel.agent.middleware.pii_patterns import find_personal
from gert.kernel.agent.ports.model import ModelCallOptions
from gert.kernel.agent.steps.messages import ChatMessage, ToolCallMessage
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps

MOST_TEXT: Final = 16 << 20
"""Characters of one invocation that are looked through; no model takes as many."""

_MAX_DEPTH: Final = 100


class PIIScrubberMiddleware(PassingMiddleware):
    """Replaces email addresses, phone numbers, payment cards, IBANs and US social security numbers.

    The same value has the same placeholder within an invocation, `[EMAIL_1]`; the first that is met has the number 1.
    Prompt and messages are changed, with the calls that stand in them: all a model sees. What a tool is given and
    what it returns stay as they are; a result is scrubbed once it is shown to a model. The ledger keeps what the model
    saw, so a question with another address in its place is the same question.
    """

    async def prepare_model(self, invocation: ModelInvocation) -> ModelInvocation:
        """Replace personal data in everything the model will see."""
        scrubbing = _Scrubbing()
        prompt = scrubbing.text(invocation.prompt)
        return invocation.with_updates(
            prompt=prompt,
            messages=tuple(scrubbing.message(message) for message in invocation.messages),
            model_options=scrubbing.options(invocation.model_options),
        )


class _Scrubbing:
    """One invocation: which placeholder stands for which value."""

    def __init__(self) -> None:
        self._placeholders: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._left = MOST_TEXT

    def text(self, text: str, depth: int = 0) -> str:
        # A model reads what JSON escapes as well as it reads the rest.
        return self._json(text, depth) if "\\u" in text else self._scrubbed(text)

    def _scrubbed(self, text: str) -> str:
        self._left -= len(text)
        if self._left < 0:
            raise InputError(f"a model is asked more than {MOST_TEXT} characters, and nobody looks through as many")
        pieces: list[str] = []
        at = 0
        for found in find_personal(text):
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
        """Personal data in a nested value; what is too deep is not let through."""
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
        """A number, unless it is one of a card: those have no more than 19 digits, and are whole."""
        if not abs(value) < 10**20 or value != int(value):
            return value
        written = str(int(value))
        shown = self.text(written)
        return value if shown == written else shown

    def _call(self, call: ToolCallMessage) -> ToolCallMessage:
        """A call as a model sees it again: its arguments stay JSON."""
        arguments = call.function.arguments
        scrubbed = self._json(arguments)
        if scrubbed == arguments:
            return call
        return call.model_copy(update={"function": call.function.model_copy(update={"arguments": scrubbed})})

    def _json(self, text: str, depth: int = 0) -> str:
        """JSON that stays JSON; anything else as the text it is."""
        try:
            given = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return self._scrubbed(text)
        shown = self.value(given, depth + 1)
        # Of a field that is there twice only one was read.
        return text if shown == given and self._scrubbed(text) == text else canonical_json_dumps(shown)

    def _placeholder(self, kind: str, value: str) -> str:
        known = self._placeholders.get((kind, value))
        if known is None:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            known = self._placeholders[kind, value] = f"[{kind}_{self._counts[kind]}]"
        return known
