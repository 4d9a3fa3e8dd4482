"""OpenAI's chat completions, streamed: chunks put together to the completion they are pieces of."""

from typing import Any

import msgspec

from gert.ecosystem.models.answers import event_object, json_text, objects, text_of
from gert.ecosystem.models.errors import malformed, of_event
from gert.ecosystem.models.openai.chat import content_of
from gert.ecosystem.models.sse import Event
from gert.kernel.foundation.redaction import Redactor


class ChatFold:
    """Puts chunks of a completion together; the chunk after the last choice may still bring the usage."""

    def __init__(self, redactor: Redactor) -> None:
        self.done = False
        self._redactor = redactor
        self._whole: dict[str, Any] = {}
        self._content: list[str] = []
        self._refusal: list[str] = []
        self._calls = _Calls()
        self._choice: object = None
        self._finish = ""
        self._goes_on = False

    def take(self, event: Event) -> str:
        """Take a chunk and give its text."""
        if event.data.strip() == b"[DONE]":
            if not self._finish:
                raise malformed("the model's answer ended without saying why")
            self.done = True
            return ""
        chunk = event_object(event)
        if chunk.get("error") or event.name == "error":
            raise of_event(chunk, self._redactor)
        for key in ("id", "model", "usage"):
            if chunk.get(key):
                self._whole[key] = chunk[key]
        return "".join([self._take_choice(choice) for choice in objects(chunk.get("choices"))])

    def _take_choice(self, choice: dict[str, Any]) -> str:
        index = choice.get("index") or 0
        self._choice = index if self._choice is None else self._choice
        if index != self._choice:
            return ""  # as of an answer that comes whole, only the first one is read
        if choice.get("error"):
            raise of_event(choice, self._redactor)
        before, self._finish = self._finish, text_of(choice.get("finish_reason")) or self._finish
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return ""
        text = content_of(delta.get("content"))
        self._goes_on = self._goes_on or bool(before and (text or delta.get("tool_calls")))
        self._content.append(text)
        self._refusal.append(text_of(delta.get("refusal")))
        for fragment in objects(delta.get("tool_calls")):
            self._calls.take(fragment)
        return text

    def is_whole(self) -> bool:
        """Whether the completion has said how it ends; not every server says `[DONE]` after that.

        One that says so with every chunk says nothing by it.
        """
        return bool(self._finish) and not self._goes_on

    def answer(self) -> dict[str, Any]:
        """The completion as it would have come whole."""
        message = {
            "content": "".join(self._content),
            "refusal": "".join(self._refusal),
            "tool_calls": self._calls.whole(),
        }
        return {**self._whole, "choices": [{"message": message, "finish_reason": self._finish}]}


class _Call(msgspec.Struct):
    place: int
    id: str = ""
    name: str = ""
    arguments: list[str] = []
    last: str = ""

    def add(self, piece: str) -> None:
        """Add to the arguments."""
        self.arguments.append(piece)
        self.last = piece.strip() or self.last

    def is_followed_by(self, name: str, piece: str) -> bool:
        """Whether a fragment with a name begins another call: no object goes on with one after it has ended."""
        if not self.last.endswith("}"):
            return False  # some servers tell the name of a call with every fragment of it
        return piece.lstrip().startswith("{") or (name != self.name and not piece.strip())


class _Calls:
    """Puts tool calls together from fragments.

    A fragment belongs to the call at its index. Some servers give every call the same index, or none; but each has an
    id of its own, or at least begins with a name after the arguments of the one before were complete.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._latest: dict[int | None, _Call] = {}
        self._known: dict[tuple[int | None, str], _Call] = {}

    def take(self, fragment: dict[str, Any]) -> None:
        """Add a fragment to the call it belongs to."""
        given, function = fragment.get("index"), fragment.get("function")
        function = function if isinstance(function, dict) else {}
        index = given if isinstance(given, int) else None
        call_id, name, arguments = text_of(fragment.get("id")), text_of(function.get("name")), function.get("arguments")
        # An object is one where it should be the text of one.
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
        """The calls as they would have come whole, in the order of their indexes."""
        return [
            {"id": call.id, "function": {"name": call.name, "arguments": "".join(call.arguments)}}
            for call in sorted(self._calls, key=lambda call: call.place)
        ]
