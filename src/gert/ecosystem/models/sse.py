"""Read server-sent events from chunks of bytes."""

from codecs import BOM_UTF8
from collections.abc import Iterator

import msgspec


class Event(msgspec.Struct, frozen=True):
    """One event: its name (`message` where it has none) and its data.

    The data stay bytes, so that decoding can refuse invalid text instead of replacing characters.
    """

    name: str
    data: bytes


class EventReader:
    """Turns chunks into events; an event without its final empty line is dropped.

    It buffers at most what it was fed, which the caller limits.
    """

    def __init__(self) -> None:
        self._begun = bytearray()  # an incomplete line
        self._after_return = False
        self._first_line = True
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yield the events that this chunk completes."""
        for line in self._lines(chunk):
            event = self._take(line)
            if event is not None:
                yield event

    def _lines(self, chunk: bytes) -> Iterator[bytes]:
        # A line ends with CR, LF or both; a chunk may begin with the LF of a CR LF.
        if self._after_return and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_return = False
        if not chunk:
            return
        self._after_return = chunk.endswith(b"\r")
        *ended, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for piece in ended:
            self._begun += piece
            line = bytes(self._begun)
            self._begun.clear()
            yield line.removeprefix(BOM_UTF8) if self._first_line else line
            self._first_line = False
        self._begun += rest

    def _take(self, line: bytes) -> Event | None:
        if not line:
            event = Event(self._name or "message", b"\n".join(self._data)) if self._data else None
            self._name, self._data = "", []
            return event
        field, _, value = line.partition(b":")  # a comment begins with a colon, so it is a field without a name
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        return None
