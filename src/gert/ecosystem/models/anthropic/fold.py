"""Anthropic's Messages API, streamed: events put together to the message they are pieces of."""

from typing import Any

from gert.ecosystem.models.answers import event_object, text_of
from gert.ecosystem.models.errors import malformed, of_event
from gert.ecosystem.models.sse import Event
from gert.kernel.foundation.redaction import Redactor


class MessagesFold:
    """Puts a message together block by block; counts in its deltas are totals."""

    def __init__(self, redactor: Redactor, answer_name: str) -> None:
        self.done = False
        self._redactor = redactor
        self._answer_name = answer_name
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[int, list[str]] = {}

    def take(self, event: Event) -> str:
        """Take an event and give its text; kinds of events that are not known yet are passed over."""
        said = event_object(event)
        kind = text_of(said.get("type")) or event.name
        if kind == "error":
            raise of_event(said, self._redactor)
        if kind == "message_start":
            self._start(said.get("message"))
        elif kind == "content_block_start":
            self._start_block(said.get("index"), said.get("content_block"))
        elif kind == "content_block_delta" and isinstance(said.get("delta"), dict):
            return self._take_delta(said.get("index"), said["delta"])
        elif kind == "message_delta":
            self._take_totals(said)
        elif kind == "message_stop":
            self._stop()
        return ""

    def _start(self, message: object) -> None:
        if self._message or not isinstance(message, dict):
            raise malformed("the model's answer begins twice, or with nothing")
        self._message = dict(message)

    def _start_block(self, index: object, block: object) -> None:
        if not isinstance(index, int) or index in self._blocks or not isinstance(block, dict):
            raise malformed("the model's server streamed a block without a place of its own")
        self._blocks[index] = dict(block)

    def _stop(self) -> None:
        if not self._message.get("stop_reason"):
            raise malformed("the model's answer ended without saying why")
        self.done = True

    def _take_delta(self, index: object, delta: dict[str, Any]) -> str:
        block = self._blocks.get(index) if isinstance(index, int) else None
        if block is None or not isinstance(index, int):
            raise malformed("the model's server streamed a piece of nothing")
        if delta.get("type") == "text_delta":
            return self._add(index, text_of(delta.get("text")))
        if delta.get("type") == "input_json_delta":
            text = self._add(index, text_of(delta.get("partial_json")))
            return text if block.get("name") == self._answer_name else ""
        if delta.get("type") == "thinking_delta":
            self._add(index, text_of(delta.get("thinking")))
        elif delta.get("type") == "signature_delta":
            block["signature"] = text_of(delta.get("signature"))
        return ""

    def _add(self, index: int, text: str) -> str:
        self._pieces.setdefault(index, []).append(text)
        return text

    def _take_totals(self, said: dict[str, Any]) -> None:
        if not self._message:
            raise malformed("the model's answer ended without having begun")
        delta, usage = said.get("delta"), said.get("usage")
        if isinstance(delta, dict) and delta.get("stop_reason"):
            self._message["stop_reason"] = delta["stop_reason"]
        if isinstance(usage, dict):
            before = self._message.get("usage")
            known = {name: value for name, value in usage.items() if value is not None}
            self._message["usage"] = (before if isinstance(before, dict) else {}) | known

    def is_whole(self) -> bool:
        """A message that does not say that it stops is none."""
        return self.done

    def answer(self) -> dict[str, Any]:
        """The message as it would have come whole."""
        content = [self._whole(index, block) for index, block in sorted(self._blocks.items())]
        return {**self._message, "content": content}

    def _whole(self, index: int, block: dict[str, Any]) -> dict[str, Any]:
        pieces = "".join(self._pieces.get(index, []))
        if block.get("type") == "tool_use":
            # Left as text: arguments that are not JSON are not this reader's business.
            return {**block, "input": pieces or block.get("input") or {}}
        name = {"text": "text", "thinking": "thinking"}.get(str(block.get("type")))
        return block if name is None else {**block, name: text_of(block.get(name)) + pieces}
