"""OpenAI's chat completions, streamed: chunks folded into a completion."""

from typing import Any

import msgspec

from gert.ecosystem.models.answers import event_object, json_text, objects, text_of
from gert.ecosystem.models.errors import malformed, of_event
from gert.ecosystem.models.openai.chat import content_of
from gert.ecosystem.models.sse import Event
from gert.kernel.foundation.redaction import Redactor


class ChatFold:
    """Folds the chunks of a completion; a chunk after the last choice may carry the usage."""

    def __init__(self, redactor: Redactor) -> None:
        self.done = False
        self._redactor = redactor
        self._whole: dict[str, Any] = {}
        self._content: list[str] = []
        self._refusal: list[str] = []
        self._calls = _Calls()
        self._choice: object = None
        self._finish = ""
        self._continues = False

    def add(self, event: Event) -> str:
        """Add a chunk and return its text."""
        if event.data.strip() == b"[DONE]":
            if not self._finish:
                raise malformed("the model's answer ended without a finish reason")
            self.done = True
            return ""
        chunk = event_object(event)
        if chunk.get("error") or event.name == "error":
            raise of_event(chunk, self._redactor)
        for key in ("id", "model", "usage"):
            if chunk.get(key):
                self._whole[key] = chunk[key]
        return "".join([self._add_choice(choice) for choice in objects(chunk.get("choices"))])

    def _add_choice(self, choice: dict[str, Any]) -> str:
        index = choice.get("index") or 0
        self._choice = index if self._choice is None else self._choice
        if index != self._choice:
            return ""  # as in a whole answer, only the first choice is read
        if choice.get("error"):
            raise of_event(choice, self._redactor)
        before, self._finish = self._finish, text_of(choice.get("finish_reason")) or self._finish
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return ""
        text = content_of(delta.get("content"))
        self._continues = self._continues or bool(before and (text or delta.get("tool_calls")))
        self._content.append(text)
        self._refusal.append(text_of(delta.get("refusal")))
        for fragment in objects(delta.get("tool_calls")):
            self._calls.add(fragment)
        return text

    def is_complete(self) -> bool:
        """Whether a finish reason arrived; not every server sends `[DONE]` after it.

        A finish reason that is followed by more text does not count: some servers send one with every chunk.
        """
        return bool(self._finish) and not self._continues

    def answer(self) -> dict[str, Any]:
        """Return the completion as a whole answer."""
        message = {
            "content": "".join(self._content),
            "refusal": "".join(self._refusal),
            "tool_calls": self._calls.whole(),
        }
        return {**self._whole, "choices": [{"message": message, "finish_reason": self._finish}]}


class _Call(msgspec.Struct):
    index: int
    id: str = ""
    name: str = ""
    arguments: list[str] = []
    last: str = ""

    def add(self, piece: str) -> None:
        """Append to the arguments."""
        self.arguments.append(piece)
        self.last = piece.strip() or self.last

    def is_followed_by(self, name: str, piece: str) -> bool:
        """Whether a fragment with a name begins another call, since the arguments of this one are complete."""
        if not self.last.endswith("}"):
            return False  # some servers repeat the name with every fragment of a call
        return piece.lstrip().startswith("{") or (name != self.name and not piece.strip())


class _Calls:
    """Folds fragments of tool calls.

    A fragment belongs to the call at its index. Some servers send the same index for every call, or none; then a call
    has its own id, or begins with a name after the arguments of the previous call are complete.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._latest: dict[int | None, _Call] = {}
        self._known: dict[tuple[int | None, str], _Call] = {}

    def add(self, fragment: dict[str, Any]) -> None:
        """Add a fragment to the call it belongs to."""
        given, function = fragment.get("index"), fragment.get("function")
        function = function if isinstance(function, dict) else {}
        index = given if isinstance(given, int) else None
        call_id, name, arguments = text_of(fragment.get("id")), text_of(function.get("name")), function.get("arguments")
        # Some servers send an object instead of its text.
        piece = json_text(arguments) if isinstance(arguments, dict) else text_of(arguments)
        call = self._call(index, call_id, name, piece)
        call.id, call.name = call_id or call.id, name or call.name
        call.add(piece)
        self._latest[index] = self._known[index, call.id] = call

    def _call(self, index: int | None, call_id: str, name: str, piece: str) -> _Call:
        latest = self._latest.get(index)
        if latest is not None:
            unnamed = not call_id and not (name and (index is None or latest.is_followed_by(name, piece)))
            if unnamed or (call_id and (latest.id == call_id or (index is not None and not latest.id))):
                return latest
        known = self._known.get((index, call_id)) if call_id else None
        if known is None:
            known = _Call(len(self._calls) if index is None else index)
            self._calls.append(known)
        return known

    def whole(self) -> list[dict[str, Any]]:
        """Return the calls as in a whole answer, in the order of their indexes."""
        return [
            {"id": call.id, "function": {"name": call.name, "arguments": "".join(call.arguments)}}
            for call in sorted(self._calls, key=lambda call: call.index)
        ]
