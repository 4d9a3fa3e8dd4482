"""Anthropic's Messages API, streamed: events folded into a message."""

from typing import Any

from gert.ecosystem.models.answers import event_object, text_of
from gert.ecosystem.models.errors import malformed, of_event
from gert.ecosystem.models.sse import Event
from gert.kernel.foundation.redaction import Redactor


class MessagesFold:
    """Folds a message block by block; token counts in its deltas are totals."""

    def __init__(self, redactor: Redactor, answer_name: str) -> None:
        self.done = False
        self._redactor = redactor
        self._answer_name = answer_name
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[int, list[str]] = {}

    def add(self, event: Event) -> str:
        """Add an event and return its text; unknown kinds of events are skipped."""
        data = event_object(event)
        kind = text_of(data.get("type")) or event.name
        if kind == "error":
            raise of_event(data, self._redactor)
        if kind == "message_start":
            self._start(data.get("message"))
        elif kind == "content_block_start":
            self._start_block(data.get("index"), data.get("content_block"))
        elif kind == "content_block_delta" and isinstance(data.get("delta"), dict):
            return self._add_delta(data.get("index"), data["delta"])
        elif kind == "message_delta":
            self._add_totals(data)
        elif kind == "message_stop":
            self._stop()
        return ""

    def _start(self, message: object) -> None:
        if self._message or not isinstance(message, dict):
            raise malformed("the model's answer starts twice or without a message")
        self._message = dict(message)

    def _start_block(self, index: object, block: object) -> None:
        if not isinstance(index, int) or index in self._blocks or not isinstance(block, dict):
            raise malformed("the model's server streamed a block without a unique index")
        self._blocks[index] = dict(block)

    def _stop(self) -> None:
        if not self._message.get("stop_reason"):
            raise malformed("the model's answer ended without a stop reason")
        self.done = True

    def _add_delta(self, index: object, delta: dict[str, Any]) -> str:
        block = self._blocks.get(index) if isinstance(index, int) else None
        if block is None or not isinstance(index, int):
            raise malformed("the model's server streamed a delta of an unknown block")
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

    def _add_totals(self, data: dict[str, Any]) -> None:
        if not self._message:
            raise malformed("the model's answer ended before it started")
        delta, usage = data.get("delta"), data.get("usage")
        if isinstance(delta, dict) and delta.get("stop_reason"):
            self._message["stop_reason"] = delta["stop_reason"]
        if isinstance(usage, dict):
            before = self._message.get("usage")
            known = {name: value for name, value in usage.items() if value is not None}
            self._message["usage"] = (before if isinstance(before, dict) else {}) | known

    def is_complete(self) -> bool:
        """Whether the last event arrived."""
        return self.done

    def answer(self) -> dict[str, Any]:
        """Return the message as a whole answer."""
        content = [self._whole(index, block) for index, block in sorted(self._blocks.items())]
        return {**self._message, "content": content}

    def _whole(self, index: int, block: dict[str, Any]) -> dict[str, Any]:
        pieces = "".join(self._pieces.get(index, []))
        if block.get("type") == "tool_use":
            # Left as text: the arguments are validated later.
            return {**block, "input": pieces or block.get("input") or {}}
        name = {"text": "text", "thinking": "thinking"}.get(str(block.get("type")))
        return block if name is None else {**block, name: text_of(block.get(name)) + pieces}
